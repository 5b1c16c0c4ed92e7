"""Real brokers open copies, from a disk and from a bucket, as after a clean stop, with the same answers."""

from __future__ import annotations

import base64
import shutil
from hashlib import sha512
from pathlib import Path
from typing import Any

import pytest
from support.buckets.s3 import TestBucket
from support.golden import RECORD_COLUMNS, row_from_json, rows, scaled
from support.kafka.broker_load import complaints, differing, errors, load, partition_files
from support.kafka.broker_play import PLAIN
from support.kafka.brokers import Broker, Client, kafka
from support.sets.copies import WHOLE

import kts
from kts.offline.copy import copy
from kts.offline.verify import verify
from kts.segment.names import CLEAN_SHUTDOWN

T = 1_700_000_000_000
SMALL = {"4.3.1": {"internal.segment.bytes": "3000"}, "3.9.2": {"segment.bytes": "3000"}}
PRODUCERS: dict[str, dict[str, Any]] = {
    "plain": PLAIN,
    "zstd": PLAIN | {"compression.type": "zstd"},
    "idempotent": PLAIN | {"enable.idempotence": "true", "acks": "all"},
}


def produce(client: Client, topic: str) -> None:
    for first in range(0, 100, 10):
        records = [
            {
                "timestamp": T + 7919 * n % 3001,
                "value": base64.b64encode(b"%d " % n + sha512(b"%d" % n).digest()).decode(),
            }
            for n in range(first, first + 10)
        ]
        client.ask("produce", topic=topic, groups=[records], settings=PRODUCERS[topic])


@pytest.mark.slow
def test_brokers_open_copies_as_after_a_clean_stop(tmp_path: Path, bucket: TestBucket) -> None:
    """Three starts of each broker: over its own data, a copy of all of it, and what came back from a bucket."""
    for version in [*SMALL][: scaled(1, 2)]:
        play(version, tmp_path / version, bucket)


def play(version: str, tmp_path: Path, bucket: TestBucket) -> None:
    with kafka(version, tmp_path) as (broker, client):
        broker.start()
        for topic in PRODUCERS:
            client.ask("create", topics={topic: SMALL[version]})
            produce(client, topic)
        with pytest.raises(kts.LogLockedError):
            copy(Path(__file__).parents[1] / "data/golden/demo/orders", broker.data)
        copy(broker.data, tmp_path / "live", topics=[*PRODUCERS])
        broker.stop()
        own = tmp_path / "own"
        broker.data.rename(own)
        expected = {topic: kts.open_partition(own / f"{topic}-0") for topic in PRODUCERS}
        for topic, log in expected.items():  # up to the high watermark of the last checkpoint
            there = kts.scan(tmp_path / "live", **WHOLE, topics=[topic]).read_all()
            assert there == log.scan(**WHOLE).read_all().select(there.column_names).slice(0, there.num_rows)
        copy(own, broker.data)
        check(broker, client, expected)
        # Lost partitions come back from a bucket.
        there = f"{bucket.address}/{version}"
        copy(broker.data, there, topics=[*PRODUCERS])
        for topic in PRODUCERS:
            shutil.rmtree(broker.partition(topic))
        bucket.forget()
        copy(there, broker.data)
        check(broker, client, expected)


def check(broker: Broker, client: Client, expected: dict[str, kts.PartitionLog]) -> None:
    """The broker loads the copy, changes nothing, and gives what the log holds; then it goes on, and stops."""
    assert (broker.data / CLEAN_SHUTDOWN).exists()
    assert [str(one) for one in verify(broker.data, deep=True)] == []
    before = {topic: partition_files(broker, topic) for topic in expected}
    broker.start()
    said = broker.said()
    assert errors(said) == []
    for topic, log in expected.items():
        assert complaints(said, topic) == [], topic
        found = load(said, topic)
        assert (found.segments, found.log_end_offset) == (len(log.segments), log.log_end_offset)
        assert found.segments > 3
        consumed = client.ask("consume", topic=topic)["records"]
        assert differing(before[topic], partition_files(broker, topic), running=True) == [], topic
        assert [row_from_json(line) for line in consumed] == rows(log.scan(columns=RECORD_COLUMNS).read_all())
        times = [T - 1, T, T + 1500, T + 3000, T + 9000]
        ours = [log.offset_for_timestamp(t) for t in times]
        theirs = client.ask("times", topic=topic, targets=times)["answers"]
        assert [one and [one.timestamp_ms, one.offset] for one in ours] == theirs, topic
    broker.stop()
