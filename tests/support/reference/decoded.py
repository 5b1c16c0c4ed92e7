"""Decoded record batches as plain rows, in the form that the reference decoder gives."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa


def columns_of(batch: pa.RecordBatch) -> dict[str, list[Any]]:
    """Python values of every column: times as integers, headers as lists of pairs."""
    out = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if pa.types.is_timestamp(column.type):
            column = column.view(pa.int64())
        values = column.to_pylist()
        if name == "headers":
            values = [row if row is None else [(pair["key"], pair["value"]) for pair in row] for row in values]
        out[name] = values
    return out


def rows_of(batches: pa.RecordBatch | Iterable[pa.RecordBatch]) -> list[dict[str, Any]]:
    """One dict per row."""
    rows: list[dict[str, Any]] = []
    for batch in [batches] if isinstance(batches, pa.RecordBatch) else batches:
        columns = columns_of(batch)
        rows += [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    return rows


def difference(got: list[dict[str, Any]], expected: list[dict[str, Any]]) -> str | None:
    """The first field that differs, for people; None if nothing does."""
    for i, (ours, theirs) in enumerate(zip(got, expected, strict=False)):
        for name, value in ours.items():
            if value != theirs[name]:
                return f"row {i}, {name}: got {value!r:.200}, expected {theirs[name]!r:.200}"
    return None if len(got) == len(expected) else f"{len(got)} rows, expected {len(expected)}"
