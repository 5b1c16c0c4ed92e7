"""What a segment that is written to answers: by offset, by timestamp, and how long it has waited."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kts.errors import CorruptRecordError, KtsError
from kts.model import NO_TIMESTAMP, TimestampOffset
from kts.shipped import as_shipped
from kts.storage.files import FileRange
from kts.storage.segment_files import SegmentFiles
from kts.storage.shallow import ShallowEntry, decoded, decoded_as_shipped, greatest_timestamp, shallow_entries

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


class SegmentRead(NamedTuple):
    """Bytes of a segment from the first entry that was asked for; the last entry may be cut."""

    position: int
    data: bytes
    first_entry_incomplete: bool


class SegmentSlice(NamedTuple):
    """The same, to be sent as they lie."""

    position: int
    data: FileRange
    first_entry_incomplete: bool


class SegmentReading(SegmentFiles):
    """A segment's answers, also while it is written to, up to its size."""

    def translate_offset(self, offset: int, start_position: int = 0) -> ShallowEntry | None:
        """The first entry that reaches an offset, None if none does; not looked for before ``start_position``."""
        start = max(self.offset_index.lookup(offset)[1], start_position)
        for entry in shallow_entries(self.log_file(), start, self.size, self.generation, self.path):
            if entry.last_offset >= offset:
                return entry
        return None

    def read(
        self,
        start_offset: int,
        max_bytes: int,
        *,
        max_position: int | None = None,
        max_offset: int | None = None,
        min_one_message: bool = False,
    ) -> SegmentRead | None:
        """Bytes from the first entry that reaches an offset; None if none does.

        Parameters
        ----------
        max_bytes : int
            Most bytes; the last entry may be cut.
        max_position, max_offset : int, optional
            Nothing from this position, or from the entry that reaches this offset on.
        min_one_message : bool
            Give the first entry whole, even if it is larger.
        """
        found = self._range(start_offset, max_bytes, max_position, max_offset, min_one_message)
        if found is None:
            return None
        position, count, incomplete = found
        return SegmentRead(position, self.log_file().read(position, count) if count else b"", incomplete)

    def slice(
        self,
        start_offset: int,
        max_bytes: int,
        *,
        max_position: int | None = None,
        max_offset: int | None = None,
        min_one_message: bool = False,
    ) -> SegmentSlice | None:
        """What ``read`` reads, as a range of the file."""
        found = self._range(start_offset, max_bytes, max_position, max_offset, min_one_message)
        if found is None:
            return None
        position, count, incomplete = found
        return SegmentSlice(position, self.lend(position, count), incomplete)

    def lend(self, position: int, count: int) -> FileRange:
        """Bytes of the log, with a descriptor of their own; a cut takes them back."""
        if not count:
            return FileRange(None, position, 0)
        file = self._log
        lent = FileRange(self.log_file() if file is None else file.share(), position, count)
        self._lent.add(lent)
        return lent

    def _range(
        self,
        start_offset: int,
        max_bytes: int,
        max_position: int | None,
        max_offset: int | None,
        min_one_message: bool,
    ) -> tuple[int, int, bool] | None:
        """Position, count of bytes, and whether not even the first entry is whole."""
        size = self.size
        first = self.translate_offset(start_offset)
        if first is None:
            return None
        most = max(max_bytes, first.size) if min_one_message else max_bytes
        end = size if max_position is None else min(max_position, size)
        if max_offset is not None:
            last = self.translate_offset(max_offset, first.position)
            end = min(end, size if last is None else last.position)
        count = max(min(end - first.position, most), 0)
        return first.position, count, 0 < most < first.size

    def next_offset(self) -> int:
        """The offset behind its last entry, from the log; the base offset if there is none."""
        first = self.translate_offset(self.offset_index.last_offset)
        if first is None:
            return self.base_offset
        last = first
        for last in shallow_entries(self.log_file(), first.position, self.size, self.generation, self.path):  # noqa: B007
            pass
        return last.last_offset + 1

    def find_offset_by_timestamp(
        self, timestamp_ms: int, starting_offset: int | None = None, max_position: int | None = None
    ) -> TimestampOffset | None:
        """The first record from an offset on with at least this timestamp; None if there is none before a position.

        Raises
        ------
        KtsError
            As 0.10.2 shipped: an entry promises such a record and has none.
        """
        lowest = self.base_offset if starting_offset is None else starting_offset
        # Below 0 and compared as numbers, neither an index nor a header says what -1 hides, if the setting was another.
        everything = timestamp_ms < 0 and not self._allow_negative and not self.shipped
        any_offset = self.shipped and not self._batches_are_indexed
        found = lowest if everything else self.time_index.lookup(timestamp_ms)[1]
        position = self.offset_index.lookup(max(found, lowest))[1]
        log = self.log_file()
        end = self.size if max_position is None else min(self.size, max_position)
        for entry in shallow_entries(log, position, end, self.generation, self.path):
            hidden = self._allow_negative and entry.max_timestamp_ms == NO_TIMESTAMP
            if entry.max_timestamp_ms < timestamp_ms and not hidden and not everything:
                continue
            if self.shipped and entry.is_plain:  # what is damaged behind its header is not looked at
                if any_offset or entry.last_offset >= lowest:
                    return TimestampOffset(entry.max_timestamp_ms, entry.last_offset)
                continue
            offsets, timestamps = self._decoded(log.read(entry.position, entry.size))
            hits = (timestamps >= timestamp_ms) & (any_offset | (offsets >= lowest))
            if self._allow_negative:
                hits &= timestamps != NO_TIMESTAMP
            if hits.any():
                first = int(hits.argmax())
                return TimestampOffset(int(timestamps[first]), int(offsets[first]))
            if self.shipped and not self._batches_are_indexed:
                message = f"expected a record with a timestamp from {timestamp_ms} on, found none"
                raise KtsError(message, path=self.path, position=entry.position)
        return None

    def _decoded(self, entry: bytes) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        if not self.shipped:
            return decoded(entry)
        try:
            return decoded_as_shipped(entry, self.generation)
        except CorruptRecordError as error:
            raise as_shipped(error, self.generation) from error

    def time_waited_for_roll(self, now_ms: int, message_timestamp_ms: int) -> int:
        """How long ago its first timestamp is, seen from an incoming one; without timestamps since it was made."""
        if self._rolling_base is None and self.size:
            try:
                self._rolling_base = self._first_timestamp()
            except CorruptRecordError:  # damage at rest costs what is damaged, and no append
                if self.shipped:
                    raise
                self._rolling_base = NO_TIMESTAMP
        base = NO_TIMESTAMP if self._rolling_base is None else self._rolling_base
        if base >= 0 and not self._allow_negative:
            return message_timestamp_ms - base
        if self._allow_negative and base != NO_TIMESTAMP and message_timestamp_ms != NO_TIMESTAMP:
            return message_timestamp_ms - base
        return now_ms - self.created_ms

    def _first_timestamp(self) -> int | None:
        entry = next(shallow_entries(self.log_file(), 0, self.size, self.generation, self.path), None)
        if entry is not None and self._allow_negative and entry.max_timestamp_ms == NO_TIMESTAMP:
            return self._hidden_timestamp(self.log_file().read(0, entry.size))
        return None if entry is None else entry.max_timestamp_ms

    def _hidden_timestamp(self, entry: bytes | bytearray | memoryview) -> int:
        found = greatest_timestamp(decoded(bytes(entry), verify_crc=False)[1])
        return NO_TIMESTAMP if found is None else found
