"""Settings without effect: they must be valid, are kept and described, and change nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.broker.asking import Asking

from kts.behaviour import GENERATIONS, Behaviour
from kts.broker.broker import Broker
from kts.broker.settings.broker import SETTINGS, BrokerConfig
from kts.broker.settings.inert import ALL_INERT, CLEANER, inert_settings
from kts.broker.wire.messages import ApiKey


def broker_settings(asking: Asking, *keys: str, name: str = "1") -> dict[str, Any]:
    asked = {"resource_type": 4, "resource_name": name, "configuration_keys": list(keys) or None}
    body = {"resources": [asked], "include_synonyms": True, "include_documentation": True}
    [found] = asking.ask(ApiKey.DESCRIBE_CONFIGS, 4, body)["results"]
    return {one["name"]: one for one in found["configs"]}


def test_the_cleaners_settings_stay_over_a_restart_and_change_no_log(tmp_path: Path) -> None:
    for start in range(2):
        with Asking(Broker(tmp_path)) as asking:
            if not start:
                topic = asking.broker.topics.create("a")
                for name, level in (("1", "7"), ("", "8")):
                    config = {"name": "log.cleaner.backoff.ms", "value": level, "config_operation": 0}
                    resource = {"resource_type": 4, "resource_name": name, "configs": [config]}
                    body = {"resources": [resource]}
                    answer = asking.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, body)["responses"][0]
                    assert answer["error_code"] == 0
            topic = asking.broker.topics.get("a")
            assert topic.config == asking.broker.config.log_config({})
            [one] = broker_settings(asking, "log.cleaner.backoff.ms").values()
            assert (one["value"], one["read_only"]) == ("7", False)
            assert [(each["value"], each["source"]) for each in one["synonyms"]] == [("7", 2), ("8", 3), ("15000", 5)]
            assert list(broker_settings(asking, name="")) == ["log.cleaner.backoff.ms"]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (
            {"num.io.threads": "many"},
            "num.io.threads: expected an integer from 1 to 2147483647, found 'many'",
        ),
        ({"num.io.threads": 0}, "num.io.threads: expected an integer from 1 to 2147483647, found '0'"),
        ({"metadata.log.segment.bytes": 2**20, "release": "4.3"}, "expected an integer from 8388608 to 2147483647"),
        ({"group.share.max.delivery.count.limit": 26, "release": "4.3"}, "expected an integer from 5 to 25"),
        ({"auto.leader.rebalance.enable": "yes"}, "expected true or false"),
        ({"log.cleaner.io.buffer.load.factor": "1_0"}, "expected a number"),
        ({"log.cleaner.threads": 0}, "log.cleaner.threads: expected 1 to 1"),
        (
            {"log.cleaner.threads": 200},
            "log.cleaner.dedupe.buffer.size: expected more than 1048576 bytes for each of 200",
        ),
        ({"log.cleaner.backoff.msec": 1}, None),
    ],
)
def test_a_setting_without_effect_must_still_be_one(given: dict[str, Any], told: str | None) -> None:
    if told is None:  # of another release, or somebody's own
        assert BrokerConfig.of(given).static == {name: str(value) for name, value in given.items()}
    else:
        with pytest.raises(ValueError, match=told):
            BrokerConfig.of(given)


def test_no_setting_has_an_effect_and_none(tmp_path: Path) -> None:
    assert not ALL_INERT & SETTINGS.keys()
    assert len(CLEANER) == 6
    for release in GENERATIONS:
        known = inert_settings(Behaviour.of(release))
        defaults = {name: one.default for name, one in known.items() if one.default is not None}
        config = BrokerConfig.of({**defaults, "release": release})
        assert config.static == {**defaults, "release": release}
        assert config.without_effect == []
