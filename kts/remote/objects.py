"""One object of a bucket as a file to read: merged and parallel ranges, all of one version."""

from __future__ import annotations

import errno
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import Future
from itertools import pairwise
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeVar

from kts.errors import LogStorageError
from kts.store.protocol import ByteRange, Item, Result

BLOCK_BYTES = 2**16  # what a short read fetches and keeps
KEPT_BLOCKS = 32
KEPT_BYTES = 2**25  # of all objects of a bucket
LEAST_BYTES = 2**12  # what a kept value counts at least
PART_BYTES = 2**24  # a request of a long read
MOST_AHEAD_BYTES = 8 * PART_BYTES  # requested or fetched, and not yet read
MOST_AHEAD = 64  # requests
ATTEMPTS, ATTEMPTS_S = 3, 30.0  # beyond those of the library, if it fails so soon

Value = TypeVar("Value")


class Handle(Protocol):
    """An opened object; any thread may read."""

    def read_at(self, nbytes: int, offset: int) -> bytes:
        """Bytes from an offset, in one request."""


class Opened(NamedTuple):
    """An object as one request found it."""

    handle: Handle
    size: int
    version: Hashable  # differs once the object is replaced


class FetchedBytes(NamedTuple):
    """Bytes of an object, and when they came."""

    data: bytes
    answered: float


class LruCache(Generic[Value]):
    """The values that were used last, as many as a number of bytes holds."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._kept: OrderedDict[Hashable, tuple[Value, int]] = OrderedDict()
        self._bytes = 0

    def get(self, key: Hashable) -> Value | None:
        """A value that is still kept."""
        with self._lock:
            if (found := self._kept.get(key)) is None:
                return None
            self._kept.move_to_end(key)
            return found[0]

    def keep(self, key: Hashable, value: Value, size: int) -> None:
        """Keep a value of so many bytes in place of those that were used before all others."""
        size = max(size, LEAST_BYTES)
        with self._lock:
            self._bytes += size - self._kept.pop(key, (None, 0))[1]
            self._kept[key] = value, size
            while self._bytes > self._most_bytes:
                self._bytes -= self._kept.popitem(last=False)[1][1]


class Origin(Protocol):
    """The bucket of an object."""

    @property
    def answers(self) -> LruCache[bytes]:
        """The last answers, for the next search: it reads the same indexes, of the same version, again."""

    def opened(self, path: str) -> Opened:
        """Ask for an object; a missing one raises LogStorageError with ENOENT."""

    def submit(self, work: Callable[..., Result], *given: Any) -> Future[Result]:
        """Run work that waits for the bucket beside others."""

    def ask(self, path: str, doing: str, work: Callable[..., Result], *given: Any) -> Result:
        """The result of such work; LogStorageError after the bucket's limit of time."""

    def wait(self, path: str, doing: str, work: Future[Result]) -> Result:
        """The result of work that was submitted; LogStorageError after the bucket's limit of time."""

    def failure(self, error: BaseException | None, path: str, doing: str) -> LogStorageError:
        """An error of the library, with what to look at next."""

    def forget(self, path: str) -> None:
        """The last listing no longer holds for a path."""


