"""Cases of the family config, asked of kts: the settings of a topic as a broker checks them, and how it reads them."""

from __future__ import annotations

from typing import Any

from kts.behaviour import Behaviour
from kts.broker.settings.describe import Levels, topic_entries
from kts.broker.settings.topic import check_together, log_config


def config(case: dict[str, Any]) -> dict[str, Any]:
    """The values as text, of those that are given or else of all; or the error."""
    given = case["config"]
    try:
        made = log_config({}, given, case["gen"])
        check_together({}, given, made, existing=case.get("existing"), tiers=case.get("remote", False))
    except ValueError as error:
        return {"error": {"class": "ConfigException", "message": str(error)}}
    levels = Levels({}, {}, {}, Behaviour.of(case["gen"]))
    entries = topic_entries(given, levels, list(given), synonyms=False)
    return {"values": {entry["name"]: entry["value"] for entry in entries}}
