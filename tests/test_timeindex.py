"""The two indexes: every answer compared with a linear search written here."""

from __future__ import annotations

import random
import struct

import numpy as np
import pytest

from kts._timeindex import OffsetIndex, TimeIndex

BASE = 1000
INT64 = (-(2**63), 2**63 - 1)


def time_bytes(entries: list[tuple[int, int]]) -> bytes:
    return b"".join(struct.pack(">qi", timestamp, relative) for timestamp, relative in entries)


def offset_bytes(entries: list[tuple[int, int]]) -> bytes:
    return b"".join(struct.pack(">ii", relative, position) for relative, position in entries)


def linear_time(entries: list[tuple[int, int]], target: int) -> tuple[int, int]:
    answer = (-1, BASE)
    for timestamp, relative in entries:
        if timestamp <= target:
            answer = (timestamp, BASE + relative)
    return answer


def linear_offset(entries: list[tuple[int, int]], target: int) -> tuple[int, int]:
    answer = (BASE, 0)
    for relative, position in entries:
        if BASE + relative <= target:
            answer = (BASE + relative, position)
    return answer


def random_entries(rng: random.Random, count: int) -> list[tuple[int, int]]:
    keys = sorted(rng.sample(range(1, 10 * count + 20), count))
    values = sorted(rng.sample(range(1, 10 * count + 20), count))
    return list(zip(keys, values, strict=True))


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 64, 100, 333])
def test_every_lookup_equals_a_linear_search(count: int) -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    rng = random.Random(seed)
    entries = random_entries(rng, count)
    times, offsets = TimeIndex(time_bytes(entries), BASE), OffsetIndex(offset_bytes(entries), BASE)
    near = sorted({key + d for key, _ in entries for d in (-1, 0, 1)} | {-5, 0, 10 * count + 50, *INT64})
    expected_time = [linear_time(entries, t) for t in near]
    assert [times.lookup(t) for t in near] == expected_time
    targets = [t if t in INT64 else BASE + t for t in near]
    expected_offset = [linear_offset(entries, t) for t in targets]
    assert [offsets.lookup(t) for t in targets] == expected_offset
    for order in ("sorted", "shuffled", "falling", "runs"):
        picks = list(range(len(near))) * 3
        if order == "sorted":
            picks.sort()
        elif order == "falling":
            picks.sort(reverse=True)
        elif order == "shuffled":
            rng.shuffle(picks)
        got = times.lookup_many(np.array([near[i] for i in picks], np.int64))
        assert list(zip(*(a.tolist() for a in got), strict=True)) == [expected_time[i] for i in picks]
        got = offsets.lookup_many(np.array([targets[i] for i in picks], np.int64))
        assert list(zip(*(a.tolist() for a in got), strict=True)) == [expected_offset[i] for i in picks]


def test_a_large_index_agrees_with_numpy_on_random_and_sorted_queries() -> None:
    rng = np.random.default_rng(7)
    timestamps = np.cumsum(rng.integers(1, 9, 100_000)) + 1_500_000_000_000
    relative = np.cumsum(rng.integers(0, 3, 100_000))
    raw = np.empty(100_000, [("t", ">i8"), ("o", ">i4")])
    raw["t"], raw["o"] = timestamps, relative
    index = TimeIndex(raw.tobytes(), BASE)
    queries = rng.integers(timestamps[0] - 100, timestamps[-1] + 100, 50_001)
    for targets in (queries, np.sort(queries), np.sort(queries)[::-1], np.sort(queries)[::1000]):
        slots = np.searchsorted(timestamps, targets, side="right") - 1
        got_times, got_offsets = index.lookup_many(targets)
        assert (got_times == np.where(slots < 0, -1, timestamps[slots])).all()
        assert (got_offsets == np.where(slots < 0, BASE, BASE + relative[slots])).all()
    assert [a.tolist() for a in index.entries()] == [timestamps.tolist(), (relative + BASE).tolist()]
    assert index.check() == []


