"""KIP-32's migration as a plan: its figures are what a broker's meters count when the plan is carried out."""

from __future__ import annotations

import random
import shutil
import struct
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from migration import Cluster
from migration_parts import FETCH_BYTES as EXAMPLES_FETCH_BYTES
from migration_parts import Client, Cost

import kts
from kts.broker.metrics import FETCH, PRODUCE, Conversions
from kts.broker.wire.messages import ApiKey
from kts.offline.migration import SEND_BYTES, STEPS, Conversion, Requests, TopicPlan, plan
from kts.replica.client import Connection
from kts.testing import KtsBroker

T = 1_460_000_000_000
FETCH_BYTES = 100_000
FORMATS = ("0.9.0", "0.10.0", "0.11.0")
FORMAT_IN = {"phase 1": "0.9.0", "canary": "0.10.0", "phase 2": "0.10.0", "rollback": "0.9.0"}
Sets = list[tuple[int, str]]  # magic and codec of each segment


def written(path: Path, segments: Sets, *, roll: bool = True, seed: int = 5) -> None:
    """A partition with sets of each of these formats."""
    rng = random.Random(seed)
    with kts.Log(path, {"message.format.version": "0.11.0", "retention.ms": -1}, clock=lambda: T) as log:
        for magic, codec in segments:
            log.reconfigure({"message.format.version": FORMATS[magic], "retention.ms": -1})
            for _ in range(40):
                count = rng.randint(1, 60)
                values = [rng.randbytes(rng.randint(1, 300)) for _ in range(count)]
                log.append(kts.encode({"value": values, "timestamp": [T] * count}, magic=magic, compression=codec))
            if roll:
                log.roll()


def planned(directory: Path, topic: str) -> TopicPlan:
    [found] = [one for one in plan(logs_of(directory), fetch_bytes=FETCH_BYTES) if one.topic == topic]
    return found


def logs_of(directory: Path) -> list[kts.PartitionLog]:
    return [kts.open_partition(path) for path in sorted(directory.glob("*-[0-9]"))]


def entries(partition: Path, magic: int) -> Iterator[tuple[bytes, bool]]:
    """The entries of a magic, and whether each is a plain message."""
    for file in sorted(partition.glob("*.log")):
        data = file.read_bytes()
        for one in kts.scan_batches(data).select(["position", "sizeInBytes", "magic", "codec"]).to_pylist():
            if one["magic"] == magic:
                yield data[one["position"] :][: one["sizeInBytes"]], one["codec"] == 0 and magic < 2


def sets_of(partition: Path, magic: int) -> Iterator[bytes]:
    """The entries of a magic as producers send them: plain messages up to 16 KiB, others alone."""
    plain = b""
    for entry, is_plain in entries(partition, magic):
        if not is_plain:  # producers number the messages of a set from 0 on
            last = kts.decode(entry, ["offset"]).num_rows - 1
            yield (struct.pack(">q", last) if magic < 2 else entry[:8]) + entry[8:]
        elif plain and len(plain) + len(entry) > SEND_BYTES:
            yield plain
            plain = entry
        else:
            plain += entry
    if plain:
        yield plain


def produce(broker: KtsBroker, topic: str, magic: int, sets: Iterator[bytes]) -> Conversions:
    """Send sets by the version of their magic; what the broker counts."""
    before = broker.broker.metrics.conversions(PRODUCE, topic)
    with Connection(broker.host, broker.port, client_id="test") as connection:
        for records in sets:
            data = [{"name": topic, "partition_data": [{"index": 0, "records": records}]}]
            body = {"acks": 1, "timeout_ms": 1000, "transactional_id": None, "topic_data": data}
            [told] = connection.ask(ApiKey.PRODUCE, magic + 1, body)["responses"][0]["partition_responses"]
            assert told["error_code"] == 0
    return less(broker.broker.metrics.conversions(PRODUCE, topic), before)


def read(broker: KtsBroker, topic: str, version: int, partition: int = 0) -> Conversions:
    """Read a partition from the start, as consumers and followers of a version do; what the broker counts."""
    before = broker.broker.metrics.conversions(FETCH, topic)
    offset = 0
    with Connection(broker.host, broker.port, client_id="test") as connection:
        while True:
            asked = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": FETCH_BYTES}
            topics = [{"topic": topic, "partitions": [asked]}]
            body = {"max_wait_ms": 0, "min_bytes": 0, "topics": topics}
            [found] = connection.ask(ApiKey.FETCH, version, body)["responses"][0]["partitions"]
            assert found["error_code"] == 0
            if not found["records"]:
                return less(broker.broker.metrics.conversions(FETCH, topic), before)
            offset = kts.decode(found["records"], ["offset", "magic"]).column("offset")[-1].as_py() + 1


