"""Payloads of the codecs: compressed, decompressed, and their checksums made right again."""

from __future__ import annotations

import random
import struct
import zlib

import cramjam
import lz4.block
import zstandard
from support.reference import reference_codecs
from support.sets import generate

MOST_PLAIN = 20_000
ZSTD = zstandard.ZstdCompressor(level=1)
LZ4_HEAD = reference_codecs.LZ4_MAGIC + b"\x60\x40\x82"


def plain_of(codec: int, magic: int, payload: bytes) -> bytes:
    """The payload decompressed, as far as it is one."""
    if not 0 < codec < 5:
        return payload
    try:
        return reference_codecs.decompress(codec, magic, payload, MOST_PLAIN)
    except reference_codecs.BadPayload:
        return b""


def frame(rng: random.Random, codec: int, magic: int, plain: bytes) -> bytes:
    """The bytes compressed: with all that the format has, or (mostly) quickly."""
    if rng.random() < 0.2:
        return generate.compress(rng, codec, magic, plain)
    if codec == reference_codecs.GZIP:
        return zlib.compress(plain, 1, 31)
    if codec == reference_codecs.ZSTD:
        return ZSTD.compress(plain)
    if codec == reference_codecs.SNAPPY:
        block = bytes(cramjam.snappy.compress_raw(plain))
        return reference_codecs.XERIAL_HEADER + struct.pack(">i", len(block)) + block
    block = lz4.block.compress(plain, store_size=False) if plain else b""
    return LZ4_HEAD + struct.pack("<I", len(block)) * bool(plain) + block + bytes(4)


def repair_frame(codec: int, payload: bytes) -> bytes:
    """The checksums that a mutation broke: lz4's header, gzip's trailer of the first member."""
    if codec == 3 and len(payload) > 7:
        end = 6 + (8 if payload[4] & 8 else 0)
        return payload[:end] + bytes([reference_codecs.lz4_header_checksum(payload[4:end])]) + payload[end + 1 :]
    start = gzip_body(payload)
    if codec == 1 and start:
        engine = zlib.decompressobj(-15)
        try:
            plain = engine.decompress(payload[start:], MOST_PLAIN)
        except zlib.error:
            return payload
        if engine.eof:
            end = len(payload) - len(engine.unused_data)
            return payload[:end] + struct.pack("<II", zlib.crc32(plain), len(plain)) + payload[end + 8 :]
    return payload


def gzip_body(payload: bytes) -> int:
    """Where the deflate stream begins, if the header has no checksum; else 0."""
    if len(payload) < 18 or payload[3] & 2:
        return 0
    at = 10
    if payload[3] & 4:
        at += 2 + int.from_bytes(payload[10:12], "little")
    for _ in range((payload[3] >> 3 & 1) + (payload[3] >> 4 & 1)):
        at = payload.find(b"\0", at) + 1 or len(payload)
    return at
