"""Search by timestamp over random logs: what a linear scan finds, and KIP-33's promise that nothing later is missed."""

from __future__ import annotations

import bisect
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from support.golden import scaled
from support.reference import reference
from support.sets import random_logs
from support.sets.random_logs import Written

import kts

LOGS = scaled(40, 100)
QUERIES = 100  # of each log
INT64 = (-(2**63), 2**63 - 1)
EDGES = (*INT64, -5, -2, -1, 0, 1)

Record = tuple[int, int]  # offset, timestamp


def linear(records: list[Record], target: int) -> tuple[int, int] | None:
    """(timestamp, offset) of the first record at or after a time, looking at one after the other."""
    for offset, timestamp in records:
        if timestamp >= target:
            return timestamp, offset
    return None


def targets(rng: random.Random, records: list[Record]) -> list[int]:
    """Times to ask for: of records and next to them, between them, far from them."""
    stamps = [timestamp for _, timestamp in records] or [0]
    low, high = min(stamps), max(stamps)
    out = list(EDGES)
    while len(out) < QUERIES:
        near = rng.choice(stamps) + rng.choice((-1, 0, 0, 1))
        out.append(near if rng.random() < 0.7 else rng.randint(low, high))
    return [min(max(target, INT64[0]), INT64[1]) for target in out]


def check_promise(records: list[Record], target: int, answer: tuple[int, int] | None) -> None:
    """Reading from the answer on gives every record at or after the time; none there is, if there is no answer.

    KIP-32 and KIP-33: all messages after the searched timestamp will be consumed, the user might see earlier ones.
    """
    wanted = {offset for offset, timestamp in records if timestamp >= target}
    read = {offset for offset, _ in records if answer is not None and offset >= answer[1]}
    assert wanted <= read


def open_log(written: Written) -> kts.PartitionLog:
    log = kts.open(written.path, log_start_offset=written.log_start_offset)
    assert isinstance(log, kts.PartitionLog)
    return log


def check_index_promise(log: kts.PartitionLog, asked: list[int]) -> None:
    """What a time index says of a time: no entry of the log before the one that it names has a record that late.

    And the offset index leads to a place at or before that entry.
    """
    for segment in log.segments:
        data = Path(segment.path).read_bytes()
        lasts = [header["lastOffset"] for header in reference.scan_batches(data)]
        positions = [header["position"] for header in reference.scan_batches(data)]
        records = [(row["offset"], row["timestamp"]) for row in reference.decode(data)]
        found, offsets = segment.time_index().lookup_many(np.array(asked, np.int64))
        for target, timestamp, offset in zip(asked, found.tolist(), offsets.tolist(), strict=True):
            named = bisect.bisect_left(lasts, offset)
            if timestamp < 0 or named == len(lasts):
                continue
            earlier = [record for record in records if named and record[0] <= lasts[named - 1] and record[1] >= target]
            assert timestamp <= target and earlier == []
            assert segment.start_position(offset) <= positions[named]


def test_queries_over_random_logs_find_what_a_linear_scan_finds(tmp_path: Path, rng: random.Random) -> None:
    asked = hits = 0
    for number in range(LOGS):
        written = random_logs.write(rng, tmp_path / f"t-{number}", random_logs.shape(rng))
        log = open_log(written)
        queries = targets(rng, written.records)
        for target in queries:
            found = log.offset_for_timestamp(target)
            assert found == linear(written.records, target), (number, target, written.shape)
            check_promise(written.records, target, found)
            hits += found is not None
        asked += len(queries)
        best = max(written.records, key=lambda record: (record[1], -record[0]), default=None)
        assert log.max_timestamp() == (None if best is None else (best[1], best[0])), written.shape
        check_index_promise(log, queries[:30])
    print(f"{asked} queries over {LOGS} logs, {hits} with an answer")
    assert asked >= QUERIES * LOGS and asked / 4 < hits < asked


