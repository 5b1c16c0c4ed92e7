"""The manifest of a segment in Aiven's layout: its chunks, indexes, compression and encryption.

A manifest is JSON. Its chunk index maps the bytes of the original ``.log`` to those of the object: the original is cut
into chunks of one size, each is compressed and encrypted by itself, and they are put one after another. The sizes of
compressed chunks are a zstd frame of, big-endian::

    count i32 | base i32 | w u8 | count-1 values of w bytes: size - base | size of the last chunk i32

With one chunk only count and last size are there, with none only count.

Source: SegmentManifestV1, ChunkIndex, ChunkSizesBinaryCodec (Aiven).
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kts.arguments import DEFAULT_MAX_DECOMPRESSED_BYTES, INT32_MAX, INT64_MAX
from kts.errors import CorruptRecordError, InvalidRequestError
from kts.remote.keys import OVERHEAD_BYTES
from kts.remote.metadata import COPY_FINISHED, Copy, PartitionId, check_copy

if TYPE_CHECKING:
    import numpy.typing as npt

MOST_BYTES = 2**26  # of a manifest
MOST_CHUNKS = 2**22  # of a log; the list of their sizes, compressed, may be tiny
PARTS = {  # as the manifest calls them: suffix of the file
    "offset": ".index",
    "timestamp": ".timeindex",
    "producerSnapshot": ".snapshot",
    "leaderEpoch": ".leader_epoch_checkpoint",
    "transaction": ".txnindex",
}
STEP_BYTES = 2**22  # decompressed at a time, so that a claimed size alone takes no memory
MOST_GROWTH = 256  # of a frame that holds more than is always decompressed


class ChunkIndex:
    """Where the chunks of a log are in its object.

    Attributes
    ----------
    size : int
        Bytes of the original log.
    chunk_bytes : int
        Bytes of an original chunk; the last one may have fewer.
    stored_bytes : int
        Bytes of the object.
    """

    def __init__(self, size: int, chunk_bytes: int, stored: tuple[int, int] | npt.NDArray[np.int64]) -> None:
        self.size = size
        self.chunk_bytes = chunk_bytes
        self.count = -(-size // chunk_bytes)
        self._stored = stored  # sizes of all but the last chunk and of the last, or where each chunk ends
        self.stored_bytes = self.stored_range(self.count - 1)[1] if self.count else 0

    def stored_range(self, chunk: int) -> tuple[int, int]:
        """Where a chunk begins and ends in the object."""
        if isinstance(self._stored, tuple):
            usual, last = self._stored
            return chunk * usual, chunk * usual + (last if chunk == self.count - 1 else usual)
        return int(self._stored[chunk - 1]) if chunk else 0, int(self._stored[chunk])

    def bytes_of(self, chunk: int) -> int:
        """Bytes of an original chunk."""
        return min(self.chunk_bytes, self.size - chunk * self.chunk_bytes)

    @property
    def memory_bytes(self) -> int:
        """What it takes in memory."""
        return 0 if isinstance(self._stored, tuple) else self._stored.nbytes


class Encryption(NamedTuple):
    """The wrapped data key of a segment, and what its chunks are authenticated with."""

    key_id: str
    wrapped: bytes
    aad: bytes


class Manifest(NamedTuple):
    """A manifest, checked.

    Attributes
    ----------
    indexes : dict
        Start and size of the stored bytes of each index, by the suffix of its file.
    copy : Copy or None
        What the metadata topic says of it, if the manifest repeats it.
    """

    chunks: ChunkIndex
    indexes: dict[str, tuple[int, int]]
    compressed: bool
    encryption: Encryption | None
    copy: Copy | None


def read_manifest(data: bytes, path: str) -> Manifest:
    """Read a manifest.

    Raises
    ------
    CorruptRecordError
        It is not one, or its numbers contradict each other.
    """
    try:
        try:
            found = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise _Wrong(f"expected JSON, found other bytes: {error}") from error
        return _manifest(_object(found, "the manifest"))
    except _Wrong as error:
        raise CorruptRecordError(f"the manifest {path} is damaged: {error}", path=path) from error


class _Wrong(ValueError):
    """What is wrong with a manifest."""


def _manifest(found: Mapping[str, Any]) -> Manifest:
    if found.get("version") != "1":
        raise _Wrong(f"version: expected 1, found {found.get('version')!r}")
    compressed = found.get("compression", False)
    if not isinstance(compressed, bool):
        raise _Wrong(f"compression: expected true or false, found {compressed!r}")
    encryption = None if found.get("encryption") is None else _encryption(_object(found["encryption"], "encryption"))
    chunks = _chunks(_object(found.get("chunkIndex"), "chunkIndex"), compressed, encryption is not None)
    told = found.get("remoteLogSegmentMetadata")
    copy = None if told is None else _copy(_object(told, "remoteLogSegmentMetadata"), chunks.size)
    return Manifest(
        chunks, _indexes(_object(found.get("segmentIndexes"), "segmentIndexes")), compressed, encryption, copy
    )


def _object(value: Any, name: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise _Wrong(f"{name}: expected an object, found {value!r:.60}")
    return value


def _number(found: Mapping[str, Any], name: str, low: int = 0, high: int = INT32_MAX) -> int:
    value = found.get(name)
    if type(value) is not int or not low <= value <= high:
        raise _Wrong(f"{name}: expected a number from {low} to {high}, found {value!r:.60}")
    return value


def _text(found: Mapping[str, Any], name: str) -> str:
    value = found.get(name)
    if not isinstance(value, str):
        raise _Wrong(f"{name}: expected text, found {value!r:.60}")
    return value


def _base64(text: str, name: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise _Wrong(f"{name}: expected base64: {error}") from error


def _encryption(found: Mapping[str, Any]) -> Encryption:
    key_id, colon, wrapped = _text(found, "dataKey").partition(":")
    if not colon:
        raise _Wrong("dataKey: expected the id of a key pair and a colon in front of the data key")
    return Encryption(key_id, _base64(wrapped, "dataKey"), _base64(_text(found, "aad"), "aad"))


def _indexes(found: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
    parts = {}
    for name, suffix in PARTS.items():
        if found.get(name) is not None:
            part = _object(found[name], name)
            parts[suffix] = _number(part, "position"), _number(part, "size")
        elif suffix != ".txnindex":
            raise _Wrong(f"segmentIndexes: expected {name}, found none")
    return parts


def _chunks(found: Mapping[str, Any], compressed: bool, encrypted: bool) -> ChunkIndex:
    size, chunk_bytes = _number(found, "originalFileSize"), _number(found, "originalChunkSize", 1)
    count = -(-size // chunk_bytes)
    if count > MOST_CHUNKS:
        found_chunks = f"{size} bytes in chunks of {chunk_bytes}"
        raise _Wrong(f"chunkIndex: expected at most {MOST_CHUNKS} chunks, found {found_chunks}")
    kind = found.get("type")
    if kind == "variable":
        return ChunkIndex(
            size, chunk_bytes, _ends(_base64(_text(found, "transformedChunks"), "transformedChunks"), count)
        )
    if kind != "fixed":
        raise _Wrong(f"type: expected fixed or variable, found {kind!r:.60}")
    usual, last = _number(found, "transformedChunkSize"), _number(found, "finalTransformedChunkSize")
    if not count and last:
        raise _Wrong(f"chunkIndex: expected chunks of 0 bytes in all, found a last one of {last}")
    if not compressed and count:
        more = OVERHEAD_BYTES if encrypted else 0
        rest = size - (count - 1) * chunk_bytes
        # With one chunk the size of all others says nothing: there are none.
        if last != rest + more or (count > 1 and usual != chunk_bytes + more):
            raise _Wrong(
                f"chunkIndex: expected chunks of {chunk_bytes + more} bytes and a last one of {rest + more}, found"
                f" {usual} and {last}"
            )
    return ChunkIndex(size, chunk_bytes, (usual, last))


def _ends(frame: bytes, count: int) -> npt.NDArray[np.int64]:
    """Where the stored chunks end."""
    try:
        data = decompressed(frame, None, 4 * count + 16)
    except ValueError as error:
        raise _Wrong(f"transformedChunks: {error}") from error
    stated = int.from_bytes(data[:4], "big", signed=True)
    if len(data) < 4 or stated != count:
        raise _Wrong(f"transformedChunks: expected the sizes of {count} chunks, found {stated}")
    width = data[8] if count > 1 and len(data) > 8 else 0
    expected = 4 if not count else 8 if count == 1 else 13 + (count - 1) * width
    if len(data) != expected or (count > 1 and not 1 <= width <= 4):
        raise _Wrong(f"transformedChunks: expected {expected} bytes, found {len(data)}, with {width} for a value")
    sizes = np.empty(count, np.int64)
    if count:
        sizes[-1] = int.from_bytes(data[-4:], "big", signed=True)
    if count > 1:
        digits = np.frombuffer(data, np.uint8, (count - 1) * width, 9).reshape(-1, width)
        sizes[:-1] = int.from_bytes(data[4:8], "big", signed=True)
        for place in range(width):
            sizes[:-1] += digits[:, place].astype(np.int64) << 8 * (width - 1 - place)
    if count and not (sizes.min() > 0 and sizes.max() <= INT32_MAX):
        raise _Wrong(f"transformedChunks: expected sizes above 0, found {sizes.min()} to {sizes.max()}")
    return np.cumsum(sizes)


def decompressed(frame: bytes, size: int | None, most: int) -> bytes:
    """What a zstd frame holds.

    Parameters
    ----------
    size : int, optional
        The bytes that it must hold.
    most : int
        The bytes that it may hold.

    Raises
    ------
    ValueError
        It holds another number of bytes, or is no frame.
    """
    import zstandard

    most = min(most, max(DEFAULT_MAX_DECOMPRESSED_BYTES, MOST_GROWTH * len(frame)))
    if size is not None and size > most:
        raise ValueError(f"expected at most {most} bytes in a zstd frame of {len(frame)} bytes, found {size}")
    parts, total = [], 0
    try:
        with zstandard.ZstdDecompressor().stream_reader(frame) as reader:
            while total <= most and (part := reader.read(min(STEP_BYTES, most + 1 - total))):
                parts.append(part)
                total += len(part)
    except zstandard.ZstdError as error:
        raise ValueError(f"expected a zstd frame: {error}") from error
    if total > most or (size is not None and total != size):
        found = f"more than {most}" if total > most else str(total)
        raise ValueError(f"expected {most if size is None else size} bytes in a zstd frame, found {found}")
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _copy(found: Mapping[str, Any], size: int) -> Copy:
    named = _object(found.get("remoteLogSegmentId"), "remoteLogSegmentId")
    partition = _object(named.get("topicIdPartition"), "topicIdPartition")
    topic = _object(partition.get("topicPartition"), "topicPartition")
    of = PartitionId(_text(topic, "topic"), _text(partition, "topicId"), _number(topic, "partition"))
    epochs = _object(found.get("segmentLeaderEpochs"), "segmentLeaderEpochs")
    if not all(re.fullmatch("[0-9]{1,10}", epoch) for epoch in epochs):
        raise _Wrong(f"segmentLeaderEpochs: expected numbers, found {list(epochs)!r:.60}")
    largest = _number(found, "maxTimestampMs", -INT64_MAX, INT64_MAX)
    copy = Copy(
        of,
        _text(named, "id"),
        _number(found, "startOffset", high=INT64_MAX),
        _number(found, "endOffset", high=INT64_MAX),
        tuple(sorted((int(epoch), _number(epochs, epoch, high=INT64_MAX)) for epoch in epochs)),
        size,
        largest if largest >= 0 else None,
        _number(found, "eventTimestampMs", -INT64_MAX, INT64_MAX),
        COPY_FINISHED,
    )
    try:
        check_copy(copy)
    except InvalidRequestError as error:
        raise _Wrong(f"remoteLogSegmentMetadata: {error.message}") from error
    return copy
