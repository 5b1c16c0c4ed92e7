"""The first records of a dump as a table for people."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Sequence
from typing import Any

from .names import TYPE_NAMES
from .output import note, print_table
from .times import show_time

SHOWN_CHARACTERS = 60


def print_records(
    batches: Iterable[Any], columns: Sequence[str], limit: int, keys: str | None, values: str | None
) -> None:
    """At most ``limit`` records as a table, and a note when there are more."""
    rows: list[list[str]] = []
    more = False
    for batch in batches:
        lists = [shown_column(name, batch[name], keys if name == "key" else values) for name in columns]
        rows += [list(row) for row in zip(*lists, strict=True)]
    if len(rows) > limit:
        more = bool(rows.pop())
    numbers = [number for number, name in enumerate(columns) if name in ("partition", "offset", "position")]
    free = [number for number, name in enumerate(columns) if name in ("key", "value", "headers")]
    print_table(columns, rows, right=numbers, shrink=free)
    if more:
        note(f"the first {limit} records; more with --limit N, all with --format jsonl or -o FILE.parquet")


def shown_column(name: str, column: Any, encoding: str | None) -> list[str]:
    """A column's cells for people."""
    if name in ("timestamp", "createTimestamp"):
        return [show_time(ms) for ms in column.cast("int64").to_pylist()]
    if name == "timestampType":
        return [TYPE_NAMES.get(value, str(value)) for value in column.to_pylist()]
    if name == "headers":
        cells = column.to_pylist()
        return [", ".join(f"{shown(h['key'])}={shown_bytes(h['value'], None)}" for h in cell or []) for cell in cells]
    if name in ("key", "value"):
        return [shown_bytes(value, encoding) for value in column.to_pylist()]
    return ["" if value is None else str(value) for value in column.to_pylist()]


def shown_bytes(value: bytes | None, encoding: str | None) -> str:
    """A key or value in a table cell: as asked, else text where it is text; long ones are cut."""
    if value is None:
        return "null"
    if encoding == "hex":
        text = value.hex()
    elif encoding == "base64":
        text = b64encode(value).decode("ascii")
    else:
        try:
            text = value.decode("utf-8")
        except UnicodeDecodeError:
            text = f"0x{value.hex()}"
        text = shown(text)
    return text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 1] + "…"


def shown(text: str) -> str:
    """Text for a terminal: what would steer it is escaped."""
    return text if text.isprintable() else repr(text)[1:-1]
