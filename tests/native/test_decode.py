"""The codec against the slow reference decoder: 20,000 random batches, then damaged ones.

KTS_SEED=<number> replays a run.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from support.golden import scaled
from support.reference import reference
from support.reference.decoded import difference, rows_of
from support.reference.verdict import disagreement
from support.sets import generate

import kts

Row = dict[str, Any]
PARTS = scaled(2, 10)
BATCHES_PER_PART = 2000
DAMAGED_PER_PART = 500


def pieces(data: bytes, **options: Any) -> tuple[list[Row], kts.CorruptRecordError | None]:
    """All rows that iter_decode gives, and the error that ends it."""
    rows: list[Row] = []
    try:
        for batch in kts.iter_decode(data, kts.ALL_COLUMNS, **options):
            rows += rows_of(batch)
    except kts.CorruptRecordError as error:
        return rows, error
    return rows, None


def same(got: list[Row], expected: list[Row], where: str) -> None:
    wrong = difference(got, expected)
    assert wrong is None, f"{where}: {wrong}"


@pytest.mark.parametrize("part", range(PARTS))
def test_random_batches_decode_as_the_reference_says(seed: int, part: int) -> None:
    batches = records = buffers = 0
    counts: Counter[str] = Counter()
    while batches < BATCHES_PER_PART:
        where = f"KTS_SEED={seed}, part {part}, buffer {buffers}"
        rng = random.Random(where)
        data, count = generate.random_buffer(rng)
        expected = reference.decode(data)
        same(rows_of(kts.decode(data, kts.ALL_COLUMNS)), expected, f"{where}: decode")
        same(rows_of(kts.decode(data, kts.ALL_COLUMNS, views=True)), expected, f"{where}: views")
        slice_bytes = rng.choice((1, 50, 200, 1000))
        same(pieces(data, slice_bytes=slice_bytes)[0], expected, f"{where}: slices of {slice_bytes}")
        same(pieces(data, slice_bytes=slice_bytes, views=True)[0], expected, f"{where}: views of {slice_bytes}")
        held = list(kts.iter_decode(data, kts.ALL_COLUMNS, slice_bytes=slice_bytes, views=rng.random() < 0.5))
        del held[1::3]  # their memory is used again by nobody who could see the others
        again = rows_of(kts.iter_decode(data, kts.ALL_COLUMNS, slice_bytes=slice_bytes))
        same(again, expected, f"{where}: again")
        kept = rows_of(held)
        positions = {row["position"] for row in kept}
        theirs = [row for row in expected if row["position"] in positions]
        same(kept, theirs, f"{where}: pieces held")
        some = rng.sample(kts.ALL_COLUMNS, rng.randrange(1, 6))
        table = kts.decode(data, some)
        assert table.schema.names == some, where
        same(rows_of(table), [{name: row[name] for name in some} for row in expected], f"{where}: {some}")
        same(rows_of(kts.scan_batches(data)), reference.scan_batches(data), f"{where}: scan_batches")
        assert kts.valid_bytes(data) == reference.valid_bytes(data), where
        assert tuple(kts.max_timestamp(data)) == reference.max_timestamp(data), where
        batches += count
        buffers += 1
        records += len(expected)
        counts.update(f"magic {row['magic']} codec {row['codec']}" for row in expected)
    print(f"{batches} batches and messages, {records} records in {buffers} buffers")
    assert len(counts) == 13, counts  # magic 0 and 1 with four codecs, magic 2 with five


@pytest.mark.slow
@pytest.mark.parametrize(("magic", "codec"), [(m, c) for m in range(3) for c in range(5) if c < 4 or m == 2])
def test_large_batches_decode_as_the_reference_says(seed: int, magic: int, codec: int) -> None:
    data = generate.large_entry(random.Random(seed), magic, codec) * 2
    expected = reference.decode(data)
    assert len(expected) == 4000
    for views in (False, True):
        where = f"KTS_SEED={seed}, views {views}"
        same(rows_of(kts.decode(data, kts.ALL_COLUMNS, views=views)), expected, where)
        same(pieces(data, slice_bytes=30_000, views=views)[0], expected, f"{where}, in pieces")
    assert tuple(kts.max_timestamp(data)) == reference.max_timestamp(data)
    assert kts.valid_bytes(data) == len(data)


@pytest.mark.parametrize("part", range(PARTS))
def test_damaged_batches_are_refused_or_read_as_the_reference_says(seed: int, part: int) -> None:
    counts: Counter[str] = Counter()
    for i in range(DAMAGED_PER_PART):
        where = f"KTS_SEED={seed}, damaged part {part}, buffer {i}"
        rng = random.Random(where)
        data = generate.mutate(rng, generate.random_buffer(rng, 3)[0])
        before: list[Row] = []
        damage = None
        try:
            for _, rows in reference.decode_entries(data):
                before += rows
        except reference.Corrupt as error:
            damage = error
        got, error = pieces(data, slice_bytes=rng.choice((1, 300, 100_000)), views=rng.random() < 0.5)
        same(got, before, f"{where}: before the damage ({damage})")
        assert disagreement(error, damage) is None, f"{where}: {disagreement(error, damage)}"
        views = rng.random() < 0.5
        if damage is None:
            same(rows_of(kts.decode(data, kts.ALL_COLUMNS, views=views)), before, where)
            assert tuple(kts.max_timestamp(data)) == reference.max_timestamp(data), where
        else:
            for call in (lambda: kts.decode(data, views=views), lambda: kts.max_timestamp(data)):  # noqa: B023
                with pytest.raises(kts.CorruptRecordError) as caught:
                    call()
                assert disagreement(caught.value, damage) is None, f"{where}: {disagreement(caught.value, damage)}"
        unchecked(data, where)
        counts["sound" if damage is None else "damaged"] += 1
    print(dict(counts))
    assert min(counts.values()) > DAMAGED_PER_PART // 20


def unchecked(data: bytes, where: str) -> None:
    """Sizes, headers, and decoding without CRCs."""
    for ours, theirs in (
        (lambda: kts.valid_bytes(data), lambda: reference.valid_bytes(data)),
        (lambda: rows_of(kts.scan_batches(data)), lambda: reference.scan_batches(data)),
        (
            lambda: rows_of(kts.decode(data, kts.ALL_COLUMNS, verify_crc=False)),
            lambda: reference.decode(data, verify_crc=False),
        ),
    ):
        try:
            expected = theirs()
        except reference.Corrupt as damage:
            with pytest.raises(kts.CorruptRecordError):
                print(where, damage, ours())
            continue
        got = ours()
        if isinstance(got, list) and isinstance(expected, list):
            same(got, expected, where)
        else:
            assert got == expected, where
