"""Rows as programs have them (Arrow, pandas, polars, DuckDB, dicts) as sets of batches or messages for a log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from kts.codec.columns import ALL_COLUMNS
from kts.codec.encode import array_of, encode_as_producer
from kts.codec.layout import Entries
from kts.model import NO_TIMESTAMP
from kts.times import LIKELY_UNITS, UNIT_ARGUMENT, UNITS, in_ms, milliseconds, parse_time

if TYPE_CHECKING:
    import pyarrow as pa

RECORD_COLUMNS = ("timestamp", "key", "value", "headers")
JUDGED_COLUMNS = (*RECORD_COLUMNS, "hasTimestamp")  # the last one is not written: see ``refuse_marks``
PIECE_BYTES = 32 * 2**20  # of rows that are encoded at a time
PIECE_ROWS = 2**16  # of dicts that are made columns at a time
INDEX_COLUMN = "__index_level_"  # pandas names an index without a name so
MARKED = (
    "expected a time that is stored without a mark, found -1 with hasTimestamp true: encode such records with "
    "kts.encode(..., has_timestamp=True) for kts.Log.append, or leave hasTimestamp out"
)
_DATE_TIME = r"^[12]\d{3}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?"  # the usual form of ISO 8601, which Arrow reads
_WITH_ZONE, _WITHOUT_ZONE = _DATE_TIME + r"(Z|[+-]\d\d:\d\d)$", _DATE_TIME + "$"


class ArrowStream(Protocol):
    """Arrow tables and batches, and data frames of pandas, polars and DuckDB: Arrow's PyCapsule interface."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """A stream of batches."""


AnyRows = ArrowStream | Mapping[str, Any] | Iterable[Mapping[str, Any]]


class RowSet(NamedTuple):
    """A set for one append, and its rows: the first, and the one after the last."""

    first_row: int
    end_row: int
    records: memoryview


class BadTimeError(ValueError):
    """The time of a row is refused; ``row`` is its place in the column."""

    def __init__(self, row: int, reason: str) -> None:
        super().__init__(reason)
        self.row = row


def encode_rows(
    rows: AnyRows, *, magic: int, compression: str, batch_bytes: int, now_ms: int, unit: str | None = None
) -> Iterator[RowSet]:
    """Encode rows as the sets that a producer would send: a batch, a wrapper message or a run of messages each.

    Parameters
    ----------
    rows : Table, RecordBatch, object with ``__arrow_c_stream__``, dict of columns, or iterable of dicts
        ``timestamp``, ``key``, ``value`` and ``headers`` are written; the other columns of ``kts.scan`` are left out.
    batch_bytes : int
        Limit of the uncompressed bytes of a set; a single row may exceed it.
    now_ms : int
        The timestamp of rows without one (null; -1 means none).
    unit : str, optional
        The unit of integers in ``timestamp``.

    Raises
    ------
    TypeError, ValueError
        Not rows, no row, an unknown column, a wrong value.
    UnsupportedForMessageFormatError, UnsupportedCompressionTypeError
        The message format has no headers, or not this codec.
    """
    import pyarrow as pa

    first, now = 0, pa.scalar(now_ms, pa.int64())
    for columns in _pieces(rows, unit):
        count = len(next(iter(columns.values())))
        times = columns.get("timestamp")
        columns["timestamp"] = pa.repeat(now, count) if times is None else times.fill_null(now)
        try:
            data = encode_as_producer(columns, magic, compression, batch_bytes)
        except ValueError as error:
            raise _of_rows(error) from error
        messages = magic < 2 and compression == "none"
        for one in _runs(data, batch_bytes) if messages else _entries(data):
            yield one._replace(first_row=first + one.first_row, end_row=first + one.end_row)
        first += count
    if not first:
        raise ValueError("rows: expected at least one row, found none")


def _entries(data: bytes) -> Iterator[RowSet]:
    """Each batch or wrapper."""
    row, view = 0, memoryview(data)
    for entry in Entries(data):
        end = row + entry.last_offset + 1  # its offsets begin at 0
        yield RowSet(row, end, view[entry.position : entry.end])
        row = end


def _runs(data: bytes, most_bytes: int) -> Iterator[RowSet]:
    """Runs of messages of at most so many bytes, or of one message."""
    entries, view = Entries(data), memoryview(data)
    ends = entries.column("position") + entries.column("size")
    row = position = 0
    while row < len(ends):
        end = max(int(np.searchsorted(ends, position + most_bytes, "right")), row + 1)
        yield RowSet(row, end, view[position : int(ends[end - 1])])
        row, position = end, int(ends[end - 1])


# --- rows as columns ------------------------------------------------------------------------------


