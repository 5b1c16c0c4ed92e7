"""The log of a segment in tiered storage as a file to read: chunks are fetched and decoded when a read needs them."""

from __future__ import annotations

import errno
from collections.abc import Callable, Hashable
from typing import NamedTuple, Self

from kts.codec.layout import HEADER_BYTES, read_header
from kts.errors import CorruptRecordError, LogStorageError
from kts.remote.manifests import ChunkIndex
from kts.remote.objects import LruCache
from kts.store.protocol import ByteRange, BytesFile, Readable

KEPT_BYTES = 2**26  # of decoded chunks, in this process

Opening = Callable[[tuple[int, int | None] | None], Readable]  # what is read ahead -> the object

_kept = LruCache[bytes](KEPT_BYTES)


class Coding(NamedTuple):
    """How the bytes of a log are stored.

    Attributes
    ----------
    chunks : ChunkIndex or None
        None if the object is the log itself.
    decode : callable or None
        Stored bytes and the size of the chunk to the chunk; raises ValueError. None if the chunks are as they were.
    """

    chunks: ChunkIndex | None = None
    decode: Callable[[bytes, int], bytes] | None = None


class Claim(NamedTuple):
    """What is said of a log, to be compared with its first entry.

    Attributes
    ----------
    first_offset, last_offset : int
        By its name, and by what states its end.
    stored_bytes : int or None
        The bytes that its object has, by the manifest or the metadata topic. An object of that size may begin late, as
        where a topic was once compacted.
    """

    first_offset: int
    last_offset: int
    stored_bytes: int | None


