"""The index classes against any bytes, any queries, and each other in two threads."""

from __future__ import annotations

import mmap
import random
import struct
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from support.damage.guard import GuardedBuffer
from support.reference.agreement import GUARD

from kts._timeindex import OffsetIndex, TimeIndex

EDGES = (-(2**63), -(2**63) + 1, -(2**31), -1, 0, 1, 2**31 - 1, 2**31, 2**62, 2**63 - 2, 2**63 - 1)
KINDS = ((TimeIndex, 12, ">i8"), (OffsetIndex, 8, ">i4"))


def entry_bytes(kind: type, keys: list[int], values: list[int]) -> bytes:
    pack = struct.Struct(">qi" if kind is TimeIndex else ">ii").pack
    return b"".join(map(pack, keys, values))


def ask_everything(index: TimeIndex | OffsetIndex, targets: list[int]) -> None:
    """Every public call; what two calls both answer must be equal, and every answer must be an entry."""
    first, second = (column.tolist() for column in index.entries())
    assert len(first) == len(second) == len(index)
    known = set(zip(first, second, strict=True))
    known.add((-1, index.base_offset) if isinstance(index, TimeIndex) else (index.base_offset, 0))
    for target in targets:
        assert index.lookup(target) in known
    for asked in (targets, sorted(targets), sorted(targets, reverse=True)):
        assert set(zip(*(column.tolist() for column in index.lookup_many(asked)), strict=True)) <= known
    assert all(isinstance(line, str) for line in index.check())


@pytest.mark.parametrize(("kind", "size", "key"), KINDS)
def test_nothing_outside_the_buffer_is_read(kind: type, size: int, key: str) -> None:
    """Lengths round every size at which the search changes its way, at both ends of a guarded piece of memory."""
    rng = random.Random(size)
    slots = [0, 1, 2, 3, 4, 5, 15, 16, 17, 97, 16384, 16385, 20011]
    guarded = GuardedBuffer(max(slots) * size + size)
    for count in slots:
        noise = rng.randbytes(count * size)
        rising = np.zeros(count, [("key", key), ("value", ">i4")])
        rising["key"] = np.sort(np.frombuffer(rng.randbytes(8 * count), np.int64) >> (0 if size == 12 else 33))
        for data in (noise, rising.tobytes(), b"\xff" * (count * size), bytes(count * size)):
            for extra in (0, 1, size - 1):
                for put in (guarded.put, guarded.put_first):
                    targets = [rng.randrange(-(2**63), 2**63) for _ in range(21)] + list(EDGES)
                    index = kind(put(data + b"\xff" * extra), rng.choice([0, 7, 2**31]))
                    ask_everything(index, targets)


