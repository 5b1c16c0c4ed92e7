"""What a file is for those who read it."""

from __future__ import annotations

from typing import NamedTuple, Protocol, Self, TypeVar, runtime_checkable

Item = TypeVar("Item")
Result = TypeVar("Result")


class Readable(Protocol):
    """Bytes at positions: a file of this machine, an object in a bucket. A context manager."""

    path: str

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def close(self) -> None:
        """Close it; a second call does nothing."""

    def size(self) -> int:
        """Length now, in bytes."""

    def read(self, position: int, count: int) -> bytes:
        """Up to ``count`` bytes from a position; fewer only at the end of the file."""

    def read_into(self, buffer: memoryview, position: int) -> int:
        """Fill the buffer from a position; fewer bytes only at the end of the file."""


class BytesFile:
    """Bytes in memory as a file to read; a ``Readable``."""

    def __init__(self, path: str, data: bytes | memoryview) -> None:
        self.path = path
        self._data = data

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Nothing is open."""

    def size(self) -> int:
        """Their number."""
        return len(self._data)

    def read(self, position: int, count: int) -> bytes:
        """Up to ``count`` bytes from a position."""
        return bytes(self._data[position : position + count])

    def read_into(self, buffer: memoryview, position: int) -> int:
        """Fill the buffer from a position."""
        data = self.read(position, len(buffer))
        buffer[: len(data)] = data
        return len(data)


@runtime_checkable
class ReadAhead(Readable, Protocol):
    """A file whose bytes are requested before they are read."""

    def at_hand(self, position: int, count: int) -> memoryview:
        """The bytes at a position that were requested together ahead, up to ``count``; empty if none were."""


class ByteRange(NamedTuple):
    """Bytes of a file that a reader takes in order; an end of None is the end of the file."""

    path: str
    start: int
    end: int | None


class DirectoryEntry(Protocol):
    """A name in a directory."""

    @property
    def name(self) -> str: ...

    @property
    def path(self) -> str: ...

    def is_dir(self, *, follow_symlinks: bool = True) -> bool: ...

    def is_file(self, *, follow_symlinks: bool = True) -> bool: ...

    def is_symlink(self) -> bool: ...


class Status(NamedTuple):
    """What is known of a file without opening it."""

    size: int
    modified_ns: int
    is_directory: bool = False


class Opener(Protocol):
    """What opens a file."""

    def file(self, path: str, ahead: tuple[int, int | None] | None) -> Readable:
        """The file; ``ahead`` are bytes that will be read in order."""


class _Cut:
    """A file that ends early: where another one has the rest."""

    def __init__(self, file: Readable, end: int) -> None:
        self.path, self._file, self._end = file.path, file, end

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()

    def size(self) -> int:
        return min(self._end, self._file.size())

    def read(self, position: int, count: int) -> bytes:
        return self._file.read(position, max(min(count, self._end - position), 0))

    def read_into(self, buffer: memoryview, position: int) -> int:
        return self._file.read_into(buffer[: max(self._end - position, 0)], position)


def cut_at(end: int | None, file: Readable) -> Readable:
    """A file as if it ended at a position; the file itself if there is none."""
    return file if end is None else _Cut(file, end)
