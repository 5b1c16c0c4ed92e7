"""Reading beside a writer in another process, which may truncate a file and write it anew, or delete segments."""

from __future__ import annotations

import errno
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from kts.errors import CorruptRecordError, KtsWarning, LogStorageError
from kts.segment import files

Result = TypeVar("Result")
KEPT_BYTES = 2**16
ATTEMPTS = 100  # a writer that is faster than that is damage


class Reread:
    """What was read last of a file, to compare it with what is there now."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.again = 0
        self.forget()

    def forget(self) -> None:
        """Nothing was read yet."""
        self.position, self.data = 0, b""

    def note(self, start: int, data: memoryview) -> None:
        """These bytes were read, and what follows them is read next."""
        self.data = bytes(data[-KEPT_BYTES:])
        self.position = start + len(data) - len(self.data)

    def differs(self, start: int = 0, data: memoryview | bytes = b"") -> bool:
        """True if the bytes before, or those given, are not in the file any more: it was truncated meanwhile."""
        if self.again >= ATTEMPTS:
            return False
        with files.File(self.path) as file:
            same = file.read(self.position, len(self.data)) == self.data
            return not (same and (not data or file.read(start, len(data)) == data))


def warn(message: str, path: str | None) -> None:
    """A KtsWarning that shows the line outside of kts that asked for the data."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] in ("kts", "contextlib"):
        frame, level = frame.f_back, level + 1
    warnings.warn(KtsWarning(message, path), stacklevel=level)


@contextmanager
def unless_deleted(path: str) -> Iterator[None]:
    """Read a segment in here: if a writer deletes it meanwhile, what is left of it is left out, with a warning.

    Every reader that goes through the segments of a partition does so. One that gives a single answer, as a search, is
    asked again with the segments that are there then: see ``settled``.
    """
    try:
        yield
    except LogStorageError as error:
        if error.errno != errno.ENOENT or files.exists(path):
            raise
        warn(f"{path}: the segment was deleted while it was read; its records are left out", path)


def settled(read: Callable[[], Result]) -> Result:
    """What a function reads, called again while files are deleted or change under it.

    Notes
    -----
    Damage is believed once it is found twice at the same place; a deleted file, if it is still there.
    """
    before: dict[str, Any] | None = None  # the error of the attempt before
    for _ in range(ATTEMPTS):
        try:
            return read()
        except CorruptRecordError as error:
            if vars(error) == before:
                raise
            before = vars(error)
        except LogStorageError as error:
            if error.errno != errno.ENOENT or error.path is None or files.exists(error.path) or vars(error) == before:
                raise
            before = vars(error)
    return read()
