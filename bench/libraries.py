"""The libraries' decompressors, all made to fill a buffer of the caller's; the floor takes the fastest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cramjam
import isal.isal_zlib
import lz4.frame
import zstandard

Decompress = Callable[[memoryview, memoryview], int]  # (payload, destination) -> bytes written


def _into(decompressed: Any, destination: memoryview) -> int:
    destination[: len(decompressed)] = decompressed
    return len(decompressed)


def cramjam_snappy_raw_into(payload: memoryview, destination: memoryview) -> int:
    position, written = 16, 0
    while position < len(payload):
        size = int.from_bytes(payload[position : position + 4], "big")
        block = payload[position + 4 : position + 4 + size]
        written += cramjam.snappy.decompress_raw_into(block, destination[written:])
        position += 4 + size
    return written


def isal_gzip(payload: memoryview, destination: memoryview) -> int:
    """The trailer's size is believed, for room at once."""
    size = int.from_bytes(payload[-4:], "little")
    return _into(isal.isal_zlib.decompress(payload, 31, size), destination)


def isal_deflate(payload: memoryview, destination: memoryview) -> int:
    """Without gzip's own CRC; the corpora's headers are the shortest, 10 bytes."""
    size = int.from_bytes(payload[-4:], "little")
    return _into(isal.isal_zlib.decompress(payload[10:], -15, size), destination)


def cramjam_gzip_into(payload: memoryview, destination: memoryview) -> int:
    return int(cramjam.gzip.decompress_into(payload, destination))


def lz4_frame(payload: memoryview, destination: memoryview) -> int:
    return _into(lz4.frame.decompress(payload), destination)


def lz4_frame_chunks() -> Decompress:
    """With one context that is kept."""
    context = lz4.frame.create_decompression_context()

    def lz4_frame_chunk(payload: memoryview, destination: memoryview) -> int:
        data, _, _ = lz4.frame.decompress_chunk(context, payload, max_length=len(destination))
        return _into(data, destination)

    return lz4_frame_chunk


def cramjam_lz4_into(payload: memoryview, destination: memoryview) -> int:
    return int(cramjam.lz4.decompress_into(payload, destination))


def cramjam_lz4_block_into(payload: memoryview, destination: memoryview) -> int:
    """Block by block behind the frame's header of 7 bytes; the highest bit of a size says "stored as it is"."""
    position, written = 7, 0
    while size := int.from_bytes(payload[position : position + 4], "little"):
        block = payload[position + 4 : position + 4 + (size & 0x7FFFFFFF)]
        room = destination[written:]
        stored = size >> 31
        made = _into(block, room) if stored else cramjam.lz4.decompress_block_into(block, room, output_len=len(room))
        written += made
        position += 4 + len(block)
    return written


def zstandard_kept() -> list[Decompress]:
    """Two ways to use one decompressor that is kept."""
    kept = zstandard.ZstdDecompressor()

    def zstandard_decompress(payload: memoryview, destination: memoryview) -> int:
        return _into(kept.decompress(payload, max_output_size=len(destination)), destination)

    def zstandard_reader(payload: memoryview, destination: memoryview) -> int:
        return int(kept.stream_reader(payload, read_across_frames=True).readinto(destination))

    return [zstandard_decompress, zstandard_reader]


def cramjam_zstd_into(payload: memoryview, destination: memoryview) -> int:
    return int(cramjam.zstd.decompress_into(payload, destination))


def candidates(codec: str) -> list[Decompress]:
    """With contexts of their own, so that threads do not share them."""
    found: dict[str, list[Decompress]] = {
        "none": [],
        "gzip": [isal_gzip, isal_deflate, cramjam_gzip_into],
        "snappy": [cramjam_snappy_raw_into],
        "lz4": [lz4_frame, lz4_frame_chunks(), cramjam_lz4_into, cramjam_lz4_block_into],
        "zstd": [*zstandard_kept(), cramjam_zstd_into],
    }
    return found[codec]