def less(now: Conversions, before: Conversions) -> Conversions:
    return Conversions(*(one - other for one, other in zip(now, before, strict=True)))


def figures(found: Conversions) -> tuple[int, int]:
    return found.bytes_in, found.sets


def row(of: TopicPlan, step: str, request: str) -> Conversion | None:
    return next((one for one in of.conversions if (one.step, one.request) == (step, request)), None)


def told(of: TopicPlan, step: str, request: str) -> tuple[int, int]:
    found = row(of, step, request)
    return (0, 0) if found is None else (found.size_bytes, found.requests)


def serve(directory: Path, format_version: str) -> KtsBroker:
    settings = {"inter.broker.protocol.version": "0.10.0", "log.message.format.version": format_version}
    return KtsBroker(directory, {**settings, "log.retention.ms": -1, "auto.create.topics.enable": False}, time=T)


def test_requests_are_cut_at_the_limit_wherever_the_headers_were_read_apart() -> None:
    rng = random.Random(3)
    for _ in range(300):
        sizes = [rng.randint(1, 12) for _ in range(rng.randint(0, 60))]
        wanted = [rng.random() < 0.2 for _ in sizes]
        limit = rng.randint(1, 30)
        expected: list[list[int]] = []
        for number, size in enumerate(sizes):
            if not expected or sum(sizes[one] for one in expected[-1]) + size > limit:
                expected.append([])
            expected[-1].append(number)
        requests = Requests(limit)
        cuts = sorted(rng.randint(0, len(sizes)) for _ in range(3))
        for start, end in pairwise([0, *cuts, len(sizes)]):
            requests.add(np.array(sizes[start:end], np.int64), np.array(wanted[start:end], np.bool_))
        with_wanted = sum(any(wanted[number] for number in one) for one in expected)
        assert requests.work.tolist() == [
            sum(size * want for size, want in zip(sizes, wanted, strict=True)),
            with_wanted,
        ]


KINDS: list[Sets] = [
    [(0, "none")],
    [(0, "gzip")],
    [(1, "none")],
    [(1, "gzip"), (1, "none")],
    [(0, "none"), (0, "snappy"), (1, "none"), (1, "lz4")],
]


@pytest.mark.parametrize("segments", KINDS, ids=str)
def test_what_lies_there_is_converted_for_0_9_as_planned_and_not_for_0_10(tmp_path: Path, segments: Sets) -> None:
    written(tmp_path / "t-0", segments)
    found = planned(tmp_path, "t")
    assert sum(found.size_bytes) == sum(file.stat().st_size for file in (tmp_path / "t-0").glob("*.log"))
    with serve(tmp_path, "0.9.0") as broker:
        assert figures(read(broker, "t", 1)) == told(found, "phase 1", "Fetch 1")
        assert figures(read(broker, "t", 2)) == (0, 0) == told(found, "phase 1", "Fetch 2")
    assert (told(found, "phase 1", "Fetch 1") != (0, 0)) is any(magic for magic, _ in segments)


@pytest.mark.slow
@pytest.mark.parametrize("segments", KINDS, ids=str)
@pytest.mark.parametrize("step", ["phase 1", "phase 2", "rollback"])
def test_each_step_converts_what_is_sent_and_read_as_planned(tmp_path: Path, segments: Sets, step: str) -> None:
    written(tmp_path / "t-0", segments, roll=False)
    found = planned(tmp_path, "t")
    with serve(tmp_path / "served", FORMAT_IN[step]) as broker:
        broker.create_topic("t")
        for magic in (0, 1):
            sent = produce(broker, "t", magic, sets_of(tmp_path / "t-0", magic))
            assert figures(sent) == told(found, step, f"Produce {magic + 1}")
    with serve(tmp_path / "phase-2", "0.10.0") as broker:
        broker.create_topic("t")
        for magic in (0, 1):
            produce(broker, "t", magic, sets_of(tmp_path / "t-0", magic))
        if step != "phase 1":
            size, requests = figures(read(broker, "t", 1))
            expected = row(found, step, "Fetch 1")
            assert expected is not None
            assert expected.exact is all((magic, codec == "none") != (0, False) for magic, codec in segments)
            if expected.exact:
                assert (size, requests) == (expected.size_bytes, expected.requests)
            else:
                assert (size, requests) == pytest.approx((expected.size_bytes, expected.requests), rel=0.05, abs=1)
            assert figures(read(broker, "t", 2)) == (0, 0) == told(found, step, "Fetch 2")


