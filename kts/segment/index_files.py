"""The entries of the files beside a log, for people: both indexes, aborted transactions, and producers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from kts._timeindex import OffsetIndex, TimeIndex
from kts.segment.names import parse_file_name
from kts.segment.snapshots import snapshot_entries_of
from kts.segment.transactions import TXN_ENTRY, txn_entries
from kts.store.source import Source, files

if TYPE_CHECKING:
    import pyarrow as pa

TIME = "timestamp"
INDEXES: dict[str, type[OffsetIndex] | type[TimeIndex]] = {".index": OffsetIndex, ".timeindex": TimeIndex}
KINDS = {
    ".index": ("offset", "position"),
    ".timeindex": (TIME, "offset"),
    ".txnindex": ("version", "producerId", "firstOffset", "lastOffset", "lastStableOffset"),
    ".snapshot": (
        "producerId",
        "producerEpoch",
        "lastSequence",
        "lastOffset",
        "offsetDelta",
        TIME,
        "coordinatorEpoch",
        "openFromOffset",
    ),
}


class IndexFileContent(NamedTuple):
    """The entries of a file beside a log.

    Attributes
    ----------
    columns : pyarrow.RecordBatch
        A row for each entry, as it lies there, whether or not the log confirms it.
    base_offset : int or None
        Of the segment, by the file's name. None: the offsets of an index are relative ones.
    faults : list of str
        What the file alone shows to be wrong; one that begins with "preallocated" is none, but a file in use.
    """

    columns: pa.RecordBatch
    base_offset: int | None
    faults: list[str]


def kind_of(path: str) -> str | None:
    """The suffix of a file with entries beside a log, by its name; None for any other file."""
    name = parse_file_name(os.path.basename(path))
    suffix = os.path.splitext(path)[1] if name is None else name.suffix
    return suffix if suffix in KINDS else None


def read_index_file(path: str, source: Source = files) -> IndexFileContent:
    """The entries of a file beside a log.

    Raises
    ------
    CorruptIndexError
        A producer snapshot whose version, CRC or size is wrong.
    LogStorageError
        The file cannot be read.
    """
    import pyarrow as pa

    kind, name = str(kind_of(path)), parse_file_name(os.path.basename(path))
    base = None if name is None else name.base_offset
    data, faults = source.read_bytes(path), list[str]()
    columns: Sequence[Any]
    if kind in INDEXES:
        index = INDEXES[kind](data, base or 0)
        columns, faults = index.entries(), index.check()
    elif kind == ".txnindex":
        if rest := len(data) % TXN_ENTRY.size:
            faults.append(f"size {len(data)} is not a multiple of {TXN_ENTRY.size}: {rest} bytes after the last entry")
        columns = [*zip(*txn_entries(data), strict=True)]
    else:
        columns = [*zip(*snapshot_entries_of(data, path), strict=True)]
    numbers = [pa.array(column, pa.int64()) for column in columns] or [pa.array([], pa.int64())] * len(KINDS[kind])
    arrays = [
        column.view(pa.timestamp("ms", "UTC")) if named == TIME else column
        for named, column in zip(KINDS[kind], numbers, strict=True)
    ]
    return IndexFileContent(pa.RecordBatch.from_arrays(arrays, names=list(KINDS[kind])), base, faults)
