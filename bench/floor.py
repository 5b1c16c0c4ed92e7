"""The least that anyone has to do: the CRC, the fastest library's decompression, and one copy."""

from __future__ import annotations

import ctypes
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import cramjam
import crc32c
import isal.isal_zlib
import lz4.frame
import numpy as np
import zstandard

from .corpora import LEGACY_HEADER, V2_HEADER, Corpus

SLICE_BYTES = 1 << 20
INNER_BYTES = 1 << 21  # more than any batch of the corpora holds
Decompress = Callable[[bytes | memoryview, memoryview], int]  # (payload, destination) -> bytes written


def _into(decompressed: Any, destination: memoryview) -> int:
    destination[: len(decompressed)] = decompressed
    return len(decompressed)


def cramjam_snappy_raw_into(payload: bytes | memoryview, destination: memoryview) -> int:
    position, written = 16, 0
    while position < len(payload):
        size = int.from_bytes(payload[position : position + 4], "big")
        block = payload[position + 4 : position + 4 + size]
        written += cramjam.snappy.decompress_raw_into(block, destination[written:])
        position += 4 + size
    return written


def isal_gzip(payload: bytes | memoryview, destination: memoryview) -> int:
    """The trailer's size is believed, for room at once."""
    size = int.from_bytes(payload[-4:], "little")
    return _into(isal.isal_zlib.decompress(payload, 31, size), destination)


def isal_deflate(payload: bytes | memoryview, destination: memoryview) -> int:
    """Without gzip's own CRC; the corpora's headers are the shortest, 10 bytes."""
    size = int.from_bytes(payload[-4:], "little")
    return _into(isal.isal_zlib.decompress(payload[10:], -15, size), destination)


def cramjam_gzip_into(payload: bytes | memoryview, destination: memoryview) -> int:
    return int(cramjam.gzip.decompress_into(payload, destination))


def lz4_frame(payload: bytes | memoryview, destination: memoryview) -> int:
    return _into(lz4.frame.decompress(payload), destination)


_lz4_context = lz4.frame.create_decompression_context()


def lz4_frame_chunk(payload: bytes | memoryview, destination: memoryview) -> int:
    data, _, _ = lz4.frame.decompress_chunk(_lz4_context, payload, max_length=len(destination))
    return _into(data, destination)


def cramjam_lz4_into(payload: bytes | memoryview, destination: memoryview) -> int:
    return int(cramjam.lz4.decompress_into(payload, destination))


def cramjam_lz4_block_into(payload: bytes | memoryview, destination: memoryview) -> int:
    """Block by block behind the frame's header of 7 bytes; the highest bit of a size says "stored as it is"."""
    position, written = 7, 0
    while size := int.from_bytes(payload[position : position + 4], "little"):
        block = payload[position + 4 : position + 4 + (size & 0x7FFFFFFF)]
        if size >> 31:
            written += _into(block, destination[written:])
        else:
            written += cramjam.lz4.decompress_block_into(block, destination[written:], output_len=len(destination) - written)
        position += 4 + len(block)
    return written


_zstd = zstandard.ZstdDecompressor()


def zstandard_decompress(payload: bytes | memoryview, destination: memoryview) -> int:
    return _into(_zstd.decompress(payload, max_output_size=len(destination)), destination)


def zstandard_reader(payload: bytes | memoryview, destination: memoryview) -> int:
    return int(_zstd.stream_reader(payload, read_across_frames=True).readinto(destination))


def cramjam_zstd_into(payload: bytes | memoryview, destination: memoryview) -> int:
    return int(cramjam.zstd.decompress_into(payload, destination))


CANDIDATES: dict[str, list[Decompress]] = {
    "gzip": [isal_gzip, isal_deflate, cramjam_gzip_into],
    "snappy": [cramjam_snappy_raw_into],
    "lz4": [lz4_frame, lz4_frame_chunk, cramjam_lz4_into, cramjam_lz4_block_into],
    "zstd": [zstandard_decompress, zstandard_reader, cramjam_zstd_into],
}


def payloads(corpus: Corpus) -> list[memoryview]:
    """The compressed bytes of every batch or wrapper."""
    whole = memoryview(corpus.data)
    skipped = V2_HEADER if corpus.magic == 2 else LEGACY_HEADER + 22  # magic 1: CRC .. timestamp, null key, length
    return [whole[position + skipped : position + size] for position, size in corpus.entries]


