"""Records to JSON lines and CSV, batch by batch in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO

import pyarrow as pa

from .jsonl import header_text, json_lines
from .names import TYPE_NAMES
from .not_text import naming_the_record
from .text import encode_column, spelled

PIECE_BYTES = 1 << 20  # of decoded records turned into text at once: what fits the caches is fastest


def pieces(batch: Any, limit: int = PIECE_BYTES) -> Iterator[Any]:
    """The batch in slices of about ``limit`` bytes."""
    parts = max(1, -(-batch.nbytes // limit))
    rows = -(-batch.num_rows // parts) or 1
    for start in range(0, batch.num_rows, rows):
        piece = batch.slice(start, rows)
        if piece.num_rows > 1 and piece.nbytes > 2 * limit:
            yield from pieces(piece, limit)
        else:
            yield piece


class JsonLines:
    """One JSON object a line."""

    def __init__(self, file: BinaryIO, keys: str, values: str) -> None:
        self._file, self._keys, self._values = file, keys, values

    def write(self, batch: Any) -> None:
        for piece in pieces(batch):
            with naming_the_record(piece):
                lines = json_lines(piece, keys=self._keys, values=self._values)
            self._file.write(lines)

    def close(self) -> None:
        pass

    def abandon(self) -> None:
        pass


class Csv:
    """RFC 4180: text always quoted, null an empty field without quotes, times in ms, headers as JSON.

    With ``disarm`` a text that a spreadsheet would take for a formula gets an apostrophe in front.
    """

    def __init__(self, file: BinaryIO, schema: Any, keys: str, values: str, disarm: bool = False) -> None:
        self._file, self._schema, self._encodings = file, schema, {"key": keys, "value": values}
        self._disarm = disarm
        self._writer: Any = None

    def write(self, batch: Any) -> None:
        for piece in pieces(batch):
            self._write(piece)

    def close(self) -> None:
        if self._writer is None:  # no record: the header line alone
            nothing = [pa.nulls(0, field.type) for field in self._schema]
            self._write(pa.record_batch(nothing, schema=self._schema))
        self._writer.close()

    def abandon(self) -> None:
        pass

    def _write(self, batch: Any) -> None:
        from pyarrow import csv

        named = zip(batch.schema.names, batch.columns, strict=True)
        with naming_the_record(batch):
            columns = {name: self._plain(name, column) for name, column in named}
        if self._disarm:
            columns = {name: disarmed(column) for name, column in columns.items()}
        rows = pa.record_batch(list(columns.values()), names=list(columns))
        if self._writer is None:
            self._writer = csv.CSVWriter(self._file, rows.schema)
        self._writer.write(rows)

    def _plain(self, name: str, column: Any) -> Any:
        if name in self._encodings:
            return encode_column(column.cast(pa.binary()), self._encodings[name], name)
        if name == "timestampType":
            return spelled(column, lambda value: TYPE_NAMES.get(value, str(value)))
        if pa.types.is_timestamp(column.type):
            return column.cast(pa.int64())
        if pa.types.is_list(column.type):
            text = header_text(column)
            return pa.repeat(text, len(column)) if isinstance(text, str) else text
        return column


def disarmed(column: Any) -> Any:
    """Text that no spreadsheet takes for a formula; other columns as they are."""
    if not pa.types.is_string(column.type):
        return column
    import pyarrow.compute as pc

    armed = pc.match_substring_regex(column, r"\A[=+\-@\t\r]")
    return pc.if_else(armed, pc.binary_join_element_wise("'", column, ""), column)
