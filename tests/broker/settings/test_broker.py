"""Settings of a broker by Kafka's names: defaults, limits, old protocols, and names that mean nothing here."""

from __future__ import annotations

from typing import Any

import pytest

from kts.broker.settings.broker import BrokerConfig


def test_defaults_are_kafkas_but_for_those_that_are_for_one_machine() -> None:
    config = BrokerConfig.of()
    assert (config.node_id, config.num_partitions, config.auto_create_topics_enable) == (1, 1, True)
    assert (config.socket_request_max_bytes, config.fetch_max_bytes) == (104_857_600, 57_671_680)
    assert (config.log_retention_check_interval_ms, config.producer_id_expiration_ms) == (300_000, 86_400_000)
    assert (config.queued_max_request_bytes, config.offsets_topic_num_partitions) == (268_435_456, 1)
    assert config.group_initial_rebalance_delay_ms == 0
    assert (config.generation, config.advertised_listener, config.node_id_is_given) == ("3.9", None, False)
    assert BrokerConfig.of(config) is config
    with pytest.raises(AttributeError, match="no_such"):
        _ = config.no_such


def test_values_are_taken_as_text_and_as_pythons_own() -> None:
    given: dict[str, Any] = {
        "num.partitions": "7",
        "auto.create.topics.enable": False,
        "max.connections": 5,
        "node.id": None,
    }
    config = BrokerConfig.of(given)
    assert (config.num_partitions, config.auto_create_topics_enable, config.max_connections) == (7, False, 5)
    assert config.node_id == 1
    assert BrokerConfig.of({"broker.id": 4}).node_id == 4
    assert BrokerConfig.of({"broker.id": 4, "node.id": 5}).node_id == 5


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"num.partition": 3}, "nearest name is num.partitions"),
        ({"log.retentoin.hours": 3}, "nearest name is log.retention.hours"),
        ({"num.partitions": 0}, "expected an integer from 1 to 2147483647, found '0'"),
        ({"num.partitions": "many"}, "found 'many'"),
        ({"num.partitions": 1.5}, "found '1.5'"),
        ({"auto.create.topics.enable": "yes"}, "expected true or false"),
        ({"log.segment.bytes": 3}, "log.segment.bytes"),
        ({"min.insync.replicas": 0}, "min.insync.replicas"),
        ({"log.cleaner.min.cleanable.ratio": 2}, "expected 0 to 1"),
        ({"compression.zstd.level": 99}, "expected -131072 to 22"),
        ({"inter.broker.protocol.version": "0.7"}, "expected a release"),
        ({"inter.broker.protocol.version": "0.9.0", "log.message.format.version": "0.10.0"}, "message.format.version"),
        ({"inter.broker.protocol.version": "2.0", "log.message.format.version": "2.1"}, "at most inter.broker"),
        ({"advertised.listeners": "nowhere"}, "expected \\[NAME://\\]HOST:PORT"),
        ({"advertised.listeners": "h:70000"}, "HOST:PORT"),
    ],
)
def test_a_bad_setting_is_named(given: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        BrokerConfig.of(given)


@pytest.mark.parametrize("given", [7, ["num.partitions"], {3: 4}, {"num.partitions": b"1"}])
def test_what_is_no_mapping_of_settings_is_refused(given: Any) -> None:
    with pytest.raises(TypeError):
        BrokerConfig.of(given)


def test_the_properties_of_a_server_are_taken_and_what_means_nothing_here_is_passed_over() -> None:
    config = BrokerConfig.of(
        {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": "1@localhost:9093",
            "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
            "inter.broker.listener.name": "PLAINTEXT",
            "advertised.listeners": "PLAINTEXT://[::1]:9092,X://y:1",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT",
            "num.network.threads": 3,
            "num.io.threads": 8,
            "socket.send.buffer.bytes": 102400,
            "log.dirs": "/nowhere",
            "num.recovery.threads.per.data.dir": 1,
            "transaction.state.log.min.isr": 1,
            "log.retention.hours": 168,
            "log.segment.bytes": 1073741824,
            "zookeeper.connect": "localhost:2181",
            "broker.rack": "a",
        }
    )
    assert config.advertised_listener == ("::1", 9092)
    assert set(config.topic_defaults) == {"log.retention.hours", "log.segment.bytes"}


@pytest.mark.parametrize(
    ("protocol", "generation", "magic"),
    [("0.9.0", "0.10.2", 0), ("0.10.0", "0.10.2", 1), ("0.11.0", "3.9", 2), ("2.8", "3.9", 2), ("4.1", "3.9", 2)],
)
def test_an_old_protocol_brings_its_message_format_and_rules(protocol: str, generation: str, magic: int) -> None:
    config = BrokerConfig.of({"inter.broker.protocol.version": protocol})
    assert config.generation == generation
    assert (config.log_config({}).magic, config.log_config({}).generation) == (magic, generation)
