"""KIP-228's settings at every door of a broker: at its start, for a topic, while it runs, and in what it describes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.broker.asking import Asking
from support.processes.cli_runs import run

import kts
from kts.broker.broker import Broker
from kts.broker.wire.messages import ApiKey
from kts.testing import KtsBroker

TOPIC, BROKER = 2, 4
SET, DELETE = 0, 1
ALLOW, MISSING = "allow.negative.timestamps", "message.timestamp.missing"
OLD = -386_380_800_000


@pytest.fixture
def asking(tmp_path: Path) -> Iterator[Asking]:
    with Asking(Broker(tmp_path / "data", {f"log.{ALLOW}": "true"})) as found:
        yield found


def altered(asking: Asking, kind: int, name: str, *configs: tuple[str, int, str | None]) -> int:
    keys = ("name", "config_operation", "value")
    entries = [dict(zip(keys, config, strict=True)) for config in configs]
    body = {"resources": [{"resource_type": kind, "resource_name": name, "configs": entries}], "validate_only": False}
    [found] = asking.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, body)["responses"]
    return int(found["error_code"])


def described(asking: Asking, kind: int, name: str) -> dict[str, tuple[str, int]]:
    """Value and source of each of these settings."""
    body = {"resources": [{"resource_type": kind, "resource_name": name, "configuration_keys": None}]}
    [found] = asking.ask(ApiKey.DESCRIBE_CONFIGS, 4, body | {"include_synonyms": True, "include_documentation": True})[
        "results"
    ]
    ours = (ALLOW, MISSING, f"log.{ALLOW}", f"log.{MISSING}")
    told = [one for one in found["configs"] if one["name"] in ours]
    assert all("kts's own" in one["documentation"] and not one["read_only"] for one in told)
    return {one["name"]: (one["value"], one["config_source"]) for one in told}


def log_of(asking: Asking) -> kts.Log:
    topic = asking.broker.topics.get("t")
    assert topic is not None
    return topic.partitions[0].log


def test_a_broker_s_default_reaches_its_topics_and_is_described(asking: Asking) -> None:
    asking.create()
    assert log_of(asking).config.allow_negative_timestamps
    assert described(asking, TOPIC, "t") == {ALLOW: ("true", 4)}
    assert described(asking, BROKER, "1") == {f"log.{ALLOW}": ("true", 4)}
    asking.append(OLD, -7)
    row = asking.list_offsets("t", OLD + 1, version=8)
    assert (row["timestamp"], row["offset"]) == (-7, 1)


def test_a_topic_overrides_it_at_creation_and_later(asking: Asking) -> None:
    entries = [{"name": ALLOW, "value": "false"}, {"name": MISSING, "value": "refuse"}]
    new = {"name": "t", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": entries}
    asking.ask(ApiKey.CREATE_TOPICS, 4, {"topics": [new], "timeout_ms": 1000, "validate_only": False})
    assert described(asking, TOPIC, "t") == {ALLOW: ("false", 1), MISSING: ("refuse", 1)}
    assert not log_of(asking).config.allow_negative_timestamps
    assert asking.produce("t", kts.encode({"timestamp": [-1]}), version=3)["error_code"] == 32
    assert altered(asking, TOPIC, "t", (ALLOW, DELETE, None), (MISSING, SET, "-1")) == 0
    assert log_of(asking).config.times.minus_one
    assert asking.produce("t", kts.encode({"timestamp": [-1]}), version=3)["error_code"] == 0
    assert log_of(asking).max_timestamp() == (-1, 0)
    assert altered(asking, TOPIC, "t", (ALLOW, SET, "false")) == 40  # -1 is no time then
    assert altered(asking, TOPIC, "t", (MISSING, SET, "never")) == 40


def test_a_running_broker_takes_other_defaults_if_all_its_topics_can(asking: Asking) -> None:
    asking.create(message_timestamp_missing=str(OLD))
    assert altered(asking, BROKER, "", (f"log.{ALLOW}", SET, "false")) == 42
    assert altered(asking, BROKER, "", (f"log.{MISSING}", SET, "now")) == 0
    assert described(asking, TOPIC, "t") == {ALLOW: ("true", 4), MISSING: (str(OLD), 1)}
    assert altered(asking, TOPIC, "t", (MISSING, DELETE, None)) == 0
    assert log_of(asking).config.message_timestamp_missing == "now"
    assert described(asking, BROKER, "1") == {f"log.{ALLOW}": ("true", 4), f"log.{MISSING}": ("now", 3)}


def test_the_broker_for_tests_and_kts_serve_take_both_and_refuse_what_does_not_go_together(tmp_path: Path) -> None:
    both: dict[str, Any] = {f"log.{ALLOW}": True, f"log.{MISSING}": -1}
    with KtsBroker(tmp_path / "a", config=both) as broker:
        broker.create_topic("t")
        assert broker.append("t", kts.encode({"timestamp": [OLD, -1]})).max_timestamp_ms == -1
        assert broker.offsets_for_times({("t", 0): OLD + 1}) == {("t", 0): (-1, 1)}
    with pytest.raises(ValueError, match="expected 0 or more, or allow.negative.timestamps=true, found '-1'"):
        KtsBroker(tmp_path / "b", config={f"log.{MISSING}": -1}).start()
    said = run("serve", tmp_path / "c", "--config", f"log.{MISSING}=-1", code=2).stderr
    assert "allow.negative.timestamps=true" in " ".join(said.split())