class RemoteLog:
    """A ``.log`` in tiered storage, as it was on the broker; a ``Readable``.

    Parameters
    ----------
    path : str
        For errors.
    object_path : str
        The object.
    size : int
        Bytes that the log has.
    opening : callable
        Opens the object.
    version : hashable
        Differs once the object is replaced; None keeps no chunk for the next file.
    claim : Claim, optional
        What is compared with the first entry, once that is read.

    Notes
    -----
    A part that is missing or damaged raises CorruptRecordError: from its ``position`` to its ``end`` the log cannot be
    read.
    """

    def __init__(
        self,
        path: str,
        object_path: str,
        size: int,
        coding: Coding,
        opening: Opening,
        version: Hashable = None,
        ahead: tuple[int, int | None] | None = None,
        claim: Claim | None = None,
    ) -> None:
        self.path = path
        self._claim = claim
        self._object_path = object_path
        self._size = size
        self._coding = coding
        self._opening = opening
        self._version = version
        self._ahead = None if ahead is None else self._stored(ahead[0], size if ahead[1] is None else ahead[1])
        self._object: Readable | None = None
        self._last: tuple[int, bytes] = -1, b""
        self._missing: str | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the object; a second call does nothing."""
        found, self._object = self._object, None
        if found is not None:
            found.close()
        self._last = -1, b""

    def use(self, opened: Readable | None) -> None:
        """Read the object through a file that is already open; None changes nothing."""
        self._object = opened

    def stored(self, wanted: ByteRange) -> ByteRange:
        """The bytes of the object that a range of the log needs."""
        end = self._size if wanted.end is None else min(wanted.end, self._size)
        return ByteRange(self._object_path, *self._stored(wanted.start, end))

    def size(self) -> int:
        """Length of the log, in bytes."""
        return self._size

    def read_into(self, buffer: memoryview, position: int) -> int:
        """Fill the buffer from a position; fewer bytes only at the end of the log."""
        data = self.read(position, len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def read(self, position: int, count: int) -> bytes:
        """Up to ``count`` bytes from a position; fewer only at the end of the log.

        Raises
        ------
        CorruptRecordError
            Some of these bytes cannot be read; ``position`` is that of the first. Or it is another log: none can.
        """
        data = self._read(position, count)
        if position == 0 and self._claim is not None and len(data) >= HEADER_BYTES:
            self._compare(data, self._claim)
        return data

    def _compare(self, data: bytes, claim: Claim) -> None:
        """Raise if the first entry is not of this log."""
        try:
            first = read_header(data)
        except CorruptRecordError:  # its reader tells it
            return
        if first is None:
            return
        found = first.base_offset if first.magic == 2 else first.last_offset
        stored = None if self._object is None else self._object.size()
        is_sure = first.magic == 2 and (claim.stored_bytes is None or stored not in (None, claim.stored_bytes))
        last = claim.first_offset if is_sure else claim.last_offset
        if not claim.first_offset <= found <= last:
            expected = f"expected offset {claim.first_offset}" + f" to {last}" * (last > claim.first_offset)
            message = f"{self._object_path} holds other records: {expected} in its first entry, found {found}"
            raise CorruptRecordError(message, path=self.path, position=0, end=self._size)

    def _read(self, position: int, count: int) -> bytes:
        end = min(position + count, self._size)
        if position >= end:
            return b""
        chunks, decode = self._coding
        if chunks is None or decode is None:
            data = self._fetched(position, end, position)
            if len(data) < end - position:
                raise self._cut(end, position + len(data))
            return data
        first, last = position // chunks.chunk_bytes, (end - 1) // chunks.chunk_bytes
        data = b"".join(self._chunks(chunks, decode, first, last))
        start = position - first * chunks.chunk_bytes
        return data if start == 0 and len(data) == end - position else data[start : start + end - position]

    def _stored(self, start: int, end: int) -> tuple[int, int]:
        """The bytes of the object that a range of the log needs."""
        chunks = self._coding.chunks
        if chunks is None or self._coding.decode is None or start >= end:
            return start, end
        first, last = start // chunks.chunk_bytes, (min(end, chunks.size) - 1) // chunks.chunk_bytes
        return chunks.stored_range(first)[0], chunks.stored_range(last)[1]

    def _chunks(self, chunks: ChunkIndex, decode: Callable[[bytes, int], bytes], first: int, last: int) -> list[bytes]:
        """Decoded chunks; those that lie side by side and are not known are fetched together."""
        known = {number: data for number in range(first, last + 1) if (data := self._known(number)) is not None}
        found: list[bytes] = []
        number = first
        while number <= last:
            if number in known:
                found.append(known[number])
                number += 1
                continue
            stop = next((one for one in range(number, last + 1) if one in known), last + 1)
            start = chunks.stored_range(number)[0]
            stored = self._fetched(start, chunks.stored_range(stop - 1)[1], number * chunks.chunk_bytes)
            for one in range(number, stop):
                begin, end = chunks.stored_range(one)
                if start + len(stored) < end:
                    raise self._cut(end, one * chunks.chunk_bytes)
                found.append(self._decoded(decode, one, stored[begin - start : end - start], chunks))
            number = stop
        self._last = last, found[-1]
        return found

    def _known(self, number: int) -> bytes | None:
        if number == self._last[0]:
            return self._last[1]
        return None if self._version is None else _kept.get((self._object_path, self._version, number))

    def _decoded(self, decode: Callable[[bytes, int], bytes], number: int, stored: bytes, chunks: ChunkIndex) -> bytes:
        try:
            data = decode(stored, chunks.bytes_of(number))
        except ValueError as error:
            begin, end = chunks.stored_range(number)
            message = f"chunk {number} of {self._object_path} (bytes {begin} to {end}) is damaged: {error}"
            start = number * chunks.chunk_bytes
            raise CorruptRecordError(
                message, path=self.path, position=start, end=start + chunks.bytes_of(number)
            ) from error
        if self._version is not None:
            _kept.keep((self._object_path, self._version, number), data, len(data))
        return data

    def _fetched(self, start: int, end: int, position: int) -> bytes:
        """Bytes of the object, fewer where its end is missing; ``position`` is where they begin in the log."""
        if self._missing is None:
            try:
                if self._object is None:
                    self._object = self._opening(self._ahead)
                end = min(end, self._object.size())  # no memory is taken for bytes that a manifest alone claims
                return self._object.read(start, end - start) if start < end else b""
            except LogStorageError as error:
                if error.errno not in (errno.ENOENT, errno.ENOTDIR):
                    raise
                self._missing = (
                    f"the object {self._object_path} is missing; a segment in Iceberg's format has none and is not read"
                )
        raise CorruptRecordError(self._missing, path=self.path, position=position, end=self._size)

    def _cut(self, expected: int, position: int) -> CorruptRecordError:
        """The error for an object without the bytes that the log has from a position on."""
        found = 0 if self._object is None else self._object.size()
        message = f"expected {expected} bytes at least in {self._object_path}, found {found}: its end is missing"
        return CorruptRecordError(message, path=self.path, position=position, end=self._size)


class Unreadable(BytesFile):
    """A file of which nothing can be read, with the reason."""

    def __init__(self, path: str, size: int, problem: str) -> None:
        super().__init__(path, b"")
        self._size = size
        self._problem = problem

    def size(self) -> int:
        """Bytes that it should have."""
        return self._size

    def read(self, position: int, count: int) -> bytes:
        """Raise CorruptRecordError."""
        if position >= self._size or count <= 0:
            return b""
        raise CorruptRecordError(self._problem, path=self.path, position=position, end=self._size)