@pytest.mark.parametrize("gaps", ["even", "bursts", "steps", "two heaps"])
@pytest.mark.parametrize(("kind", "size", "key"), KINDS)
def test_a_large_index_answers_as_a_plain_search_does(kind: type, size: int, key: str, gaps: str) -> None:
    """Large enough for the windows, which must be right also where keys rise unevenly."""
    rng = np.random.default_rng(size)
    count = 40_000
    rises = {
        "even": rng.integers(1, 2000, count),
        "bursts": np.ceil(rng.lognormal(3, 2, count)),
        "steps": np.where(np.arange(count) % 700 == 0, 30_000, 1),
        "two heaps": np.where(np.arange(count) == count // 3, 1_000_000_000, 3),
    }[gaps]
    keys = np.cumsum(rises.astype(np.int64))
    file = np.zeros(count, [("key", key), ("value", ">i4")])
    file["key"], file["value"] = keys, np.arange(count)
    index = kind(file.tobytes(), 0)
    targets = np.concatenate([keys[::37], keys[::37] - 1, rng.integers(0, keys[-1], 2000), keys[-3:] + 1])
    slots = np.searchsorted(keys, targets, side="right") - 1
    below = (-1, 0) if kind is TimeIndex else (0, 0)
    expected = [(int(keys[slot]), int(slot)) if slot >= 0 else below for slot in slots]
    assert [index.lookup(target) for target in targets.tolist()] == expected
    assert list(zip(*(column.tolist() for column in index.lookup_many(targets)), strict=True)) == expected


@pytest.mark.parametrize(("kind", "size", "key"), KINDS)
def test_extreme_keys_are_found(kind: type, size: int, key: str) -> None:
    bits = 63 if size == 12 else 31
    keys = sorted({edge for edge in EDGES if -(2**bits) <= edge < 2**bits})
    index = kind(entry_bytes(kind, keys, list(range(len(keys)))), 0)
    if kind is TimeIndex:
        assert [index.lookup(key) for key in keys] == list(zip(keys, range(len(keys)), strict=True))
    spread = np.zeros(20_000, [("key", key), ("value", ">i4")])  # the widest range that a window has to divide
    spread["key"] = np.linspace(-(2**bits), 2**bits - 1, 20_000).clip(-(2**bits), 2**bits - 1024).astype(key)
    ask_everything(kind(spread.tobytes(), 2**63 - 1), list(EDGES))


def test_an_offset_beyond_64_bits_is_told_in_full() -> None:
    for kind, word in ((TimeIndex, "offset"), (OffsetIndex, "offset")):
        keys, values = ([5, 6], [10, 1]) if kind is TimeIndex else ([10, 1], [5, 6])
        lines = kind(entry_bytes(kind, keys, values), 2**63 - 1).check()
        assert f"{word} {2**63} is" in lines[0] and f"previous entry's {2**63 + 9}" in lines[0]


def test_query_arrays_of_any_layout_give_the_same_answers() -> None:
    index = TimeIndex(entry_bytes(TimeIndex, list(range(10, 2000, 10)), list(range(199))), 5)
    plain = np.arange(0, 2100, 7, dtype=np.int64)
    unaligned = np.frombuffer(b"x" + plain.tobytes(), np.int64, offset=1)
    assert not unaligned.flags.aligned
    locked = plain.copy()
    locked.flags.writeable = False
    expected = [column.tolist() for column in index.lookup_many(plain)]
    same = [unaligned, locked, plain[::-1][::-1], np.repeat(plain, 3)[::3], np.stack([plain, plain], 1)[:, 0]]
    same += [plain.astype(kind) for kind in (">i8", "<i4", ">i4", "u2", ">u4")]
    same += [plain.tolist(), tuple(plain.tolist()), memoryview(plain), range(0, 2100, 7)]
    for queries in same:
        answers = index.lookup_many(queries)
        assert [column.tolist() for column in answers] == expected
        assert all(column.dtype == np.int64 and column.flags.c_contiguous for column in answers)
    assert locked.tolist() == plain.tolist()


@pytest.mark.parametrize(
    ("queries", "error"),
    [
        (np.array([1, 2], np.uint64), TypeError),
        (np.array([True]), TypeError),
        (np.array([1.0]), TypeError),
        (np.array([]), TypeError),
        (np.array([1], object), TypeError),
        (np.array([1], "M8[ms]"), TypeError),
        (np.array([1], "m8[ms]"), TypeError),
        (np.zeros(2, [("a", "i8")]), TypeError),
        (np.int64(5), ValueError),
        (np.zeros((2, 2), np.int64), ValueError),
        ([[1], [1, 2]], ValueError),
        ([2**64], TypeError),
        (None, TypeError),
        (b"12345678", TypeError),
        (iter([1]), TypeError),
    ],
)
def test_queries_that_are_no_int64_column_are_refused_by_name(queries: object, error: type[Exception]) -> None:
    with pytest.raises(error, match="^timestamps_ms: "):
        TimeIndex(b"", 0).lookup_many(queries)
    with pytest.raises(error, match="^offsets: "):
        OffsetIndex(b"", 0).lookup_many(queries)


@pytest.mark.parametrize("kind", [TimeIndex, OffsetIndex])
def test_one_target_of_any_kind(kind: type) -> None:
    index = kind(b"", 7)
    for number in (2**63, -(2**63) - 1, 10**5000, np.uint64(2**63)):
        with pytest.raises(ValueError, match="is outside the 64-bit range"):
            index.lookup(number)
    for wrong in (None, 1.0, "1", b"1" * 1000, np.array([5]), np.True_, []):
        with pytest.raises(TypeError, match="expected an int, found ") as caught:
            index.lookup(wrong)
        assert len(str(caught.value)) < 100
    assert index.lookup(True) == index.lookup(np.int32(1)) == index.lookup(np.array(1))
    with pytest.raises(TypeError):
        kind()
    with pytest.raises(TypeError):
        type("Heir", (kind,), {})


def test_answers_that_are_kept_stay_as_they_were() -> None:
    """A lookup may fill its last answer again, but only one that nobody holds."""
    index = TimeIndex(entry_bytes(TimeIndex, list(range(1, 1001)), list(range(1000))), 2**40)
    kept = [index.lookup(target) for target in range(1, 1001)]
    assert kept == [(target, 2**40 + target - 1) for target in range(1, 1001)]
    held = index.lookup(500)
    seen = {held: "held"}
    for target in range(1, 1001):
        assert index.lookup(target)[0] == target
    assert held == (500, 2**40 + 499) and seen[500, 2**40 + 499] == "held"
    for target in (5, 900, 5):
        assert hash(index.lookup(target)) == hash((target, 2**40 + target - 1))
    last = index.lookup(3)
    del index
    assert last == (3, 2**40 + 2)


def test_a_mapped_file_is_searched_in_place_and_cannot_be_unmapped(tmp_path: Path) -> None:
    path = tmp_path / "0.timeindex"
    path.write_bytes(entry_bytes(TimeIndex, [10, 20], [1, 2]) + bytes(12 * 1000))
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        index = TimeIndex(mapped, 0)
        assert (len(index), index.lookup(15)) == (2, (10, 1))
        with pytest.raises(BufferError):
            mapped.close()
        del index
    path.write_bytes(b"")
    with path.open("rb") as file, pytest.raises(ValueError):  # an empty file cannot be mapped; its bytes are an index
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    assert TimeIndex(path.read_bytes(), 3).lookup(5) == (-1, 3)


def test_threads_share_one_index_whose_bytes_change_meanwhile() -> None:
    """Answers are of some state of the bytes, and nothing else breaks: there is no other state to share."""
    count = 20_000
    file = np.zeros(count, [("key", ">i8"), ("value", ">i4")])
    file["key"], file["value"] = np.arange(1, count + 1) * 10, np.arange(count)
    steady, raw = TimeIndex(file.tobytes(), 0), bytearray(file.tobytes())
    moving, queries = TimeIndex(raw, 0), np.arange(0, 10 * count, 13)
    expected = steady.lookup_many(queries)[1].tolist()
    singles = queries[::50].tolist()
    failed: list[BaseException] = []

    def work(seed: int) -> None:
        rng = random.Random(seed)
        try:
            for _ in range(4):
                assert [steady.lookup(target)[1] for target in singles] == expected[::50]
                raw[12 * seed :: 4801] = rng.randbytes(len(raw[12 * seed :: 4801]))
                ask_everything_moving(moving, queries, singles)
                assert steady.lookup_many(queries)[1].tolist() == expected
        except BaseException as error:
            failed.append(error)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert failed == []


def ask_everything_moving(index: TimeIndex, queries: np.ndarray, singles: list[int]) -> None:
    assert all(len(index.lookup(target)) == 2 for target in singles)
    assert len(index.lookup_many(queries)[0]) == len(queries)
    assert len(index.entries()[0]) == len(index)
    index.check()


# --- sizes and values at their extremes --------------------------------------------------------------

BASE = 1000
EXTREMES = (-(2**31), -2, -1, 0, 1, 2**31 - 1)


INDEXES = {"time": (TimeIndex, ">qi", 12), "offset": (OffsetIndex, ">ii", 8)}


@pytest.mark.parametrize("kind", INDEXES)
def test_an_index_of_any_size_has_its_whole_entries(kind: str) -> None:
    made, layout, width = INDEXES[kind]
    entries = [(10 * i + 10, 5 * i + 5) for i in range(5)]
    data = b"".join(struct.pack(layout, *entry) for entry in entries)
    guard = GuardedBuffer(len(data))
    for size in range(len(data) + 1):
        for put in (guard.put, guard.put_first):
            index = made(put(data[:size]), BASE)
            whole, rest = divmod(size, width)
            words = f"size {size} is not a multiple of {width}: {rest} bytes after the last entry"
            assert index.check() == ([words] if rest else [])
            assert len(index) == whole
            keys, values = index.entries()
            plus = (0, BASE) if kind == "time" else (BASE, 0)
            expected = [(key + plus[0], value + plus[1]) for key, value in entries[:whole]]
            assert list(zip(keys.tolist(), values.tolist(), strict=True)) == expected
            nothing = (-1, BASE) if kind == "time" else (BASE, 0)
            assert index.lookup(2**63 - 1) == (expected or [nothing])[-1]
            assert index.lookup(0) == nothing


@pytest.mark.parametrize("field", [0, 1])
@pytest.mark.parametrize("at", [0, 2, 4])
@pytest.mark.parametrize("kind", INDEXES)
def test_an_index_entry_at_its_extremes_is_found(kind: str, at: int, field: int) -> None:
    made, layout, width = INDEXES[kind]
    for value in (*EXTREMES, -(2**63), 2**63 - 1) if kind == "time" and field == 0 else EXTREMES:
        entries = [[10 * i + 10, 5 * i + 5] for i in range(5)]
        entries[at][field] = value
        data = b"".join(struct.pack(layout, *entry) for entry in entries)
        index = made(GUARD.put(data), BASE)
        assert index.check() == (time_findings(entries) if kind == "time" else offset_findings(entries))
        for target in (-(2**63), -1, 0, 25, BASE, BASE + 25, 2**63 - 1):
            found = index.lookup(target)
            [same] = zip(*(a.tolist() for a in index.lookup_many([target])), strict=True)
            if not index.check():
                assert same == found
            else:  # entries that do not rise: which one is found depends on the steps of the search
                keys, values = index.entries()
                known = {*zip(keys.tolist(), values.tolist(), strict=True), (-1, BASE) if kind == "time" else (BASE, 0)}
                assert {found, same} <= known


def time_findings(entries: list[list[int]]) -> list[str]:
    found = []
    for i, (time, offset) in enumerate(entries):
        before = entries[i - 1]
        if time < 0:
            found.append(f"entry {i}: timestamp {time} is negative, and such are never indexed")
        if offset < 0:
            found.append(f"entry {i}: offset {BASE + offset} is below the base offset {BASE}")
        if i and time <= before[0]:
            found.append(f"entry {i}: timestamp {time} is not above the previous entry's {before[0]}")
        if i and offset < before[1]:
            found.append(f"entry {i}: offset {BASE + offset} is below the previous entry's {BASE + before[1]}")
    return found


def offset_findings(entries: list[list[int]]) -> list[str]:
    found = []
    for i, (offset, position) in enumerate(entries):
        before = entries[i - 1]
        if offset < 0:
            found.append(f"entry {i}: offset {BASE + offset} is below the base offset {BASE}")
        if position < 0:
            found.append(f"entry {i}: position {position} is negative")
        if i and offset <= before[0]:
            found.append(f"entry {i}: offset {BASE + offset} is not above the previous entry's {BASE + before[0]}")
        if i and position <= before[1]:
            found.append(f"entry {i}: position {position} is not above the previous entry's {before[1]}")
    return found
