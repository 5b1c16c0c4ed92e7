"""The two index files while they are written: what Kafka's own classes do, rule by rule."""

from __future__ import annotations

import random
import struct
from bisect import bisect_right
from pathlib import Path

import pytest

import kts
from kts.behaviour import KAFKA_TIMES, Behaviour, TimeRules
from kts.errors import CorruptIndexError, IndexFullError, InvalidOffsetError
from kts.segment.index import OffsetIndexFile, TimeIndexFile
from kts.store.local import File

GENERATIONS = ["0.10.2", "3.9"]
BASE = 1000


def offset_index(path: Path, max_bytes: int = 4096, generation: str = "3.9", shipped: bool = False) -> OffsetIndexFile:
    return OffsetIndexFile(str(path / "x.index"), BASE, max_bytes, Behaviour.of(generation, shipped))


def time_index(
    path: Path, max_bytes: int = 4096, generation: str = "3.9", shipped: bool = False, times: TimeRules = KAFKA_TIMES
) -> TimeIndexFile:
    return TimeIndexFile(str(path / "x.timeindex"), BASE, max_bytes, Behaviour.of(generation, shipped, times))


def test_a_new_index_has_its_full_length_in_whole_entries_and_none_of_them(tmp_path: Path) -> None:
    offsets, times = offset_index(tmp_path, 101), time_index(tmp_path, 101)
    assert Path(offsets.path).read_bytes() == bytes(96)
    assert Path(times.path).read_bytes() == bytes(96)
    assert (offsets.entries, offsets.max_entries, offsets.last_offset) == (0, 12, BASE)
    assert (times.entries, times.max_entries, times.last_entry) == (0, 8, (-1, BASE))
    assert offsets.lookup(BASE + 5) == (BASE, 0)
    assert times.lookup(5) == (-1, BASE)


def test_a_maximum_below_one_entry_gives_room_for_one(tmp_path: Path) -> None:
    offsets, times = offset_index(tmp_path, 7), time_index(tmp_path, 0)
    for index in (offsets, times):
        assert (index.entries, index.max_entries, Path(index.path).stat().st_size) == (0, 1, index.entry_bytes)
    assert (offsets.is_full, times.is_full) == (False, True)  # the only slot is for the closing entry
    offsets.append(BASE, 0)
    times.maybe_append(5, BASE, skip_full_check=True)
    offsets.reset()
    times.trim()
    times.expand()
    assert (offsets.entries, offsets.max_entries, times.entries, times.max_entries) == (0, 1, 1, 1)


def test_as_shipped_an_index_that_is_replaced_is_not_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index, asked, read = offset_index(tmp_path, 16, shipped=True), list[tuple[int, int]](), File.read
    index.append(BASE + 1, 5)
    index.append(BASE + 2, 9)
    entries = Path(index.path).read_bytes()
    monkeypatch.setattr(File, "read", lambda file, *where: asked.append(where) or read(file, *where))
    index.reset(entries)
    assert (asked, Path(index.path).read_bytes()) == ([(8, 8)], entries)  # the last entry


def test_as_shipped_a_maximum_below_one_entry_is_refused_and_leaves_an_empty_file(tmp_path: Path) -> None:
    with pytest.raises(kts.IndexFullError, match=r"segment\.index\.bytes: expected at least 12, found 11"):
        time_index(tmp_path, 11, shipped=True)
    assert Path(tmp_path, "x.timeindex").read_bytes() == b""
    left = time_index(tmp_path, 11, shipped=True)
    assert (left.max_entries, left.is_full) == (0, True)


def test_of_a_file_that_is_there_every_slot_counts(tmp_path: Path) -> None:
    (tmp_path / "x.index").write_bytes(struct.pack(">ii", 3, 70) + bytes(13))
    index = offset_index(tmp_path)
    assert (index.entries, index.max_entries, index.length, index.is_full) == (2, 2, 21, True)
    assert index.last_offset == BASE  # of the zeros
    with pytest.raises(CorruptIndexError, match="multiple of 8 bytes, found 21"):
        index.sanity_check()