def _pieces(rows: AnyRows, unit: str | None) -> Iterator[dict[str, pa.Array]]:
    """The rows as columns, in pieces of about ``PIECE_BYTES``. Times are in ms, null where there is none."""
    waiting: list[pa.Table] = []
    size = first = 0
    for table in _tables(rows, unit):
        for part in _cut(_record_columns(table)):
            piece = _with_times(part, unit, first)
            first += piece.num_rows
            if waiting and size + piece.nbytes > PIECE_BYTES:
                yield _joined(waiting)
                waiting, size = [], 0
            waiting.append(piece)
            size += piece.nbytes
    if waiting:
        yield _joined(waiting)


def _with_times(table: pa.Table, unit: str | None, first_row: int) -> pa.Table:
    """The table with times in ms, so that pieces with times of different types can be joined."""
    import pyarrow as pa

    if "timestamp" not in table.column_names:
        return table
    times, row = [], first_row
    for chunk in table.column("timestamp").chunks:
        try:
            times.append(row_times(chunk, unit))
        except BadTimeError as error:
            raise ValueError(f"{_time_of(row + error.row)}: {error}") from None
        row += len(chunk)
    ms = pa.chunked_array(times, pa.int64())
    if "hasTimestamp" in table.column_names:
        try:
            refuse_marks(ms, table.column("hasTimestamp"))
        except BadTimeError as error:
            raise ValueError(f"{_time_of(first_row + error.row)}: {error}") from None
        table = table.drop_columns("hasTimestamp")
    return table.set_column(table.column_names.index("timestamp"), "timestamp", ms)


def _tables(rows: AnyRows, unit: str | None) -> Iterator[pa.Table]:
    """The rows as Arrow tables, as they come."""
    import pyarrow as pa

    if isinstance(rows, pa.Table):
        yield rows
    elif isinstance(rows, pa.RecordBatch):
        yield pa.Table.from_batches([rows])
    elif isinstance(rows, Mapping):
        yield _of_columns(rows, unit)
    elif hasattr(rows, "__arrow_c_stream__"):
        for batch in _stream(_with_read_times(rows, unit)):
            yield pa.Table.from_batches([batch])
    elif hasattr(rows, "__arrow_c_array__"):
        yield pa.Table.from_batches([pa.record_batch(rows)])
    elif isinstance(rows, Iterable) and not isinstance(rows, (str, bytes, bytearray, memoryview)):
        yield from _of_dicts(rows, unit)
    else:
        expected = "an Arrow table, a data frame, a dict of columns or an iterable of dicts"
        hint = "; Log.append takes encoded batches" if isinstance(rows, (bytes, bytearray, memoryview)) else ""
        raise TypeError(f"rows: expected {expected}, found {type(rows).__name__}{hint}")


def _stream(rows: Any) -> pa.RecordBatchReader:
    import pyarrow as pa

    try:
        return pa.RecordBatchReader.from_stream(rows)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise TypeError(f"rows: expected a stream of columns, found {type(rows).__name__}: {error}") from error


def _with_read_times(rows: Any, unit: str | None) -> Any:
    """The data frame; if it is of pandas and its times are objects of several types, these are read."""
    if not hasattr(rows, "assign") or "timestamp" not in rows.columns:
        return rows
    mixed = _of_several_types(rows["timestamp"])
    return rows if mixed is None else rows.assign(timestamp=np.asarray(_listed_times(mixed, unit, 0)))


def _of_several_types(column: Any) -> list[Any] | None:
    """The objects of a column of pandas, with None for its NaN and NaT; None if it has no objects of several types."""
    if not (hasattr(column, "isna") and hasattr(column, "dtype") and column.dtype == object):
        return None
    values = [None if absent else one for one, absent in zip(column, column.isna(), strict=True)]
    return values if len({type(one) for one in values if one is not None}) > 1 else None


def _of_columns(rows: Mapping[Any, Any], unit: str | None, first_row: int = 0) -> pa.Table:
    import pyarrow as pa

    _check_names(rows)
    if not rows:
        return pa.table({})
    columns = {name: _column(name, values, unit, first_row) for name, values in rows.items()}
    if len({len(column) for column in columns.values()}) > 1:
        lengths = {name: len(column) for name, column in columns.items()}
        raise ValueError(f"rows: columns differ in length: {lengths}")
    return pa.table(columns)


