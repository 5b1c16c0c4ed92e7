"""Every answer to a timestamp query that a broker gave, and every begin, end, stable and maximum offset."""

from __future__ import annotations

import random
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.golden import RECORD_COLUMNS, Golden, Row, golden, golden_partitions, goldens, rows, scaled

import kts
from kts.store.local import File

ASKED = [(scenario, name) for scenario, name in golden_partitions() if scenario.offsets_for_times(name)]
KILLED = [scenario for scenario in goldens() if (scenario.path / "killed.tar.gz").exists()]
INT64 = (-(2**63), 2**63 - 1)


def answer(query: dict[str, Any]) -> tuple[int, int] | None:
    found = query["answer"]
    return None if found is None else (found["timestamp"], found["offset"])


def check_answers(log: kts.PartitionLog, said: dict[str, Any], queries: slice = slice(None)) -> None:
    """Compare a log with all that a broker said about it, or with its answers to some of the queries."""
    assert log.log_start_offset == said["beginningOffset"]
    assert log.log_end_offset == said["endOffset"]
    stable = log.last_stable_offset
    assert stable == said["lastStableOffset"]
    for query in said["queries"][queries]:
        assert log.offset_for_timestamp(query["query"], shipped_search=True) == answer(query), query
    for query in said.get("queriesReadCommitted", [])[queries]:
        found = log.offset_for_timestamp(query["query"], shipped_search=True)
        assert (found if found is not None and found.offset < stable else None) == answer(query), query
    if "maxTimestamp" in said:
        expected = said["maxTimestamp"]
        found = log.max_timestamp()
        assert (found or (-1, -1)) == (expected["timestamp"], expected["offset"])


def some(rng: random.Random) -> slice:
    """Which queries are asked of a log without indexes: all at full length."""
    step = scaled(4, 1)
    return slice(rng.randrange(step), None, step)


@pytest.mark.slow
@pytest.mark.parametrize(("scenario", "name"), ASKED, ids=str)
def test_shipped_search_answers_every_query_as_the_broker_did(
    scenario: Golden, name: str, writable: Callable[[Golden], Golden]
) -> None:
    said = scenario.offsets_for_times(name)
    assert said is not None
    log = kts.open(writable(scenario).partition_dir(name), log_start_offset=scenario.log_start_offset(name))
    assert isinstance(log, kts.PartitionLog)
    check_answers(log, said)


@pytest.mark.parametrize(("scenario", "name"), ASKED, ids=str)
def test_shipped_search_answers_so_without_indexes(
    scenario: Golden, name: str, writable: Callable[[Golden], Golden], rng: random.Random
) -> None:
    said = scenario.offsets_for_times(name)
    assert said is not None
    directory = writable(scenario).partition_dir(name)
    for path in directory.iterdir():
        if path.suffix in (".index", ".timeindex"):
            path.unlink()
    log = kts.open(directory, log_start_offset=scenario.log_start_offset(name))
    assert isinstance(log, kts.PartitionLog)
    check_answers(log, said, some(rng))


