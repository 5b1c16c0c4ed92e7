"""The settings of topics: what the broker's defaults are to them, and that no table lacks one."""

from __future__ import annotations

import pytest

from kts.broker.settings.broker import SETTINGS, BrokerConfig
from kts.broker.settings.topic import BROKER_NAMES, DYNAMIC, OWN_SETTINGS, TOPIC_SETTINGS, check_level, merged
from kts.config import WITHOUT_EFFECT, LogConfig


def test_a_topics_format_may_be_older_than_the_protocol_and_not_newer() -> None:
    config = BrokerConfig.of({"inter.broker.protocol.version": "2.0"})
    assert config.log_config({"message.format.version": "0.10.0"}).magic == 1
    assert config.log_config({"message.format.version": "0.10.0"}).generation == "3.9"
    with pytest.raises(ValueError, match="at most"):
        config.log_config({"message.format.version": "2.1"})


def test_a_topics_own_setting_beats_the_brokers_and_changed_ones_beat_given_ones() -> None:
    config = BrokerConfig.of({"log.retention.hours": 2, "log.segment.bytes": 1000})
    assert config.log_config({}).retention_ms == 7_200_000
    assert config.log_config({}, {"log.retention.ms": "9"}).retention_ms == 9
    assert config.log_config({"retention.ms": "8"}, {"log.retention.ms": "9"}).retention_ms == 8
    with pytest.raises(ValueError, match="unknown topic setting"):
        config.log_config({"log.retention.ms": "9"})


def test_the_tables_know_every_setting_that_a_log_knows() -> None:
    own = set(OWN_SETTINGS)
    assert set(LogConfig().to_properties()) - own <= set(TOPIC_SETTINGS)
    assert {*TOPIC_SETTINGS, *BROKER_NAMES} >= WITHOUT_EFFECT
    assert set(BROKER_NAMES) > DYNAMIC
    assert set(SETTINGS) & set(BROKER_NAMES) == {"log.flush.scheduler.interval.ms"}
    told = LogConfig.of(None, generation="3.9").to_properties()
    same = set(told) - {"message.format.version"}
    every = TOPIC_SETTINGS | OWN_SETTINGS
    assert {name: every[name].default for name in same} == {name: told[name] for name in same}
    assert set(TOPIC_SETTINGS).isdisjoint(OWN_SETTINGS)


@pytest.mark.parametrize("static", ["max.message.time.difference.ms", "log.max.message.time.difference.ms"])
def test_a_brokers_difference_limit_has_kip_32s_name_too_and_the_nearest_level_wins_by_any_name(static: str) -> None:
    config = BrokerConfig.of({static: 7})
    shipped = "message.timestamp.difference.max.ms"

    def limit(topic: dict[str, str], dynamic: dict[str, str] | None = None) -> int:
        return config.log_config(topic, dynamic).message_timestamp_before_max_ms

    assert limit({}) == 7
    assert limit({}, {f"log.{shipped}": "8"}) == 8
    assert limit({shipped: "9"}, {static: "8"}) == 9
    assert limit({"max.message.time.difference.ms": "9"}, {f"log.{shipped}": "8"}) == 9
    for lower, higher in ((f"log.{shipped}", static), (static, f"log.{shipped}")):
        assert merged({lower: "1", "num.partitions": "2"}, {higher: "3"}) == {"num.partitions": "2", higher: "3"}


def test_a_level_gives_the_difference_limit_once_by_whatever_names() -> None:
    kip, shipped = "max.message.time.difference.ms", "message.timestamp.difference.max.ms"
    config = BrokerConfig.of({kip: 1, f"log.{shipped}": "1", f"log.{kip}": " 1"})
    assert config.log_config({kip: "2", shipped: "2"}).message_timestamp_before_max_ms == 2
    with pytest.raises(ValueError, match=f"^{shipped} and {kip}: expected one value, .* found 2 and 1; leave out one$"):
        config.log_config({kip: "1", shipped: "2"})
    with pytest.raises(ValueError, match=f"^log.{shipped} and {kip}: expected one value, .* found 2 and 1;"):
        BrokerConfig.of({kip: 1, f"log.{shipped}": 2})
    check_level({f"log.{shipped}": "1", kip: "1"})
    with pytest.raises(ValueError, match="name one limit"):
        check_level({f"log.{shipped}": "1", kip: "2"})


@pytest.mark.parametrize(
    ("topics", "brokers"),
    [
        ("message.timestamp.type", "log.message.timestamp.type"),
        ("segment.ms", "log.roll.ms"),
        ("proposals", "log.proposals"),
        ("max.message.time.difference.ms", "log.max.message.time.difference.ms"),
    ],
)
def test_a_setting_of_the_other_level_is_refused_with_the_right_name(topics: str, brokers: str) -> None:
    with pytest.raises(
        ValueError, match=f"unknown topic setting '{brokers}', which is a broker's; a topic's is {topics}$"
    ):
        BrokerConfig.of().log_config({brokers: "1"})
    if topics != "max.message.time.difference.ms":  # KIP-32 names the broker's setting so
        with pytest.raises(
            ValueError, match=f"unknown setting '{topics}', which is a topic's; the broker's is {brokers}$"
        ):
            BrokerConfig.of({topics: "CreateTime"})


def test_kip_32s_internal_version_is_refused_with_its_later_name() -> None:
    told = "found '0.9.0-1'; KIP-32's 0.9.0-1 was released as 0.10.0-IV0"
    with pytest.raises(ValueError, match=f"^inter.broker.protocol.version: .* {told}$"):
        BrokerConfig.of({"inter.broker.protocol.version": "0.9.0-1"})
    with pytest.raises(ValueError, match=f"^message.format.version: .* {told}$"):
        BrokerConfig.of({"log.message.format.version": "0.9.0-1"})
    became = {"inter.broker.protocol.version": "0.10.0-IV0", "log.message.format.version": "0.10.0-IV0"}
    assert BrokerConfig.of(became).log_config({}).magic == 1


@pytest.mark.parametrize("missing", ["refuse", "now", "0"])
def test_a_broker_s_default_for_missing_timestamps_has_no_effect_where_a_topic_cannot_have_it(missing: str) -> None:
    config = BrokerConfig.of({"log.message.timestamp.missing": missing})
    assert config.log_config({}).message_timestamp_missing == missing
    assert config.log_config({"message.format.version": "0.9.0"}).message_timestamp_missing == "accept"
    with pytest.raises(ValueError, match="message format 0.9.0 has no timestamps"):
        config.log_config({"message.format.version": "0.9.0", "message.timestamp.missing": missing})
    BrokerConfig.of({"log.message.timestamp.missing": missing, "log.message.format.version": "0.9.0"})


def test_nor_has_a_default_before_1970_where_a_topic_refuses_such_times() -> None:
    config = BrokerConfig.of({"log.message.timestamp.missing": "-1", "log.allow.negative.timestamps": "true"})
    assert config.log_config({}).times.minus_one
    refuses = {"allow.negative.timestamps": "false"}
    assert config.log_config(refuses).message_timestamp_missing == "accept"
    assert config.log_config({"message.format.version": "0.9.0"}).message_timestamp_missing == "accept"
    with pytest.raises(ValueError, match="allow.negative.timestamps=true, found '-1'"):
        config.log_config(refuses | {"message.timestamp.missing": "-1"})
    with pytest.raises(ValueError, match="allow.negative.timestamps=true, found '-1'"):
        BrokerConfig.of({"log.message.timestamp.missing": "-1"})
