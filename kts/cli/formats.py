"""The formats that ``kts dump`` writes, batch by batch in bounded memory; JSON lines and CSV are in ``text``."""

from __future__ import annotations

from typing import Any, BinaryIO, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kts.codec.micros import MAX_MS
from kts.segment.rereading import warn

from .output import naming_the_record

ROW_GROUP_BYTES = 32 << 20  # of decoded records in a Parquet row group: about 250,000 records of 100 bytes
FEW_VALUES = ("topic", "partition", "timestampType", "magic", "codec", "headers.list.element.key")
RISING = ("offset", "timestamp", "createTimestamp", "baseOffset", "baseTimestamp", "maxTimestamp", "position")
SAMPLED_KEYS = 1 << 14
MOST_DIFFERENT = 0.95  # of the sample; with more different keys, a Parquet dictionary would overflow


class Writer(Protocol):
    """The interface of a format."""

    def write(self, batch: Any) -> None:
        """Add the records of a batch."""

    def close(self) -> None:
        """Write buffered records and the footer; the file itself stays open."""

    def abandon(self) -> None:
        """Instead of ``close``, after an error."""


class Table:
    """Parquet and Arrow: columns keep their types; keys and values become text only if an encoding is given."""

    def __init__(self, file: BinaryIO, schema: Any, keys: str | None, values: str | None) -> None:
        self._file = file
        self._encodings = {name: how for name, how in (("key", keys), ("value", values)) if how is not None}
        fields = [field.with_type(pa.string()) if field.name in self._encodings else field for field in schema]
        self.schema = pa.schema(fields)

    def converted(self, batch: Any) -> Any:
        if not self._encodings:
            return pa.record_batch(batch.columns, schema=self.schema)
        from .text import encode_column  # with Arrow's functions, which take a while to import

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
    """Parquet with zstd in row groups of about 32 MiB.

    Columns that repeat use dictionaries, columns that rise use delta encoding. Keys, values and headers have no
    statistics. A time that microseconds cannot hold is null, as in tables, and told: Spark reads no file with one.
    """

    def __init__(self, file: BinaryIO, schema: Any, keys: str | None, values: str | None) -> None:
        super().__init__(file, schema, keys, values)
        self._writer: Any = None
        self._held: list[Any] = []
        self._held_bytes = 0
        self._far = 0
        self._first_far = ""

    def write(self, batch: Any) -> None:
        self._held.append(self.converted(self.near(batch)))
        self._held_bytes += batch.nbytes
        if self._held_bytes >= ROW_GROUP_BYTES:
            self._flush()

    def near(self, batch: Any) -> Any:
        """The batch without times that microseconds cannot hold; counts them."""
        for number, field in enumerate(batch.schema):
            if not pa.types.is_timestamp(field.type):
                continue
            ms = np.asarray(batch.column(number).cast(pa.int64()).fill_null(0))
            far = np.flatnonzero((ms > MAX_MS) | (ms < -MAX_MS))
            if not len(far):
                continue
            if not self._far:
                names, row = batch.schema.names, int(far[0])
                offset = f" at offset {batch.column('offset')[row].as_py()}" if "offset" in names else ""
                self._first_far = f"the first is the {field.name} {ms[row]} ms{offset}"
            self._far += len(far)
            mask = np.zeros(len(ms), bool)
            mask[far] = True
            kept = pc.if_else(pa.array(mask), pa.scalar(None, field.type), batch.column(number))
            batch = batch.set_column(number, field, kept)
        return batch

    def close(self) -> None:
        self._flush()
        self._writer.close()
        if self._far:
            warn(
                f"{self._far} times are null in this Parquet file, because the microseconds of Spark and pandas do not"
                f" hold them; {self._first_far}; --format arrow, jsonl and csv keep them",
                None,
            )

    def abandon(self) -> None:
        if self._writer is not None:
            self._writer.is_open = False  # else its finalizer would write to a closed file

    def _flush(self) -> None:
        rows = pa.Table.from_batches(self._held, self.schema)
        if self._writer is None:
            self._writer = self._opened(rows)
        if self._held:
            self._writer.write_table(rows)
        self._held, self._held_bytes = [], 0

    def _opened(self, rows: Any) -> Any:
        """A writer with settings for rows like the first ones."""
        from pyarrow import parquet

        names = self.schema.names
        few = [name for name in FEW_VALUES if name.split(".")[0] in names]
        if "key" in names and keys_repeat(rows["key"]):
            few.append("key")
        return parquet.ParquetWriter(
            self._file,
            self.schema,
            compression="zstd",
            use_dictionary=few or False,
            column_encoding={name: "DELTA_BINARY_PACKED" for name in RISING if name in names} or None,
            write_statistics=[name for name in names if name not in ("key", "value", "headers")] or False,
        )


def keys_repeat(column: Any) -> bool:
    """Whether keys repeat often enough for a dictionary, judged by the first ones."""
    sample = column.slice(0, SAMPLED_KEYS).to_pylist()
    return len(set(sample)) <= MOST_DIFFERENT * len(sample)


class ArrowWriter(Table):
    """Arrow IPC: the file format in a file, the streaming format in a pipe."""

    def __init__(self, file: BinaryIO, schema: Any, keys: str | None, values: str | None, *, stream: bool) -> None:
        super().__init__(file, schema, keys, values)
        make = pa.ipc.new_stream if stream else pa.ipc.new_file
        self._writer = make(file, self.schema)

    def write(self, batch: Any) -> None:
        self._writer.write_batch(self.converted(batch))

    def close(self) -> None:
        self._writer.close()
