"""Records to files: JSON lines, CSV, Parquet and Arrow, batch by batch in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, Protocol

import pyarrow as pa

from .jsonl import header_text, json_lines
from .names import TYPE_NAMES
from .text import NotTextError, encode_column, spelled

PIECE_BYTES = 1 << 20  # of decoded records turned into text at once: what fits the caches is fastest
ROW_GROUP_BYTES = 64 << 20  # of decoded records in a Parquet row group
FEW_VALUES = ("key", "topic", "partition", "timestampType", "magic", "codec", "headers.list.element.key")


class Writer(Protocol):
    """What the formats have in common."""

    def write(self, batch: Any) -> None:
        """Add the records of a batch."""

    def close(self) -> None:
        """Write what is still held back, and the footer; the file itself stays open."""

    def abandon(self) -> None:
        """Instead of ``close``, after an error."""


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
    """RFC 4180: text always quoted, null an empty field without quotes, times in ms, headers as JSON."""

    def __init__(self, file: BinaryIO, schema: Any, keys: str, values: str) -> None:
        self._file, self._schema, self._encodings = file, schema, {"key": keys, "value": values}
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


class Table:
    """Parquet and Arrow: the columns as they are, keys and values as text only if that was asked for."""

    def __init__(self, file: BinaryIO, schema: Any, keys: str | None, values: str | None) -> None:
        self._file = file
        self._encodings = {name: how for name, how in (("key", keys), ("value", values)) if how is not None}
        fields = [field.with_type(pa.string()) if field.name in self._encodings else field for field in schema]
        self.schema = pa.schema(fields)

    def converted(self, batch: Any) -> Any:
        named = zip(batch.schema.names, batch.columns, strict=True)
        with naming_the_record(batch):
            columns = [
                encode_column(column, self._encodings[name], name) if name in self._encodings else column
                for name, column in named
            ]
        return pa.record_batch(columns, schema=self.schema)

    def abandon(self) -> None:
        pass


class Parquet(Table):
    """Row groups of about 64 MiB, zstd; dictionaries for what repeats, least and greatest of what has an order."""

    def __init__(self, file: BinaryIO, schema: Any, keys: str | None, values: str | None) -> None:
        from pyarrow import parquet

        super().__init__(file, schema, keys, values)
        few = [name for name in FEW_VALUES if name.split(".")[0] in schema.names]
        measured = [name for name in schema.names if name not in ("key", "value", "headers")]
        self._writer = parquet.ParquetWriter(
            file, self.schema, compression="zstd", use_dictionary=few or False, write_statistics=measured or False
        )
        self._held: list[Any] = []
        self._held_bytes = 0

    def write(self, batch: Any) -> None:
        self._held.append(self.converted(batch))
        self._held_bytes += batch.nbytes
        if self._held_bytes >= ROW_GROUP_BYTES:
            self._flush()

    def close(self) -> None:
        self._flush()
        self._writer.close()

    def abandon(self) -> None:
        self._writer.is_open = False  # or its finalizer writes to a file that is closed by then, and complains

    def _flush(self) -> None:
        if self._held:
            self._writer.write_table(pa.Table.from_batches(self._held))
        self._held, self._held_bytes = [], 0


class Arrow(Table):
    """Arrow IPC: the file format in a file, the streaming format in a pipe."""

    def __init__(self, file: BinaryIO, schema: Any, keys: str | None, values: str | None, *, stream: bool) -> None:
        super().__init__(file, schema, keys, values)
        make = pa.ipc.new_stream if stream else pa.ipc.new_file
        self._writer = make(file, self.schema)

    def write(self, batch: Any) -> None:
        self._writer.write_batch(self.converted(batch))

    def close(self) -> None:
        self._writer.close()
