"""The settings of topics: what the broker's defaults are to them, and that no table lacks one."""

from __future__ import annotations

import pytest

from kts.broker.settings.broker import SETTINGS, BrokerConfig
from kts.broker.settings.topic import BROKER_NAMES, DYNAMIC, TOPIC_SETTINGS
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
    own = {"allow.negative.timestamps"}
    assert set(LogConfig().to_properties()) - own <= set(TOPIC_SETTINGS)
    assert {*TOPIC_SETTINGS, *BROKER_NAMES} >= WITHOUT_EFFECT
    assert set(BROKER_NAMES) > DYNAMIC
    assert set(SETTINGS) & set(BROKER_NAMES) == {"log.flush.scheduler.interval.ms"}
    told = LogConfig.of(None, generation="3.9").to_properties()
    same = set(told) - own - {"message.format.version"}
    assert {name: TOPIC_SETTINGS[name].default for name in same} == {name: told[name] for name in same}
