"""What readers may ask of a log that is open for writing."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from kts.codec.encode import integer
from kts.log import view
from kts.log.arguments import INT64_MAX
from kts.log.log_closing import ClosableLog
from kts.log.view import Fetched, Sliced, View
from kts.model import TimestampOffset
from kts.segment import search

T = TypeVar("T", Fetched, Sliced)


class ReadableLog(ClosableLog):
    """A log with its questions; see ``Log``."""

    def read(self, offset: int, max_bytes: int, *, min_one_message: bool = False, up_to: str = "log_end") -> Fetched:
        """Bytes from the entry that holds an offset on.

        Parameters
        ----------
        max_bytes : int
            The bytes are cut there, maybe inside an entry.
        min_one_message : bool
            The first entry comes whole, even if it is larger.
        up_to : str
            "log_end", "high_watermark" or "last_stable": entries from that offset on are left out.

        Raises
        ------
        OffsetOutOfRangeError
            The offset is below the log start offset or beyond the log end offset.
        """
        return self._read(view.read, offset, max_bytes, min_one_message, up_to)

    def slice(self, offset: int, max_bytes: int, *, min_one_message: bool = False, up_to: str = "log_end") -> Sliced:
        """What ``read`` reads, as a range of the segment's file that can be sent as it lies.

        Notes
        -----
        The range keeps a descriptor until it is collected or closed. Its bytes stay the same when segments roll, are
        deleted, or the log is closed; where they are truncated, reading them raises LogStorageError.
        """
        return self._read(view.slice_of, offset, max_bytes, min_one_message, up_to)

    def _read(
        self,
        how: Callable[[View, int, int, bool, int], T],
        offset: int,
        max_bytes: int,
        min_one_message: bool,
        up_to: str,
    ) -> T:
        offset = integer("offset", offset, -INT64_MAX - 1, INT64_MAX)
        max_bytes = integer("max_bytes", max_bytes, 0, INT64_MAX)
        with self._readers:
            self._writable()
            seen = self._view
            if up_to == "log_end":
                bound = seen.end_offset
            elif up_to in ("high_watermark", "last_stable"):
                bound = min(
                    self.high_watermark if up_to == "high_watermark" else self.last_stable_offset, seen.end_offset
                )
            else:
                raise ValueError(f"up_to: expected log_end, high_watermark or last_stable, found {up_to!r}")
            found = how(seen, offset, max_bytes, min_one_message, bound)
        if self._doubted:
            self._repair()
        return found

    def offset_for_timestamp(self, t_ms: int, *, shipped_search: bool | None = None) -> TimestampOffset | None:
        """The first record whose timestamp is at least ``t_ms``, with its own timestamp; None if there is none.

        Parameters
        ----------
        t_ms : int
            Any 64-bit number; numbers that ListOffsets reserves are times here.
        shipped_search : bool, optional
            Search as brokers do, in one segment; None is as the log was opened.
        """
        target = search.check_timestamp(t_ms, "t_ms")
        with self._readers:
            self._writable()
            if self.shipped if shipped_search is None else shipped_search:
                found = view.shipped_offset_for_timestamp(self._view, target, self.config.magic)
            else:
                found = view.offset_for_timestamp(self._view, target)
        if self._doubted:
            self._repair()
        return found

    def max_timestamp(self) -> TimestampOffset | None:
        """The greatest timestamp and the first record that has it; None when the log is empty."""
        with self._readers:
            self._writable()
            found = view.shipped_max_timestamp(self._view) if self.shipped else view.max_timestamp(self._view)
        if self._doubted:
            self._repair()
        return found
