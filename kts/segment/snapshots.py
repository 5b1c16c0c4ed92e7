"""Producer snapshots: the ``.snapshot`` format, and the snapshots of a partition directory.

Layout::

    .snapshot    version i16 = 1 | CRC-32C u32 of what follows | count i32 | entries of 58 bytes:
      producer id i64 | epoch i16 | last sequence i32 | last offset i64 | offset delta i32 | timestamp i64
      | coordinator epoch i32 | first offset of the open transaction i64, -1 for none
"""

from __future__ import annotations

import os
import struct
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from kts._codec import crc32c
from kts.errors import CorruptIndexError
from kts.segment.names import parse_file_name
from kts.segment.producers import EXPIRATION_MS, Producers, ProducerStateEntry
from kts.store import local, publishing
from kts.store.protocol import DirectoryEntry
from kts.store.source import Source, files

Bytes = bytes | memoryview
_HEAD = struct.Struct(">hIi")
_ENTRY = struct.Struct(">qhiqiqiq")


# --- the format -----------------------------------------------------------------------------------


def snapshot_bytes(producers: list[ProducerStateEntry]) -> bytes:
    """The bytes of a ``.snapshot``."""
    body = b"".join(
        _ENTRY.pack(
            one.producer_id,
            one.epoch,
            one.last.last_sequence,
            one.last.last_offset,
            one.last.offset_delta,
            one.timestamp_ms,
            one.coordinator_epoch,
            one.first_offset,
        )
        for one in producers
    )
    checked = len(producers).to_bytes(4, "big") + body
    return _HEAD.pack(1, crc32c(checked), len(producers)) + body


def read_snapshot_entries(path: str, source: Source = files) -> list[tuple[int, int, int, int, int, int, int, int]]:
    """The entries of a producer snapshot, fields as in the layout above.

    Raises
    ------
    CorruptIndexError
        Version, CRC or size is wrong.
    """
    return snapshot_entries_of(source.read_bytes(path), path)


def snapshot_entries_of(data: bytes, path: str) -> list[tuple[int, int, int, int, int, int, int, int]]:
    """The entries in the bytes of a producer snapshot; raises as ``read_snapshot_entries``."""
    if len(data) < _HEAD.size:
        raise CorruptIndexError(f"expected at least {_HEAD.size} bytes, found {len(data)}", path=path, position=0)
    version, stored, count = _HEAD.unpack_from(data)
    if version != 1:
        raise CorruptIndexError(f"expected snapshot version 1, found {version}", path=path, position=0)
    computed = crc32c(data[6:])
    if computed != stored:
        raise CorruptIndexError(f"CRC is {computed:08x}, expected the stored {stored:08x}", path=path, position=2)
    body = data[_HEAD.size :]
    if count < 0 or count * _ENTRY.size != len(body):
        raise CorruptIndexError(
            f"expected {count} entries of {_ENTRY.size} bytes, found {len(body)} bytes", path=path, position=6
        )
    return list(_ENTRY.iter_unpack(body))


def open_transactions_of(data: bytes, path: str) -> dict[int, int]:
    """The first offset of each open transaction in the bytes of a snapshot, by producer id; raises as above."""
    return {entry[0]: entry[7] for entry in snapshot_entries_of(data, path) if entry[7] >= 0}


class ProducerSnapshot(NamedTuple):
    """The transactions open at the offset of a producer snapshot."""

    offset: int
    open_transactions: dict[int, int]  # producer id -> first offset


def read_snapshot(path: str, source: Source = files) -> ProducerSnapshot:
    """The open transactions of a producer snapshot; raises as ``read_snapshot_entries``."""
    name = parse_file_name(os.path.basename(path))
    return ProducerSnapshot(name.base_offset if name else 0, open_transactions_of(source.read_bytes(path), path))


# --- the snapshots of a directory -----------------------------------------------------------------


def snapshot_paths(entries: Iterable[DirectoryEntry]) -> list[tuple[int, str]]:
    """(offset, path) of the live producer snapshots in a partition directory, newest first."""
    found = []
    for entry in entries:
        name = parse_file_name(entry.name)
        if name is not None and name.suffix == ".snapshot" and not name.transition:
            found.append((name.base_offset, entry.path))
    return sorted(found, reverse=True)


