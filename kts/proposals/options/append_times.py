"""Option 3's time index of a segment: LogAppendTime lies in it alone.

Layout of ``.appendtimes``, entries of 12 bytes, big-endian, only ever added at the end::

    LogAppendTime int64 | relative offset int32

It is never rebuilt from the log, which does not know these times: what a crash or damage took comes from the leader.
A start keeps the entries before the first that does not follow, and cuts the file there. Until the leader gives the
rest, the index says which offsets it waits for, and the file gets no further entry: so the next start finds the same
gap again. The name is not ``.timeindex``, since others rebuild such files.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from kts.errors import CorruptIndexError
from kts.proposals.answers import ENTRY_BYTES
from kts.proposals.index import LAYOUT, IndexEntries
from kts.proposals.minute_map import MINUTE_MS
from kts.store import local, publishing
from kts.store.local import WritableFile
from kts.store.source import files

SUFFIX = ".appendtimes"


class TimeIndexEntry(NamedTuple):
    """An entry of option 3's time index, as Fetch carries it: the LogAppendTime in ms of the message at an offset."""

    append_ms: int
    offset: int


class Gap(NamedTuple):
    """The offsets, both included, of which a replica waits for the leader's index entries."""

    first_offset: int
    last_offset: int


def is_new_minute(append_ms: int, last_ms: int) -> bool:
    """Whether a message is the first received in its minute, by the time of the last index entry."""
    return append_ms // MINUTE_MS > last_ms // MINUTE_MS


class AppendTimes:
    """The index of one segment, in memory and in its file.

    Attributes
    ----------
    gap : Gap or None
        What it waits for.
    """

    def __init__(self, path: str, base_offset: int) -> None:
        self.path = path
        self.base_offset = base_offset
        self.gap: Gap | None = None
        self._entries = IndexEntries(base_offset)
        self._written = 0  # entries in the file
        self._file: WritableFile | None = None

    # --- what it says -----------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def entries(self) -> list[TimeIndexEntry]:
        """All entries, offsets absolute."""
        return [TimeIndexEntry(*pair) for pair in self._entries.pairs()]

    @property
    def first(self) -> TimeIndexEntry | None:
        return self._at(0) if len(self) else None

    @property
    def last(self) -> TimeIndexEntry | None:
        return self._at(len(self) - 1) if len(self) else None

    def _at(self, number: int) -> TimeIndexEntry:
        return TimeIndexEntry(self._entries.timestamps[number], self._entries.offsets[number])

    def between(self, first_offset: int, last_offset: int) -> list[TimeIndexEntry]:
        """The entries for some offsets, both included."""
        offsets = self._entries.offsets
        return [self._at(i) for i in range(bisect_left(offsets, first_offset), bisect_left(offsets, last_offset + 1))]

    def after(self, target_ms: int) -> tuple[TimeIndexEntry | None, TimeIndexEntry | None]:
        """The last entry before a time, and the first at or after it."""
        number = bisect_left(self._entries.timestamps, target_ms)
        return (self._at(number - 1) if number else None), (self._at(number) if number < len(self) else None)

    # --- the file ---------------------------------------------------------------------------------

    def load(self, first_offset: int, end_offset: int, entries: int | None) -> None:
        """Read the file, and find out what it lacks of a segment that has messages from ``first_offset`` on.

        Parameters
        ----------
        entries : int or None
            As many it had when the log was closed; None if nothing says so: then the entries after its last may be
            lost, unless that is the entry of the segment's last message.
        """
        data = files.read_if_there(self.path) or b""
        known = IndexEntries.of_bytes(data[: _sound(data) * ENTRY_BYTES], self.base_offset)
        known.truncate(end_offset)
        self._entries, self._written = known, len(known)
        whole = len(data) == len(known) * ENTRY_BYTES
        if not whole:  # a crash took the messages of the rest, or the rest is damaged
            self._cut()
        if first_offset == end_offset or (whole and entries == len(known)):
            return
        last = known.offsets[-1] if len(known) else first_offset - 1
        if last != end_offset - 1:
            self.gap = Gap(max(last, first_offset), end_offset - 1)

    def add(self, entries: Sequence[TimeIndexEntry]) -> None:
        """Add entries at the end; to the file too, unless the index waits for the leader."""
        if not entries:
            return
        self._entries.extend([entry.append_ms for entry in entries], [entry.offset for entry in entries])
        self._write()

    def _write(self) -> None:
        if self.gap is None and self._written < len(self):
            self._opened().write(self._entries.to_bytes(self._written), self._written * ENTRY_BYTES)
            self._written = len(self)

    def fill(self, gap: Gap, entries: Sequence[TimeIndexEntry]) -> None:
        """Take the leader's entries for the gap.

        Raises
        ------
        CorruptIndexError
            They do not fit between those that the index has; it still waits.
        """
        known = [one for one in self.entries if not gap.first_offset <= one.offset <= gap.last_offset]
        merged = IndexEntries(self.base_offset)
        every = sorted([*known, *entries], key=lambda one: one.offset)
        merged.extend([one.append_ms for one in every], [one.offset for one in every])
        data = merged.to_bytes()
        sound = _sound(data)
        if sound < len(every):
            before = every[sound - 1] if sound else "none"
            raise CorruptIndexError(
                f"entry {every[sound]} after {before}: expected a later offset, and a time not before"
            )
        self.rest()
        publishing.publish(self.path, data)
        self._entries, self._written, self.gap = merged, len(merged), None

    def trust(self) -> None:
        """Wait no longer: this replica is the leader now, and what it has is the index. On disk at once."""
        if self.gap is not None:
            self.gap = None
            self._write()
            self.flush()
            self.rest()

    def truncate(self, offset: int) -> None:
        """Drop the entries from an offset on, and a closing entry: the segment is active again. On disk at once."""
        self._entries.truncate(offset)
        times = self._entries.timestamps
        if len(times) > 1 and self._entries.offsets[-1] == offset - 1 and not is_new_minute(times[-1], times[-2]):
            self._entries.truncate(offset - 1)
        if self.gap is not None:
            last = min(self.gap.last_offset, offset - 1)
            self.gap = Gap(self.gap.first_offset, last) if self.gap.first_offset <= last else None
        if self._written > len(self):
            self._written = len(self)
            self._cut()
        self._write()

    def _cut(self) -> None:
        file = self._opened()
        file.truncate(self._written * ENTRY_BYTES)
        file.sync()

    def _opened(self) -> WritableFile:
        if self._file is None:
            is_new = not files.exists(self.path)
            self._file = WritableFile(self.path, create=True)
            if is_new:  # or a flush would not save it
                local.sync_directory(os.path.dirname(self.path))
        return self._file

    def flush(self) -> None:
        """Wait until all entries are on disk."""
        if self._file is not None:
            self._file.sync()

    def rest(self) -> None:
        """Close the file until it is needed again."""
        file, self._file = self._file, None
        if file is not None:
            file.close()


def _sound(data: bytes) -> int:
    """How many entries of a file follow each other: times do not go back, offsets increase, and none is all zeros."""
    table = np.frombuffer(data, LAYOUT, len(data) // ENTRY_BYTES)
    times, offsets = table["timestamp"], table["offset"]
    follows = np.empty(len(table), bool)
    follows[:1] = (offsets[:1] > 0) | ((offsets[:1] == 0) & (times[:1] != 0))
    follows[1:] = (times[1:] >= times[:-1]) & (offsets[1:] > offsets[:-1])
    return len(table) if follows.all() else int(follows.argmin())
