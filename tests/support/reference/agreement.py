"""Every reader of the codec and the reference decoder over the same bytes: the same rows, or both refuse them alike."""

from __future__ import annotations

from typing import Any

import pytest
from support.damage.guard import GuardedBuffer
from support.reference import reference
from support.reference.decoded import difference, rows_of
from support.reference.verdict import disagreement

import kts

GUARD = GuardedBuffer(1 << 16)


def rows_or_damage(data: bytes) -> tuple[list[dict[str, Any]], reference.Corrupt | None]:
    """Rows of the whole entries before the damage, and the damage."""
    rows: list[dict[str, Any]] = []
    try:
        for _, more in reference.decode_entries(data):
            rows += more
    except reference.Corrupt as damage:
        return rows, damage
    return rows, None


def check(data: bytes, what: str) -> bool:
    """Every reader against the reference, on guarded copies; whether the data is damaged."""
    buf = GUARD.put(data)
    expected, damage = rows_or_damage(data)
    for views in (False, True):
        if damage is None:
            wrong = difference(rows_of(kts.decode(buf, kts.ALL_COLUMNS, views=views)), expected)
            assert wrong is None, f"{what}: {wrong}; {data.hex()}"
        else:
            with pytest.raises(kts.CorruptRecordError) as caught:
                kts.decode(buf, kts.ALL_COLUMNS, views=views)
            wrong = disagreement(caught.value, damage)
            assert wrong is None, f"{what}: {wrong}; {data.hex()}"
    got: list[dict[str, Any]] = []
    error = None
    try:
        for batch in kts.iter_decode(buf, kts.ALL_COLUMNS, slice_bytes=1):
            got += rows_of(batch)
    except kts.CorruptRecordError as caught_error:
        error = caught_error
    assert disagreement(error, damage) is None, f"{what}: {disagreement(error, damage)}; {data.hex()}"
    assert difference(got, expected) is None, f"{what}: {difference(got, expected)}; {data.hex()}"
    agree(lambda: tuple(kts.max_timestamp(buf)), lambda: reference.max_timestamp(data), what)
    agree(lambda: kts.valid_bytes(buf), lambda: reference.valid_bytes(data), what)
    agree(lambda: rows_of(kts.scan_batches(buf)), lambda: reference.scan_batches(data), what)
    return damage is not None


def agree(ours: Any, theirs: Any, what: str) -> None:
    """The same answer, or both refuse."""
    try:
        expected = theirs()
    except reference.Corrupt as damage:
        with pytest.raises(kts.CorruptRecordError):
            print(what, damage, ours())
        return
    got = ours()
    if isinstance(expected, list):
        assert difference(got, expected) is None, f"{what}: {difference(got, expected)}"
    else:
        assert got == expected, what
