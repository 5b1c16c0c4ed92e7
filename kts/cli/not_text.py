"""The error of a key or value that is not UTF-8, and which record it is of."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class NotTextError(ValueError):
    """A value is not UTF-8; ``row`` is its place in the column called ``column``."""

    def __init__(self, column: str, row: int, reason: str) -> None:
        super().__init__(reason)
        self.column = column
        self.row = row


@contextmanager
def naming_the_record(batch: Any) -> Iterator[None]:
    """Let "not UTF-8" errors say which record it is, and what to type instead."""
    try:
        yield
    except NotTextError as error:
        names, row = batch.schema.names, error.row
        where = "a record" if "offset" not in names else f"the record at offset {batch['offset'][row].as_py()}"
        if "topic" in names and "partition" in names:
            where += f" of {batch['topic'][row].as_py()}-{batch['partition'][row].as_py()}"
        advice = f"use --{error.column}s base64 or hex, which lose nothing"
        message = f"the {error.column} of {where} is not UTF-8 ({error}): {advice}"
        raise NotTextError(error.column, row, message) from None
