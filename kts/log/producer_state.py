"""The producer state of a log, and its ``.snapshot`` and ``.txnindex`` files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kts.codec.layout import Entries
from kts.errors import CorruptRecordError
from kts.segment.entries import Slices
from kts.segment.log_segment import LogSegment
from kts.segment.producers import EXPIRATION_MS, AbortedBatch, ProducerStateEntry, Sent, Update
from kts.segment.snapshots import Snapshots
from kts.segment.transactions import append_aborted, sync_aborted


class ProducerState:
    """The producers of one log. The log reports each change; this class writes the files.

    Parameters
    ----------
    directory : str
        The partition's.
    expiration_ms : int
        ``producer.id.expiration.ms``.
    kept : bool
        False for a release without producer ids (0.10.2): nothing is tracked or written.
    snapshots : list of int, optional
        Offsets of the snapshots, shared with another state of the same directory; None lists the directory.

    Notes
    -----
    Source: ProducerStateManager (3.9).
    """

    def __init__(
        self,
        directory: str,
        expiration_ms: int = EXPIRATION_MS,
        *,
        kept: bool = True,
        snapshots: list[int] | None = None,
    ) -> None:
        self.kept = kept
        self._snapshots = Snapshots(directory, expiration_ms, snapshots, kept=kept)
        self._producers = self._snapshots.producers
        self._unsynced: set[str] = set()  # transaction indexes

    # --- state ------------------------------------------------------------------------------------

    @property
    def snapshots(self) -> list[int]:
        """The offsets of the snapshots, ascending."""
        return self._snapshots.offsets

    @property
    def first_unstable_offset(self) -> int | None:
        """First offset of the earliest transaction that is open, or ends at or above the high watermark."""
        return self._producers.first_unstable_offset

    @property
    def largest_id(self) -> int:
        """The greatest producer id, -1 if there is none."""
        return max(list(self._producers.known), default=-1)

    def in_table_order(self) -> list[ProducerStateEntry]:
        """The producers in the order in which a broker writes them."""
        return self._producers.in_table_order()

    # --- what happens to the log ------------------------------------------------------------------

    def prepare(self, records: bytes | memoryview, entries: Entries, origin: str) -> Update | Sent | None:
        """The change that a set of batches will make; see ``Producers.prepare``. None without a producer id."""
        if not self.kept or (len(entries) == 1 and entries[0].producer_id < 0):
            return None
        return self._producers.prepare(records, origin, entries)

    def appended(self, update: Update | None, end_offset: int, segment: LogSegment) -> None:
        """The set was written; its aborted transactions go to the transaction index."""
        if update is not None:
            aborted = self._producers.apply(update)
            if aborted:
                append_aborted(segment.txn_index_path, aborted)
                self._unsynced.add(segment.txn_index_path)
        self._producers.end_offset = end_offset

    def follow(self, batch: bytes | memoryview) -> list[AbortedBatch]:
        """Apply a batch that recovery reads; returns its entries for the transaction index."""
        return self._producers.follow(batch)

    def recovered(self, end_offset: int) -> None:
        """A segment was recovered up to an offset."""
        self._producers.end_offset = max(self._producers.end_offset, end_offset)
        self._snapshots.take()

    def rolled(self, base_offset: int) -> None:
        """A new segment begins at an offset."""
        self._producers.end_offset = base_offset
        self._snapshots.take()

    def removed(self, base_offset: int) -> list[str]:
        """A segment was removed. Its snapshot is renamed ``.deleted``; returns the path, if there is one."""
        path = self._snapshots.rename_deleted(base_offset)
        return [] if path is None else [path]

    def replicated_to(self, high_watermark: int) -> None:
        """The high watermark moved: finished transactions below it are stable."""
        self._producers.replicated_to(high_watermark)

    def log_start_moved(self, log_start_offset: int) -> None:
        """The log start offset moved."""
        self._snapshots.on_log_start(log_start_offset)

    def remove_expired(self, now_ms: int) -> int:
        """Forget the producers that expired; returns how many."""
        return self._producers.remove_expired(now_ms)

    def remove_stray_snapshots(self, segments: Sequence[LogSegment]) -> None:
        """Delete the snapshots at which no segment starts, except the newest if it is beyond all segments."""
        self._snapshots.remove_strays(segment.base_offset for segment in segments)

    def clear(self, offset: int) -> None:
        """The log was emptied and continues at an offset."""
        self._snapshots.clear(offset)

    def flush(self) -> None:
        """Wait until the transaction indexes are on disk."""
        if self._unsynced:
            sync_aborted(self._unsynced)
            self._unsynced.clear()

    def take_snapshot(self) -> None:
        """Write a snapshot of the current state, if its offset moved since the last one."""
        self._snapshots.take()

    def rebuild(
        self,
        segments: Sequence[LogSegment],
        log_start_offset: int,
        end_offset: int,
        now_ms: int,
        *,
        magic: int,
        clean: bool = False,
        bases: Sequence[int] | None = None,
        count: int | None = None,
    ) -> None:
        """Rebuild the state at an offset from the newest snapshot and the batches after it; see ``Snapshots.rebuild``.

        Parameters
        ----------
        bases : sequence of int, optional
            The base offsets of the segments, if the caller has them.
        count : int, optional
            How many of the oldest segments to look at; None is all.
        """

        def read(number: int, first: int, end: int) -> Iterator[memoryview]:
            return _entries(segments[number], first, end)

        if bases is None:
            bases = [segment.base_offset for segment in segments]
        self._snapshots.rebuild(
            bases, log_start_offset, end_offset, now_ms, read, magic=magic, clean=clean, count=count
        )


def _entries(segment: LogSegment, first_offset: int, end_offset: int) -> Iterator[memoryview]:
    """The entries of a segment in a range of offsets, up to the first damaged one."""
    try:
        first = segment.translate_offset(first_offset)
    except CorruptRecordError:  # the state after damage is unknown
        return
    if first is None:
        return
    for batches in Slices(segment.log_file(), first.position, segment.size):
        inside = int((batches.column("last_offset") < end_offset).sum())
        sound = batches.column("crc_ok")[:inside]
        stop = not sound.all()
        inside = int(sound.argmin()) if stop else inside
        if inside:
            batches.rows = inside
            yield batches.records()
        if stop:
            return