class ObjectFile:
    """An object for reading at positions; a context manager.

    Notes
    -----
    All bytes are of one version. A request says nothing of the version of what it returns, so the object is looked at
    again before a reader gets any bytes but the first: if it was replaced, they are dropped, and LogStorageError has
    ESTALE. One look is enough for all requests that had their answers before it began.
    """

    def __init__(self, origin: Origin, path: str, ahead: tuple[int, int | None] | None = None) -> None:
        self.path = path
        self._origin = origin
        self._lock, self._looking = threading.Lock(), threading.Lock()
        self._looked = -1.0  # when the last look at the object began
        self._opened: Opened | None = None
        self._given = False  # the first bytes, which no others must match
        self._requested = self._answered = 0  # parts
        self._blocks: OrderedDict[int, bytes] = OrderedDict()
        self._parts: deque[_Part] = deque()
        self._ahead: Prefetch | None = None
        if ahead is not None:
            self._ahead = Prefetch([(self, *ahead)])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Drop what was fetched; a second call does nothing."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.stop()
        self._parts.clear()
        self._blocks.clear()

    def size(self) -> int:
        """Length of the version that is read, in bytes."""
        known = self._opened
        return (known or self._origin.ask(self.path, "opening", self._known)).size

    def read_into(self, buffer: memoryview, position: int) -> int:
        """Fill the buffer from a position; fewer bytes only at the end of the object."""
        end = min(position + len(buffer), self.size())
        filled = 0
        for piece in self._pieces(position, end) if self._is_ahead(position) else (self.read(position, len(buffer)),):
            buffer[filled : filled + len(piece)] = piece
            filled += len(piece)
        return filled

    def at_hand(self, position: int, count: int) -> memoryview:
        """The bytes at a position that were requested together ahead, up to ``count``; empty if none were."""
        end = min(position + count, self.size())
        return next(self._pieces(position, end)) if position < end and self._is_ahead(position) else memoryview(b"")

    def read(self, position: int, count: int) -> bytes:
        """Up to ``count`` bytes from a position; fewer only at the end of the object."""
        end = min(position + count, self.size())
        if position >= end:
            return b""
        if self._is_ahead(position):
            return _whole(self._pieces(position, end))
        if end - position > PART_BYTES:
            return self._in_parts(position, end)
        key = self.path, self._known().version, position, end
        found = self._origin.answers.get(key)
        if found is None:
            short = end - position <= KEPT_BLOCKS * BLOCK_BYTES // 2
            found = self._in_blocks(position, end) if short else self.fetch(position, end)
            self._origin.answers.keep(key, found, len(found))
        return found

    def _known(self) -> Opened:
        with self._lock:
            if self._opened is None:
                self._opened = self._origin.opened(self.path)
            return self._opened

    def fetch(self, start: int, end: int) -> bytes:
        """Bytes in one request, certainly of the version that was opened."""
        doing = f"reading {end - start} bytes at {start}"
        return self._checked(self._origin.ask(self.path, doing, self.request, start, end), start)

    def request(self, start: int, end: int) -> FetchedBytes:
        """Bytes in one request, of the version that is there."""
        known = self._known()
        end = min(end, known.size)
        if start >= end:
            return FetchedBytes(b"", -1.0)
        began = time.monotonic()
        for _ in range(ATTEMPTS):
            try:
                data = known.handle.read_at(end - start, start)
                if len(data) == end - start:
                    return FetchedBytes(data, time.monotonic())
                problem = OSError(errno.EIO, f"expected {end - start} bytes, found {len(data)}")
            except OSError as error:
                problem = error
            if time.monotonic() - began > ATTEMPTS_S:
                break
            self._look_again(start)
        raise self._origin.failure(problem, self.path, f"reading {end - start} bytes at {start}") from problem

    def request_part(self, start: int, end: int) -> FetchedBytes:
        """As ``request``; the last of several that are under way looks at the object again, before the reader waits."""
        found = self.request(start, end)
        with self._lock:
            self._answered += 1
            is_last = 1 < self._answered == self._requested
        if is_last:
            with self._looking:
                self._look_again(start)
        return found

    def _checked(self, found: FetchedBytes, position: int) -> bytes:
        with self._looking:
            if self._given and found.answered >= self._looked:
                self._origin.ask(self.path, "looking at it again", self._look_again, position)
            self._given = True
        return found.data

    def _look_again(self, position: int) -> None:
        """Raise unless the object is still the version that was opened."""
        began, known = time.monotonic(), self._known()
        try:
            now = self._origin.opened(self.path)
        except LogStorageError:
            self._origin.forget(self.path)
            raise
        if now.version != known.version:
            self._origin.forget(self.path)
            raise LogStorageError(
                f"the object was replaced while it was read: expected version {known.version} of {known.size}"
                f" bytes, found {now.version} of {now.size} bytes; read it again",
                path=self.path,
                position=position,
                errno=errno.ESTALE,
            )
        self._looked = began

    def _in_blocks(self, position: int, end: int) -> bytes:
        first, last = position // BLOCK_BYTES, (end - 1) // BLOCK_BYTES
        if self.size() <= 4 * BLOCK_BYTES:
            first, last = 0, (self.size() - 1) // BLOCK_BYTES
        lacking = [number for number in range(first, last + 1) if number not in self._blocks]
        if lacking:
            start = lacking[0] * BLOCK_BYTES
            data = self.fetch(start, min((lacking[-1] + 1) * BLOCK_BYTES, self.size()))
            for number in range(lacking[0], lacking[-1] + 1):
                at = number * BLOCK_BYTES - start
                self._blocks[number] = data[at : at + BLOCK_BYTES]
        for number in range(first, last + 1):
            self._blocks.move_to_end(number)
        found = b"".join(self._blocks[number] for number in range(first, last + 1))
        while len(self._blocks) > KEPT_BLOCKS:
            self._blocks.popitem(last=False)
        return found[position - first * BLOCK_BYTES : end - first * BLOCK_BYTES]

    def _in_parts(self, position: int, end: int) -> bytes:
        ahead_of_all, self._parts = self._parts, deque()
        ahead = Prefetch([(self, position, end)])
        try:
            return _whole(self._pieces(position, end))
        finally:
            ahead.stop()
            self._parts = ahead_of_all

    def _is_ahead(self, position: int) -> bool:
        """Whether a part that was requested ahead begins at a position or before; those that end there are dropped."""
        while self._parts and self._parts[0].end <= position:
            self._parts.popleft().drop()
        return bool(self._parts) and self._parts[0].start <= position

    def _pieces(self, position: int, end: int) -> Iterator[memoryview]:
        """Bytes that begin in the first part. The last part stays: the next read may begin before its end."""
        while position < end:
            if not self._parts:  # the end of the range
                yield memoryview(self.fetch(position, end))
                return
            part = self._parts[0]
            fetched = self._origin.wait(self.path, f"reading from {part.start} on", part.future)
            data, stop = self._checked(fetched, part.start), min(end, part.end)
            yield memoryview(data)[position - part.start : stop - part.start]
            if (position := stop) < end:
                self._parts.popleft().drop()


