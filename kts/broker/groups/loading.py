"""The newest value of each key of a partition, without transactions that were aborted or never ended."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow as pa

    from kts.dataset.partition import PartitionLog

COLUMNS = ["offset", "key", "value", "producerId", "transactional", "control"]
COMMIT = b"\x00\x00\x00\x01"  # key of the control record that ends a transaction well: version, type


class Loaded(NamedTuple):
    """What a partition says in the end; a key without a value was deleted and is left out."""

    newest: dict[bytes, bytes]
    records: int  # read on the way
    unfinished: bool  # there are transactions that have not ended
    damage: list[str]  # what could not be read, and where it lies


class Loader:
    """Reads a partition piece by piece; Python sees a key once a piece, not once a record."""

    def __init__(self) -> None:
        self.newest: dict[bytes, tuple[int, bytes | None]] = {}
        self.open: dict[int, dict[bytes, tuple[int, bytes | None]]] = {}  # by producer id, until its transaction ends
        self.records = 0

    def read(self, log: PartitionLog, piece_bytes: int) -> Loaded:
        """Everything from the log start offset to the end of the files; what is damaged is left out.

        Notes
        -----
        The files are walked from end to end: no index and no offset, which is under no CRC, says where to go on.
        """
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            for rows in log.scan(columns=COLUMNS, include_control=True, on_error="skip", batch_bytes=piece_bytes):
                self.take(rows)
        damage = []
        for one in told:
            if str(one.message).startswith(log.path):
                damage.append(str(one.message))
            else:
                warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)
        newest = {key: value for key, (_, value) in self.newest.items() if value is not None}
        return Loaded(newest, self.records, bool(self.open), damage)

    def take(self, rows: pa.RecordBatch) -> None:
        """Rows that follow those before."""
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
        """Rows without control records between them."""
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
