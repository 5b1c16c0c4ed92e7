"""The least that anyone has to do: the CRC, the fastest library's decompression, and one copy."""

from __future__ import annotations

import ctypes
import os
import subprocess
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import crc32c
import isal.isal_zlib
import numpy as np

from .corpora import LEGACY_HEADER, V2_HEADER, Corpus
from .libraries import Decompress, candidates

SLICE_BYTES = 1 << 20
SMALL_MESSAGE = 512
INNER_BYTES = 1 << 21  # more than any batch of the corpora holds


def payloads(corpus: Corpus) -> list[memoryview]:
    """The compressed bytes of every batch or wrapper."""
    whole = memoryview(corpus.data)
    skipped = V2_HEADER if corpus.magic == 2 else LEGACY_HEADER + 22  # magic 1: CRC .. timestamp, null key, length
    return [whole[position + skipped : position + size] for position, size in corpus.entries]


def fastest_decompressor(corpus: Corpus) -> Decompress:
    """The quickest candidate on the first batches of this corpus, the best of some tries each."""
    some, room = payloads(corpus)[:100], memoryview(bytearray(INNER_BYTES))
    choice = candidates(corpus.codec)
    sizes = [choice[0](payload, room) for payload in some]

    def seconds(candidate: Decompress) -> float:
        best = float("inf")
        for _ in range(5):
            start = time.thread_time()
            for payload, size in zip(some, sizes, strict=True):
                candidate(payload, room[: size + 64])
            best = min(best, time.thread_time() - start)
        return best

    return min(choice, key=seconds)


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
    loaded.floor_checksums.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int]
    loaded.floor_messages.restype = loaded.floor_crcs.restype = ctypes.c_int64
    loaded.floor_checksums.restype = ctypes.c_uint32
    loaded.floor_init()
    return loaded


class Floor:
    """What a corpus costs at least; buffers are made once and used again."""

    def __init__(self, corpus: Corpus, decompress: Decompress | None = None) -> None:
        self.corpus = corpus
        self.source = np.frombuffer(corpus.data, np.uint8)
        self.target = np.empty(SLICE_BYTES + INNER_BYTES, np.uint8)
        self.room = np.empty(SLICE_BYTES + INNER_BYTES, np.uint8)
        self.compressed = [] if corpus.codec == "none" else payloads(corpus)
        self.decompress = None if corpus.codec == "none" else decompress or fastest_decompressor(corpus)
        scratch = self.room.data
        self.sizes = [self.decompress(payload, scratch) for payload in self.compressed] if self.decompress else []
        # The project's own CRC is the cheapest for messages too small to call a library for each of them. Larger ones
        # get the library's over whole slices: nobody is faster, but no reader can have it quite so good.
        self.small = sum(self.sizes or [len(corpus.data)]) / corpus.records < SMALL_MESSAGE

    @property
    def decompressor(self) -> str:
        return self.decompress.__name__ if self.decompress else "-"

    def slices(self) -> Iterator[int]:
        """Decompress until a slice is full: how many bytes of `room` that took.

        The sizes are known: some libraries allocate all that they are offered. Some room is left to find the end mark.
        """
        room, filled = self.room.data, 0
        assert self.decompress is not None
        for payload, size in zip(self.compressed, self.sizes, strict=True):
            filled += self.decompress(payload, room[filled : filled + size + 64])
            if filled > SLICE_BYTES:
                yield filled
                filled = 0
        if filled:
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
        elif corpus.magic < 2 and self.small:
            self.messages(source)
        else:
            crc = crc32c.crc32c if corpus.magic == 2 else isal.isal_zlib.crc32
            for start in range(0, len(source), SLICE_BYTES):
                piece = source[start : start + SLICE_BYTES]
                crc(piece.data)
                target[: len(piece)] = piece

    def inner(self) -> None:
        """The same with the CRC of every message inside the wrappers."""
        self.crc()
        for filled in self.slices():
            if self.small:
                self.messages(self.room[:filled])
            else:
                isal.isal_zlib.crc32(self.room[:filled].data)
                self.target[:filled] = self.room[:filled]

    def messages(self, source: np.ndarray) -> None:
        found = compiled().floor_messages(source.ctypes.data, len(source), self.target.ctypes.data, SLICE_BYTES)
        if found < 1:
            raise ValueError(f"{self.corpus.name}: the floor found a wrong CRC")
