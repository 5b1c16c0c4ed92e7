"""The columns of a read, their Spark types, and Arrow batches cast to exactly those types."""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING, Any

from kts.arguments import suggestion
from kts.codec.columns import BATCH_COLUMNS, SCAN_COLUMNS
from kts.codec.micros import to_micros
from kts.dataset.decoders import DECODED_COLUMNS, DECODERS, column_types
from kts.dataset.options import stream_columns

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from kts.spark.options import Options

_HEADERS = "array<struct<key:string,value:binary>>"
RECORD_TYPES = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": _HEADERS,
    "magic": "tinyint",
    "codec": "tinyint",
    "producerId": "bigint",
    "producerEpoch": "smallint",
    "sequence": "int",
    "partitionLeaderEpoch": "int",
    "transactional": "boolean",
    "control": "boolean",
    "position": "bigint",
    "createTimestamp": "timestamp",
    "baseOffset": "bigint",
    "lastOffsetDelta": "int",
    "attributes": "smallint",
    "baseTimestamp": "bigint",
    "maxTimestamp": "bigint",
    "codecName": "string",
    "hasTimestamp": "boolean",
}
BATCH_TYPES = {
    "topic": "string",
    "partition": "int",
    "segment": "bigint",
    "position": "bigint",
    "sizeInBytes": "int",
    "magic": "tinyint",
    "baseOffset": "bigint",
    "lastOffset": "bigint",
    "count": "int",
    "baseTimestamp": "timestamp",
    "maxTimestamp": "timestamp",
    "timestampType": "int",
    "codec": "tinyint",
    "partitionLeaderEpoch": "int",
    "producerId": "bigint",
    "producerEpoch": "smallint",
    "baseSequence": "int",
    "transactional": "boolean",
    "control": "boolean",
    "crcOk": "boolean",
}
SEGMENT_TYPES = {
    "topic": "string",
    "partition": "int",
    "segment": "bigint",
    "path": "string",
    "sizeInBytes": "bigint",
    "offsetIndexSizeInBytes": "bigint",
    "timeIndexSizeInBytes": "bigint",
    "modified": "timestamp",
    "batches": "bigint",
    "records": "bigint",
    "firstOffset": "bigint",
    "lastOffset": "bigint",
    "firstTimestamp": "timestamp",
    "maxTimestamp": "timestamp",
    "magics": "array<tinyint>",
    "codecs": "array<string>",
    "damage": "string",
}
FINDING_TYPES = {
    "topic": "string",
    "partition": "int",
    "path": "string",
    "position": "bigint",
    "offset": "bigint",
    "kind": "string",
    "message": "string",
}
DAMAGE_TYPES = {
    "topic": "string",
    "partition": "int",
    "segment": "bigint",
    "path": "string",
    "position": "bigint",
    "sizeInBytes": "bigint",
    "offset": "bigint",
    "reason": "string",
}
_OTHER_TYPES = {"batch": BATCH_TYPES, "segment": SEGMENT_TYPES, "finding": FINDING_TYPES, "damage": DAMAGE_TYPES}
_NULLABLE_IN_RECORDS = {"key", "value", "headers", "baseOffset", "lastOffsetDelta", "baseTimestamp", "maxTimestamp"}
_NULLABLE_IN_RECORDS |= {"createTimestamp", *DECODED_COLUMNS}
_NULLABLE = {
    "record": _NULLABLE_IN_RECORDS,
    "batch": {"baseOffset", "count"},
    "segment": {*SEGMENT_TYPES} - {"topic", "partition", "segment", "path", "sizeInBytes", "modified", "batches"},
    "finding": {"topic", "partition", "position", "offset"},
    "damage": {"position", "sizeInBytes", "offset"},
}


def ddl(names: tuple[str, ...], types: dict[str, str]) -> str:
    """The columns as a Spark schema string (DDL)."""
    return ", ".join(f"`{name}` {in_ddl(types[name])}" for name in names)


def in_ddl(kind: str) -> str:
    """A type in a schema string, where ``timestamp`` means what the setting ``spark.sql.timestampType`` says."""
    return re.sub(r"\btimestamp\b(?!:)", "timestamp_ltz", kind)