class Snapshots:
    """The producer snapshots of a partition directory, and the current producer state.

    Parameters
    ----------
    offsets : list of int, optional
        The list of another state of the same directory, shared and updated by both; None lists the directory.
    kept : bool
        False neither writes snapshots nor looks for them.

    Attributes
    ----------
    offsets : list of int
        Offsets of the existing snapshots, ascending.

    Notes
    -----
    Source: ProducerStateManager (3.9).
    """

    def __init__(
        self,
        directory: str,
        expiration_ms: int = EXPIRATION_MS,
        offsets: list[int] | None = None,
        *,
        kept: bool = True,
    ) -> None:
        self.directory = directory
        self._kept = kept
        self.producers = Producers(expiration_ms)
        self.offsets: list[int] = [] if offsets is None else offsets
        self._last = 0
        if offsets is None and kept:
            self.list_files()

    def list_files(self) -> None:
        """List the snapshots of the directory."""
        names = (parse_file_name(entry.name) for entry in files.list_directory(self.directory))
        self.offsets = sorted(
            name.base_offset for name in names if name and name.suffix == ".snapshot" and not name.transition
        )

    def path(self, offset: int) -> str:
        """The file of a snapshot."""
        return os.path.join(self.directory, f"{offset:020d}.snapshot")

    def take(self) -> None:
        """Write a snapshot of the state at its offset, if the offset advanced since the last one."""
        offset = self.producers.end_offset
        if offset <= self._last or not self._kept:
            return
        publishing.publish(self.path(offset), snapshot_bytes(self.producers.in_table_order()))
        if offset not in self:
            insort(self.offsets, offset)
        self._last = offset

    def __contains__(self, offset: int) -> bool:
        """Whether there is a snapshot at an offset."""
        at = bisect_left(self.offsets, offset)
        return at < len(self.offsets) and self.offsets[at] == offset

    def remove(self, offset: int) -> None:
        """Delete a snapshot, if it exists."""
        if offset in self:
            del self.offsets[bisect_left(self.offsets, offset)]
            files.remove(self.path(offset), missing_ok=True)

    def rename_deleted(self, offset: int) -> str | None:
        """Rename the snapshot of a removed segment to ``.deleted``; returns its new path, None if there is none."""
        if offset not in self:
            return None
        del self.offsets[bisect_left(self.offsets, offset)]
        path = self.path(offset)
        local.rename(path, f"{path}.deleted")
        return f"{path}.deleted"

    def remove_strays(self, base_offsets: Iterable[int]) -> None:
        """Delete the snapshots at which no segment starts, except the newest if it is above all segments."""
        bases = set(base_offsets)
        strays = [offset for offset in self.offsets if offset not in bases]
        if strays and strays[-1] > max(bases, default=-1):
            strays.pop()
        for offset in strays:
            self.remove(offset)

    def clear(self, offset: int) -> None:
        """Delete all snapshots and forget all producers; the empty state is at ``offset``."""
        for known in list(self.offsets):
            self.remove(known)
        self.producers.clear()
        self._last, self.producers.end_offset = 0, offset

    def reload(self, log_start_offset: int, end_offset: int, now_ms: int) -> None:
        """Load the newest sound snapshot in (log start offset, end offset]; delete those outside this range."""
        known = self.offsets
        outside = known[: bisect_right(known, log_start_offset)] + known[bisect_right(known, end_offset) :]
        for offset in outside:
            self.remove(offset)
        if end_offset == self.producers.end_offset:
            self.on_log_start(log_start_offset)
            return
        self.producers.clear()
        self._last = self.producers.end_offset = log_start_offset
        while self.offsets:
            offset = self.offsets[-1]
            try:
                producers = [
                    ProducerStateEntry.of_snapshot(entry) for entry in read_snapshot_entries(self.path(offset))
                ]
            except CorruptIndexError:
                self.remove(offset)
                continue
            for producer in producers:
                if not self.producers.expired(producer, now_ms):
                    self.producers.add(producer)
            self._last = self.producers.end_offset = offset
            return

    def on_log_start(self, log_start_offset: int) -> None:
        """Update the state after the log start offset moved."""
        self.producers.replicated_to(log_start_offset)
        self.producers.end_offset = max(self.producers.end_offset, log_start_offset)
        self._last = self.offsets[-1] if self.offsets else log_start_offset

    def rebuild(
        self,
        base_offsets: Sequence[int],
        log_start_offset: int,
        end_offset: int,
        now_ms: int,
        read: Callable[[int, int, int], Iterator[Bytes]],
        *,
        magic: int = 2,
        clean: bool = False,
        count: int | None = None,
    ) -> None:
        """Rebuild the state at an offset from the newest snapshot and the batches after it.

        Parameters
        ----------
        base_offsets : sequence of int
            Base offsets of the segments, ascending.
        read : callable
            ``read(number of the segment, first offset, end offset)`` yields its whole batches in pieces.
        clean : bool
            True after a clean shutdown: no snapshot then means no producers.
        count : int, optional
            How many of the oldest segments to use; None is all.
        """
        count = len(base_offsets) if count is None else count
        newest = base_offsets[max(count - 2, 0) : count]
        at = {*newest, end_offset}
        if magic < 2 or (clean and not self.offsets):
            for offset in [*newest, end_offset]:
                self.producers.end_offset = offset
                self.take()
            return
        known = not self.producers.known and not self.producers.unreplicated
        nothing_to_do = known and self.producers.end_offset >= end_offset
        self.reload(log_start_offset, end_offset, now_ms)
        if end_offset > self.producers.end_offset and not nothing_to_do:
            first = max(bisect_right(base_offsets, self.producers.end_offset, hi=count) - 1, 0)
            for number in range(first, count):
                base = base_offsets[number]
                if base >= end_offset:
                    break
                start = max(base, self.producers.end_offset, log_start_offset)
                self.producers.end_offset = start
                if base in at:
                    self.take()
                for records in read(number, start, end_offset):
                    self.producers.follow(records)
        self.producers.end_offset = end_offset
        self.take()