@pytest.mark.parametrize("generation", GENERATIONS)
@pytest.mark.parametrize("count", [1, 2, 500, 513, 3000])
def test_lookups_find_the_last_entry_that_is_not_greater(
    generation: str, count: int, tmp_path: Path, rng: random.Random
) -> None:
    offsets, times = (make(tmp_path, 2**16, generation=generation) for make in (offset_index, time_index))
    entries, offset, position, time = [], BASE, 0, -1
    for _ in range(count):
        offset, position, time = (
            offset + rng.randrange(1, 9),
            position + rng.randrange(1, 9000),
            time + rng.randrange(1, 50),
        )
        entries.append((offset, position, time))
        offsets.append(offset, position)
        times.maybe_append(time, offset)
    keys, moments = [entry[0] for entry in entries], [entry[2] for entry in entries]
    for _ in range(300):
        target = rng.randrange(BASE - 3, offset + 5)
        slot = bisect_right(keys, target) - 1
        assert offsets.lookup(target) == ((BASE, 0) if slot < 0 else entries[slot][:2])
        moment = rng.randrange(-5, time + 20)
        slot = bisect_right(moments, moment) - 1
        assert times.lookup(moment) == ((-1, BASE) if slot < 0 else (entries[slot][2], entries[slot][0]))
    assert kts.OffsetIndex(offsets.read(), BASE).lookup(offset) == entries[-1][:2]
    assert Path(offsets.path).stat().st_size == 2**16


@pytest.mark.parametrize("generation", GENERATIONS)
def test_the_offset_index_wants_greater_offsets_and_a_free_slot(generation: str, tmp_path: Path) -> None:
    index = offset_index(tmp_path, 16, generation=generation)
    index.append(BASE, 5)  # the first one may be the base offset
    for offset in (BASE, BASE - 1):
        with pytest.raises(InvalidOffsetError, match=f"above {BASE}, found {offset}"):
            index.append(offset, 9)
    index.append(BASE + 1, 9)
    with pytest.raises(IndexFullError, match="it has 2 entries"):
        index.append(BASE + 2, 12)
    assert index.read() == struct.pack(">iiii", 0, 5, 1, 9)


def test_an_offset_that_does_not_fit_is_refused_where_kafka_3_9_does_and_cut_where_0_10_2_does(tmp_path: Path) -> None:
    far = BASE + 2**31
    index = offset_index(tmp_path, shipped=True)
    with pytest.raises(InvalidOffsetError, match=f"to {far - 1}, found {far}"):
        index.append(far, 9)
    assert index.entries == 0
    index = offset_index(tmp_path, generation="0.10.2", shipped=True)
    index.cut(0)
    index.append(far + 2**31 + 7, 9)
    assert index.read() == struct.pack(">ii", 7, 9)
    times = time_index(tmp_path, generation="0.10.2", shipped=True)
    times.maybe_append(5, far + 2**31 + 7)
    assert times.last_offset == BASE + 7, "as it is read back from the file"
    times.maybe_append(6, BASE + 8)
    assert times.entries == 2


@pytest.mark.parametrize("generation", GENERATIONS)
def test_the_time_index_takes_what_is_later_and_nothing_that_is_not_in_order(generation: str, tmp_path: Path) -> None:
    index = time_index(tmp_path, generation=generation)
    for nothing in (-1, -2, -(2**63)):
        index.maybe_append(nothing, BASE)
    assert index.entries == 0
    index.maybe_append(10, BASE + 4)
    index.maybe_append(10, BASE + 9)  # an equal time changes nothing
    index.maybe_append(11, BASE + 4)  # an equal offset may come with a later time
    assert index.read() == struct.pack(">qiqi", 10, 4, 11, 4)
    with pytest.raises(InvalidOffsetError, match=f"offset from {BASE + 4} on, found {BASE + 3}"):
        index.maybe_append(12, BASE + 3)
    with pytest.raises(InvalidOffsetError, match="timestamp from 11 on, found 9"):
        index.maybe_append(9, BASE + 5)
    assert index.last_entry == (11, BASE + 4)


def test_the_last_slot_of_the_time_index_is_kept_for_the_closing_entry(tmp_path: Path) -> None:
    index = time_index(tmp_path, 36, shipped=True)
    index.maybe_append(1, BASE)
    index.maybe_append(2, BASE)
    assert index.is_full
    with pytest.raises(IndexFullError, match="it has 2 entries"):
        index.maybe_append(3, BASE)
    index.maybe_append(3, BASE, skip_full_check=True)
    with pytest.raises(IndexFullError, match="no slot is left"):
        index.maybe_append(4, BASE, skip_full_check=True)
    assert Path(index.path).stat().st_size == 36
    ours = time_index(tmp_path, 36)
    ours.maybe_append(4, BASE, skip_full_check=True)  # a closed index grows by it
    assert (ours.entries, Path(ours.path).stat().st_size) == (4, 48)