def test_record_batches_are_converted_for_both_generations(tmp_path: Path) -> None:
    written(tmp_path / "t-0", [(0, "none"), (2, "none"), (2, "lz4"), (1, "lz4")])
    found = planned(tmp_path, "t")
    batches = row(found, "phase 1", "Produce 3")
    assert batches is not None
    assert (batches.from_magics, batches.to_magic, batches.requests) == ((2,), 0, 80)
    both = row(found, "phase 1", "Fetch 1")
    assert both is not None
    assert (both.from_magics, both.size_bytes) == ((1, 2), sum(found.size_bytes[1:]))
    newest = row(found, "phase 1", "Fetch 2")
    assert newest is not None
    assert (newest.from_magics, newest.to_magic, newest.size_bytes) == ((2,), 1, found.size_bytes[2])
    with serve(tmp_path / "served", "0.9.0") as broker:
        broker.create_topic("t")
        sent = produce(broker, "t", 2, sets_of(tmp_path / "t-0", 2))
        assert figures(sent) == (batches.size_bytes, batches.requests)


def test_a_fetch_with_both_magics_is_converted_so_that_a_mixed_segment_costs_at_most_one_fetch_more(
    tmp_path: Path,
) -> None:
    segments = [(0, "none"), (1, "gzip"), (0, "gzip"), (1, "none")]
    written(tmp_path / "t-0", segments, roll=False)
    size, requests = told(planned(tmp_path, "t"), "phase 1", "Fetch 1")
    changes = sum(one[0] != other[0] for one, other in pairwise(segments))
    with serve(tmp_path, "0.9.0") as broker:
        found = read(broker, "t", 1)
    assert size <= found.bytes_in <= size + changes * FETCH_BYTES
    assert abs(found.sets - requests) <= changes


def test_the_canary_is_the_smallest_partition_and_converts_as_phase_2_does(tmp_path: Path) -> None:
    for number, segments in enumerate(([(0, "none")] * 3, [(0, "none"), (1, "lz4")], [(1, "none")] * 3, [])):
        written(tmp_path / f"t-{number}", segments, seed=number)
    alone = tmp_path / "alone"
    alone.mkdir()
    shutil.copytree(tmp_path / "t-1", alone / "t-1")
    whole, one = planned(tmp_path, "t"), planned(alone, "t")
    assert (whole.partitions, one.partitions) == (4, 1)

    def of(step: str, found: TopicPlan) -> list[Conversion]:
        return [each._replace(step="", partition=None) for each in found.conversions if each.step == step]

    assert {each.partition for each in whole.conversions if each.step == "canary"} == {1}
    assert of("canary", whole) == of("phase 2", one) == of("canary", one)
    assert told(whole, "phase 2", "Fetch 1")[0] > sum(whole.size_bytes) * 0.99


def test_a_directory_without_records_has_a_plan_without_work(tmp_path: Path) -> None:
    written(tmp_path / "t-0", [])
    assert planned(tmp_path, "t") == TopicPlan("t", 1, (0, 0, 0), ())
    assert set(FORMAT_IN) == set(STEPS)


@pytest.mark.slow
def test_the_plan_of_the_examples_cluster_is_what_its_0_9_client_then_costs(tmp_path: Path) -> None:
    """Buys the whole way: clients and followers of two generations wrote the directory that is planned for."""
    cluster = Cluster(tmp_path)
    cluster.start()
    try:
        cluster.traffic("clicks")
        cluster.bounce(inter_broker="0.10.0")
        broker = cluster.leader("clicks")
        broker.roll("clicks")
        cluster.bounce({1: "0.10.0"})
        cluster.traffic("clicks")
        [found] = plan([kts.open_partition(broker.log("clicks").path)], fetch_bytes=EXAMPLES_FETCH_BYTES)
        for client, expected in (
            (Client("0.9, from the beginning", 1, 0), told(found, "phase 1", "Fetch 1")),
            (Client("0.10, from the beginning", 2, 1), (0, 0)),
        ):
            with Cost(FETCH, broker, "clicks") as cost:
                client.consume(broker, "clicks")
            assert figures(cost.spent) == expected
        assert told(found, "phase 1", "Fetch 1") > (0, 0)
    finally:
        cluster.close()
