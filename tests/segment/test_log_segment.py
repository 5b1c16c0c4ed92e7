"""A segment that is written to: index entries, times, truncation, and what a failed append leaves."""

from __future__ import annotations

import os
import random
import resource
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.sets.segments import START_MS, appended, index_bytes, made_set, walk

import kts
from kts.errors import InvalidOffsetError, LogClosedError, LogStorageError
from kts.segment.log_segment import LogSegment
from kts.store import local

GENERATIONS = ["0.10.2", "3.9"]
NOW = 1_600_000_000_000


def segment_in(path: Path, base: int = 0, *, generation: str = "3.9", **settings: Any) -> LogSegment:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return LogSegment(str(path), base, kts.LogConfig.of(named, generation=generation), now_ms=NOW)


def one(magic: int, offset: int, *times: int, size: int = 20) -> bytes:
    """An entry, or one message a time for magic 0 and 1."""
    table: dict[str, Any] = {"value": [bytes(size)] * len(times), "timestamp": list(times)}
    return bytes(kts.encode(table, magic=magic, base_offset=offset))


# --- index entries --------------------------------------------------------------------------------


@pytest.mark.parametrize("generation", GENERATIONS)
def test_the_worked_example_gives_the_bytes_of_the_reference(generation: str, tmp_path: Path) -> None:
    segment = segment_in(tmp_path, generation=generation)
    for offset, later in enumerate((0, 30, 10, 20, 50, 40, 50, 60)):
        appended(one(1, offset, START_MS + later, size=1466)).to(segment)
    assert segment.size == 8 * 1500
    segment.on_become_inactive_segment()
    offsets, times = index_bytes(segment.path)
    assert offsets == bytes.fromhex("00000003 00001194 00000006 00002328")
    assert times == struct.pack(">qiqiqi", START_MS + 30, 1, START_MS + 50, 4, START_MS + 60, 7)


def test_0_10_2_enters_a_set_once_by_its_first_offset_and_3_9_every_batch_by_its_last(tmp_path: Path) -> None:
    sets = [b"".join(one(2, 6 * n + 2 * k, START_MS + n, START_MS + 10 * n + k) for k in range(3)) for n in range(3)]
    size = walk(sets[0])[0].size
    for generation, expected in (
        ("0.10.2", [(6, 3 * size), (12, 6 * size)]),
        ("3.9", [(2 * n + 1, n * size) for n in range(1, 9)]),
    ):
        folder = tmp_path / generation
        folder.mkdir()
        segment = segment_in(folder, generation=generation, index_interval_bytes=0)
        for number, records in enumerate(sets):
            segment.append(records, 6 * number, 6 * number + 5, START_MS + 10 * number + 2, 6 * number + 5)
        found = struct.unpack(f">{2 * len(expected)}i", segment.offset_index.read())
        assert list(zip(found[::2], found[1::2], strict=True)) == expected
        segment.close()


@pytest.mark.parametrize("generation", GENERATIONS)
def test_a_full_index_stops_growing_and_the_segment_says_that_it_is_time_to_roll(
    generation: str, tmp_path: Path
) -> None:
    segment = segment_in(tmp_path, generation=generation, index_interval_bytes=0, segment_index_bytes=36)
    for offset in range(9):
        assert segment.indexes_are_full == (segment.offset_index.entries >= 4 or segment.time_index.entries >= 2)
        appended(one(1, offset, START_MS + offset)).to(segment)
    segment.close()
    offsets, times = index_bytes(segment.path)
    assert (len(offsets), len(times)) == (16, 36)
    assert times[24:] == struct.pack(">qi", START_MS + 8, 8)


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("generation", GENERATIONS)
def test_offsets_that_do_not_fit_are_refused_and_nothing_is_written(
    generation: str, magic: int, tmp_path: Path
) -> None:
    segment = segment_in(tmp_path, 5, generation=generation)
    records = one(magic, 5, START_MS)
    with pytest.raises(InvalidOffsetError, match=f"found {5 + 2**31}"):
        segment.append(records, 5, 5 + 2**31, START_MS, 5)
    assert (segment.size, os.path.getsize(segment.path)) == (0, 0)
    assert segment.fits(4 + 2**31)
    segment.append(b"", -1, -1, -1, -1)  # nothing is nothing
    assert segment.size == 0


def test_index_entries_that_are_not_in_order_undo_the_append(tmp_path: Path) -> None:
    segment = segment_in(tmp_path, index_interval_bytes=0)
    for offset in (0, 5):
        appended(one(2, offset, START_MS)).to(segment)
    before = Path(segment.path).read_bytes(), index_bytes(segment.path), segment.max_timestamp_so_far
    with pytest.raises(InvalidOffsetError, match="above 5, found 3"):
        appended(one(2, 3, START_MS + 9)).to(segment)
    assert (Path(segment.path).read_bytes(), index_bytes(segment.path), segment.max_timestamp_so_far) == before
    appended(one(2, 6, START_MS + 1)).to(segment)
    assert segment.next_offset() == 7


