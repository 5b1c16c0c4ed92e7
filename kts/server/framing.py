"""Bytes of a connection to frames: a 4-byte size, then so many bytes, which nobody believes before they are there.

What arrives goes into one scratch buffer that all connections of a loop share, and from there once into bytes of its
own; a frame that is larger than that gets a buffer into which the rest is received directly, and which grows as the
bytes arrive. So a frame costs a copy of 64 KiB at most, and a claimed length costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any

import numpy as np

from kts.errors import InvalidRequestError, KtsError

SCRATCH_BYTES = 65536
LEAST_BUFFER = 4096
RECEIVED_AT_ONCE = 1 << 18
BELIEVED = 16  # times what has arrived of a frame its buffer may be
_PREFIX = Struct(">ih")  # size, API key
_NOTHING = memoryview(b"")


def _unwritten(count: int) -> memoryview:
    """A buffer whose pages are none until they are written to: only what arrives takes memory."""
    buffer: Any = np.empty(count, np.uint8)
    return memoryview(buffer)


class Framing:
    """The frames of one connection.

    Parameters
    ----------
    scratch : memoryview
        Where bytes are received first; others may use it in between.
    limit : function of an API key
        The largest frame that such a request may have, in bytes; raises KtsError for an API that nobody serves.

    Notes
    -----
    ``buffer`` gives where to receive, ``received`` says how much came, ``frame`` gives the next whole frame.
    """

    def __init__(self, scratch: memoryview, limit: Callable[[int], int]) -> None:
        self._scratch = scratch
        self._limit = limit
        self._bytes = _NOTHING  # received, not yet a frame
        self._large: memoryview | None = None  # a frame that is being received directly
        self._size = 0
        self._filled = 0

    def buffer(self) -> memoryview:
        """Where the next bytes belong; never empty."""
        large = self._large
        if large is None:
            return self._scratch
        if self._filled == len(large):
            grown = _unwritten(min(self._size, 2 * len(large)))
            grown[: self._filled] = large
            self._large = large = grown
        return large[self._filled : self._filled + RECEIVED_AT_ONCE]

    def received(self, count: int) -> None:
        """So many bytes came into what ``buffer`` gave last."""
        if self._large is not None:
            self._filled += count
            return
        if self._bytes:
            self._bytes = memoryview(b"".join((self._bytes, self._scratch[:count])))
        else:
            self._bytes = memoryview(bytes(self._scratch[:count]))
        self._begin()

    def _begin(self) -> None:
        """If the first frame is not whole, receive the rest of it directly."""
        waiting = self._bytes
        if len(waiting) < _PREFIX.size:
            return
        size, api_key = _PREFIX.unpack_from(waiting)
        got = len(waiting) - 4
        if got < size <= self._most(api_key):
            self._large = large = _unwritten(min(size, max(LEAST_BUFFER, BELIEVED * got)))
            large[:got] = waiting[4:]
            self._bytes, self._size, self._filled = _NOTHING, size, got

    def _most(self, api_key: int) -> int:
        try:
            return self._limit(api_key)
        except KtsError:
            return 0

    def frame(self) -> memoryview | None:
        """The next whole frame without its size; None until one is there.

        Raises
        ------
        InvalidRequestError
            The size is no size, or larger than such a request may be.
        KtsError
            What ``limit`` raised.
        """
        large = self._large
        if large is not None:
            if self._filled < self._size:
                return None
            self._large = None
            return large
        waiting = self._bytes
        if len(waiting) < _PREFIX.size:
            if self.whole:
                raise InvalidRequestError(f"expected the size of a request, found {waiting[3]}")
            return None
        size, api_key = _PREFIX.unpack_from(waiting)
        if size < 2:
            raise InvalidRequestError(f"expected the size of a request, found {size}")
        if size > (most := self._limit(api_key)):
            raise InvalidRequestError(f"expected a request of at most {most} bytes for API key {api_key}, found {size}")
        end = 4 + size
        if end <= len(waiting):
            self._bytes = waiting[end:] if end < len(waiting) else _NOTHING
            return waiting[4:end]
        self._begin()
        return None

    @property
    def waiting(self) -> bool:
        """Whether bytes are there that ``frame`` has not given out."""
        return self._large is not None or len(self._bytes) > 0

    @property
    def whole(self) -> bool:
        """Whether ``frame`` has something to say: it gives a frame, or raises."""
        if self._large is not None:
            return self._filled == self._size
        waiting = self._bytes
        if len(waiting) < _PREFIX.size:  # a size that no request has is refused without its bytes
            return bytes(waiting[:4]) in (b"\0\0\0\0", b"\0\0\0\1")
        size: int
        size, api_key = _PREFIX.unpack_from(waiting)
        return 4 + size <= len(waiting) or size > self._most(api_key)

    @property
    def held_bytes(self) -> int:
        """How much of an unfinished large frame is there, 0 if there is none."""
        return 0 if self._large is None else self._filled

    @property
    def filled_bytes(self) -> int:
        """How much of the unfinished frame is there."""
        return len(self._bytes) if self._large is None else self._filled
