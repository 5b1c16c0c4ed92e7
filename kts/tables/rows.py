"""The columns of a table of records, made of those of a scan."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kts.codec.micros import to_micros
from kts.errors import InvalidRequestError, LogLockedError
from kts.segment.rereading import warn

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


def with_times_within(rows: pa.RecordBatch, first_ms: int, last_ms: int) -> pa.RecordBatch:
    """Rows whose ``timestamp`` is null where the time lies outside of these two."""
    import pyarrow.compute as pc

    ms, times = rows.column("timestampMs"), rows.column("timestamp")
    outside = pc.or_(pc.less(ms, first_ms), pc.greater(ms, last_ms))
    bounded = pc.if_else(outside, None, times)
    return rows.set_column(rows.schema.get_field_index("timestamp"), "timestamp", bounded)


class Days:
    """The days of a commit, each of which is a file: no more than a number.

    Attributes
    ----------
    left_out : set of datetime.date
        Days beyond the number, whose rows get no day.
    """

    def __init__(self, most: int) -> None:
        self.left_out = set[datetime.date]()
        self._most, self._kept = most, set[datetime.date]()

    def bounded(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Rows of the commit, some of them without their day: new days are kept by their number of rows."""
        import pyarrow as pa
        import pyarrow.compute as pc

        days = rows.column(DAY)
        counted = [(one["counts"], one["values"]) for one in pc.value_counts(days.drop_null()).to_pylist()]
        new = [day for _, day in sorted(counted, reverse=True) if day not in self._kept]
        free = self._most - len(self._kept)
        self._kept |= {*new[:free]}
        if len(new) <= free:
            return rows
        self.left_out |= {*new[free:]}
        kept = pc.is_in(days, value_set=pa.array(sorted(self._kept), pa.date32()))
        bounded = pc.if_else(kept, days, pa.scalar(None, pa.date32()))
        return rows.set_column(rows.schema.get_field_index(DAY), DAY, bounded)


def types_of(schema: pa.Schema) -> dict[str, str]:
    """The types of columns by name, in one spelling whatever wrote them."""
    return {field.name: _spelled(str(field.type)) for field in schema}


def _spelled(kind: str) -> str:
    return kind.replace("large_", "").replace("<item:", "<element:").replace(" not null", "")


def check_types(table: str, found: dict[str, str], expected: dict[str, str]) -> None:
    """Refuse a table whose columns are not these: InvalidRequestError names the first."""
    for column in (*expected, *found):
        if found.get(column) != expected.get(column):
            raise _other_column(table, column, found, expected)


def agreed_schema(table: str, found: pa.Schema, expected: pa.Schema) -> pa.Schema:
    """The columns of rows of one schema in a table of another: those of the table, as far as the rows have them.

    Raises
    ------
    InvalidRequestError
        A column differs, or may not be null and is unknown. The values of structs may have other fields, as those of
        an earlier or a later version of their schema have: a KtsWarning names the ones that are left out.
    """
    import pyarrow as pa

    there, asked = types_of(found), types_of(expected)
    columns, left_out = [], list[str]()
    for field in found:
        if field.name not in asked and not field.nullable:
            raise InvalidRequestError(
                f"{table}: the column {field.name} may not be null, and rows of kts have no value for it: make it"
                " optional, or name another table"
            )
        if field.name in asked:
            column = expected.field(field.name)
            if there[field.name] != asked[field.name]:
                column = column.with_type(_agreed(table, field.name, field.type, column.type, left_out))
            columns.append(column)
    for name in asked.keys() - there.keys():
        raise _other_column(table, name, there, asked)
    if left_out:
        warn(
            f"{table}: the schema of the values has fields that the table lacks, and its rows are added without them:"
            f" {', '.join(left_out)}; add such columns to the table to have them, as ALTER TABLE {table} ADD COLUMN"
            f" {left_out[0]} ... does",
            None,
        )
    return pa.schema(columns)


def _agreed(table: str, column: str, found: pa.DataType, expected: pa.DataType, left_out: list[str]) -> pa.DataType:
    """The type of the table, if values of another version of its schema can have it."""
    import pyarrow as pa

    names = {column: str(found)}, {column: str(expected)}
    if _spelled(str(found)) == _spelled(str(expected)):
        return found
    for wide, narrow in ((pa.int64(), pa.int32()), (pa.float64(), pa.float32())):
        if (found, expected) == (wide, narrow):
            return found
        if (found, expected) == (narrow, wide):
            raise InvalidRequestError(
                f"{table}: the schema of the values has {expected} for {column}, and the table {found}: widen it, as"
                f" ALTER TABLE {table} ALTER COLUMN {column} TYPE {'bigint' if wide == pa.int64() else 'double'} does"
            )
    if pa.types.is_struct(found) and pa.types.is_struct(expected):
        there = {field.name for field in found}
        new = [field.name for field in expected if field.name not in there]
        if len(new) == expected.num_fields:
            raise _other_column(table, column, *names)
        left_out += [f"{column}.{name}" for name in new]
        fields = []
        for field in found:
            kind = field.type
            if (at := expected.get_field_index(field.name)) >= 0:
                kind = _agreed(table, f"{column}.{field.name}", kind, expected.field(at).type, left_out)
            elif not field.nullable:
                raise _other_column(table, column, *names)
            fields.append(field.with_type(kind))
        return pa.struct(fields)
    for is_list, make in ((pa.types.is_list, pa.list_), (pa.types.is_large_list, pa.large_list)):
        if is_list(found) and (pa.types.is_list(expected) or pa.types.is_large_list(expected)):
            element = _agreed(table, f"{column}.element", found.value_type, expected.value_type, left_out)
            return make(found.value_field.with_type(element))
    if pa.types.is_map(found) and pa.types.is_map(expected):
        item = _agreed(table, f"{column}.value", found.item_type, expected.item_type, left_out)
        return pa.map_(found.key_field, found.item_field.with_type(item))
    raise _other_column(table, column, *names)


def fitted(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Rows in the columns of ``agreed_schema``."""
    import pyarrow as pa

    if rows.schema.equals(schema):
        return rows
    columns = [rows.column(field.name) for field in schema]
    cast = [one if one.type == field.type else one.cast(field.type) for one, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(cast, schema=schema)


def lost_race(table: str) -> LogLockedError:
    """The error of a run that would commit behind offsets which are no longer the table's."""
    return LogLockedError(
        f"{table}: another program has added records meanwhile, and these were not added: run one at a time, and this"
        " one again"
    )


def other_mode(table: str, *, is_state: bool) -> InvalidRequestError:
    """The error of a run for a table of the other kind."""
    kinds = "a row for each record", "a row for each key (mode latest)"
    return InvalidRequestError(
        f"{table}: expected a table with {kinds[not is_state]}, found one with {kinds[is_state]}: give the mode that it"
        " was made with, or name another table"
    )


def _other_column(table: str, column: str, found: dict[str, str], expected: dict[str, str]) -> InvalidRequestError:
    return InvalidRequestError(
        f"{table}: expected {_shown(column, expected)}, found {_shown(column, found)}: give the options that the table"
        " was made with, or name another table"
    )


def _shown(column: str, types: dict[str, str]) -> str:
    return f"the column {column} of type {types[column]}" if column in types else f"no column {column}"