# --- times ----------------------------------------------------------------------------------------


def test_without_timestamps_the_file_decides_how_old_a_segment_is(tmp_path: Path) -> None:
    segment = segment_in(tmp_path)
    appended(one(0, 0, -1)).to(segment)
    local.set_modified_ms(segment.path, START_MS)
    assert segment.largest_timestamp_ms == START_MS
    assert not segment.has_timestamp
    assert segment.max_timestamp_so_far == (-1, 0)
    appended(one(1, 1, 7)).to(segment)
    assert segment.largest_timestamp_ms == 7
    segment.close()
    assert len(index_bytes(segment.path)[1]) == 12


def test_the_time_to_roll_counts_from_the_first_set_and_after_a_restart_from_the_first_entry(tmp_path: Path) -> None:
    segment = segment_in(tmp_path, generation="0.10.2")
    assert segment.time_waited_for_roll(NOW + 8, 120) == 8  # nothing yet: since it was made
    appended(one(1, 0, 5, 100)).to(segment)
    assert segment.time_waited_for_roll(NOW + 8, 120) == 20
    segment.close()
    assert segment_in(tmp_path, generation="0.10.2").time_waited_for_roll(NOW + 8, 120) == 115
    newer = tmp_path / "3.9"
    newer.mkdir()
    segment = segment_in(newer)
    appended(one(1, 0, 5, 100)).to(segment)
    assert segment.time_waited_for_roll(NOW + 8, 120) == 115  # 3.9.1 and later: of the first batch
    segment.truncate_to(0, NOW + 5)
    assert segment.time_waited_for_roll(NOW + 8, 120) == 3
    appended(one(0, 0, -1)).to(segment)
    assert segment.time_waited_for_roll(NOW + 8, 120) == 3


@pytest.mark.parametrize("generation", GENERATIONS)
@pytest.mark.parametrize("magic", [1, 2])
def test_searches_find_the_first_record_that_is_late_enough(
    generation: str, magic: int, tmp_path: Path, rng: random.Random
) -> None:
    segment = segment_in(tmp_path, 100, generation=generation, index_interval_bytes=700)
    offset = 100
    for number in range(60):
        count = rng.randrange(1, 9)
        how = {"compression": rng.choice(["none", "gzip"])}
        appended(made_set(rng, magic, offset, count, START_MS + 90 * number, **how)).to(segment)
        offset += count
    records = kts.decode(Path(segment.path).read_bytes(), ["offset", "timestamp"])
    pairs = list(zip(records.column(0).to_pylist(), records.column(1).cast("int64").to_pylist(), strict=True))
    for _ in range(200):
        target, start = START_MS + rng.randrange(-900, 6500), rng.randrange(95, offset + 5)
        expected = next(((t, o) for o, t in pairs if t >= target and o >= start), None)
        assert segment.find_offset_by_timestamp(target, start) == expected
    segment.close()


# --- reading --------------------------------------------------------------------------------------


@pytest.mark.parametrize("generation", GENERATIONS)
def test_reading_gives_the_bytes_from_the_first_entry_that_reaches_the_offset(
    generation: str, tmp_path: Path, rng: random.Random
) -> None:
    segment = segment_in(tmp_path, 7, generation=generation, index_interval_bytes=400)
    offset = 7
    for number in range(80):
        offset += rng.randrange(3)  # gaps, as the cleaner leaves them
        count = rng.randrange(1, 5)
        appended(made_set(rng, rng.choice([1, 2]), offset, count, START_MS + number)).to(segment)
        offset += count
    data = Path(segment.path).read_bytes()
    entries = walk(data)
    for _ in range(300):
        start, most, limit = rng.randrange(5, offset + 3), rng.randrange(900), rng.randrange(len(data))
        first = next((entry for entry in entries if entry.offset >= start), None)
        found = segment.read(start, most, max_position=limit)
        if first is None:
            assert found is None
            assert segment.translate_offset(start) is None
            continue
        assert found is not None
        assert found.position == first.position
        assert found.data == data[first.position : min(max(limit, first.position), first.position + most)]
        assert found.first_entry_incomplete == (0 < most < first.size)  # Kafka says nothing of an empty read
        whole = segment.read(start, most, min_one_message=True)
        assert whole is not None
        assert whole.data == data[first.position : first.position + max(most, first.size)]
        end = next((entry.position for entry in entries if entry.offset >= start + 9), len(data))
        bounded = segment.read(start, 10**6, max_offset=start + 9)
        assert bounded is not None
        assert bounded.data == data[first.position : end]
    assert segment.next_offset() == offset
    segment.close()


def test_a_reader_goes_on_while_the_segment_is_renamed_and_deleted(tmp_path: Path) -> None:
    segment = segment_in(tmp_path)
    appended(one(2, 0, START_MS)).to(segment)
    data = Path(segment.path).read_bytes()
    segment.on_become_inactive_segment()
    segment.rest()
    log = segment.log_file()
    segment.change_file_suffixes("", ".deleted")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"{0:020}.{kind}.deleted" for kind in ("index", "log", "timeindex")
    ]
    found = segment.read(0, 1000)
    assert found is not None
    assert found.data == data
    segment.delete()
    segment.delete()
    assert list(tmp_path.iterdir()) == []
    assert log.read(0, 1000) == data


