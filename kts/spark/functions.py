"""Decodes record sets in a binary column inside Spark, and shifts event times for its watermarks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from kts.arguments import DEFAULT_MAX_DECOMPRESSED_BYTES, INT64_MAX, choice
from kts.codec.columns import ALL_COLUMNS, DEFAULT_COLUMNS, check_columns
from kts.codec.layout import claimed_offset
from kts.codec.micros import MAX_MS, TimestampOverflow
from kts.errors import CorruptRecordError, InvalidTimestampError
from kts.segment.damage import WRONG_SIZE, SearchBudget, next_sound_entry, past_end
from kts.spark.options import OVERFLOW_POLICIES
from kts.spark.schema import RECORD_TYPES, ddl, in_ddl, to_spark
from kts.spark.shipping import ship
from kts.store.protocol import BytesFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql import Column, DataFrame
    from typing_extensions import Buffer

_FLUSH_BYTES = 4 << 20
_FLUSH_ROWS = 1 << 16
_TOLD = 3  # errors of one record set that decode_udf names; the others are counted
ERROR = "error"  # the column that says what on_error="skip" left out
ON_ERROR, INCOMPLETE = ("raise", "skip"), ("error", "drop")


class _Decoder:
    """Decodes the values of a binary column into batches of Spark's Arrow types. Spark ships it to executors."""

    def __init__(
        self,
        columns: Sequence[str] | None,
        verify_crc: bool,
        timestamp_overflow: str,
        max_decompressed_bytes: int,
        incomplete: str,
        on_error: str,
    ) -> None:
        self.names = check_columns(columns, DEFAULT_COLUMNS, ALL_COLUMNS)
        self.drops = choice("incomplete", incomplete, INCOMPLETE) == "drop"
        self.skips = choice("on_error", on_error, ON_ERROR) == "skip"
        self.timestamp_overflow = choice("timestamp_overflow", timestamp_overflow, OVERFLOW_POLICIES)
        self.verify_crc = verify_crc
        self.max_decompressed_bytes = max_decompressed_bytes

    def __reduce__(self) -> tuple[Any, ...]:
        return ship(self)

    def schema(self) -> pa.Schema:
        """Arrow schema of ``batches``."""
        import pyarrow as pa

        from kts.codec.columns import record_schema

        micros = pa.timestamp("us", tz="UTC")
        fields = record_schema(self.names, False)
        return pa.schema([(f.name, micros if pa.types.is_timestamp(f.type) else f.type) for f in fields])

    def batches(self, record_set: Buffer, row: int, rows: int) -> Iterator[pa.RecordBatch | CorruptRecordError]:
        """The records of one record set, in pieces; if damage is skipped, also what is left out of it.

        An error that is raised names its row in the Arrow batch.
        """
        where = f"row {row} (counted from 0) of an Arrow batch of {rows} rows"
        schema, left = self.schema(), memoryview(record_set)
        start, budget = 0, SearchBudget()
        while True:
            try:
                for batch in self._whole(left[start:], budget):
                    yield to_spark(batch, schema, self.timestamp_overflow)
                return
            except TimestampOverflow as error:
                raise InvalidTimestampError(
                    f"{where}: {error.column} {error.timestamp_ms} ms does not fit Spark's microseconds "
                    f"(up to {MAX_MS} ms); set timestamp_overflow to 'null' or 'clamp'"
                ) from error
            except CorruptRecordError as error:
                position = start + (error.position or 0)
                told = error.message if self.skips else f"{where}: {error.message}"
                behind = _sound_entry_behind(left, position, budget) if self.skips else None
                if self.skips:
                    end = len(left) if behind is None else behind
                    told += f"; {end - position} bytes are left out"
                found = type(error)(told, position=position, offset=error.offset, record_index=error.record_index)
                if not self.skips:
                    raise found from error
                yield found
                if behind is None:
                    return
                start = behind

    def _whole(self, record_set: memoryview, budget: SearchBudget) -> Iterator[pa.RecordBatch]:
        """The records of whole batches; an error where bytes are left that are none, unless they are dropped."""
        from kts.codec.columns import iter_decode, valid_bytes

        yield from iter_decode(
            record_set,
            list(self.names),
            slice_bytes=_FLUSH_BYTES,
            verify_crc=self.verify_crc,
            max_decompressed_bytes=self.max_decompressed_bytes,
        )
        whole = valid_bytes(record_set)
        if whole == len(record_set):
            return
        behind = _sound_entry_behind(record_set, whole, budget)
        if behind is not None:
            raise CorruptRecordError(f"{past_end(whole, behind)}{WRONG_SIZE}", position=whole)
        if self.drops:
            return
        raise CorruptRecordError(
            f"expected whole record batches, found {len(record_set) - whole} bytes that are none, as at the end of a "
            "fetch or of a segment being written (incomplete='drop' leaves them out)",
            position=whole,
        )

    def array(self, column: pa.Array) -> pa.Array:
        """One list of structs for each value; null for null."""
        import pyarrow as pa

        parts = []
        ends = [0]
        told: list[str | None] = []
        for row, value in enumerate(column):
            count = 0
            errors = []
            if value.is_valid:
                for batch in self.batches(value.as_buffer(), row, len(column)):
                    if isinstance(batch, CorruptRecordError):
                        errors.append(batch)
                        continue
                    parts.append(batch.to_struct_array())
                    count += batch.num_rows
            ends.append(ends[-1] + count)
            told.append(_told(errors))
        try:
            records = pa.concat_arrays(parts) if parts else pa.array([], pa.struct(list(self.schema())))
        except pa.ArrowInvalid as error:
            raise ValueError(
                f"the records of {len(column)} rows are too large for one Arrow array (2 GiB): lower "
                "spark.sql.execution.arrow.maxRecordsPerBatch"
            ) from error
        lists = pa.ListArray.from_arrays(pa.array(ends, pa.int32()), records, mask=column.is_null())
        if not self.skips:
            return lists
        return pa.StructArray.from_arrays([lists, pa.array(told, pa.string())], ["records", ERROR])

    def flat(self, batches: Iterator[pa.RecordBatch], keep: list[str]) -> Iterator[pa.RecordBatch]:
        """One row for each record, with the ``keep`` values of its record set's row."""
        for batch in batches:
            column = batch.column(0)
            rows: list[int] = []
            found: list[pa.RecordBatch] = []
            size = 0
            for row, value in enumerate(column):
                if not value.is_valid:
                    continue
                for one in self.batches(value.as_buffer(), row, len(column)):
                    decoded = self._with_error(one) if self.skips else cast("pa.RecordBatch", one)
                    rows.append(row)
                    found.append(decoded)
                    size += max(decoded.nbytes, decoded.num_rows * (_FLUSH_BYTES // _FLUSH_ROWS))
                    if size >= _FLUSH_BYTES:
                        yield self._joined(batch, keep, rows, found)
                        rows, found, size = [], [], 0
            if found:
                yield self._joined(batch, keep, rows, found)

    def _with_error(self, piece: pa.RecordBatch | CorruptRecordError) -> pa.RecordBatch:
        """Records with the column ``error``: null, or a row of nulls that says what is left out."""
        import pyarrow as pa

        schema = self.schema()
        if isinstance(piece, CorruptRecordError):
            arrays: list[pa.Array] = [pa.nulls(1, field.type) for field in schema]
            arrays.append(pa.array([str(piece)], pa.string()))
        else:
            arrays = [*piece.columns, pa.nulls(piece.num_rows, pa.string())]
        return pa.RecordBatch.from_arrays(arrays, names=[*schema.names, ERROR])

    @staticmethod
    def _joined(batch: pa.RecordBatch, keep: list[str], rows: list[int], found: list[pa.RecordBatch]) -> pa.RecordBatch:
        import numpy as np
        import pyarrow as pa

        records = found[0]
        if len(found) > 1:
            records = pa.Table.from_batches(found).combine_chunks().to_batches()[0]
        index = pa.array(np.repeat(np.array(rows, np.int64), [piece.num_rows for piece in found]))
        kept = [batch.column(name).take(index) for name in keep]
        return pa.RecordBatch.from_arrays([*kept, *records.columns], names=[*keep, *records.schema.names])


def _sound_entry_behind(record_set: memoryview, position: int, budget: SearchBudget) -> int | None:
    """The next sound entry after a damaged one, by the offset that this one claims."""
    claimed = max(claimed_offset(record_set, position) or 0, 0)
    return next_sound_entry(BytesFile("", record_set), position, len(record_set), claimed, budget)


def _told(errors: list[CorruptRecordError]) -> str | None:
    """What is left out of one record set."""
    more = [f"and {len(errors) - _TOLD} more"] if len(errors) > _TOLD else []
    return "; ".join([*map(str, errors[:_TOLD]), *more]) or None


def decode_udf(
    columns: Sequence[str] | None = None,
    *,
    verify_crc: bool = True,
    timestamp_overflow: str = "error",
    max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
    incomplete: str = "error",
    on_error: str = "raise",
) -> Callable[[Column | str], Column]:
    """Return a function that decodes a binary column of record sets to arrays of records.

    Parameters
    ----------
    columns : list of str, optional
        Fields of the structs, from ``kts.ALL_COLUMNS``; by default the first six of them.
    verify_crc : bool
        Check CRCs.
    timestamp_overflow : str
        For a timestamp beyond Spark's range: ``error``, ``null`` or ``clamp``.
    max_decompressed_bytes : int
        Limit of the decompressed size of one record batch.
    incomplete : str
        For bytes at the end of a record set that are no whole batch, as a broker cuts them to the size of a fetch:
        ``error``, or ``drop`` to leave them out.
    on_error : str
        For a damaged record set: ``raise``, or ``skip`` to leave out its damaged batches and say so.

    Returns
    -------
    callable
        Column to ``array<struct<...>>``; null for null, an empty array for an empty record set. With
        ``on_error="skip"`` to ``struct<records: array<struct<...>>, error: string>``, whose ``error`` is null where
        nothing was left out.

    Raises
    ------
    CorruptRecordError
        When the query reads a damaged or incomplete record set; the message names the row.

    Notes
    -----
    Needs pyspark 4.1 (its Arrow functions); ``decode_in_arrow`` does the same from 4.0 on.

    After damage the next sound batch is looked for, as ``kts.scan(on_error="skip")`` does.

    Examples
    --------
    >>> records = decode_udf(["offset", "timestamp", "value"])
    >>> df.select(explode(records("payload")).alias("r")).select("r.*")
    """
    from pyspark.sql import functions

    arrow_udf = getattr(functions, "arrow_udf", None)
    if arrow_udf is None:
        raise ImportError("decode_udf needs pyspark 4.1 or newer; with pyspark 4.0 use decode_in_arrow")
    decoder = _Decoder(columns, verify_crc, timestamp_overflow, max_decompressed_bytes, incomplete, on_error)
    fields = ",".join(f"{name}:{in_ddl(RECORD_TYPES[name])}" for name in decoder.names)
    kind = f"array<struct<{fields}>>"

    import pyarrow

    def decode_record_sets(column: pa.Array) -> pa.Array:
        return decoder.array(column)

    # Spark finds the kind of function from its type hints, which must be types, not strings.
    decode_record_sets.__annotations__.update({"column": pyarrow.Array, "return": pyarrow.Array})
    made: Callable[[Column | str], Column] = arrow_udf(
        decode_record_sets, f"struct<records:{kind},{ERROR}:string>" if decoder.skips else kind
    )
    return made


def decode_in_arrow(
    df: DataFrame,
    column: str,
    *,
    keep: Sequence[str] = (),
    columns: Sequence[str] | None = None,
    verify_crc: bool = True,
    timestamp_overflow: str = "error",
    max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
    incomplete: str = "error",
    on_error: str = "raise",
) -> DataFrame:
    """Decode a binary column of record sets to flat rows, through Spark's ``mapInArrow``.

    Parameters
    ----------
    df : pyspark.sql.DataFrame
        The table with the record sets.
    column : str
        The binary column; null gives no rows.
    keep : list of str
        Columns of ``df`` to repeat in front of each record.
    columns, verify_crc, timestamp_overflow, max_decompressed_bytes, incomplete, on_error
        As for ``decode_udf``.

    Returns
    -------
    pyspark.sql.DataFrame
        Columns ``keep``, then ``columns``. With ``on_error="skip"`` also a column ``error``: null for records; each
        part of a record set that is left out is a row of its own, with nulls for ``columns``.

    Raises
    ------
    ValueError
        A column that is missing, not binary, or named twice.

    Examples
    --------
    >>> files = spark.read.format("binaryFile").option("pathGlobFilter", "*.log").load("/backup/orders-0")
    >>> decode_in_arrow(files, "content", keep=["path"], columns=["offset", "value"])
    """
    from pyspark.sql.types import StructType

    decoder = _Decoder(columns, verify_crc, timestamp_overflow, max_decompressed_bytes, incomplete, on_error)
    kept = list(keep)
    present = {field.name: field for field in df.schema.fields}
    for name in (column, *kept):
        if name not in present:
            raise ValueError(f"column {name} is not in the table; it has {', '.join(present)}")
    if present[column].dataType.simpleString() != "binary":
        raise ValueError(f"column {column} must be binary, found {present[column].dataType.simpleString()}")
    names = [*kept, *decoder.names, *[ERROR] * decoder.skips]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"column {twice[0]} would be there twice: rename it in the table, or leave it out of keep")
    types = RECORD_TYPES | {ERROR: "string"}
    records = cast("StructType", StructType.fromDDL(ddl(tuple(names[len(kept) :]), types)))

    def decode_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return decoder.flat(batches, kept)

    selected = df.select(column, *[name for name in kept if name != column])
    return selected.mapInArrow(decode_batches, StructType([present[n] for n in kept] + records.fields))


# --- event times before 1970 ----------------------------------------------------------------------

_SHIFT_US = 5 * 146_097 * 86_400 * 10**6  # 2,000 years of the Gregorian calendar: whole weeks
_LAST_US = INT64_MAX - _SHIFT_US


def to_event_time(column: Column | str) -> Column:
    """Timestamps 2,000 years later: an event time for ``withWatermark`` when records are older than 1970.

    A watermark of Spark starts at 1970-01-01, so that its stateful operators drop every earlier row as late, without a
    word. It drops none of the years 1 to 1969 by this event time.

    Parameters
    ----------
    column : Column or str
        Of type ``timestamp``; null stays null.

    Returns
    -------
    Column
        To be given back by ``from_event_time``. Windows of minutes, hours, days and weeks have the borders that they
        have without the shift.

    Notes
    -----
    A record without a timestamp (-1) is 1969-12-31T23:59:59.999Z for Spark, and is dropped like any other before 1970.

    Examples
    --------
    >>> logs = spark.readStream.format("kts").option("startingOffsets", "earliest").load("/archive")
    >>> timed = logs.withColumn("eventTime", to_event_time("timestamp")).withWatermark("eventTime", "1 hour")
    >>> counts = timed.groupBy(window("eventTime", "1 day")).count()
    >>> counts.select(from_event_time("window.start").alias("day"), "count")
    """
    from pyspark.sql import functions as f

    micros = f.unix_micros(column)
    return f.timestamp_micros(f.when(micros > _LAST_US, _LAST_US).otherwise(micros) + f.lit(_SHIFT_US))


def from_event_time(column: Column | str) -> Column:
    """The timestamps that ``to_event_time`` has shifted."""
    from pyspark.sql import functions as f

    return f.timestamp_micros(f.unix_micros(column) - f.lit(_SHIFT_US))
