"""Descriptions of settings: which value is in force, where it comes from, and how Kafka writes it."""

from __future__ import annotations

from typing import Any

import pytest

from kts.broker.settings.broker import BrokerConfig
from kts.broker.settings.describe import Levels, broker_entries, levels, topic_entries
from kts.broker.settings.topic import TOPIC_SETTINGS

NOTHING = Levels({}, {}, {})


def one(entries: list[dict[str, Any]]) -> tuple[str | None, int, list[tuple[str, str | None, int]]]:
    [found] = entries
    return (
        found["value"],
        found["config_source"],
        [(each["name"], each["value"], each["source"]) for each in found["synonyms"]],
    )


def of_topic(own: dict[str, str], of_broker: Levels, name: str) -> tuple[str | None, int, list[Any]]:
    return one(topic_entries(own, of_broker, [name], synonyms=True))


def test_the_nearest_level_wins_and_the_others_are_its_synonyms() -> None:
    name, broker = "segment.bytes", "log.segment.bytes"
    default = (broker, "1073741824", 5)
    assert of_topic({}, NOTHING, name) == ("1073741824", 5, [default])
    static = Levels({}, {}, {broker: "4"})
    assert of_topic({}, static, name) == ("4", 4, [(broker, "4", 4), default])
    cluster = static._replace(cluster={broker: "3"})
    assert of_topic({}, cluster, name)[:2] == ("3", 3)
    node = cluster._replace(node={broker: "2"})
    wanted = [(name, "1", 1), (broker, "2", 2), (broker, "3", 3), (broker, "4", 4), default]
    assert of_topic({name: "1"}, node, name) == ("1", 1, wanted)


def test_retention_in_hours_or_minutes_is_told_in_ms() -> None:
    for given, value in (
        ({"log.retention.hours": "5"}, "18000000"),
        ({"log.retention.hours": "5", "log.retention.minutes": "2"}, "120000"),
        ({"log.retention.hours": "5", "log.retention.ms": "7"}, "7"),
        ({"log.retention.hours": "-1"}, "-1"),
    ):
        assert of_topic({}, Levels({}, {}, given), "retention.ms")[0] == value


@pytest.mark.parametrize(
    ("name", "given", "told"),
    [
        ("preallocate", " FALSE ", "false"),
        ("segment.bytes", " 0500", "500"),
        ("cleanup.policy", "compact , delete", "compact,delete"),
        ("min.cleanable.dirty.ratio", ".5", "0.5"),
        ("min.cleanable.dirty.ratio", "0.0001", "1.0E-4"),  # as Java's Double.toString
        ("min.cleanable.dirty.ratio", "1", "1.0"),
    ],
)
def test_values_are_written_as_kafka_writes_them(name: str, given: str, told: str) -> None:
    assert of_topic({name: given}, NOTHING, name)[0] == told


def test_only_what_is_asked_for_is_told_each_name_once() -> None:
    every = topic_entries({}, NOTHING, None, synonyms=False)
    assert [entry["name"] for entry in every] == list(TOPIC_SETTINGS)
    assert topic_entries({}, NOTHING, [], synonyms=False) == every
    some = topic_entries({}, NOTHING, ["segment.ms", "no.such", "flush.ms", "segment.ms"], synonyms=False)
    assert [entry["name"] for entry in some] == ["segment.ms", "flush.ms"]
    assert all(entry["synonyms"] == [] and entry["documentation"] is None for entry in some)


def test_our_own_settings_are_told_only_where_they_are_set() -> None:
    quiet = BrokerConfig.of({})
    told = {entry["name"] for entry in broker_entries(quiet, levels(quiet, {}, {}, "/data"), None, synonyms=False)}
    assert not told & {"log.proposals", "log.time.index.interval.ms"}
    assert of_topic({"proposals": " bucket-index , wall-clock "}, NOTHING, "proposals")[:2] == (
        "bucket-index,wall-clock",
        1,
    )
    config = BrokerConfig.of({"log.proposals": "bucket-index", "log.time.index.interval.ms": "500"})
    of_broker = levels(config, {}, {}, "/data")
    assert of_topic({}, of_broker, "proposals")[:2] == ("bucket-index", 4)
    assert of_topic({"time.index.interval.ms": "7"}, of_broker, "time.index.interval.ms") == (
        "7",
        1,
        [
            ("time.index.interval.ms", "7", 1),
            ("log.time.index.interval.ms", "500", 4),
            ("log.time.index.interval.ms", "60000", 5),
        ],
    )
    told = {entry["name"]: entry for entry in broker_entries(config, of_broker, None, synonyms=False)}
    assert [told[name]["value"] for name in config.static] == ["bucket-index", "500"]
    assert [told[name]["read_only"] for name in config.static] == [False, False]