def test_values_are_read_signed_and_at_full_width() -> None:
    entries = [(0, 0), (2**31, 1), (2**62 + 12345, 2**31 - 1)]
    index = TimeIndex(time_bytes(entries), 2**62)
    assert index.lookup(2**63 - 1) == (2**62 + 12345, 2**62 + 2**31 - 1)
    assert index.lookup(0) == (0, 2**62)
    assert OffsetIndex(offset_bytes([(5, 2**31 - 1)]), 0).lookup(9) == (5, 2**31 - 1)


@pytest.mark.parametrize("keep", [1, 3])
@pytest.mark.parametrize("rest", [b"", b"\1\2\3"])
def test_the_zero_tail_of_a_preallocated_file_is_no_entry(keep: int, rest: bytes) -> None:
    entries = [(10, 1), (20, 5), (30, 9)][:keep]
    times = TimeIndex(time_bytes(entries) + bytes(12 * 50) + rest, BASE)
    offsets = OffsetIndex(offset_bytes(entries) + bytes(8 * 50) + rest, BASE)
    assert len(times) == len(offsets) == keep
    assert times.lookup(99) == (entries[-1][0], BASE + entries[-1][1])
    assert offsets.lookup(BASE + 99) == (BASE + entries[-1][0], entries[-1][1])
    assert [len(a) for a in times.entries()] == [keep, keep]
    for index in (times, offsets):
        assert any(f"50 zero entries after the {keep} in use" in line for line in index.check())
        assert len(index.check()) == 1 + bool(rest)


def test_zero_is_a_legal_first_entry_but_a_file_of_zeros_is_empty() -> None:
    assert TimeIndex(time_bytes([(0, 0)]), BASE).entries()[0].tolist() == [0]
    assert TimeIndex(time_bytes([(0, 0), (5, 2)]), BASE).lookup(3) == (0, BASE)
    assert len(TimeIndex(bytes(24), BASE)) == 0
    assert TimeIndex(time_bytes([(0, 0)]), BASE).check() == []


@pytest.mark.parametrize(
    ("entries", "says"),
    [
        ([(5, 1), (5, 2)], "entry 1: timestamp 5 is not above the previous entry's 5"),
        ([(5, 1), (9, 0)], "entry 1: offset 1000 is below the previous entry's 1001"),
        ([(5, -3)], "entry 0: offset 997 is below the base offset 1000"),
        ([(-5, 0)], "entry 0: timestamp -5 is negative"),
        ([(5, 1), (0, 0), (7, 2)], "entry 1: timestamp 0 is not above"),
    ],
)
def test_check_of_a_time_index_names_the_entry(entries: list[tuple[int, int]], says: str) -> None:
    assert any(says in line for line in TimeIndex(time_bytes(entries), BASE).check())


@pytest.mark.parametrize(
    ("entries", "says"),
    [
        ([(5, 100), (5, 200)], "entry 1: offset 1005 is not above the previous entry's 1005"),
        ([(5, 100), (6, 100)], "entry 1: position 100 is not above the previous entry's 100"),
        ([(-1, 100)], "entry 0: offset 999 is below the base offset 1000"),
        ([(1, -100)], "entry 0: position -100 is negative"),
    ],
)
def test_check_of_an_offset_index_names_the_entry(entries: list[tuple[int, int]], says: str) -> None:
    assert any(says in line for line in OffsetIndex(offset_bytes(entries), BASE).check())


@pytest.mark.parametrize("extra", range(1, 12))
def test_a_cut_last_entry_is_ignored_and_reported(extra: int) -> None:
    index = TimeIndex(time_bytes([(10, 1)]) + time_bytes([(20, 2)])[:extra], BASE)
    assert len(index) == 1 and index.lookup(99) == (10, BASE + 1)
    assert f"size {12 + extra} is not a multiple of 12" in index.check()[0]


def test_damaged_bytes_never_crash() -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    rng = random.Random(seed)
    for _ in range(300):
        raw = rng.randbytes(rng.randrange(0, 400))
        for index in (TimeIndex(raw, BASE), OffsetIndex(raw, BASE)):
            queries = np.array([rng.randrange(*INT64) for _ in range(40)], np.int64)
            index.lookup_many(queries)
            index.lookup_many(np.sort(queries))
            for query in queries.tolist():
                index.lookup(query)
            index.entries()
            index.check()
    assert len(TimeIndex(bytes([255]) * 12 * 5000, BASE).check()) <= 103


