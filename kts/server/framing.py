"""Splits the bytes of a connection into frames: a 4-byte size, then that many bytes.

All connections of a loop receive into one scratch buffer and copy from it. A larger frame gets its own buffer, which
receives the rest directly and grows as bytes arrive. So a frame costs a copy of at most 64 KiB, and a claimed length
allocates no memory.
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
BELIEVED = 16  # the buffer of a frame is at most this many times the bytes received
_PREFIX = Struct(">ih")  # size, API key
_NOTHING = memoryview(b"")


def _unwritten(count: int) -> memoryview:
    """A buffer whose pages take no memory until they are written."""
    buffer: Any = np.empty(count, np.uint8)
    return memoryview(buffer)


class Framing:
    """The frames of one connection.

    Parameters
    ----------
    scratch : memoryview
        The shared buffer to receive into.
    limit : function of an API key
        The largest frame of such a request, in bytes; raises KtsError for an unknown API.

    Notes
    -----
    Receive into ``buffer()``, report it with ``received(count)``, take whole frames with ``frame()``.
    """

    def __init__(self, scratch: memoryview, limit: Callable[[int], int]) -> None:
        self._scratch = scratch
        self._limit = limit
        self._bytes = _NOTHING  # received, not yet a frame
        self._large: memoryview | None = None  # a large frame being received
        self._size = 0
        self._filled = 0

    def buffer(self) -> memoryview:
        """The buffer for the next bytes; never empty."""
        large = self._large
        if large is None:
            return self._scratch
        if self._filled == len(large):
            grown = _unwritten(min(self._size, 2 * len(large)))
            grown[: self._filled] = large
            self._large = large = grown
        return large[self._filled : self._filled + RECEIVED_AT_ONCE]

    def received(self, count: int) -> None:
        """``count`` bytes were received into the last ``buffer()``."""
        if self._large is not None:
            self._filled += count
            return
        if self._bytes:
            self._bytes = memoryview(b"".join((self._bytes, self._scratch[:count])))
        else:
            self._bytes = memoryview(bytes(self._scratch[:count]))
        self._begin()

    def _begin(self) -> None:
        """If the first frame is incomplete, receive the rest directly."""
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
        """The next whole frame without its size; None if it is incomplete.

        Raises
        ------
        InvalidRequestError
            The size is impossible or above the limit.
        KtsError
            As from ``limit``.
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
        """Whether there are bytes that ``frame`` has not returned."""
        return self._large is not None or len(self._bytes) > 0

    @property
    def whole(self) -> bool:
        """Whether ``frame`` would return a frame or raise."""
        if self._large is not None:
            return self._filled == self._size
        waiting = self._bytes
        if len(waiting) < _PREFIX.size:  # an impossible size is refused at once
            return bytes(waiting[:4]) in (b"\0\0\0\0", b"\0\0\0\1")
        size: int
        size, api_key = _PREFIX.unpack_from(waiting)
        return 4 + size <= len(waiting) or size > self._most(api_key)

    @property
    def held_bytes(self) -> int:
        """Bytes received of an incomplete large frame, else 0."""
        return 0 if self._large is None else self._filled

    @property
    def filled_bytes(self) -> int:
        """Bytes received of the incomplete frame."""
        return len(self._bytes) if self._large is None else self._filled