@pytest.mark.parametrize("generation", GENERATIONS)
def test_truncating_drops_entries_at_the_offset_and_behind_it_and_keeps_the_length(
    generation: str, tmp_path: Path
) -> None:
    for target, left in ((BASE, 0), (BASE + 3, 0), (BASE + 4, 1), (BASE + 7, 1), (BASE + 8, 2), (BASE + 99, 3)):
        offsets, times = (make(tmp_path, 120, generation=generation) for make in (offset_index, time_index))
        for index in (offsets, times):
            index.reset()
        for number, offset in enumerate((BASE + 3, BASE + 7, BASE + 11)):
            offsets.append(offset, 10 * number)
            times.maybe_append(number, offset)
        offsets.truncate_to(target)
        times.truncate_to(target)
        assert (offsets.entries, times.entries) == (left, left), target
        assert offsets.last_offset == (BASE if not left else BASE + 4 * left - 1)
        assert times.last_entry == ((-1, BASE) if not left else (left - 1, BASE + 4 * left - 1))
        for index in (offsets, times):
            data = Path(index.path).read_bytes()
            assert len(data) == 120
            assert not any(data[index.size_bytes :])


def test_resizing_keeps_entries_and_trimming_leaves_nothing_else(tmp_path: Path) -> None:
    index = time_index(tmp_path, 120)
    index.maybe_append(5, BASE)
    index.maybe_append(6, BASE + 1)
    entries = struct.pack(">qiqi", 5, 0, 6, 1)
    index.resize(1000)
    assert Path(index.path).read_bytes() == entries + bytes(996 - 24)
    index.trim()
    assert (Path(index.path).read_bytes(), index.max_entries) == (entries, 2)
    index.resize(12)  # fewer than there are
    assert Path(index.path).read_bytes() == entries
    index.behaviour = Behaviour.of("3.9", shipped=True)
    with pytest.raises(IndexFullError, match="2 entries do not fit into 12 bytes"):
        index.resize(12)


def test_sanity_checks_fail_on_what_kafka_fails_on(tmp_path: Path) -> None:
    (tmp_path / "x.index").write_bytes(struct.pack(">ii", 0, 0))
    offset_index(tmp_path).sanity_check()  # from 2.0 on the base offset may be the last one
    with pytest.raises(CorruptIndexError, match=f"from {BASE + 1} on, found {BASE}"):
        offset_index(tmp_path, generation="0.10.2").sanity_check()
    (tmp_path / "x.index").write_bytes(struct.pack(">ii", -1, 0))
    with pytest.raises(CorruptIndexError, match=f"from {BASE} on, found {BASE - 1}"):
        offset_index(tmp_path).sanity_check()
    for data, message in (
        (struct.pack(">qiqi", 5, 1, 4, 2), "timestamp from 5 on, found 4"),
        (struct.pack(">qi", 5, -1), f"offset from {BASE} on, found {BASE - 1}"),
        (bytes(13), "multiple of 12 bytes, found 13"),
    ):
        (tmp_path / "x.timeindex").write_bytes(data)
        with pytest.raises(CorruptIndexError, match=message):
            time_index(tmp_path).sanity_check()


def test_negative_times_are_times_where_they_are_allowed_and_minus_one_is_none(tmp_path: Path) -> None:
    index = time_index(tmp_path, times=TimeRules(before_1970=True))
    index.maybe_append(-(2**63), BASE)
    index.maybe_append(-500, BASE + 1)
    index.maybe_append(-1, BASE + 2)
    index.maybe_append(0, BASE + 3)
    assert index.read() == struct.pack(">qiqiqi", -(2**63), 0, -500, 1, 0, 3)
    assert index.lookup(-501) == (-(2**63), BASE)
    assert index.lookup(-1) == (-500, BASE + 1)


def test_what_was_written_is_there_when_the_file_is_opened_again(tmp_path: Path) -> None:
    index = offset_index(tmp_path)
    index.append(BASE + 2, 9)
    index.flush()
    assert not index.dirty
    index.close()
    again = offset_index(tmp_path)
    assert (again.entries, again.last_offset, again.is_full) == (1, BASE + 2, True)
    again.rename(str(tmp_path / "y.index"))
    assert again.lookup(BASE + 5) == (BASE + 2, 9)
    again.delete()
    again.delete()
    assert list(tmp_path.iterdir()) == []
