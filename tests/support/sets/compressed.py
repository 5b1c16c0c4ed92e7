"""Logs that gzip and zstd compressed, in the ways that differ."""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Callable
from pathlib import Path

import zstandard

Compress = Callable[[bytes], bytes]


def two_members(data: bytes) -> bytes:
    half = len(data) // 2
    return gzip.compress(data[:half], 1) + gzip.compress(data[half:], 1)


def three_frames(data: bytes) -> bytes:
    """Two frames of data, one of them without its size, and between them one that is to be skipped, as pzstd writes."""
    third = len(data) // 3
    skipped = b"\x50\x2a\x4d\x18\x04\x00\x00\x00abcd"
    sizeless = zstandard.ZstdCompressor(write_content_size=False).compress(data[third:])
    return zstandard.compress(data[:third]) + skipped + sizeless


WAYS: dict[str, Compress] = {".gz": two_members, ".zst": three_frames}


def compress_logs(folder: Path, first: str = ".gz") -> Path:
    """Compress all logs below a folder as gzip and zstd do: a time of change stays; both kinds, in turn."""
    suffixes = [first, *({*WAYS} - {first})]
    for number, path in enumerate(sorted(folder.rglob("*.log"))):
        compressed = path.with_name(path.name + suffixes[number % 2])
        compressed.write_bytes(WAYS[suffixes[number % 2]](path.read_bytes()))
        shutil.copystat(path, compressed)
        path.unlink()
    return folder