# --- truncating -----------------------------------------------------------------------------------


@pytest.mark.parametrize("generation", GENERATIONS)
@pytest.mark.parametrize("magic", [1, 2])
def test_truncating_takes_the_whole_entry_and_the_times_of_what_went(
    generation: str, magic: int, tmp_path: Path, rng: random.Random
) -> None:
    for number in range(40):
        folder = tmp_path / str(number)
        folder.mkdir()
        segment = segment_in(folder, generation=generation, index_interval_bytes=rng.choice([0, 300, 2000]))
        offset = 0
        for _ in range(rng.randrange(1, 25)):
            count = rng.randrange(1, 5)
            records = made_set(rng, magic, offset, count, START_MS, compression=rng.choice(["none", "gzip"]))
            appended(records).to(segment)
            offset += count
        data = Path(segment.path).read_bytes()
        target = rng.randrange(offset + 3)
        cut = next((entry.position for entry in walk(data) if entry.offset >= target), len(data))
        assert segment.truncate_to(target, NOW) == len(data) - cut
        assert Path(segment.path).read_bytes() == data[:cut]
        left = walk(data[:cut])
        assert segment.next_offset() == (left[-1].offset + 1 if left else 0)
        time = max((entry.time for entry in left), default=-1)
        assert segment.max_timestamp_so_far.timestamp_ms == time
        offsets, times = segment.offset_index, segment.time_index
        found = struct.unpack(f">{offsets.entries * 2}i", offsets.read())
        assert all(o < target and p < cut for o, p in zip(found[::2], found[1::2], strict=True))
        assert times.last_entry[1] < target or times.entries == 0
        assert os.path.getsize(offsets.path) == os.path.getsize(times.path) + 4 == 10 * 2**20
        appended(one(magic, target, START_MS + 10**6)).to(segment)
        assert segment.max_timestamp_so_far == (START_MS + 10**6, target)
        segment.close()


# --- files ----------------------------------------------------------------------------------------


def test_a_preallocated_log_has_no_size_before_it_is_written_to_and_is_trimmed_at_the_end(tmp_path: Path) -> None:
    segment = segment_in(tmp_path, preallocate=True, segment_bytes=5000)
    assert (segment.size, os.path.getsize(segment.path)) == (0, 5000)
    records = one(2, 0, START_MS)
    appended(records).to(segment)
    assert (segment.size, os.path.getsize(segment.path)) == (len(records), 5000)
    segment.close()
    assert Path(segment.path).read_bytes() == records


@contextmanager
def no_file_longer_than(size: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("preallocate", [False, True])
@pytest.mark.parametrize("generation", GENERATIONS)
def test_a_batch_that_the_disk_takes_half_of_is_not_there(generation: str, preallocate: bool, tmp_path: Path) -> None:
    segment = segment_in(
        tmp_path,
        generation=generation,
        index_interval_bytes=0,
        segment_index_bytes=1200,
        preallocate=preallocate,
        segment_bytes=14000,
    )
    sets = [appended(one(2, offset, START_MS + offset, size=3000)) for offset in range(4)]
    for records in sets[:3]:
        records.to(segment)
    before = index_bytes(segment.path), segment.max_timestamp_so_far
    size = segment.size
    with no_file_longer_than(size + 1000), pytest.raises(LogStorageError, match=f"at {size} failed"):
        sets[3].to(segment)
    assert (index_bytes(segment.path), segment.max_timestamp_so_far) == before
    assert segment.size == size
    if preallocate:
        assert isinstance(segment.failed, LogStorageError)  # its length could not be given back
        with pytest.raises(LogClosedError, match="the segment failed before"):
            sets[3].to(segment)
        segment.close()
        assert Path(segment.path).read_bytes() == b"".join(records.records for records in sets[:3])
        return
    assert os.path.getsize(segment.path) == size
    sets[3].to(segment)
    segment.close()
    assert Path(segment.path).read_bytes() == b"".join(records.records for records in sets)
    assert len(index_bytes(segment.path)[0]) == 3 * 8


def test_a_segment_that_is_closed_and_opened_again_goes_on_where_it_was(tmp_path: Path) -> None:
    segment = segment_in(tmp_path, index_interval_bytes=100)
    for offset in range(9):
        appended(one(2, offset, START_MS - offset)).to(segment)
    segment.close()
    again = segment_in(tmp_path, index_interval_bytes=100)
    assert again.max_timestamp_so_far == (START_MS, 0)
    assert again.next_offset() == 9
    assert not again.is_new
    again.resize_indexes()
    appended(one(2, 9, START_MS + 1)).to(again)
    again.close()
    assert index_bytes(again.path)[1][-12:] == struct.pack(">qi", START_MS + 1, 9)
