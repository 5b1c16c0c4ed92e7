"""How a file gets its place: write it aside, sync it, rename it, sync its directory.

After a crash at any point a reader finds what was there before, or all that is new. Who publishes several files in one
order takes the steps by their names.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

from kts.errors import LogStorageError
from kts.store import local
from kts.store.local import PIECE_BYTES, Bytes, WritableFile
from kts.store.protocol import Readable


def publish(path: str, data: Bytes | Iterable[Bytes]) -> None:
    """Make or replace a file: the whole way."""
    with unfinished(path) as made:
        write_synced(made, [data] if isinstance(data, (bytes, bytearray, memoryview)) else data)


@contextmanager
def unfinished(path: str, suffix: str = ".tmp") -> Iterator[str]:
    """The path beside a file at which it is written; at the end it gets its place, or is removed after an error.

    A broker ignores names that end in ``.tmp``, as Kafka's checkpoints do meanwhile.
    """
    made = path + suffix
    try:
        yield made
        local.rename(made, path)
    except LogStorageError:
        with suppress(LogStorageError):
            local.remove(made, missing_ok=True)
        raise
    local.sync_directory(os.path.dirname(path))


def write_synced(path: str, pieces: Iterable[Bytes]) -> int:
    """Write a file whole, in place of what it held, and wait until it is on disk; its size."""
    size = 0
    with WritableFile(path, create=True) as file:
        file.truncate(0)
        for piece in pieces:
            file.write(piece, size)
            size += len(piece)
        file.sync()
    return size


def pieces(file: Readable, start: int, end: int) -> Iterator[bytes]:
    """The bytes of a file from one position to another, some at a time."""
    return (file.read(at, min(PIECE_BYTES, end - at)) for at in range(start, end, PIECE_BYTES))


def write_new(path: str, data: Bytes) -> None:
    """Write a file that must not exist, and wait until it is on disk."""
    with WritableFile(path, new=True) as file:
        file.write(data, 0)
        file.sync()


def sync_file(path: str) -> None:
    """Wait until a file that others wrote is on disk."""
    with WritableFile(path) as file:
        file.sync()


def make_directories(parent: str, directories: Iterable[str]) -> None:
    """Make directories in another one, and wait until it has them: a crash takes no file along that moves into them."""
    for one in directories:
        local.make_directory(one)
    local.sync_directory(parent)


def publish_directory(source: str, target: str) -> None:
    """Give a directory of finished files its place."""
    local.sync_directory(source)
    local.rename(source, target)
    local.sync_directory(os.path.dirname(target))