def spark_type(type_: pa.DataType) -> str:
    """The Spark type of an Arrow type of a decoder's column, as Spark writes it."""
    import pyarrow as pa

    if pa.types.is_list(type_):
        return f"array<{spark_type(type_.value_type)}>"
    if pa.types.is_struct(type_):
        return f"struct<{','.join(f'{field.name}:{spark_type(field.type)}' for field in type_)}>"
    if pa.types.is_timestamp(type_):
        return "timestamp"
    return {"int8": "tinyint", "int16": "smallint", "int32": "int", "int64": "bigint", "bool": "boolean"}.get(
        str(type_), str(type_)
    )


def types_of(options: Options) -> dict[str, str]:
    """The columns that a read can have, with their Spark types."""
    if options.granularity != "record":
        return _OTHER_TYPES[options.granularity]
    own = () if options.scan.decoder is None else DECODERS[options.scan.decoder].columns
    return RECORD_TYPES | {name: spark_type(column_types()[name]) for name in own}


def default_columns(options: Options) -> tuple[str, ...]:
    """The columns of a read if the user gives no schema."""
    if options.granularity == "batch":
        return ("topic", "partition", "segment", *BATCH_COLUMNS)
    if options.granularity != "record":
        return tuple(types_of(options))
    if options.scan.decoder is not None:
        return (*stream_columns(None, options.scan.decoder), *(("headers",) if options.include_headers else ()))
    return SCAN_COLUMNS if options.include_headers else SCAN_COLUMNS[:-1]


def default_schema(options: Options) -> str:
    """The schema of a read if the user gives none, as a Spark schema string."""
    return ddl(default_columns(options), types_of(options))


def check_schema(schema: StructType, options: Options) -> tuple[str, ...]:
    """The columns of a user's schema, in order.

    Raises
    ------
    ValueError
        A column that does not exist, is named twice, has another type, or may be null and is declared NOT NULL.
    """
    types = types_of(options)
    nullable = set(_NULLABLE[options.granularity])
    if options.timestamp_overflow == "null":
        nullable |= {name for name, kind in types.items() if kind == "timestamp"}
    names: list[str] = []
    for column in schema.fields:
        name = column.name
        if name not in types:
            hint = suggestion(name, types) or f"known are {', '.join(types)}"
            raise ValueError(f"schema: column {name} does not exist with granularity={options.granularity}: {hint}")
        if name in names:
            raise ValueError(f"schema: column {name} is named twice")
        found = column.dataType.simpleString()
        if found != types[name]:
            raise ValueError(
                f"schema: column {name} has type {types[name]}, found {found}: write "
                f'.schema("{name} {in_ddl(types[name])}") and cast afterwards'
            )
        if not column.nullable and name in nullable:
            raise ValueError(f"schema: column {name} can be null: leave NOT NULL out")
        names.append(name)
    if not names:
        raise ValueError('schema: it names no column; for example .schema("offset bigint, timestamp timestamp")')
    return tuple(names)


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema that Spark requires of batches for this schema."""
    from pyspark.sql.pandas.types import to_arrow_schema

    # pyspark 4.0 and 4.1 have no time zone argument: their timestamps are always in UTC.
    arguments: dict[str, Any] = (
        {"timezone": "UTC"} if "timezone" in inspect.signature(to_arrow_schema).parameters else {}
    )
    return to_arrow_schema(schema, **arguments)


def to_spark(batch: pa.RecordBatch, schema: pa.Schema, policy: str) -> pa.RecordBatch:
    """The columns that ``schema`` names, in its order and with exactly its types."""
    import pyarrow as pa

    arrays = []
    for target in schema:
        column = batch.column(target.name)
        if pa.types.is_timestamp(target.type):
            column = to_micros(column, target.name, policy)
        elif column.type != target.type:
            column = column.cast(target.type)
        arrays.append(column)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def split(batch: pa.RecordBatch, batch_bytes: int, rows: int = 1 << 16) -> list[pa.RecordBatch]:
    """Slices of a batch, each of at most ``rows`` rows and about twice ``batch_bytes``: Spark reads these fastest."""
    count = max(1, -(-batch.num_rows // rows), -(-batch.nbytes // (2 * batch_bytes)))
    if count == 1 or batch.num_rows <= 1:
        return [batch]
    step = -(-batch.num_rows // count)
    return [batch.slice(start, step) for start in range(0, batch.num_rows, step)]
