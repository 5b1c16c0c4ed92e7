"""The columns of a table of records, made of those of a scan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kts.codec.micros import to_micros
from kts.errors import InvalidRequestError, LogLockedError

if TYPE_CHECKING:
    import pyarrow as pa

DAY_MS = 86_400_000
FIRST_MS, LAST_MS = -62_135_596_800_000, 253_402_300_799_999  # of Python's times: the years 1 to 9999
READ = ("topic", "partition", "offset", "timestamp", "timestampType", "key", "value", "headers")  # of a scan
DAY = "day"
REASON = "reason"


@dataclass(frozen=True)
class Plausible:
    """The times that get a day: ``start_ms`` <= timestamp < ``end_ms``."""

    start_ms: int
    end_ms: int


def table_schema(value: pa.DataType | None = None, *, reason: bool = False) -> pa.Schema:
    """The columns of a table.

    Parameters
    ----------
    value : pyarrow.DataType, optional
        The type of decoded values; None is their bytes.
    reason : bool
        For records that were not decoded, with the column ``reason``.

    Notes
    -----
    ``timestampMs`` is Kafka's value. ``timestamp`` is the same in microseconds, null where they cannot hold it. ``day``
    is its day in UTC, null where the time is implausible. All columns may be null, because Spark writes only such.
    """
    import pyarrow as pa

    return pa.schema(
        [
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("offset", pa.int64()),
            ("timestamp", pa.timestamp("us", tz="UTC")),
            ("timestampMs", pa.int64()),
            ("timestampType", pa.int32()),
            ("key", pa.binary()),
            ("value", value or pa.binary()),
            ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
            *([(REASON, pa.string())] if reason else []),
            (DAY, pa.date32()),
        ]
    )


def table_rows(batch: pa.RecordBatch, plausible: Plausible, value: pa.Array | None = None,
               reason: pa.Array | None = None) -> pa.RecordBatch:  # fmt: skip
    """The records of a scan of ``READ`` as rows of a table.

    Parameters
    ----------
    value, reason : pyarrow.Array, optional
        The decoded values, or the reasons why values were not decoded.
    """
    import pyarrow as pa

    times = batch.column("timestamp")
    ms = times.cast(pa.int64()).to_numpy()
    unusual = (ms < plausible.start_ms) | (ms >= plausible.end_ms)
    made = {
        "timestamp": to_micros(times, "timestamp", "null"),
        "timestampMs": pa.array(ms),
        DAY: pa.array((ms // DAY_MS).astype(np.int32), pa.int32(), mask=unusual).cast(pa.date32()),
    }
    if value is not None:
        made["value"] = value
    if reason is not None:
        made[REASON] = reason
    schema = table_schema(None if value is None else value.type, reason=reason is not None)
    columns = [made[name] if name in made else batch.column(name) for name in schema.names]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def types_of(schema: pa.Schema) -> dict[str, str]:
    """The types of columns by name, in one spelling whatever wrote them."""
    return {
        field.name: str(field.type).replace("large_", "").replace("<item:", "<element:").replace(" not null", "")
        for field in schema
    }


def check_types(table: str, found: dict[str, str], schema: pa.Schema) -> None:
    """Refuse a table whose columns are not these: InvalidRequestError names the first."""
    expected = types_of(schema)
    for column in (*expected, *found):
        if found.get(column) != expected.get(column):
            raise InvalidRequestError(
                f"{table}: expected {_shown(column, expected)}, found {_shown(column, found)}: give the options that"
                " the table was made with, or name another table"
            )


def lost_race(table: str) -> LogLockedError:
    """The error of a run that would commit behind offsets which are no longer the table's."""
    return LogLockedError(
        f"{table}: another program has added records meanwhile, and these were not added: run one at a time, and this"
        " one again"
    )


def _shown(column: str, types: dict[str, str]) -> str:
    return f"the column {column} of type {types[column]}" if column in types else f"no column {column}"
