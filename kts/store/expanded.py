"""Compressed logs: a ``.log.gz`` or ``.log.zst`` is read as the log that it holds.

The first use decompresses it into a temporary file.
"""

from __future__ import annotations

import atexit
import io
import os
import threading
from collections import OrderedDict
from typing import Any, NamedTuple

from kts.arguments import INT32_MAX
from kts.compression import expanded
from kts.errors import CorruptRecordError, LogStorageError
from kts.store.local import PIECE_BYTES, File, WritableFile, nameless_file
from kts.store.protocol import Opener, Readable

Identity = tuple[int, ...] | None  # as ``identity`` of a source has it
_COMPRESSED = {".log.gz": "gzip", ".log.zst": "zstd"}
LARGEST_LOG_BYTES = INT32_MAX  # Kafka opens no larger one
_KEPT_EXPANSIONS, _KEPT_EXPANDED_BYTES = 64, 2**32


def compression_of_log(path: str) -> str | None:
    """How a whole log was compressed by other programs, by its name: gzip for ``.log.gz``, zstd for ``.log.zst``."""
    return next((codec for suffix, codec in _COMPRESSED.items() if path.endswith(suffix)), None)


def without_compression(path: str) -> str:
    """The path that a log has once it is decompressed."""
    return path if compression_of_log(path) is None else path.rpartition(".")[0]


class _Expansion(NamedTuple):
    """A compressed log, decompressed.

    Attributes
    ----------
    file : File or None
        A temporary file without a name; None once others took its place.
    bytes : int
        What the log holds; with damage, what comes before it.
    damage : str or None
        Why the rest is lost.
    """

    file: WritableFile | None
    bytes: int
    damage: str | None

    def size(self, path: str, sound_part: bool) -> int:
        if self.damage is not None and not sound_part:
            raise CorruptRecordError(self.damage, path=path, position=self.bytes)
        return self.bytes


class ExpandedFile(File):
    """A compressed log as the log that it holds; see ``open_file`` of a source.

    Notes
    -----
    The first use decompresses it, whole, into a temporary file without a name; the last ones stay for the next use. No
    number in the file is believed: memory is bounded by the decompressor, and the disk by the largest size of a log.
    """

    def __init__(self, source: Opener, path: str, identity: Identity, sound_part: bool) -> None:
        self.path = path
        self._expansion = _expansion(source, path, identity, with_file=True)
        self._sound_part = sound_part
        if self._expansion.file is not None:
            self._fd = self._expansion.file.duplicate(path)

    def size(self) -> int:
        return self._expansion.size(self.path, self._sound_part)


def size_of(source: Opener, path: str, identity: Identity, sound_part: bool) -> int:
    """The length of the log in a compressed one; see ``open_file`` of a source."""
    return _expansion(source, path, identity).size(path, sound_part)


def damage_of(source: Opener, path: str, identity: Identity) -> CorruptRecordError | None:
    """Why the rest of a compressed log cannot be read; None if it is sound."""
    found = _expansion(source, path, identity)
    if found.damage is None:
        return None
    return CorruptRecordError(found.damage, path=path, position=found.bytes)


class _RawReader(io.RawIOBase):
    """A readable from its start on, as the decompressors take it."""

    def __init__(self, file: Readable) -> None:
        self._file, self._position = file, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = self._file.read_into(memoryview(buffer), self._position)
        self._position += count
        return count


_Key = tuple[int, Opener, str, Identity]  # of the process, source, path, identity
_expansions: OrderedDict[_Key, _Expansion] = OrderedDict()
_expanding: dict[_Key, threading.Lock] = {}
atexit.register(_expansions.clear)  # later the system's functions are gone


def _expansion(source: Opener, path: str, identity: Identity, *, with_file: bool = False) -> _Expansion:
    """What a compressed log holds, decompressed at the first use of this process and whenever it changed."""
    key = os.getpid(), source, path, identity
    with _expanding.setdefault(key, threading.Lock()):
        found = _expansions.get(key)
        if found is None or (with_file and found.file is None):
            found = _expand(source, path)
        _expansions[key] = found
        _expansions.move_to_end(key)
    _forget_expansions()
    return found


def _forget_expansions() -> None:
    """Keep only the last files; of the others their size, so that it is known without decompressing them again."""
    kept = size = 0
    for key, one in reversed(list(_expansions.items())):
        if one.file is not None:
            kept, size = kept + 1, size + one.bytes
            if kept > 1 and (kept > _KEPT_EXPANSIONS or size > _KEPT_EXPANDED_BYTES):
                _expansions[key] = one._replace(file=None)


def _expand(source: Opener, path: str) -> _Expansion:
    codec, size = compression_of_log(path) or "", 0
    with (
        source.file(path, (0, None)) as compressed,
        io.BufferedReader(_RawReader(compressed), PIECE_BYTES) as stream,
    ):
        file = nameless_file(path)
        try:
            if not stream.peek(1):
                raise CorruptRecordError(f"expected {codec} data, found an empty file")
            for piece in expanded(codec, stream):
                if size + len(piece) > LARGEST_LOG_BYTES:
                    raise CorruptRecordError(f"the log is larger than {LARGEST_LOG_BYTES} bytes, the most of a segment")
                file.write(piece, size)
                size += len(piece)
        except CorruptRecordError as error:
            why = f"{error.message}; {size} bytes of the log come before"
            return _Expansion(file, size, why)
        except LogStorageError as error:
            if error.path != file.path:
                raise
            message = f"decompressing {path} failed: {error.message}; the variable TMPDIR names another directory"
            raise LogStorageError(message, path=os.path.dirname(file.path), errno=error.errno) from error
    return _Expansion(file, size, None)
