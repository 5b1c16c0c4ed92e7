"""The current records of a compacted topic: the newest value of each key of a partition."""

from __future__ import annotations

import os
import warnings
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kts.dataset.partition import PartitionLog
from kts.errors import KtsWarning

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow as pa

COLUMNS = ["offset", "key", "value", "producerId", "transactional", "control"]
COMMIT = b"\x00\x00\x00\x01"  # key of the control record that commits a transaction: version, type


class Loaded(NamedTuple):
    """The current records of a partition, without tombstones."""

    newest: dict[bytes, bytes]
    records: int  # read in all
    unfinished: bool  # there are open transactions
    damage: list[KtsWarning]  # what could not be read, and where


class Loader:
    """The newest value of each key of a partition, without aborted and open transactions.

    Python handles each key once per piece, not once per record.
    """

    def __init__(self) -> None:
        self.newest: dict[bytes, tuple[int, bytes | None]] = {}
        self.open: dict[int, dict[bytes, tuple[int, bytes | None]]] = {}  # by producer id, until its transaction ends
        self.records = 0

    def read(self, log: PartitionLog, piece_bytes: int, on_error: str = "skip") -> Loaded:
        """Read from the log start offset to the end of the files, without damaged parts unless ``on_error`` is raise.

        Notes
        -----
        The files are read from end to end, since no CRC protects indexes and offsets.
        """
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            for rows in log.scan(columns=COLUMNS, include_control=True, on_error=on_error, batch_bytes=piece_bytes):
                self.take(rows)
        damage = []
        for one in told:
            if isinstance(one.message, KtsWarning) and _within(log.path, one.message.path):
                damage.append(one.message)
            else:
                warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)
        newest = {key: value for key, (_, value) in self.newest.items() if value is not None}
        return Loaded(newest, self.records, bool(self.open), damage)

    def take(self, rows: pa.RecordBatch) -> None:
        """Add the next rows."""
        start = 0
        self.records += rows.num_rows
        for control in np.flatnonzero(_numbers(rows.column("control"))).tolist():
            self._span(rows, start, control)
            start = control + 1
            finished = self.open.pop(rows.column("producerId")[control].as_py(), {})
            if rows.column("key")[control].as_py() == COMMIT:
                for key, entry in finished.items():
                    if key not in self.newest or self.newest[key][0] < entry[0]:
                        self.newest[key] = entry
        self._span(rows, start, rows.num_rows)

    def _span(self, rows: pa.RecordBatch, start: int, end: int) -> None:
        """Add rows that contain no control records."""
        if start >= end:
            return
        span = rows.slice(start, end - start)
        transactional = _numbers(span.column("transactional")).astype(bool)
        producers = _numbers(span.column("producerId"))
        self._last_of_keys(span, np.flatnonzero(~transactional), self.newest)
        for producer_id in np.unique(producers[transactional]).tolist():
            chosen = np.flatnonzero(transactional & (producers == producer_id))
            self._last_of_keys(span, chosen, self.open.setdefault(producer_id, {}))

    def _last_of_keys(
        self, span: pa.RecordBatch, chosen: npt.NDArray[np.int64], into: dict[bytes, tuple[int, bytes | None]]
    ) -> None:
        import pyarrow as pa

        if not len(chosen):
            return
        table = pa.table({"key": span.column("key").take(pa.array(chosen)), "row": chosen})
        last = table.group_by("key").aggregate([("row", "max")])
        picked = span.take(last.column("row_max").combine_chunks())
        columns = (picked.column(name).to_pylist() for name in ("offset", "key", "value"))
        for offset, key, value in zip(*columns, strict=True):
            if key is not None:
                into[key] = (offset, value)


def _numbers(column: pa.Array) -> npt.NDArray[np.int64]:
    return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.int64)


def _within(directory: str, path: str | None) -> bool:
    """True of a partition's directory, and of the files in it."""
    return path is not None and directory in (path, os.path.dirname(path))
