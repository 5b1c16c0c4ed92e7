"""Decodes the slices of segment ranges in threads, ahead of their reader, in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from threading import RLock, get_ident
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


class _DecodedSlice(Future[Any]):
    """A slice, and what is made of it once it is decoded."""

    def __init__(self, start: int, data: memoryview) -> None:
        super().__init__()
        self.start, self.data = start, data

    def decode(self, reader: SlicedRange) -> None:
        """Decode it; what that raises is raised where the reader takes it."""
        try:
            self.set_result(reader.decode(self.start, self.data))
        except BaseException as error:
            self.set_exception(error)
            if not isinstance(error, Exception):  # Ctrl-C
                raise


class _RangeSlices:
    """The slices of a range from a position on, and those of them that were read ahead."""

    def __init__(self, reader: SlicedRange, asked: tuple[int, int, int | None]) -> None:
        self.reader, self.asked = reader, asked
        self.unread = reader.slices(*asked)
        self.ahead = deque[_DecodedSlice]()
        self.ended = False
        self.error: Exception | None = None  # of the read after those ahead


class Ahead(Generic[Range]):
    """Decodes slices of ranges in threads, while their reader takes them in order.

    Parameters
    ----------
    threads : int
        How many slices are decoded at the same time; the reader's thread decodes one of them while it would wait.

    Notes
    -----
    At most ``threads + 1`` slices are held that the reader has not taken, and one more where it resumes behind damage
    while following ranges hold so many. One is read at a time, in order; the decoding runs side by side. Ranges on
    disks are begun before their turn, so that small segments keep the threads busy too.
    """

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._workers = set[int]()
        self._pool = ThreadPoolExecutor(threads, "kts-scan", partial(_note_thread, self._workers))
        self._working: list[Future[None]] = []
        # Held to read a slice and to change the ranges; again by a thread whose garbage collection ends the reader.
        self._reading = RLock()
        self._ranges = deque[_RangeSlices]()  # the first is the one that is read
        self._coming: Iterator[Range] = iter(())
        self._begun = deque[Range]()
        self._error: Exception | None = None  # after the ranges that were begun

    def in_turn(self, ranges: Iterator[Range]) -> Iterator[Range]:
        """The ranges in order; following ones are begun while one is read."""
        self._coming = ranges
        try:
            while self._begun or self._begin():
                reader = self._begun.popleft()
                yield reader
                self._drop(self._known(reader))
            if self._error is not None:
                raise self._error
        finally:
            with self._reading:
                for known in tuple(self._ranges):
                    self._drop(known)
            # A thread of the pool whose garbage collection ends the reader cannot wait for itself.
            self._pool.shutdown(wait=get_ident() not in self._workers, cancel_futures=True)

    def slices(self, reader: SlicedRange, position: int, end: int, first_bytes: int | None) -> Iterator[Slice]:
        """As the reader's own ``slices``, each decoded."""
        wanted = self._known(reader)
        if wanted is None or wanted.asked != (position, end, first_bytes):
            self._drop(wanted)
            wanted = _RangeSlices(reader, (position, end, first_bytes))
            with self._reading:
                self._ranges.appendleft(wanted)
        try:
            while (one := self._take(wanted)) is not None:
                yield Slice(one.start, one.data, one.result)
            if wanted.error is not None:
                raise wanted.error
        finally:
            self._drop(wanted)

    def _known(self, reader: SlicedRange) -> _RangeSlices | None:
        return next((one for one in self._ranges if one.reader is reader), None)

    def _begin(self) -> bool:
        """Take the next range, if there is one; on the thread of the reader."""
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
        """Begin following ranges while there is room."""
        while self._held() <= self._threads and len(self._ranges) <= self._threads + 1:
            newest = self._begun[-1] if self._begun else self._ranges[-1].reader
            if newest.fetched or not self._begin():
                return
            reader = self._begun[-1]
            if not reader.fetched:
                with self._reading:
                    self._ranges.append(_RangeSlices(reader, reader.whole()))

    def _held(self) -> int:
        """How many slices were read that the reader has not taken."""
        return sum(len(one.ahead) for one in self._ranges)

    def _take(self, wanted: _RangeSlices) -> _DecodedSlice | None:
        """The next slice of a range, decoded; None at its end."""
        self._look_ahead()
        self._start(wanted)
        with self._reading:
            first = None if wanted.ahead else self._read(wanted)  # whatever is held of the ranges after it
        if first is not None:
            first.decode(wanted.reader)
        if not wanted.ahead:
            return None
        one = wanted.ahead[0]
        while not one.done() and not wanted.reader.fetched and self._decode_next():
            pass
        one.exception()  # waits
        wanted.ahead.popleft()
        self._start(wanted)
        return one

    def _start(self, wanted: _RangeSlices) -> None:
        """Let threads work, if there is room for two slices: to wake one for each takes longer.

        The reader of this range is one more where no store is waited for.
        """
        most = self._threads if wanted.reader.fetched else self._threads - 1
        if self._held() < self._threads:
            self._working = [one for one in self._working if not one.done()]
            for _ in range(most - len(self._working)):
                self._working.append(self._pool.submit(self._work))

    def _work(self) -> None:
        """Read and decode slices while there is room for them."""
        while self._decode_next():
            pass

    def _decode_next(self) -> bool:
        """Read the next slice, if there is room, and decode it."""
        with self._reading:
            while (source := self._next()) is not None:
                if (found := self._read(source)) is not None:
                    break
            else:
                return False
        found.decode(source.reader)
        return True

    def _next(self) -> _RangeSlices | None:
        """The range whose next slice may be read now."""
        held = self._held()
        source = next((one for one in self._ranges if not one.ended), None)
        if source is None or held > self._threads:
            return None
        # How much a slice grows is unknown before the first one is decoded.
        return None if held and not source.reader.paced else source

    def _read(self, source: _RangeSlices) -> _DecodedSlice | None:
        """The next slice of a range; None at its end."""
        with self._reading:
            try:
                piece = None if source.ended else next(source.unread, None)
            except Exception as error:
                source.error, piece = error, None
            if piece is None:
                source.ended = True
                return None
            one = _DecodedSlice(*piece)
            source.ahead.append(one)
            return one

    def _drop(self, source: _RangeSlices | None) -> None:
        """Forget a range and what was read of it."""
        with self._reading:
            if source is None or source not in self._ranges:
                return
            self._ranges.remove(source)
            source.ahead.clear()
            source.ended = True
            with suppress(ValueError):  # garbage collection, while this thread reads from it
                source.unread.close()


def _note_thread(workers: set[int]) -> None:
    workers.add(get_ident())
