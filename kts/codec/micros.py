"""Kafka's milliseconds as the microseconds of Spark and of tables, which hold fewer years."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kts.arguments import INT64_MAX, INT64_MIN

if TYPE_CHECKING:
    import pyarrow as pa

MICROS_PER_MS = 1000
MAX_MS = INT64_MAX // MICROS_PER_MS  # largest distance from 1970 in ms that 64-bit microseconds can hold


class TimestampOverflow(ArithmeticError):
    """A timestamp in milliseconds does not fit 64-bit microseconds."""

    def __init__(self, column: str, row: int, timestamp_ms: int) -> None:
        super().__init__(column, row, timestamp_ms)
        self.column = column
        self.row = row
        self.timestamp_ms = timestamp_ms


def to_micros(column: pa.Array, name: str, policy: str) -> pa.Array:
    """Milliseconds to microseconds.

    Parameters
    ----------
    column : pyarrow.Array
        timestamp[ms, UTC].
    name : str
        Its name, for the error.
    policy : str
        For a value that does not fit: ``error``, ``null``, or ``clamp`` to the 64-bit extreme.

    Raises
    ------
    TimestampOverflow
        Policy ``error`` and a value beyond +-``MAX_MS``.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    target = pa.timestamp("us", tz="UTC")
    try:
        return column.cast(target)
    except pa.ArrowInvalid:
        ms = column.cast(pa.int64())
    high = pc.greater(ms, MAX_MS)
    low = pc.less(ms, -MAX_MS)
    outside = pc.or_(high, low)
    if policy == "error":
        row = pc.index(outside, True).as_py()
        raise TimestampOverflow(name, row, ms[row].as_py())
    micros = pc.multiply(pc.if_else(outside, pa.scalar(None, pa.int64()), ms), MICROS_PER_MS)
    if policy == "clamp":
        micros = pc.if_else(high, INT64_MAX, pc.if_else(low, INT64_MIN, micros))
    return micros.cast(target)
