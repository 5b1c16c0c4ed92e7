"""What must hold for any bytes given to the codec: every reader says the same, and what the reference decoder says."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from support.damage.guard import GuardedBuffer
from support.reference import reference
from support.reference.decoded import difference, rows_of
from support.reference.verdict import disagreement

import kts
from kts.codec.columns import record_schema

BOUND = 1 << 20
MOST_BYTES = 1 << 18
GUARD = GuardedBuffer(MOST_BYTES)
ALL = kts.ALL_COLUMNS
# Sets of columns that are read in a way of their own, if any are.
USUAL = (
    *(ALL[:6], ALL[:6], ("offset", "timestamp"), ("offset", "timestamp", "key", "value"), ALL[:5]),
    *(("key", "value"), ("value",), ("timestamp", "key"), ("offset",), ("sequence", "createTimestamp")),
)
SLICES = (1, 40, 100, 300, 5000, 1 << 20)


class Finding(Exception):
    """A promise that did not hold."""


def need(holds: object, what: str) -> None:
    if not holds:
        raise Finding(what)


def attempt(call: Callable[[], Any]) -> tuple[Any, kts.CorruptRecordError | None]:
    """(the answer, None), or (None, the damage). Any other exception goes through: it is a find."""
    try:
        return call(), None
    except kts.CorruptRecordError as error:
        return None, error


def check(data: bytes, rng: random.Random, full: bool) -> kts.CorruptRecordError | None:
    """Read the data in every way (``full``), or in those that ``rng`` chooses. Returns the damage."""
    buf = GUARD.put(data)
    table, damage = attempt(lambda: kts.decode(buf, ALL, max_decompressed_bytes=BOUND))
    one = rng.random()
    if full or one < 0.4:
        for views in (False, True) if full else (rng.random() < 0.5,):
            for slice_bytes in SLICES if full else (rng.choice(SLICES),):
                pieces(buf, table, damage, slice_bytes, views, rng.choice((ALL, ALL[:6])))
    if full or 0.4 <= one < 0.6:
        views_agree(buf, table, damage)
    if full or one >= 0.6:
        for _ in range(8 if full else 1):
            fewer_columns(buf, table, damage, rng)
    if full or rng.random() < 0.25:
        headers(buf, table, damage)
    if full or rng.random() < 0.1:
        without_crc(buf, table)
    if table is not None and table.num_rows and (full or rng.random() < 0.1) and from_a_broker(table):
        encoded_again(table)
        for _ in range(4 if full else 1):
            encoded_anew(table, rng)
    if full:
        if table is not None:
            table.validate(full=True)
        as_the_reference_says(data, table, damage, buf)
    return damage


def headers(buf: memoryview, table: pa.RecordBatch | None, damage: kts.CorruptRecordError | None) -> None:
    """What reads sizes and headers alone, and the maximum, against what was decoded."""
    sizes, bad_size = attempt(lambda: kts.valid_bytes(buf))
    scanned, bad_header = attempt(lambda: kts.scan_batches(buf))
    for what, error in (("valid_bytes", bad_size), ("scan_batches", bad_header)):
        need(damage or not error, f"{what} refuses what decode reads: {error}")
        need(not (damage and error) or damage.position <= error.position, f"{what} refuses later than decode: {error}")
    need(bad_header or not bad_size, f"valid_bytes refuses what scan_batches reads: {bad_size}")
    greatest, late = attempt(lambda: kts.max_timestamp(buf, max_decompressed_bytes=BOUND))
    same_damage("max_timestamp", damage, late)
    if table is not None:
        headers_agree(table, sizes, scanned, greatest)


def same_damage(what: str, damage: kts.CorruptRecordError | None, other: kts.CorruptRecordError | None) -> None:
    """Both read, or both refuse at one place."""
    need((damage is None) == (other is None), f"decode says {damage}, {what} {other}")
    if damage is not None and other is not None:
        where = (damage.position, damage.offset, damage.record_index, str(damage))
        there = (other.position, other.offset, other.record_index, str(other))
        need(where == there, f"decode says {where}, {what} {there}")


def copied(table: pa.RecordBatch, names: tuple[str, ...] = ALL) -> pa.RecordBatch:
    """Keys and values of views as copies."""
    columns = [c.cast(pa.binary()) if n in ("key", "value") else c for n, c in zip(names, table.columns, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=record_schema(names, False))


def before(buf: memoryview, table: pa.RecordBatch | None, damage: kts.CorruptRecordError | None) -> pa.RecordBatch:
    """The rows of the entries before the damage; all rows where there is none."""
    if table is not None:
        return table
    return kts.decode(buf[: damage.position], ALL, max_decompressed_bytes=BOUND)  # type: ignore[union-attr]


def views_agree(buf: memoryview, table: pa.RecordBatch | None, damage: kts.CorruptRecordError | None) -> None:
    views, error = attempt(lambda: kts.decode(buf, ALL, views=True, max_decompressed_bytes=BOUND))
    same_damage("decode of views", damage, error)
    need(table is None or copied(views).equals(table), "views give other rows than copies")


def pieces(
    buf: memoryview,
    table: pa.RecordBatch | None,
    damage: kts.CorruptRecordError | None,
    slice_bytes: int,
    views: bool,
    names: tuple[str, ...],
) -> None:
    what = f"iter_decode of {slice_bytes} bytes, views {views}, {names}"
    found: list[pa.RecordBatch] = []
    error = None
    try:
        for piece in kts.iter_decode(buf, names, slice_bytes=slice_bytes, views=views, max_decompressed_bytes=BOUND):
            need(piece.num_rows, f"{what}: an empty piece")
            found.append(copied(piece, names) if views else piece)
    except kts.CorruptRecordError as caught:
        error = caught
    same_damage(what, damage, error)
    expected = pa.Table.from_batches([before(buf, table, damage).select(names)])
    joined = pa.Table.from_batches(found, expected.schema)
    need(joined.equals(expected), f"{what}: {joined.num_rows} rows, decode {expected.num_rows}")


def fewer_columns(
    buf: memoryview, table: pa.RecordBatch | None, damage: kts.CorruptRecordError | None, rng: random.Random
) -> None:
    """The same values in fewer columns; what is damaged in a record behind the last field needed may go unseen."""
    names = rng.choice(USUAL) if rng.random() < 0.6 else tuple(rng.sample(ALL, rng.randrange(1, 7)))
    views = rng.random() < 0.5
    some, error = attempt(lambda: kts.decode(buf, names, views=views, max_decompressed_bytes=BOUND))
    if "headers" in names or damage is None or damage.record_index is None or buf[damage.position + 16] != 2:
        same_damage(f"decode of {names}, views {views}", damage, error)
    elif error is not None:
        places = [
            (each.position, MOST_BYTES if each.record_index is None else each.record_index) for each in (damage, error)
        ]
        need(places[0] <= places[1], f"decode of {names}, views {views} says {error}, all columns {damage}")
    if some is not None:
        expected = before(buf, table, damage).select(names)
        got = some.slice(0, expected.num_rows) if damage else some
        need((copied(got, names) if views else got).equals(expected), f"{names}, views {views}: other values")


def headers_agree(table: pa.RecordBatch, sizes: int, scanned: pa.RecordBatch, greatest: kts.MaxTimestamp) -> None:
    """Header scan, sizes and maximum, computed from what was decoded."""
    need(all(scanned.column("crcOk").to_pylist()), "scan_batches finds a wrong CRC in what decode reads")
    need(sum(scanned.column("sizeInBytes").to_pylist()) == sizes, "scan_batches and valid_bytes differ in size")
    positions = scanned.column("position").to_pylist()
    rows = Counter(table.column("position").to_pylist())
    for position, count in zip(positions, scanned.column("count").to_pylist(), strict=True):
        has = rows.pop(position, 0)
        need(has == count if count is not None else has > 0, f"entry at {position}: {has} rows, {count} declared")
    need(not rows, f"rows of entries that scan_batches does not see: {rows}")
    expected = (-1, -1, -1)
    times = table.column("timestamp").view(pa.int64()).to_pylist()
    if max(times, default=-1) > -1:
        first = times.index(max(times))
        entry = positions.index(table.column("position")[first].as_py())
        last = scanned.column("lastOffset")[entry].as_py()
        expected = (times[first], table.column("offset")[first].as_py(), last)
    need(tuple(greatest) == expected, f"max_timestamp is {tuple(greatest)}, the rows say {expected}")


def without_crc(buf: memoryview, table: pa.RecordBatch | None) -> None:
    """What is read with CRCs is read without them."""
    loose, error = attempt(lambda: kts.decode(buf, ALL, verify_crc=False, max_decompressed_bytes=BOUND))
    if table is not None:
        need(error is None and loose.equals(table), f"verify_crc=False gives other rows: {error}")
    attempt(lambda: kts.max_timestamp(buf, verify_crc=False, max_decompressed_bytes=BOUND))


def from_a_broker(table: pa.RecordBatch) -> bool:
    """Whether one could have written them: no negative offset or delta, no magic 1 in a wrapper of magic 0."""
    offsets = table.column("offset").to_numpy()
    bases = table.column("baseOffset").fill_null(0).to_numpy()
    odd = (table.column("magic").to_numpy() == 1) & (table.column("timestampType").to_numpy() < 0)
    return bool((bases >= 0).all() and (offsets >= bases).all() and not odd.any())


def encoded_again(table: pa.RecordBatch) -> None:
    """Rows written as batches like theirs are the same rows; rows that no batch can hold are refused by name."""
    try:
        data = kts.encode(table, preserve_batches=True)
    except ValueError as error:
        need(":" in str(error), f"encode refuses without a name: {error}")
        return
    again = kts.decode(data, ALL)
    left = [name for name in ALL if name != "position"]
    for name in left:
        need(again.column(name).equals(table.column(name)), f"encoded and decoded again, {name} is another")


def encoded_anew(table: pa.RecordBatch, rng: random.Random) -> None:
    """Rows written in another format are the same rows, as far as it can carry them."""
    magic, codec = rng.randrange(3), rng.choice(("none", "none", "gzip", "snappy", "lz4", "zstd"))
    names = ["offset", "key", "value", *(["timestamp"] if magic else []), *(["headers"] if magic == 2 else [])]
    codec = "lz4" if codec == "zstd" and magic < 2 else codec
    rows = table.select(names)
    try:
        data = kts.encode(rows, magic=magic, compression=codec, batch_bytes=rng.choice((1, 100, 1000, 16384)))
    except ValueError as error:
        offsets = rows.column("offset").to_pylist()
        need(any(b <= a for a, b in zip(offsets, offsets[1:], strict=False)), f"encode refuses sound rows: {error}")
        return
    need(kts.decode(data, names).equals(rows), f"encoded as magic {magic}, {codec} the rows are others")


def as_the_reference_says(
    data: bytes, table: pa.RecordBatch | None, damage: kts.CorruptRecordError | None, buf: memoryview
) -> None:
    rows: list[dict[str, Any]] = []
    theirs = None
    try:
        for _, more in reference.decode_entries(data, limit=BOUND):
            rows += more
    except reference.Corrupt as error:
        theirs = error
    wrong = disagreement(damage, theirs)
    need(wrong is None, f"{wrong}")
    wrong = difference(rows_of(before(buf, table, damage)), rows)
    need(wrong is None, f"not what the reference says: {wrong}")
    same_or_refused(lambda: kts.valid_bytes(buf), lambda: reference.valid_bytes(data))
    same_or_refused(lambda: rows_of(kts.scan_batches(buf)), lambda: reference.scan_batches(data))


def same_or_refused(ours: Callable[[], Any], theirs: Callable[[], Any]) -> None:
    answer, damage = attempt(ours)
    try:
        expected = theirs()
    except reference.Corrupt as error:
        need(damage, f"the reference refuses ({error}), we say {answer!r:.200}")
        return
    need(damage is None and answer == expected, f"the reference says {expected!r:.200}, we {answer!r:.200} {damage}")
