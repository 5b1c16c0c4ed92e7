"""What kts is compared with: other decoders, and the least that anyone has to do."""

from __future__ import annotations

import ctypes
import os
import subprocess
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import aiokafka.record.memory_records
import cramjam
import crc32c
import isal.isal_zlib
import kafka.record
import lz4.frame
import numpy as np
import zstandard

from .corpora import LEGACY_HEADER, V2_HEADER, Corpus

SLICE_BYTES = 1 << 20
INNER_BYTES = 1 << 18  # more than any batch of the corpora holds
Decompress = Callable[[bytes | memoryview, memoryview], int]  # (payload, destination) -> bytes written


def touch_every_record(memory_records: Any, corpus: Corpus) -> int:
    """The record loop that aiokafka and kafka-python share; CRCs are checked."""
    records = memory_records(corpus.data)
    count = 0
    while records.has_next():
        batch = records.next_batch()
        if not batch.validate_crc():
            raise ValueError(f"{corpus.name}: bad CRC")
        for record in batch:
            _ = record.offset, record.timestamp, record.timestamp_type, record.key, record.value
            count += 1
    return count


def aiokafka_loop(corpus: Corpus) -> int:
    return touch_every_record(aiokafka.record.memory_records.MemoryRecords, corpus)


def kafka_python_loop(corpus: Corpus) -> int:
    return touch_every_record(kafka.record.MemoryRecords, corpus)


def _into(decompressed: Any, destination: memoryview) -> int:
    destination[: len(decompressed)] = decompressed
    return len(decompressed)


def _snappy(payload: bytes | memoryview, destination: memoryview) -> int:
    position, written = 16, 0
    while position < len(payload):
        size = int.from_bytes(payload[position : position + 4], "big")
        block = payload[position + 4 : position + 4 + size]
        written += cramjam.snappy.decompress_raw_into(block, destination[written:])
        position += 4 + size
    return written


_zstd = zstandard.ZstdDecompressor()

CANDIDATES: dict[str, list[Decompress]] = {
    "gzip": [
        lambda payload, destination: _into(isal.isal_zlib.decompress(payload, 31), destination),
        lambda payload, destination: cramjam.gzip.decompress_into(payload, destination),
    ],
    "snappy": [_snappy],
    "lz4": [
        lambda payload, destination: _into(lz4.frame.decompress(payload), destination),
        lambda payload, destination: cramjam.lz4.decompress_into(payload, destination),
    ],
    "zstd": [
        lambda payload, destination: _into(_zstd.decompress(payload, max_output_size=len(destination)), destination),
        lambda payload, destination: _zstd.stream_reader(payload, read_across_frames=True).readinto(destination),
        lambda payload, destination: cramjam.zstd.decompress_into(payload, destination),
    ],
}


def payloads(corpus: Corpus) -> list[memoryview]:
    """The compressed bytes of every batch or wrapper."""
    whole = memoryview(corpus.data)
    skipped = V2_HEADER if corpus.magic == 2 else LEGACY_HEADER + 22  # magic 1: CRC .. timestamp, null key, length
    return [whole[position + skipped : position + size] for position, size in corpus.entries]


def fastest_decompressor(corpus: Corpus) -> Decompress:
    """The quickest candidate on the first batches of this corpus."""
    some, room = payloads(corpus)[:40], memoryview(bytearray(INNER_BYTES))

    def seconds(candidate: Decompress) -> float:
        best = float("inf")
        for _ in range(3):
            start = time.thread_time()
            for payload in some:
                candidate(payload, room)
            best = min(best, time.thread_time() - start)
        return best

    return min(CANDIDATES[corpus.codec], key=seconds)


@cache
def compiled_floor() -> ctypes.CDLL:
    """`floor.c`, compiled; it uses the project's own CRC, because no library's call is cheap enough for one message."""
    here = Path(__file__).parent
    library = here.parent / "build" / "bench" / "floor.so"
    library.parent.mkdir(parents=True, exist_ok=True)
    compiler = os.environ.get("CC", "cc")
    subprocess.run([compiler, "-O3", "-shared", "-fPIC", "-o", str(library), str(here / "floor.c")], check=True)
    loaded = ctypes.CDLL(str(library))
    loaded.floor_messages.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64]
    loaded.floor_messages.restype = ctypes.c_int64
    loaded.floor_init()
    return loaded


def floor(corpus: Corpus) -> Callable[[], None]:
    """CRC, decompression by the fastest library and one copy, in calls as large as each of them allows."""
    source, target = np.frombuffer(corpus.data, np.uint8), np.empty(SLICE_BYTES + INNER_BYTES, np.uint8)
    whole, room = memoryview(corpus.data), memoryview(bytearray(SLICE_BYTES + INNER_BYTES))
    unpacked = np.frombuffer(room, np.uint8)
    crc = crc32c.crc32c if corpus.magic == 2 else isal.isal_zlib.crc32

    def plain() -> None:
        for start in range(0, len(source), SLICE_BYTES):
            piece = source[start : start + SLICE_BYTES]
            crc(whole[start : start + SLICE_BYTES])
            target[: len(piece)] = piece

    def messages() -> None:
        found = compiled_floor().floor_messages(source.ctypes.data, len(source), target.ctypes.data, SLICE_BYTES)
        if found != corpus.records:
            raise ValueError(f"{corpus.name}: expected {corpus.records} messages, found {found}")

    if corpus.codec == "none":
        return plain if corpus.magic == 2 else messages
    decompress, compressed = fastest_decompressor(corpus), payloads(corpus)

    def unpack() -> None:
        filled = 0
        for start in range(0, len(whole), SLICE_BYTES):
            crc(whole[start : start + SLICE_BYTES])
        for payload in compressed:
            filled += decompress(payload, room[filled:])
            if filled > SLICE_BYTES:
                target[:filled] = unpacked[:filled]
                filled = 0
        target[:filled] = unpacked[:filled]

    return unpack
