"""Streams over directories that others write to meanwhile: a real broker, `kts serve`, `kts follow`. Needs no Spark."""

from __future__ import annotations

import gzip
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import zstandard
from support.buckets.s3 import TestBucket
from support.clients.client_librdkafka import Confluent
from support.clients.client_places import Place, kts_serve, real_broker
from support.clients.client_records import Record
from support.golden import PATIENCE_S, scaled
from support.processes.dying import DIES_TOO
from support.waiting import wait_until

import kts
from kts.dataset.reader import read_range
from kts.spark.options import STREAM, parse_options
from kts.spark.streaming import Stream

# A second for both; the real broker costs ten more, and the rest of `make test-all` starts many.
PLACES = {"kts serve": kts_serve, "Kafka 3.9.2": real_broker}
SETTINGS = {"replica.high.watermark.checkpoint.interval.ms": 100, "transaction.state.log.num.partitions": 1}
SETTINGS |= {"transaction.state.log.replication.factor": 1, "transaction.state.log.min.isr": 1}
ROUNDS, EACH = 3, 300

pytestmark = pytest.mark.slow


class Reader:
    """A query without Spark: the records of each micro-batch, by the partition they came from."""

    def __init__(self, path: Path | str, **options: str) -> None:
        given = {"path": str(path), "startingOffsets": "earliest", "subscribe": "t", **options}
        self.options = parse_options(given, STREAM)
        self.stream = Stream(self.options)
        self.start = self.stream.initial()
        self.found: dict[int, list[bytes]] = {}

    def read(self) -> int:
        """One micro-batch; how many records there are after it."""
        end = self.stream.latest(self.start, 100, None, 0.0)
        for task in self.stream.tasks(self.start, end):
            for part in task.ranges:
                for rows in read_range(part, columns=["value"], options=self.options.scan):
                    self.found.setdefault(part.partition, []).extend(rows.column("value").to_pylist())
        self.start = end
        return sum(map(len, self.found.values()))

    def reads(self, count: int) -> None:
        """Until so many records have come."""
        wait_until(f"{count} records of the stream", lambda: self.read() >= count)


@pytest.fixture(params=list(PLACES)[: scaled(1, 2)])
def live(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    with PLACES[request.param](tmp_path / "place", SETTINGS) as place:
        yield place


@contextmanager
def following(leader: Place, copy: Path) -> Iterator[None]:
    follow = [sys.executable, "-m", "kts.cli", "follow", "--bootstrap-server", leader.bootstrap, "--topic", "t"]
    with subprocess.Popen([*DIES_TOO, *follow, str(copy)]) as process:
        try:
            wait_until("a copy", lambda: (copy / "t-1").exists())
            yield
        finally:
            process.terminate()
            process.wait(PATIENCE_S)


def test_a_stream_reads_each_record_of_a_live_directory_once(live: Place, tmp_path: Path) -> None:
    """The broker's directory and a copy that `kts follow` makes of it, both read while they grow and roll."""
    live.create("t", 2, segment_bytes=20_000)
    client, expected = Confluent(), dict[int, list[bytes]]({0: [], 1: []})
    with following(live, tmp_path / "copy"):
        readers = [Reader(live.data), Reader(tmp_path / "copy")]
        for number in range(ROUNDS):
            for partition, values in expected.items():
                more = [b"%d:%d:%d" % (partition, number, one) + b" " * 50 for one in range(EACH)]
                values += more
                client.produce(live.bootstrap, "t", [Record(None, one, None) for one in more], partition=partition)
            for reader in readers:
                reader.reads(sum(map(len, expected.values())))
    for reader in readers:
        assert reader.found == expected
        assert reader.read() == sum(map(len, expected.values()))
    assert len(list((tmp_path / "copy" / "t-0").glob("*.log"))) > 1


def test_read_committed_waits_for_the_transaction_that_a_live_broker_has_open(live: Place) -> None:
    """`kts serve` has no transactions of its own; of a real broker the records come when the transaction ends."""
    if live.is_kts:
        live.create("t")
        Confluent().produce(live.bootstrap, "t", [Record(None, b"plain", None)])
        reader = Reader(live.data, isolation="read_committed")
        reader.reads(1)
        assert reader.found == {0: [b"plain"]}
        return
    from confluent_kafka import Producer

    live.create("t")
    producer = Producer({"bootstrap.servers": live.bootstrap, "transactional.id": "x", "linger.ms": 0})
    producer.init_transactions(PATIENCE_S)
    committed, all_of_it = (Reader(live.data, isolation=one) for one in ("read_committed", "read_uncommitted"))
    for value, end in ((b"aborted", producer.abort_transaction), (b"committed", producer.commit_transaction)):
        producer.begin_transaction()
        producer.produce("t", value, partition=0)
        producer.flush(PATIENCE_S)
        Confluent().produce(live.bootstrap, "t", [Record(None, b"beside " + value, None)])
        before = {name: list(values) for name, values in committed.found.items()}
        all_of_it.reads(2 if value == b"aborted" else 4)
        committed.read()
        assert committed.found == before
        end(PATIENCE_S)
        committed.reads(1 if value == b"aborted" else 3)
    assert committed.found == {0: [b"beside aborted", b"committed", b"beside committed"]}
    assert all_of_it.found == {0: [b"aborted", b"beside aborted", b"committed", b"beside committed"]}


def test_a_stream_of_a_bucket_goes_on_with_what_was_put_there_since(bucket: TestBucket, tmp_path: Path) -> None:
    """Each micro-batch lists the bucket again: the active segment grew, others came, were compressed, and went."""
    folder = tmp_path / "data"
    logs = [kts.Log(folder / f"t-{partition}", {"segment.bytes": 3000}) for partition in range(2)]

    def more(partition: int, count: int) -> None:
        log = logs[partition]
        for offset in range(log.log_end_offset, log.log_end_offset + count):
            log.append_rows({"value": [b"%d:%d" % (partition, offset) + b" " * 90]})

    def put() -> None:
        bucket.put_folder(folder, "data")

    more(0, 70)
    logs[0].checkpoint()
    more(0, 1)  # beyond the high watermark
    put()
    reader = Reader(f"{bucket.address}/data")
    assert reader.read() == 70
    more(0, 2)
    logs[0].checkpoint()
    more(1, 60)
    logs[1].checkpoint()
    put()
    assert reader.read() == 133
    more(1, 40)
    logs[1].checkpoint()
    put()
    first, second, *_ = sorted(path.name for path in (folder / "t-1").glob("*.log"))
    for one, suffix, compress in ((first, "gz", gzip.compress), (second, "zst", zstandard.compress)):
        bucket.put(f"data/t-1/{one}.{suffix}", compress((folder / "t-1" / one).read_bytes()))
        bucket.delete(f"data/t-1/{one}")
    reader.reads(173)
    anew = Reader(f"{bucket.address}/data")
    anew.reads(173)
    for one in (reader, anew):
        found = [value.rstrip() for partition in range(2) for value in one.found[partition]]
        assert found == [b"0:%d" % offset for offset in range(73)] + [b"1:%d" % offset for offset in range(100)]
    late = Reader(f"{bucket.address}/data")
    bucket.delete(f"data/t-1/{first}.gz")
    with pytest.raises(kts.OffsetOutOfRangeError, match=rf"offsets 0 to {int(second[:20])} .*of t-1 were deleted"):
        late.read()
    for log in logs:
        log.close()