def fastest_decompressor(corpus: Corpus) -> Decompress:
    """The quickest candidate on the first batches of this corpus, the best of some tries each."""
    some, room = payloads(corpus)[:100], memoryview(bytearray(INNER_BYTES))
    sizes = [CANDIDATES[corpus.codec][0](payload, room) for payload in some]

    def seconds(candidate: Decompress) -> float:
        best = float("inf")
        for _ in range(5):
            start = time.thread_time()
            for payload, size in zip(some, sizes, strict=True):
                candidate(payload, room[: size + 64])
            best = min(best, time.thread_time() - start)
        return best

    return min(CANDIDATES[corpus.codec], key=seconds)


@cache
def compiled() -> ctypes.CDLL:
    """`floor.c`, compiled; it uses the project's own CRC, because no library's call is cheap enough for one message."""
    here = Path(__file__).parent
    library = here.parent / "build" / "bench" / "floor.so"
    library.parent.mkdir(parents=True, exist_ok=True)
    fresh = library.with_suffix(f".{os.getpid()}")
    compiler = os.environ.get("CC", "cc")
    subprocess.run([compiler, "-O3", "-shared", "-fPIC", "-o", str(fresh), str(here / "floor.c")], check=True)
    fresh.replace(library)
    loaded = ctypes.CDLL(str(library))
    loaded.floor_messages.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64]
    loaded.floor_crcs.argtypes = [ctypes.c_void_p, ctypes.c_int64]
    loaded.floor_messages.restype = loaded.floor_crcs.restype = ctypes.c_int64
    loaded.floor_init()
    return loaded


class Floor:
    """What a corpus costs at least; buffers are made once and used again."""

    def __init__(self, corpus: Corpus) -> None:
        self.corpus = corpus
        self.source = np.frombuffer(corpus.data, np.uint8)
        self.target = np.empty(SLICE_BYTES + INNER_BYTES, np.uint8)
        self.room = np.empty(SLICE_BYTES + INNER_BYTES, np.uint8)
        self.compressed = [] if corpus.codec == "none" else payloads(corpus)
        self.decompress = None if corpus.codec == "none" else fastest_decompressor(corpus)
        scratch = memoryview(self.room)
        self.sizes = [self.decompress(payload, scratch) for payload in self.compressed] if self.decompress else []

    @property
    def library(self) -> str:
        return self.decompress.__name__ if self.decompress else "-"

    def slices(self) -> Iterator[int]:
        """Decompress until a slice is full: how many bytes of `room` that took.

        The sizes are known: some libraries allocate all that they are offered. Some room is left to find the end mark.
        """
        room, filled = memoryview(self.room), 0
        assert self.decompress is not None
        for payload, size in zip(self.compressed, self.sizes, strict=True):
            filled += self.decompress(payload, room[filled : filled + size + 64])
            if filled > SLICE_BYTES:
                yield filled
                filled = 0
        yield filled

    def crc(self) -> None:
        """The outer CRCs in calls as large as possible."""
        crc = crc32c.crc32c if self.corpus.magic == 2 else isal.isal_zlib.crc32
        whole = memoryview(self.corpus.data)
        for start in range(0, len(whole), SLICE_BYTES):
            crc(whole[start : start + SLICE_BYTES])

    def entry_crcs(self) -> None:
        """The CRC of each entry, in C."""
        found = compiled().floor_crcs(self.source.ctypes.data, len(self.source))
        single = self.corpus.magic < 2 and self.corpus.codec == "none"
        expected = self.corpus.records if single else len(self.corpus.entries)
        if found != expected:
            raise ValueError(f"{self.corpus.name}: expected {expected} entries, found {found}")

    def decompression(self) -> None:
        for _ in self.slices():
            pass

    def outer(self) -> None:
        """CRC, decompression and one copy."""
        corpus, source, target = self.corpus, self.source, self.target
        if corpus.codec != "none":
            self.crc()
            for filled in self.slices():
                target[:filled] = self.room[:filled]
        elif corpus.magic == 2:
            for start in range(0, len(source), SLICE_BYTES):
                piece = source[start : start + SLICE_BYTES]
                crc32c.crc32c(piece)
                target[: len(piece)] = piece
        else:
            self.messages(source, corpus.records)

    def inner(self) -> None:
        """The same with the CRC of every message inside the wrappers."""
        self.crc()
        found = sum(self.messages(self.room[:filled]) for filled in self.slices())
        if found != self.corpus.records:
            raise ValueError(f"{self.corpus.name}: expected {self.corpus.records} messages, found {found}")

    def messages(self, source: np.ndarray, expected: int | None = None) -> int:
        found = int(compiled().floor_messages(source.ctypes.data, len(source), self.target.ctypes.data, SLICE_BYTES))
        if found < 0 or expected not in (None, found):
            raise ValueError(f"{self.corpus.name}: expected {expected} messages, found {found}")
        return found