def _of_dicts(rows: Iterable[Any], unit: str | None) -> Iterator[pa.Table]:
    numbered = iter(enumerate(rows))
    while part := list(islice(numbered, PIECE_ROWS)):
        columns: dict[str, list[Any]] = {}
        for place, (number, row) in enumerate(part):
            if not isinstance(row, Mapping):
                raise TypeError(f"rows: expected dicts, found {type(row).__name__} as row {number}")
            for name, value in row.items():
                if name not in columns:
                    columns[name] = [None] * len(part)
                columns[name][place] = value
        yield _of_columns(columns, unit, part[0][0])


def _column(name: str, values: Any, unit: str | None, first_row: int) -> pa.Array | pa.ChunkedArray:
    if name == "timestamp":
        is_object = isinstance(values, np.ndarray) and values.dtype == object
        values = values.tolist() if is_object else _of_several_types(values) or values
    if name != "timestamp" or not isinstance(values, (list, tuple)):
        try:
            return array_of(name, values)
        except ValueError as error:
            raise _of_rows(error) from error
    return _listed_times(values, unit, first_row)


def _listed_times(values: list[Any] | tuple[Any, ...], unit: str | None, first_row: int) -> pa.Array:
    """Times in a list. Objects of several types are read one by one: Arrow takes an int after a datetime for us."""
    import pyarrow as pa

    if len({type(one) for one in values} - {type(None)}) <= 1:
        with suppress(pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
            column = pa.array(values)
            if pa.types.is_timestamp(column.type):
                _check_aware(values, first_row)
            return column
    times = [
        None if one is None else milliseconds(_time_of(row), one, unit, round_up=False)
        for row, one in enumerate(values, first_row)
    ]
    return pa.array(times, pa.timestamp("ms"))


def _check_aware(values: list[Any] | tuple[Any, ...], first_row: int) -> None:
    for row, one in enumerate(values, first_row):
        if isinstance(one, datetime) and one.tzinfo is None:
            raise ValueError(f"{_time_of(row)}: expected an aware datetime, found {one!r} without a time zone")


def _time_of(row: int) -> str:
    """The place of a time in the rows, for errors."""
    return f"rows: row {row}: timestamp"


def _record_columns(table: pa.Table) -> pa.Table:
    """The columns that a record has, of types that can be cut."""
    import pyarrow as pa

    _check_names(table.column_names)
    kept = [name for name in JUDGED_COLUMNS if name in table.column_names]
    if "timestamp" not in kept and "hasTimestamp" in kept:
        kept.remove("hasTimestamp")
    if not kept:
        raise ValueError(f"rows: expected at least one of {', '.join(RECORD_COLUMNS)}, found {table.column_names}")
    table = table.select(kept)
    for name in ("key", "value"):
        if name in kept:
            column = table.column(name)
            table = table.set_column(
                kept.index(name),
                name,
                pa.chunked_array(map(_plain, column.chunks), None if column.num_chunks else pa.binary()),
            )
    return table


def _plain(column: pa.Array) -> pa.Array:
    """A dictionary or view as a column whose slices count their own bytes."""
    import pyarrow as pa

    kind = column.type
    if pa.types.is_dictionary(kind):
        return _plain(column.dictionary).take(column.indices)
    if kind in (pa.binary_view(), pa.string_view()):
        return column.cast(pa.large_binary())
    return column


def _check_names(names: Iterable[Any]) -> None:
    seen = set()
    for name in names:
        if name in seen:
            raise ValueError(f"rows: column {name!r} is there twice")
        seen.add(name)
        if name not in ALL_COLUMNS and name not in ("topic", "partition") and not str(name).startswith(INDEX_COLUMN):
            raise ValueError(f"rows: unknown column {name!r}; known are {', '.join(RECORD_COLUMNS)}")


def _cut(table: pa.Table) -> Iterator[pa.Table]:
    """The table in pieces of at most about ``PIECE_BYTES``."""
    if table.num_rows > 1 and table.nbytes > PIECE_BYTES:
        half = table.num_rows // 2
        yield from _cut(table.slice(0, half))
        yield from _cut(table.slice(half))
    elif table.num_rows:
        yield table


def _joined(tables: list[pa.Table]) -> dict[str, pa.Array]:
    import pyarrow as pa

    table = pa.concat_tables(tables, promote_options="permissive").combine_chunks()
    return {name: one.chunk(0) for name, one in zip(table.column_names, table.columns, strict=True)}


def _of_rows(error: ValueError) -> ValueError:
    """An error of the encoder, which calls the rows its batch."""
    return ValueError(str(error).replace("batch:", "rows:", 1))


# --- times of rows --------------------------------------------------------------------------------


def row_times(column: pa.Array, unit: str | None = None, *, how: str = UNIT_ARGUMENT) -> pa.Array:
    """Times of rows in ms: an int64 column, null where there is none.

    Parameters
    ----------
    column : Array
        Timestamps of any unit (UTC without a zone), integers, or text as for ``kts.times.milliseconds``.
    unit : str, optional
        The unit of integers; None means ms, and refuses those that look like another unit.
    how : str
        How the caller names a unit, for the error.

    Raises
    ------
    BadTimeError
        A value is refused.
    ValueError
        A column of another type.

    Notes
    -----
    Fractions of a millisecond round down, as in Java's ``Instant.toEpochMilli`` and Spark's Kafka sink.
    """
    import pyarrow as pa

    kind = column.type
    if pa.types.is_dictionary(kind):
        return row_times(column.dictionary, unit, how=how).take(column.indices)
    if pa.types.is_null(kind):
        return pa.nulls(len(column), pa.int64())
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or kind == pa.string_view():
        return _times_of_text(column.cast(pa.string()), unit, how)
    if pa.types.is_timestamp(kind):
        return _in_ms(column.view(pa.int64()), kind.unit)
    if not pa.types.is_integer(kind):
        raise ValueError(f"rows: column 'timestamp': expected timestamps, int64 or ISO 8601 text, found {kind}")
    try:
        column = column.cast(pa.int64())
    except pa.ArrowInvalid as error:
        raise ValueError(f"rows: column 'timestamp': {error}") from error
    if unit is None:
        _guard(column, how)
    return _in_ms(column, unit or "ms")


def refuse_marks(times: pa.ChunkedArray, has_timestamp: pa.ChunkedArray) -> None:
    """Refuse a -1 that is a time (``hasTimestamp`` is true): rows become batches without that mark.

    Raises
    ------
    BadTimeError
        A row has one.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_null(has_timestamp.type):
        return
    if not pa.types.is_boolean(has_timestamp.type):
        raise ValueError(f"rows: column 'hasTimestamp': expected bool, found {has_timestamp.type}")
    if not pc.any(has_timestamp).as_py():
        return
    row = pc.index(pc.and_(pc.equal(times, NO_TIMESTAMP), has_timestamp), True).as_py()
    if row >= 0:
        raise BadTimeError(row, MARKED)


def _in_ms(column: pa.Array, unit: str) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    if unit == "ms":
        return column
    if unit == "s":
        try:
            return pc.multiply_checked(column, 1000)
        except pa.ArrowInvalid:
            values = np.asarray(column.fill_null(0))
            row = int(np.flatnonzero(values != values * 1000 // 1000)[0])
            reason = f"{values[row]} s is beyond the 64-bit milliseconds that Kafka stores"
            raise BadTimeError(row, reason) from None
    floored = np.asarray(column.fill_null(0)) // UNITS[unit].denominator
    return pa.array(floored, pa.int64(), mask=np.asarray(column.is_null()))


def _guard(column: pa.Array, how: str) -> None:
    """Refuse integers that look like another unit than ms."""
    values = np.asarray(column.fill_null(0))
    if not len(values) or (values.min() >= LIKELY_UNITS[0][1] and values.max() < LIKELY_UNITS[1][0]):
        return
    sizes = np.abs(values).view(np.uint64)  # of -2^63 too
    odd = np.zeros(len(values), bool)
    for least, end, _ in LIKELY_UNITS:
        odd |= (sizes >= np.uint64(least)) & (sizes < np.uint64(end))
    for row in np.flatnonzero(odd)[:1].tolist():
        try:
            in_ms(int(values[row]), None, how=how)
        except ValueError as error:
            raise BadTimeError(row, str(error)) from None


def _times_of_text(column: pa.Array, unit: str | None, how: str) -> pa.Array:
    """Arrow reads the usual forms; of the others each different text is read once."""
    import pyarrow as pa
    import pyarrow.compute as pc

    def read(pattern: str, zone: str | None) -> pa.Array:
        matching = pc.if_else(pc.match_substring_regex(column, pattern), column, None)
        return _in_ms(matching.cast(pa.timestamp("us", zone)).view(pa.int64()), "us")

    try:
        times = pc.coalesce(read(_WITH_ZONE, "UTC"), read(_WITHOUT_ZONE, None))
    except pa.ArrowInvalid:  # a month 13, for example
        times = pa.nulls(len(column), pa.int64())
    others = pc.if_else(times.is_null(), column, None)
    if others.null_count == len(others):
        return times
    coded = others.dictionary_encode()
    found = []
    for number, text in enumerate(coded.dictionary.to_pylist()):
        try:
            found.append(parse_time(text, unit, round_up=False, how=how))
        except ValueError as error:
            raise BadTimeError(pc.index(coded.indices, number).as_py(), str(error)) from None
    return pc.coalesce(times, pa.array(found, pa.int64()).take(coded.indices))
