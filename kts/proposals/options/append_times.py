"""Option 3's time index of a segment: LogAppendTime lies in it alone.

Layout of ``.appendtimes``, entries of 12 bytes, big-endian, only ever added at the end::

    LogAppendTime int64 | relative offset int32

It is never rebuilt from the log, which does not know these times: what a crash or damage took comes from the leader.
Until then the index says which offsets it waits for, and the file gets no further entry: so the next start finds the
same gap again. The name is not ``.timeindex``, since others rebuild such files.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from kts.errors import CorruptIndexError
from kts.proposals.index import IndexEntries
from kts.proposals.minute_map import MINUTE_MS
from kts.segment import files

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
        self._file: files.WritableFile | None = None

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
        data = files.read_if_there(self.path)
        known = IndexEntries(self.base_offset)
        try:
            known = _sound(data or b"", self.base_offset)
        except CorruptIndexError:
            data = None
        before = len(known)
        known.truncate(end_offset)
        self._entries, self._written = known, len(known)
        if before != len(known):  # the crash took the messages
            self._cut()
        if first_offset == end_offset or (entries == before == len(known) and data is not None):
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
            self._opened().write(self._entries.to_bytes(self._written), self._written * 12)
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
        filled = _sound(merged.to_bytes(), self.base_offset)
        self.rest()
        files.write_atomically(self.path, filled.to_bytes())
        self._entries, self._written, self.gap = filled, len(filled), None

    def trust(self) -> None:
        """Wait no longer: this replica is the leader now, and what it has is the index."""
        if self.gap is not None:
            self.gap = None
            self._write()

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
        file.truncate(self._written * 12)
        file.sync()

    def _opened(self) -> files.WritableFile:
        if self._file is None:
            self._file = files.WritableFile(self.path, create=True)
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


def _sound(data: bytes, base_offset: int) -> IndexEntries:
    """The entries of a file.

    Raises
    ------
    CorruptIndexError
        They are not whole, or times go back, or offsets do not increase, or an entry was never written: all zeros.
    """
    entries = IndexEntries.of_bytes(data, base_offset)
    pairs = entries.pairs()
    for before, entry in pairwise([(entries.timestamps[0] if pairs else 0, base_offset - 1), *pairs]):
        if entry[0] < before[0] or entry[1] <= before[1] or entry == (0, base_offset):
            raise CorruptIndexError(f"entry {entry} after {before}: expected a later offset, and a time not before")
    return entries
