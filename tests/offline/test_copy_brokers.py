"""Real brokers open copies, from a disk and from a bucket, as after a clean stop, with the same answers."""

from __future__ import annotations

import base64
import shutil
import time
from hashlib import sha512
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from support.buckets.s3 import TestBucket
from support.golden import RECORD_COLUMNS, row_from_json, rows, scaled
from support.kafka.broker_load import complaints, differing, errors, load, partition_files
from support.kafka.broker_play import PLAIN
from support.kafka.brokers import Broker, Client, kafka
from support.sets.copies import WHOLE
from support.waiting import wait_until

import kts
from kts.offline.copy import copy
from kts.offline.verify import verify
from kts.segment.names import CLEAN_SHUTDOWN

T = 1_700_000_000_000
LATER = (
    "NOT_COORDINATOR",
    "COORDINATOR_NOT_AVAILABLE",
    "COORDINATOR_LOAD_IN_PROGRESS",
)  # after a start
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


@pytest.mark.slow
def test_groups_of_a_broker_go_on_as_of_the_end_of_a_copy(tmp_path: Path) -> None:
    """A broker and librdkafka's consumers over a copy up to a time; two starts of one broker."""
    with kafka("3.9.2", tmp_path) as (broker, client):
        broker.start()
        client.ask("create", topics={"plain": SMALL["3.9.2"]})
        for n in range(100):
            value = base64.b64encode(sha512(b"%d" % n).digest()).decode()
            record = {"timestamp": T + n * 1000, "value": value}
            client.ask("produce", topic="plain", groups=[[record]], settings=PLAIN)
        committed(broker, "early", 30)
        time.sleep(0.05)
        then = time.time_ns() // 1_000_000
        time.sleep(0.05)
        for group, offset in (("early", 90), ("late", 95), ("slow", 7)):
            committed(broker, group, offset)
        broker.stop()
        own = tmp_path / "own"
        broker.data.rename(own)
        with pytest.warns(kts.KtsWarning) as told:
            copy(own, broker.data, ending_timestamp=T + 40_000, groups_at=then)
        end = kts.open_partition(broker.data / "plain-0").log_end_offset
        assert 40 <= end < 90, "the range leaves segments out"
        assert {str(one.message).rpartition(" ")[2] for one in told} == {"7", str(end)}
        assert [str(one) for one in verify(broker.data, deep=True)] == []
        broker.start()
        assert errors(broker.said()) == []
        assert [committed(broker, group) for group in ("early", "late", "slow")] == [30, end, 7]
        broker.stop()


def committed(broker: Broker, group: str, offset: int | None = None) -> int:
    """The offset of a group, after it committed one if that is given."""
    place = confluent_kafka.TopicPartition("plain", 0)
    if offset is not None:
        place.offset = offset
    consumer = confluent_kafka.Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})

    found: list[int] = []

    def is_there() -> bool:
        try:
            if offset is not None:
                consumer.commit(offsets=[place], asynchronous=False)
            found.append(int(consumer.committed([place], timeout=30)[0].offset))
        except confluent_kafka.KafkaException as error:
            if error.args[0].name() not in LATER:
                raise
        return bool(found)

    try:
        wait_until(f"the coordinator of {group}", is_there)
    finally:
        consumer.close()
    return found[0]
