"""Reading while another process writes: the writer may truncate and rewrite a file, or delete segments."""

from __future__ import annotations

import errno
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, TypeVar

from kts.errors import CorruptRecordError, KtsWarning, LogStorageError
from kts.store.local import File
from kts.store.source import Source, files

Result = TypeVar("Result")
KEPT_BYTES = 2**16
ATTEMPTS = 100  # after that, changes count as damage


class Reread:
    """The bytes last read from a file, to compare with its current bytes.

    Parameters
    ----------
    path : str
        The file.
    held : File, optional
        The same file, open, for a reader that goes on when it is deleted.
    source : Source
        Where it lies.
    """

    def __init__(self, path: str, held: File | None = None, source: Source = files) -> None:
        self.path, self.held, self._source = path, held, source
        self.again = 0
        self.forget()

    def forget(self) -> None:
        """Start over: nothing has been read."""
        self.position, self.data = 0, b""

    def note(self, start: int, data: memoryview) -> None:
        """Record the bytes just read; the next read follows them."""
        self.data = bytes(data[-KEPT_BYTES:])
        self.position = start + len(data) - len(self.data)

    def differs(self, start: int = 0, data: memoryview | bytes = b"") -> bool:
        """True if the file no longer has the last bytes read, or those given: it was truncated meanwhile."""
        if self.again >= ATTEMPTS:
            return False
        with nullcontext(self.held) if self.held is not None else self._source.open_file(self.path) as file:
            same = file.read(self.position, len(self.data)) == self.data
            return not (same and (not data or file.read(start, len(data)) == data))


def warn(message: str, path: str | None, kind: type[KtsWarning] = KtsWarning) -> None:
    """Issue a KtsWarning that shows the line outside kts that asked for the data."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] in ("kts", "contextlib"):
        frame, level = frame.f_back, level + 1
    warnings.warn(kind(message, path), stacklevel=level)


def is_gone(error: LogStorageError, source: Source) -> bool:
    """True if an error says that a file is missing, and it is."""
    return error.errno == errno.ENOENT and error.path is not None and not source.exists(error.path)


@contextmanager
def unless_deleted(path: str, source: Source = files) -> Iterator[None]:
    """A context for reading a segment: if a writer deletes it meanwhile, skip the rest of it with a warning.

    Every reader that iterates over the segments of a partition uses it. A reader with a single answer, such as a
    search, runs again on the current segments instead: see ``settled``. A log that was not there when it was opened may
    be there again: a truncation deletes segments, and later ones get their names.
    """
    try:
        yield
    except LogStorageError as error:
        if error.errno != errno.ENOENT or (error.path != path and source.exists(path)):
            raise
        warn(f"{path}: the segment was deleted while it was read; its records are left out", path)


def settled(read: Callable[[], Result], *, goes_on: bool = False) -> Result:
    """The result of a read function, called again while files change or are deleted.

    Parameters
    ----------
    goes_on : bool
        The function goes on where its last call ended. Damage is raised at once then: another call might begin behind
        it.

    Notes
    -----
    An error is raised once two attempts in a row give it; a storage error at once, unless a file is missing, which may
    be there again when it is looked for.
    """
    before: dict[str, Any] | None = None  # the error of the previous attempt
    for _ in range(ATTEMPTS):
        try:
            return read()
        except CorruptRecordError as error:
            if goes_on or vars(error) == before:
                raise
            before = vars(error)
        except LogStorageError as error:
            if error.errno != errno.ENOENT or vars(error) == before:
                raise
            before = vars(error)
    return read()
