"""Buffers that end exactly at a page nobody may read: reading one byte too far ends the process."""

from __future__ import annotations

import ctypes
import mmap
import os

PROT_NONE = 0


class GuardedBuffer:
    """Memory whose last byte lies just before a forbidden page, and whose pages begin just after another one.

    Parameters
    ----------
    most_bytes : int
        Largest data that ``put`` will be given.
    """

    def __init__(self, most_bytes: int) -> None:
        page = mmap.PAGESIZE
        self._room = -(-most_bytes // page) * page
        self._map = mmap.mmap(-1, self._room + 2 * page)
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        self._first = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        for guard in (self._first, self._first + page + self._room):
            if libc.mprotect(guard, page, PROT_NONE):
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        self._inside = memoryview(self._map)[page : page + self._room]

    @property
    def end(self) -> int:
        """Address of the first byte behind the data that must not be read."""
        return self._first + mmap.PAGESIZE + self._room

    def put(self, data: bytes) -> memoryview:
        """A copy of the data that ends at the forbidden page; valid until the next ``put``."""
        start = self._room - len(data)
        self._inside[start:] = data
        return self._inside[start:].toreadonly()

    def put_first(self, data: bytes) -> memoryview:
        """A copy of the data that begins right after a forbidden page; valid until the next ``put``."""
        self._inside[: len(data)] = data
        return self._inside[: len(data)].toreadonly()