def test_queries_over_random_logs_that_kts_wrote_find_what_a_linear_scan_finds(
    tmp_path: Path, rng: random.Random
) -> None:
    asked = hits = 0
    for number in range(LOGS):
        path = tmp_path / f"{number}" / "t-0"
        log, written = random_logs.write_log(rng, path, random_logs.shape(rng))
        queries = targets(rng, written.records)
        # Where times before 1970 are allowed, -1 is no time for the log; a reader of the directory sees a number.
        timed = [record for record in written.records if written.shape.order != "negative" or record[1] != -1]
        reader = kts.open(path)
        assert isinstance(reader, kts.PartitionLog) and reader.log_start_offset == log.log_start_offset
        for closed in (False, True):
            for target in queries[:: 9 + closed]:
                found = reader.offset_for_timestamp(target)
                assert found == linear(written.records, target), (number, target, closed, written.shape)
                check_promise(written.records, target, found)
            for target in [] if closed else queries:
                found = log.offset_for_timestamp(target)
                assert found == linear(timed, target), (number, target, written.shape)
                check_promise(timed, target, found)
                hits += found is not None
            best = max(timed or written.records, key=lambda record: (record[1], -record[0]), default=None)
            if not closed:
                assert log.max_timestamp() == (None if best is None else (best[1], best[0])), written.shape
            log.close()
        check_index_promise(reader, queries[:30])
        asked += len(queries)
    print(f"{asked} queries over {LOGS} logs, {hits} with an answer")
    assert asked >= QUERIES * LOGS and asked / 4 < hits


def test_the_greatest_timestamp_may_be_the_least_there_is(tmp_path: Path) -> None:
    least = kts.encode({"value": [b"x"], "timestamp": [INT64[0]]})
    for first in (b"", kts.encode({"value": [b"y"], "timestamp": [INT64[0]]})):
        (tmp_path / "t-0").mkdir(exist_ok=True)
        (tmp_path / "t-0" / f"{0:020d}.log").write_bytes(first)
        moved = bytearray(least)
        moved[7] = 1  # its base offset
        (tmp_path / "t-0" / f"{1:020d}.log").write_bytes(moved)
        log = kts.open(tmp_path / "t-0")
        assert isinstance(log, kts.PartitionLog)
        assert log.max_timestamp() == (INT64[0], 0 if first else 1)


def test_an_explanation_counts_the_later_records_that_are_older(tmp_path: Path, rng: random.Random) -> None:
    for number in range(LOGS // 5):
        written = random_logs.write(rng, tmp_path / f"t-{number}", random_logs.shape(rng))
        log = open_log(written)
        for target in targets(rng, written.records)[:15]:
            story = log.explain_offset_for_timestamp(target)
            answer = linear(written.records, target)
            assert story.answer == answer
            older = [r for r in written.records if answer is not None and r[0] > answer[1] and r[1] < target]
            assert story.later_older_records == len(older)
            assert [tuple(one) for one in story.examples] == [(t, o) for o, t in older[: len(story.examples)]]


def test_a_scan_from_a_time_gives_every_later_record_and_maybe_earlier_ones(tmp_path: Path, rng: random.Random) -> None:
    for number in range(LOGS // 5):
        written = random_logs.write(rng, tmp_path / f"t-{number}", random_logs.shape(rng))
        options: dict[str, Any] = {"columns": ["offset", "timestamp"], "include_control": True}
        options["log_start_offset"] = written.log_start_offset
        for target in targets(rng, written.records)[:10]:
            loose = options | {"strict_time_range": False}
            table = kts.scan(written.path, starting_timestamp=target, unit="ms", **loose).read_all()
            read = list(zip(table.column(0).to_pylist(), table.column(1).cast(pa.int64()).to_pylist(), strict=True))
            later = [record for record in written.records if record[1] >= target]
            assert set(later) <= set(read) <= set(written.records)
            assert read == (written.records[len(written.records) - len(read) :] if read else [])
            strict = kts.scan(written.path, starting_timestamp=target, unit="ms", **options).read_all()
            assert strict.column(0).to_pylist() == [offset for offset, _ in later]


def test_the_shipped_search_keeps_the_promise_where_every_segment_has_timestamps(
    tmp_path: Path, rng: random.Random
) -> None:
    """Where some have none, the file's time decides: `golden` has what brokers answer then."""
    orders = ("rising", "near", "equal", "few", "falling")
    asked = 0
    for number in range(LOGS // 2):
        shape = random_logs.shape(rng, orders=orders)
        if 0 in shape.magics or shape.indexes in ("no time index", "empty time index") or shape.tail == "truncated":
            continue
        written = random_logs.write(rng, tmp_path / f"t-{number}", shape)
        if written.log_start_offset != shape.first_offset:
            continue  # records below the log start offset count in an index, and may hide later segments
        random_logs.set_modified_ms(written.path, rng)
        log = open_log(written)
        for target in targets(rng, written.records):
            if target >= 0:
                found = log.offset_for_timestamp(target, shipped_search=True)
                assert found == linear(written.records, target), (number, target, shape)
                check_promise(written.records, target, found)
                asked += 1
    assert asked > 100
