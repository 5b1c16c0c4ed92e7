"""Decodes record sets in a binary column inside Spark, to an array of structs or to flat rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from kts.arguments import DEFAULT_MAX_DECOMPRESSED_BYTES, choice
from kts.codec.columns import ALL_COLUMNS, DEFAULT_COLUMNS, check_columns
from kts.codec.micros import MAX_MS, TimestampOverflow
from kts.errors import CorruptRecordError, InvalidTimestampError
from kts.spark.options import OVERFLOW_POLICIES
from kts.spark.schema import RECORD_TYPES, ddl, in_ddl, to_spark
from kts.spark.shipping import ship

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql import Column, DataFrame
    from typing_extensions import Buffer

_FLUSH_BYTES = 4 << 20
_FLUSH_ROWS = 1 << 16


class _Decoder:
    """Decodes the values of a binary column into batches of Spark's Arrow types. Spark ships it to executors."""

    def __init__(
        self, columns: Sequence[str] | None, verify_crc: bool, timestamp_overflow: str, max_decompressed_bytes: int
    ) -> None:
        self.names = check_columns(columns, DEFAULT_COLUMNS, ALL_COLUMNS)
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

    def batches(self, record_set: Buffer, row: int, rows: int) -> Iterator[pa.RecordBatch]:
        """The records of one record set, in pieces. An error names its row in the Arrow batch."""
        from kts.codec.columns import iter_decode

        where = f"row {row} (counted from 0) of an Arrow batch of {rows} rows"
        schema = self.schema()
        try:
            for batch in iter_decode(
                record_set,
                list(self.names),
                slice_bytes=_FLUSH_BYTES,
                verify_crc=self.verify_crc,
                max_decompressed_bytes=self.max_decompressed_bytes,
            ):
                yield to_spark(batch, schema, self.timestamp_overflow)
        except TimestampOverflow as error:
            raise InvalidTimestampError(
                f"{where}: {error.column} {error.timestamp_ms} ms does not fit Spark's microseconds "
                f"(up to {MAX_MS} ms); set timestamp_overflow to 'null' or 'clamp'"
            ) from error
        except CorruptRecordError as error:
            raise type(error)(
                f"{where}: {error.message}",
                position=error.position,
                offset=error.offset,
                record_index=error.record_index,
            ) from error

    def array(self, column: pa.Array) -> pa.Array:
        """One list of structs for each value; null for null."""
        import pyarrow as pa

        parts = []
        ends = [0]
        for row, value in enumerate(column):
            count = 0
            if value.is_valid:
                for batch in self.batches(value.as_buffer(), row, len(column)):
                    parts.append(batch.to_struct_array())
                    count += batch.num_rows
            ends.append(ends[-1] + count)
        try:
            records = pa.concat_arrays(parts) if parts else pa.array([], pa.struct(list(self.schema())))
        except pa.ArrowInvalid as error:
            raise ValueError(
                f"the records of {len(column)} rows are too large for one Arrow array (2 GiB): lower "
                "spark.sql.execution.arrow.maxRecordsPerBatch"
            ) from error
        return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), records, mask=column.is_null())

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
                for decoded in self.batches(value.as_buffer(), row, len(column)):
                    rows.append(row)
                    found.append(decoded)
                    size += max(decoded.nbytes, decoded.num_rows * (_FLUSH_BYTES // _FLUSH_ROWS))
                    if size >= _FLUSH_BYTES:
                        yield self._joined(batch, keep, rows, found)
                        rows, found, size = [], [], 0
            if found:
                yield self._joined(batch, keep, rows, found)

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


def decode_udf(
    columns: Sequence[str] | None = None,
    *,
    verify_crc: bool = True,
    timestamp_overflow: str = "error",
    max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
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

    Returns
    -------
    callable
        Column to ``array<struct<...>>``; null for null, an empty array for an empty record set.

    Raises
    ------
    CorruptRecordError
        When the query reads a damaged record set; the message names the row.

    Notes
    -----
    Needs pyspark 4.1 (its Arrow functions); ``decode_in_arrow`` does the same from 4.0 on.

    Examples
    --------
    >>> records = decode_udf(["offset", "timestamp", "value"])
    >>> df.select(explode(records("payload")).alias("r")).select("r.*")
    """
    from pyspark.sql import functions

    arrow_udf = getattr(functions, "arrow_udf", None)
    if arrow_udf is None:
        raise ImportError("decode_udf needs pyspark 4.1 or newer; with pyspark 4.0 use decode_in_arrow")
    decoder = _Decoder(columns, verify_crc, timestamp_overflow, max_decompressed_bytes)
    fields = ",".join(f"{name}:{in_ddl(RECORD_TYPES[name])}" for name in decoder.names)

    import pyarrow

    def decode_record_sets(column: pa.Array) -> pa.Array:
        return decoder.array(column)

    # Spark finds the kind of function from its type hints, which must be types, not strings.
    decode_record_sets.__annotations__.update({"column": pyarrow.Array, "return": pyarrow.Array})
    made: Callable[[Column | str], Column] = arrow_udf(decode_record_sets, f"array<struct<{fields}>>")
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
    columns, verify_crc, timestamp_overflow, max_decompressed_bytes
        As for ``decode_udf``.

    Returns
    -------
    pyspark.sql.DataFrame
        Columns ``keep``, then ``columns``.

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

    decoder = _Decoder(columns, verify_crc, timestamp_overflow, max_decompressed_bytes)
    kept = list(keep)
    present = {field.name: field for field in df.schema.fields}
    for name in (column, *kept):
        if name not in present:
            raise ValueError(f"column {name} is not in the table; it has {', '.join(present)}")
    if present[column].dataType.simpleString() != "binary":
        raise ValueError(f"column {column} must be binary, found {present[column].dataType.simpleString()}")
    names = [*kept, *decoder.names]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"column {twice[0]} would be there twice: rename it in the table, or leave it out of keep")
    records = cast("StructType", StructType.fromDDL(ddl(decoder.names, RECORD_TYPES)))

    def decode_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return decoder.flat(batches, kept)

    selected = df.select(column, *[name for name in kept if name != column])
    return selected.mapInArrow(decode_batches, StructType([present[n] for n in kept] + records.fields))