def _whole(pieces: Iterator[memoryview]) -> bytes:
    found = list(pieces)
    if len(found) == 1 and isinstance(part := found[0].obj, bytes) and len(part) == len(found[0]):
        return part  # without a copy
    return b"".join(found)


class _Part(NamedTuple):
    """A range that was requested."""

    start: int
    end: int
    future: Future[FetchedBytes]
    drop: Callable[[], None]


class Prefetch:
    """Ranges of objects, requested in order before they are read: a bounded number of bytes at a time.

    Parameters
    ----------
    ranges : list of (ObjectFile, start, end or None)
        What will be read, in this order.
    """

    def __init__(self, ranges: Sequence[tuple[ObjectFile, int, int | None]]) -> None:
        self._waiting = self._split(ranges)
        self._bytes = self._count = 0
        self._stopped = False
        self._under_way = set[Future[FetchedBytes]]()
        self._fill()

    def stop(self) -> None:
        """Request nothing more."""
        self._stopped = True
        for future in tuple(self._under_way):
            future.cancel()

    def _split(self, ranges: Sequence[tuple[ObjectFile, int, int | None]]) -> Iterator[tuple[ObjectFile, int, int]]:
        for file, start, end in ranges:
            stop = file.size() if end is None else end
            parts = max(round((stop - start) / PART_BYTES), 1)  # alike: a small one would cost a request, too
            edges = [start + (stop - start) * number // parts for number in range(parts + 1)]
            for first, last in pairwise(edges):
                if first < last:
                    yield file, first, last

    def _fill(self) -> None:
        while not self._stopped and self._bytes < MOST_AHEAD_BYTES and self._count < MOST_AHEAD:
            following = next(self._waiting, None)
            if following is None:
                return
            self._request(*following)

    def _request(self, file: ObjectFile, start: int, end: int) -> None:
        def drop() -> None:
            self._bytes -= end - start
            self._count -= 1
            self._fill()

        self._bytes += end - start
        self._count += 1
        with file._lock:
            file._requested += 1
        future = file._origin.submit(file.request_part, start, end)
        self._under_way.add(future)
        future.add_done_callback(self._under_way.discard)
        file._parts.append(_Part(start, end, future, drop))


def in_order(origin: Origin, ranges: Sequence[ByteRange]) -> Iterator[ObjectFile]:
    """Files that are read one after another; each is closed when the next one is asked for."""
    files = [ObjectFile(origin, one.path) for one in ranges]
    ahead = Prefetch([(file, one.start, one.end) for file, one in zip(files, ranges, strict=True)])
    try:
        for file in files:
            yield file
            while file._parts:
                file._parts.popleft().drop()
            file.close()
    finally:
        ahead.stop()


def side_by_side(
    submit: Callable[..., Future[Result]], work: Callable[[Item], Result], items: Sequence[Item], most: int
) -> Iterator[Result]:
    """The results of work in order, with a bounded number of items under way."""
    under_way: deque[Future[Result]] = deque()
    try:
        for item in items:
            if len(under_way) == most:
                yield under_way.popleft().result()
            under_way.append(submit(work, item))
        while under_way:
            yield under_way.popleft().result()
    finally:
        for future in under_way:
            future.cancel()