def test_passwords_and_what_nobody_knows_are_never_told() -> None:
    secret = ["ssl.keystore.password", "sasl.jaas.config", "confluent.license"]
    config = BrokerConfig.of({name: "hunter2" for name in secret})
    found = broker_entries(config, levels(config, {}, {}, "/data"), None, synonyms=True, documentation=True)
    assert "hunter" not in str(found)
    told = {entry["name"]: entry for entry in found}
    for name in secret:
        assert (told[name]["value"], told[name]["is_sensitive"], told[name]["config_source"]) == (None, True, 4)
        assert [each["value"] for each in told[name]["synonyms"]] == [None]
    assert told["confluent.license"]["documentation"] is None
    assert told["log.dirs"]["value"] == "/data"
    assert len(found) == len(told) > 300


def test_what_was_changed_for_all_brokers_is_told_alone() -> None:
    config = BrokerConfig.of({"log.segment.bytes": "99"})
    of_broker = Levels({"log.segment.bytes": "1"}, {"log.segment.bytes": "2"}, config.static)
    [entry] = broker_entries(config, of_broker, None, synonyms=True, cluster_only=True)
    assert one([entry]) == ("2", 3, [("log.segment.bytes", "2", 3)])
    assert not entry["read_only"]
    assert one(broker_entries(config, of_broker, ["log.segment.bytes"], synonyms=True))[:2] == ("1", 2)


KIP_32, KIP_32_OF_A_BROKER = "max.message.time.difference.ms", "log.max.message.time.difference.ms"
SHIPPED, SHIPPED_OF_A_BROKER = "message.timestamp.difference.max.ms", "log.message.timestamp.difference.max.ms"


def test_the_difference_limit_is_described_by_the_name_it_was_given_by_and_in_force_by_kafkas() -> None:
    default = (SHIPPED_OF_A_BROKER, str(2**63 - 1), 5)
    assert of_topic({KIP_32: "5"}, NOTHING, KIP_32) == ("5", 1, [(KIP_32, "5", 1), default])
    assert of_topic({KIP_32: "5"}, NOTHING, SHIPPED) == ("5", 1, [(KIP_32, "5", 1), default])
    assert topic_entries({}, NOTHING, [KIP_32], synonyms=True) == []
    for given in (KIP_32, KIP_32_OF_A_BROKER):
        assert of_topic({}, Levels({}, {}, {given: "7"}), SHIPPED) == ("7", 4, [(given, "7", 4), default])
        config = BrokerConfig.of({given: 7})
        of_broker = levels(config, {}, {}, "/data")
        for name in (given, SHIPPED_OF_A_BROKER):
            found = one(broker_entries(config, of_broker, [name], synonyms=True))
            assert found == ("7", 4, [(given, "7", 4), default]), name
        changed = of_broker._replace(cluster={SHIPPED_OF_A_BROKER: "9"})
        assert one(broker_entries(config, changed, [given], synonyms=True))[:2] == ("7", 4)
        assert one(broker_entries(config, changed, [SHIPPED_OF_A_BROKER], synonyms=True))[:2] == ("9", 3)
    names = {entry["name"] for entry in broker_entries(BrokerConfig.of(), NOTHING, None, synonyms=False)}
    assert names.isdisjoint({KIP_32, KIP_32_OF_A_BROKER})


def test_a_setting_that_kafka_does_not_have_is_told_where_it_is_given() -> None:
    own, of_broker = "allow.negative.timestamps", "log.allow.negative.timestamps"
    assert own not in [entry["name"] for entry in topic_entries({}, NOTHING, None, synonyms=False)]
    default = [(of_broker, "false", 5)]
    assert topic_entries({}, NOTHING, [own], synonyms=True) == []
    given = Levels({}, {of_broker: "true"}, {of_broker: "false"})
    assert of_topic({}, given, own) == ("true", 3, [(of_broker, "true", 3), (of_broker, "false", 4), *default])
    assert own in [entry["name"] for entry in topic_entries({}, given, None, synonyms=False)]
    assert of_topic({own: "false"}, given, own)[:2] == ("false", 1)
    config = BrokerConfig.of({of_broker: "true", "log.message.timestamp.missing": "-1"})
    assert config.log_config({}).times.minus_one
    told = {entry["name"]: entry for entry in broker_entries(config, levels(config, {}, {}, "/d"), None, synonyms=True)}
    assert told[of_broker]["value"] == "true" and not told[of_broker]["read_only"]
    plain = BrokerConfig.of({})
    names = [entry["name"] for entry in broker_entries(plain, levels(plain, {}, {}, "/d"), None, synonyms=True)]
    assert not {of_broker, "log.message.timestamp.missing"} & set(names)