def test_the_buffer_is_held_and_not_copied() -> None:
    raw = bytearray(time_bytes([(10, 1), (20, 2)]))
    index = TimeIndex(raw, BASE)
    raw[0:12] = time_bytes([(15, 1)])
    assert index.lookup(12) == (-1, BASE)
    with pytest.raises(BufferError):
        raw.extend(b"x")
    del index
    raw.extend(b"x")
    assert len(TimeIndex(memoryview(bytes(24))[12:], 0)) == 1


def test_wrong_arguments_are_refused_by_name() -> None:
    index, offsets = TimeIndex(b"", 0), OffsetIndex(b"", 0)
    for call, error, name in (
        (lambda: TimeIndex("text", 0), TypeError, "buf"),
        (lambda: TimeIndex(memoryview(bytes(24))[::2], 0), ValueError, "buf"),
        (lambda: TimeIndex(b"", "0"), TypeError, "base_offset"),
        (lambda: OffsetIndex(b"", -1), ValueError, "base_offset"),
        (lambda: index.lookup("5"), TypeError, "timestamp_ms"),
        (lambda: index.lookup(1.5), TypeError, "timestamp_ms"),
        (lambda: index.lookup(2**63), ValueError, "timestamp_ms"),
        (lambda: offsets.lookup(None), TypeError, "offset"),
        (lambda: index.lookup_many(np.array([1.5])), TypeError, "timestamps_ms"),
        (lambda: index.lookup_many(np.array([[1]])), ValueError, "timestamps_ms"),
        (lambda: offsets.lookup_many(["a"]), TypeError, "offsets"),
    ):
        with pytest.raises(error, match=name):
            call()
    assert index.lookup(np.int64(5)) == (-1, 0)
    assert [a.tolist() for a in index.lookup_many(np.array([], np.int64))] == [[], []]


def test_a_lookup_does_not_slow_down_with_the_length_of_the_zero_tail() -> None:
    """A reader that looked for the end of ten MiB each time would not come to an end."""
    index = TimeIndex(time_bytes([(10, 1), (20, 2)]) + bytes(10 * 2**20 - 24), 0)
    lookups = 1_000_000
    assert sum(index.lookup(15) == (10, 1) for _ in range(lookups)) == lookups


def test_a_slot_is_the_number_of_the_entry_that_a_lookup_finds(rng: random.Random) -> None:
    for count in (0, 1, 3, 60):
        entries = random_entries(rng, count)
        for index, last in (
            (TimeIndex(time_bytes(entries), BASE), 0),
            (OffsetIndex(offset_bytes(entries), BASE), BASE),
        ):
            every = list(zip(*(column.tolist() for column in index.entries()), strict=True))
            assert [index.entry(slot) for slot in range(count)] == every
            for target in (*INT64, *range(last - 3, last + 10 * count + 25)):
                slot = index.slot(target)
                assert slot == sum(key <= target for key, _ in every) - 1
                assert slot < 0 or index.entry(slot) == index.lookup(target)
            for wrong in (-1, count, 2**63 - 1):
                with pytest.raises(IndexError, match=f"slot: expected one of {count} entries"):
                    index.entry(wrong)


def test_their_repr_says_the_first_and_the_last_entry() -> None:
    times = b"".join(struct.pack(">qi", 1000 * slot, 7 * slot) for slot in range(1, 4))
    said = "times=1970-01-01T00:00:01.000Z to 1970-01-01T00:00:03.000Z, offsets=107 to 121"
    assert repr(TimeIndex(times, 100)) == f"TimeIndex(3 entries, base_offset=100, {said})"
    offsets = b"".join(struct.pack(">ii", 7 * slot, 400 * slot) for slot in range(1, 4))
    assert repr(OffsetIndex(offsets, 100)) == (
        "OffsetIndex(3 entries, base_offset=100, offsets=107 to 121, positions=400 to 1200)"
    )
    assert repr(TimeIndex(b"", 100)) == "TimeIndex(0 entries, base_offset=100)"
    assert "times=-9223372036854775808 ms to " in repr(TimeIndex(struct.pack(">qi", -(2**63), -1), 2**63 - 1))