@pytest.mark.parametrize("scenario", KILLED, ids=str)
def test_a_killed_brokers_directory_answers_like_the_recovered_one(scenario: Golden, tmp_path: Path) -> None:
    with tarfile.open(scenario.path / "killed.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    logs = kts.open(tmp_path / "data")
    assert isinstance(logs, kts.LogDirs)
    assert [str(key) for key in logs] == scenario.partitions
    for log in logs.values():
        name = f"{log.topic}-{log.partition}"
        assert rows(log.scan().read_all().select(RECORD_COLUMNS)) == scenario.expected(name)
        said = scenario.offsets_for_times(name)
        if said is not None:
            check_answers(log, said)


def first_at_or_after(records: list[tuple[int, int]], target: int) -> tuple[int, int] | None:
    return next(((timestamp, offset) for offset, timestamp in records if timestamp >= target), None)


def targets(records: list[tuple[int, int]]) -> Iterator[int]:
    yield from (*INT64, -5, -1, 0, 1)
    times = sorted({timestamp for _, timestamp in records})
    for timestamp in times[:: max(1, len(times) // 12)]:
        yield from (timestamp - 1, timestamp, timestamp + 1)


def all_records(log: kts.PartitionLog) -> list[tuple[int, int]]:
    table = log.scan(columns=["offset", "timestamp"], include_control=True).read_all()
    return list(zip(table.column(0).to_pylist(), table.column(1).cast(pa.int64()).to_pylist(), strict=True))


def check_search(log: kts.PartitionLog, records: list[tuple[int, int]], queries: slice = slice(None)) -> None:
    """Compare what a log finds by time with what a linear search finds in its records."""
    for target in sorted(set(targets(records)))[queries]:
        assert log.offset_for_timestamp(target) == first_at_or_after(records, target)
    best = max(records, key=lambda record: (record[1], -record[0]), default=None)
    assert log.max_timestamp() == (None if best is None else (best[1], best[0]))


@pytest.mark.slow
@pytest.mark.parametrize(("scenario", "name"), golden_partitions(), ids=str)
def test_the_default_search_finds_what_a_linear_search_finds(scenario: Golden, name: str) -> None:
    log = kts.open(scenario.partition_dir(name), log_start_offset=scenario.log_start_offset(name))
    assert isinstance(log, kts.PartitionLog)
    check_search(log, all_records(log))


@pytest.mark.parametrize(("scenario", "name"), golden_partitions(), ids=str)
def test_the_default_search_finds_it_without_indexes(
    scenario: Golden, name: str, tmp_path: Path, rng: random.Random
) -> None:
    log = kts.open(scenario.partition_dir(name), log_start_offset=scenario.log_start_offset(name))
    assert isinstance(log, kts.PartitionLog)
    bare = tmp_path / name
    bare.mkdir()
    for path in scenario.logs(name):
        (bare / path.name).write_bytes(path.read_bytes())
    without_indexes = kts.open(bare, log_start_offset=scenario.log_start_offset(name))
    assert isinstance(without_indexes, kts.PartitionLog)
    check_search(without_indexes, all_records(log), some(rng))


@pytest.mark.parametrize(("scenario", "name"), [*golden_partitions()[::7], *golden_partitions()[-9:]], ids=str)
def test_damaged_indexes_are_not_believed(
    scenario: Golden, name: str, writable: Callable[[Golden], Golden], rng: Any
) -> None:
    copy = writable(scenario)
    for path in copy.partition_dir(name).iterdir():
        if path.suffix in (".index", ".timeindex") and path.stat().st_size:
            data = bytearray(path.read_bytes())
            entry = 8 if path.suffix == ".index" else 12
            damage = rng.choice(["repeat", "cut a byte", "cut", "zeros"])
            if damage == "repeat":
                data += data[:entry]  # an entry that does not rise
            elif damage == "cut a byte":
                del data[-1]
            elif damage == "cut":
                del data[entry + 1 :]
            else:
                data = bytearray(len(data))
            path.write_bytes(data)
    log = kts.open(copy.partition_dir(name), log_start_offset=scenario.log_start_offset(name))
    assert isinstance(log, kts.PartitionLog)
    records = all_records(log)
    expected: list[Row] = scenario.expected(name)
    assert rows(log.scan().read_all().select(RECORD_COLUMNS)) == expected
    for target in set(targets(records)):
        assert log.offset_for_timestamp(target) == first_at_or_after(records, target)


@pytest.mark.slow
def test_a_closed_segments_index_without_its_end_is_not_believed(writable: Callable[[Golden], Golden]) -> None:
    scenario = golden("demo", "orders")
    directory = writable(scenario).partition_dir("orders-0")
    sound = kts.open(scenario.partition_dir("orders-0"))
    assert isinstance(sound, kts.PartitionLog)
    records = all_records(sound)
    for path in directory.glob("*.timeindex"):
        path.write_bytes(path.read_bytes()[:-12] or bytes(12))
    log = kts.open(directory)
    assert isinstance(log, kts.PartitionLog)
    for target in sorted({timestamp + d for _, timestamp in records[::9] for d in (0, 1)}):
        assert log.offset_for_timestamp(target) == first_at_or_after(records, target)
    assert log.max_timestamp() == sound.max_timestamp()


def test_the_greatest_timestamp_is_found_without_reading_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = golden("demo", "orders")
    for name in scenario.partitions:
        log = kts.open(scenario.partition_dir(name))
        assert isinstance(log, kts.PartitionLog)
        size = sum(segment.size_bytes for segment in log.segments)
        read: list[int] = []
        real = File.read

        def counted(self: File, position: int, count: int, real: Any = real, read: list[int] = read) -> bytes:
            data: bytes = real(self, position, count)
            if self.path.endswith(".log"):
                read.append(len(data))
            return data

        with monkeypatch.context() as patch:
            patch.setattr(File, "read", counted)
            found = log.max_timestamp()
        best = max(all_records(log), key=lambda record: (record[1], -record[0]))
        assert found == (best[1], best[0])
        print(f"{name}: {sum(read)} bytes read, the log has {size}")
        assert sum(read) < max(0.4 * size, 20_000)


def test_an_explanation_names_entry_bytes_and_late_records(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    directory.mkdir()
    times = [100, 200, 300, 400, 150, 500, 160, 170]
    data = b"".join(
        kts.encode({"timestamp": [time], "value": [b"v"]}, base_offset=offset) for offset, time in enumerate(times)
    )
    size = len(data) // len(times)
    (directory / f"{0:020}.log").write_bytes(data)
    index = b"".join(n.to_bytes(4, "big") + (n * size).to_bytes(4, "big") for n in (2, 5))
    (directory / f"{0:020}.index").write_bytes(index)
    (directory / f"{0:020}.timeindex").write_bytes(
        b"".join(t.to_bytes(8, "big") + n.to_bytes(4, "big") for t, n in ((300, 2), (500, 5)))
    )
    log = kts.open(directory)
    assert isinstance(log, kts.PartitionLog)
    story = log.explain_offset_for_timestamp(350)
    assert story.answer == kts.TimestampOffset(400, 3)
    assert story.segment == str(directory / f"{0:020}.log")
    assert story.time_index_entry == (300, 2)
    assert (story.start_position, story.end_position) == (2 * size, 4 * size)
    assert (story.segments_read, story.segments_skipped, story.batches_read, story.records_read) == (1, 0, 2, 1)
    assert story.later_older_records == 3
    assert story.examples == ((150, 4), (160, 6), (170, 7))
    nothing = log.explain_offset_for_timestamp(501)
    assert nothing.answer is None and nothing.later_older_records == 0


@pytest.mark.parametrize(
    ("value", "error"),
    [("soon", ValueError), (None, TypeError), (True, TypeError), (2**63, ValueError), ([1], TypeError)],
)
def test_wrong_targets_are_refused_by_name(value: Any, error: type[Exception], tmp_path: Path) -> None:
    (tmp_path / "t-0").mkdir()
    log = kts.open(tmp_path / "t-0")
    assert isinstance(log, kts.PartitionLog)
    for search in (log.offset_for_timestamp, log.explain_offset_for_timestamp):
        with pytest.raises(error, match="t_ms"):
            search(value)
        with pytest.raises(ValueError, match="^unit: "):
            search(1, unit="hours")
    assert log.offset_for_timestamp(0) is None and log.max_timestamp() is None
