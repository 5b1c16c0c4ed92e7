"""A broker that follows a release: the names, limits and defaults of its settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from kts.broker.codes import ApiError, ErrorCode
from kts.broker.settings.broker import BrokerConfig
from kts.broker.settings.describe import levels, topic_entries
from kts.testing import KtsBroker

# DescribeConfigs of a real 4.3.1, as it came.
OF_4_3 = """cleanup.policy=delete compression.type=producer compression.gzip.level=-1 compression.lz4.level=9
compression.zstd.level=3 delete.retention.ms=86400000 file.delete.delay.ms=60000 flush.messages=9223372036854775807
flush.ms=9223372036854775807 follower.replication.throttled.replicas= leader.replication.throttled.replicas=
index.interval.bytes=4096 local.retention.bytes=-2 local.retention.ms=-2 max.compaction.lag.ms=9223372036854775807
max.message.bytes=1048588 message.timestamp.after.max.ms=3600000 message.timestamp.before.max.ms=9223372036854775807
message.timestamp.type=CreateTime min.cleanable.dirty.ratio=0.5 min.compaction.lag.ms=0 min.insync.replicas=1
preallocate=false remote.log.copy.disable=false remote.log.delete.on.disable=false remote.storage.enable=false
retention.bytes=-1 retention.ms=604800000 segment.bytes=1073741824 segment.index.bytes=10485760 segment.jitter.ms=0
segment.ms=604800000 unclean.leader.election.enable=false"""


def test_the_settings_of_a_topic_of_4_3_are_those_that_a_broker_described() -> None:
    config = BrokerConfig.of({"release": "4.3"})
    entries = topic_entries({}, levels(config, {}, {}, "/data"), None, synonyms=False)
    described = dict(each.split("=") for each in OF_4_3.split())
    assert len(described) == 33
    assert {entry["name"]: entry["value"] for entry in entries} == described


@pytest.mark.parametrize(
    "name",
    [
        "log.message.format.version",
        "log.message.downconversion.enable",
        "log.message.timestamp.difference.max.ms",
        "inter.broker.protocol.version",
    ],
)
def test_a_broker_of_4_3_refuses_names_that_are_gone(name: str) -> None:
    assert BrokerConfig.of({name: BrokerConfig.of().log_config({}).to_properties().get(name[4:], "3.9")})
    with pytest.raises(ValueError, match=f"^config: unknown setting '{name}' in 4.3$"):
        BrokerConfig.of({name: "1", "release": "4.3"})


@pytest.mark.parametrize(
    "configs",
    [
        {"segment.bytes": str(2**20 - 1)},
        {"message.timestamp.difference.max.ms": "5"},
        {"message.format.version": "3.0"},
        {"min.compaction.lag.ms": "2", "max.compaction.lag.ms": "1"},
        {"remote.storage.enable": "true"},
    ],
)
def test_a_topic_of_4_3_is_refused_with_settings_that_kafka_refuses(configs: dict[str, str]) -> None:
    with KtsBroker(release="4.3") as broker:
        broker.create_topic("small", config={"internal.segment.bytes": "100", "cleanup.policy": ""})
        assert broker.log("small").config.segment_bytes == 100
        with pytest.raises(ApiError) as caught:
            broker.create_topic("t", config=configs)
        assert caught.value.error == ErrorCode.INVALID_CONFIG


def test_settings_that_an_older_release_stored_are_left_out(tmp_path: Path) -> None:
    with KtsBroker(tmp_path) as broker:
        broker.create_topic("t", config={"message.format.version": "3.0", "retention.ms": "7"})
    with KtsBroker(tmp_path, release="4.3") as broker:
        assert broker.log("t").config.retention_ms == 7
        assert broker.log("t").release == "4.3"


def test_generation_is_another_word_for_release() -> None:
    with KtsBroker(generation="4.3") as broker:
        assert broker.broker.config.generation == broker.broker.config.followed == "4.3"
