"""Every length and count field of every format at its extremes: refused in the words of its rule, or read right."""

from __future__ import annotations

import re
import struct

import pytest
from support.damage.guard import GuardedBuffer
from support.damage.length_cases import CODECS, READ, all_shapes, cases
from support.reference.agreement import GUARD, check

import kts
from kts._timeindex import OffsetIndex, TimeIndex


def shapes() -> list[object]:
    return [pytest.param(magic, codec, id=f"magic {magic} {CODECS[codec]}") for magic, codec in all_shapes()]


def test_the_cases_are_many_and_most_have_their_verdict_in_the_table() -> None:
    found = [case for shape in all_shapes() for case in cases(*shape)]
    assert len({case.data for case in found}) == len(found) >= 2500
    written = [case.verdict for case in found if case.verdict]
    print(len(found), "cases,", len(written), "in the table,", written.count(READ), "of them read")
    assert len(written) > 0.7 * len(found)


@pytest.mark.parametrize(("magic", "codec"), shapes())
def test_a_false_length_is_refused_in_the_words_of_its_rule_or_read_right(magic: int, codec: int) -> None:
    for case in cases(magic, codec):
        damaged = check(case.data, case.name)  # every reader, and exactly what the reference says
        if case.verdict is None:
            continue
        assert damaged == (case.verdict != READ), f"{case.name}: {case.verdict}; {case.data.hex()}"
        if damaged:
            with pytest.raises(kts.CorruptRecordError) as caught:
                kts.decode(GUARD.put_first(case.data))
            words = str(caught.value)
            assert re.fullmatch(case.verdict + ", at position 0", words), f"{case.name}: {words}; {case.data.hex()}"


# --- indexes ------------------------------------------------------------------------------------------

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
            words = f"size {size} is not a multiple of {width}: {rest} bytes behind the last entry"
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
