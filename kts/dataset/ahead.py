"""Decodes the slices of segment ranges on several cores, ahead of their reader, in order."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from typing import Any, Generic, NamedTuple, Protocol, TypeVar


class Slice(NamedTuple):
    """Bytes of whole batches, and a call that gives what the reader makes of them, or raises."""

    start: int
    data: memoryview
    decoded: Callable[[], Any]


class SlicedRange(Protocol):
    """A range that is read in slices; ``RangeReader`` is one."""

    @property
    def fetched(self) -> bool:
        """True if its bytes come from a store, which wants ranges to be read one after the other."""

    @property
    def paced(self) -> bool:
        """True if it is known how much slices grow when they are decoded."""

    def whole(self) -> tuple[int, int, int | None]:
        """The arguments of ``slices`` for all of it."""

    def slices(self, position: int, end: int, first_bytes: int | None) -> Generator[tuple[int, memoryview]]:
        """Its slices from a position on."""

    def decode(self, start: int, data: memoryview) -> Any:
        """What is made of a slice; called by several threads."""


Range = TypeVar("Range", bound=SlicedRange)

IDLE_S = 0.05  # how long a thread waits for room before it ends: to start another takes longer than to wake it


class _DecodingSlice:
    """A slice that a thread decodes."""

    def __init__(self, start: int, data: memoryview) -> None:
        self.start, self.data = start, data
        self.found: Any = None
        self.error: BaseException | None = None
        self.undecoded = threading.Lock()  # held until it is decoded: an event takes several locks
        self.undecoded.acquire()

    def taken(self) -> Any:
        """What was made of it, which is no longer kept here."""
        found, error, self.found, self.error = self.found, self.error, None, None
        if error is not None:
            raise error
        return found


class _RangeSlices:
    """The slices of a range from a position on, and those that were read ahead."""

    def __init__(self, reader: SlicedRange, asked: tuple[int, int, int | None]) -> None:
        self.reader, self.asked = reader, asked
        self.slices = reader.slices(*asked)
        self.slots = deque[_DecodingSlice]()
        self.ended = False
        self.error: BaseException | None = None  # of the read after the last slot


class Ahead(Generic[Range]):
    """Decodes slices of ranges in threads, while their reader takes them in order.

    Parameters
    ----------
    threads : int
        How many slices are decoded at the same time; the reader's thread decodes one of them while it would wait.

    Notes
    -----
    At most ``threads + 1`` slices are held that the reader has not taken, and one more where it resumes behind damage
    while following ranges hold so many. One is read at a time, in order; the decoding runs side by side. A thread ends
    soon after there is nothing more to do: a reader that stops early leaves none. Ranges on disks are begun before
    their turn, so that small segments keep the threads busy too.
    """

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._state = threading.RLock()
        self._came = threading.Condition(self._state)  # a slice, for the reader
        self._room = threading.Condition(self._state)  # for another slice, of a thread
        # Taken before the state's lock; again by a thread whose garbage collection ends the reader.
        self._reading = threading.RLock()
        self._sources = deque[_RangeSlices]()  # the first is the one that is read
        self._running = self._idle = 0
        self._held = 0
        self._ended = False
        self._coming: Iterator[Range] = iter(())
        self._begun = deque[Range]()
        self._error: Exception | None = None  # after the ranges that were begun

    def in_turn(self, ranges: Iterator[Range]) -> Iterator[Range]:
        """The ranges in order; following ones are begun while one is read."""
        self._coming = ranges
        try:
            while self._begun or self._begin():
                yield self._begun.popleft()
            if self._error is not None:
                raise self._error
        finally:
            for source in tuple(self._sources):
                self._drop(source)
            with self._state:
                self._ended = True
                self._room.notify_all()

    def slices(self, reader: SlicedRange, position: int, end: int, first_bytes: int | None) -> Iterator[Slice]:
        """As the reader's own ``slices``, each decoded."""
        source = self._source(reader, (position, end, first_bytes))
        try:
            while (slot := self._take(source)) is not None:
                yield Slice(slot.start, slot.data, slot.taken)
        finally:
            self._drop(source)

    def _source(self, reader: SlicedRange, asked: tuple[int, int, int | None]) -> _RangeSlices:
        """The range's source: the one that was begun, unless it is read from another place."""
        known = next((one for one in self._sources if one.reader is reader), None)
        if known is not None and known.asked == asked:
            return known
        if known is not None:
            self._drop(known)
        source = _RangeSlices(reader, asked)
        with self._state:
            self._sources.appendleft(source)
        return source

    def _begin(self) -> bool:
        """Take the next range, if there is one."""
        if self._error is not None:
            return False
        try:
            reader = next(self._coming, None)
        except Exception as error:  # it comes after the rows before it
            self._error = error
            return False
        if reader is None:
            return False
        self._begun.append(reader)
        return True

    def _look_ahead(self) -> None:
        """Begin following ranges while there is room; all on the thread of the reader."""
        while self._held <= self._threads and len(self._sources) <= self._threads + 1:
            newest = self._begun[-1] if self._begun else self._sources[-1].reader
            if newest.fetched or not self._begin():
                return
            reader = self._begun[-1]
            if not reader.fetched:
                with self._state:
                    self._sources.append(_RangeSlices(reader, reader.whole()))

    def _take(self, source: _RangeSlices) -> _DecodingSlice | None:
        """The next slice of the range, decoded; None at its end."""
        while True:
            self._look_ahead()
            with self._state:
                self._start(source)
                slot = source.slots[0] if source.slots else None
                if slot is None and source.ended:
                    if source.error is not None:
                        raise source.error
                    return None
            if slot is not None and not slot.undecoded.locked():
                break
            found = None if source.reader.fetched else self._read()
            if found is not None:
                _decode(*found)
                continue
            if slot is not None:
                slot.undecoded.acquire()
                break
            with self._state:
                if not source.slots and not source.ended:
                    self._came.wait()
        with self._state:
            source.slots.popleft()
            self._held -= 1
            self._start(source)
        return slot

    def _drop(self, source: _RangeSlices) -> None:
        with self._reading, self._state:
            if source not in self._sources:
                return
            self._sources.remove(source)
            self._held -= len(source.slots)
            source.slots.clear()
            source.ended = True
        with suppress(ValueError):  # this thread is reading from it
            source.slices.close()

    def _next(self) -> _RangeSlices | None:
        """The range whose next slice may be read now."""
        first = self._sources[0] if self._sources else None
        if first is not None and not first.slots and not first.ended:
            # The reader waits for it. It does not wait for room: those behind it may hold all of that.
            return first
        if self._held > self._threads:
            return None
        source = next((one for one in self._sources if not one.ended), None)
        # How much a slice grows is unknown before the first one is decoded.
        return None if source is None or (self._held and not source.reader.paced) else source

    def _start(self, source: _RangeSlices) -> None:
        """Start threads for the room there is; the reader of this source is one more where no store is waited for."""
        most = self._threads if source.reader.fetched else self._threads - 1
        if self._idle and self._next() is not None:
            self._room.notify()
            return
        while self._running < most and self._next() is not None:
            self._running += 1
            threading.Thread(target=self._work, name="kts-scan", daemon=True).start()

    def _work(self) -> None:
        """Read and decode slices until for some time there is no room, or nothing left."""
        while True:
            while (found := self._read()) is not None:
                _decode(*found)
                del found
            with self._state:
                self._idle += 1
                self._room.wait_for(lambda: self._ended or self._next() is not None, IDLE_S)
                self._idle -= 1
                if self._next() is None:
                    self._running -= 1
                    return

    def _read(self) -> tuple[_RangeSlices, _DecodingSlice] | None:
        """The next slice, if there is room for it."""
        with self._reading:
            while True:
                with self._state:
                    source = self._next()
                    if source is None:
                        return None
                piece, error = None, None
                try:
                    piece = next(source.slices, None)
                except BaseException as raised:
                    error = raised
                with self._state:
                    if piece is not None:
                        slot = _DecodingSlice(*piece)
                        source.slots.append(slot)
                        self._held += 1
                        self._came.notify()
                        return source, slot
                    source.ended, source.error = True, error
                    self._came.notify()


def _decode(source: _RangeSlices, slot: _DecodingSlice) -> None:
    """Decode a slice; what it raises is raised where the reader takes it."""
    try:
        slot.found = source.reader.decode(slot.start, slot.data)
    except BaseException as error:
        slot.error = error
    slot.undecoded.release()  # without the state's lock: garbage collection here may end the reader
