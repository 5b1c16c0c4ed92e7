"""Slow, obvious decompression of the payloads that Kafka's Java streams read: one chunk, member or frame at a time."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from functools import lru_cache

import zstandard

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
CODEC_NAMES = ("none", "gzip", "snappy", "lz4", "zstd")
DEFAULT_LIMIT = 134217728


class BadPayload(Exception):
    """A compressed payload that Kafka, or our stricter reading, refuses."""


class TooLarge(BadPayload):
    """Decompressing passes the bound."""


@lru_cache(maxsize=16)  # the same bytes are asked for their records, their times and their headers in a row
def decompress(codec: int, magic: int, payload: bytes, limit: int = DEFAULT_LIMIT) -> bytes:
    """Everything the payload holds, or BadPayload."""
    readers: dict[int, Callable[[bytes, int], bytes]] = {GZIP: _gzip, SNAPPY: _snappy, ZSTD: _zstd}
    if codec == LZ4:
        return _lz4(payload, limit, check_header=magic != 0)
    return readers[codec](payload, limit)


def _bounded(out: bytearray, limit: int) -> None:
    if len(out) > limit:
        raise TooLarge(f"more than {limit} bytes")


# --- gzip: RFC 1952 members one after another ----------------------------------------------------


def _gzip(data: bytes, limit: int) -> bytes:
    out = bytearray()
    at = _gzip_header(data, 0)
    while True:
        engine = zlib.decompressobj(-15)
        try:
            plain = engine.decompress(data[at:], limit + 1 - len(out))
        except zlib.error as error:
            raise BadPayload(f"gzip: {error}") from None
        out += plain
        _bounded(out, limit)
        if not engine.eof:
            raise BadPayload("gzip: the deflate stream is cut")
        trailer = len(data) - len(engine.unused_data)
        if trailer + 8 > len(data):
            raise BadPayload("gzip: the trailer is cut")
        if int.from_bytes(data[trailer : trailer + 4], "little") != zlib.crc32(plain):
            raise BadPayload("gzip: wrong CRC in the trailer")
        if int.from_bytes(data[trailer + 4 : trailer + 8], "little") != len(plain) & 0xFFFFFFFF:
            raise BadPayload("gzip: wrong size in the trailer")
        if len(data) - trailer - 8 <= 18:
            return bytes(out)  # too short for a member: Java does not look at it
        try:
            at = _gzip_header(data, trailer + 8)
        except BadPayload:
            return bytes(out)  # what follows the last member is not looked at by Java either


def _gzip_header(data: bytes, start: int) -> int:
    """Position after the member header that begins at ``start``."""

    def need(end: int) -> None:
        if end > len(data):
            raise BadPayload("gzip: the header is cut")

    need(start + 10)
    if data[start : start + 2] != b"\x1f\x8b":
        raise BadPayload("gzip: not a gzip header")
    if data[start + 2] != 8:
        raise BadPayload("gzip: the method is not deflate")
    flags = data[start + 3]
    at = start + 10
    if flags & 4:
        need(at + 2)
        at += 2 + int.from_bytes(data[at : at + 2], "little")
        need(at)
    for flag in (8, 16):
        if flags & flag:
            end = data.find(b"\0", at)
            if end < 0:
                raise BadPayload("gzip: the header is cut")
            at = end + 1
    if flags & 2:
        need(at + 2)
        if int.from_bytes(data[at : at + 2], "little") != zlib.crc32(data[start:at]) & 0xFFFF:
            raise BadPayload("gzip: wrong header CRC")
        at += 2
    return at


# --- snappy: xerial chunks, or one raw block -----------------------------------------------------

XERIAL_MAGIC = b"\x82SNAPPY\0"
XERIAL_HEADER = XERIAL_MAGIC + b"\0\0\0\1\0\0\0\1"


def _snappy(data: bytes, limit: int) -> bytes:
    if not data:
        raise BadPayload("snappy: empty payload")
    if len(data) < 16 or data[:8] != XERIAL_MAGIC:
        return _snappy_block(data, limit)
    out = bytearray()
    at = 16
    while len(data) - at >= 4:
        size = int.from_bytes(data[at : at + 4], "big", signed=True)
        if data[at : at + 4] == XERIAL_MAGIC[:4]:  # another stream begins
            if len(data) - at < 16:
                raise BadPayload("snappy: the header of a following stream is cut")
            if data[at : at + 8] != XERIAL_MAGIC:
                raise BadPayload("snappy: the header of a following stream is not one")
            if int.from_bytes(data[at + 8 : at + 12], "big", signed=True) < 1:
                raise BadPayload("snappy: version of a following stream below 1")
            at += 16
            continue
        at += 4
        if size < 0 or size > len(data) - at:
            raise BadPayload(f"snappy: chunk of {size} bytes, {len(data) - at} left")
        out += _snappy_block(data[at : at + size], limit - len(out))
        at += size
    return bytes(out)


def _snappy_block(data: bytes, limit: int) -> bytes:
    expected = shift = at = 0
    while True:
        if at >= len(data) or shift > 28:
            raise BadPayload("snappy: bad length")
        byte = data[at]
        at += 1
        expected |= (byte & 0x7F) << shift
        shift += 7
        if byte < 128:
            break
    if expected > limit:
        raise TooLarge(f"more than {limit} bytes")
    out = bytearray()
    while at < len(data):
        tag = data[at]
        at += 1
        kind = tag & 3
        if kind == 0:
            length = (tag >> 2) + 1
            if length > 60:
                extra = length - 60
                if extra > len(data) - at:
                    raise BadPayload("snappy: literal length is cut")
                length = int.from_bytes(data[at : at + extra], "little") + 1
                at += extra
            if length > len(data) - at:
                raise BadPayload("snappy: literal is cut")
            out += data[at : at + length]
            at += length
        else:
            width = (0, 1, 2, 4)[kind]
            if width > len(data) - at:
                raise BadPayload("snappy: copy is cut")
            distance = int.from_bytes(data[at : at + width], "little")
            at += width
            length = (tag >> 2) + 1
            if kind == 1:
                distance |= (tag >> 5) << 8
                length = ((tag >> 2) & 7) + 4
            if not 0 < distance <= len(out):
                raise BadPayload(f"snappy: copy from {distance} back, {len(out)} written")
            start = len(out) - distance
            recent = out[start : start + length]
            out += (recent * -(-length // len(recent)))[:length]
        if len(out) > expected:
            raise BadPayload(f"snappy: more than the {expected} bytes stated")
        _bounded(out, limit)
    if len(out) != expected:
        raise BadPayload(f"snappy: {len(out)} bytes, {expected} stated")
    return bytes(out)


# --- lz4: one frame of independent blocks ---------------------------------------------------------


LZ4_MAGIC = b"\x04\x22\x4d\x18"


def xxh32(data: bytes) -> int:
    """xxHash32 with seed 0."""
    p1, p2, p3, p4, p5 = 2654435761, 2246822519, 3266489917, 668265263, 374761393

    def rotate(value: int, bits: int) -> int:
        value &= 0xFFFFFFFF
        return (value << bits | value >> (32 - bits)) & 0xFFFFFFFF

    def word(at: int) -> int:
        return int.from_bytes(data[at : at + 4], "little")

    at = 0
    if len(data) >= 16:
        lanes = [p1 + p2, p2, 0, -p1]
        while at + 16 <= len(data):
            lanes = [rotate(lane + word(at + 4 * i) * p2, 13) * p1 for i, lane in enumerate(lanes)]
            at += 16
        total = sum(rotate(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True))
    else:
        total = p5
    total += len(data)
    while at + 4 <= len(data):
        total = rotate(total + word(at) * p3, 17) * p4
        at += 4
    for byte in data[at:]:
        total = rotate(total + byte * p5, 11) * p1
    total &= 0xFFFFFFFF
    total = (total ^ total >> 15) * p2 & 0xFFFFFFFF
    total = (total ^ total >> 13) * p3 & 0xFFFFFFFF
    return total ^ total >> 16


def lz4_header_checksum(descriptor: bytes) -> int:
    return (xxh32(descriptor) >> 8) & 0xFF


def _lz4(data: bytes, limit: int, check_header: bool) -> bytes:
    if len(data) < 7:
        raise BadPayload("lz4: the header is cut")
    if data[:4] != LZ4_MAGIC:
        raise BadPayload("lz4: wrong magic number")
    flags, descriptor = data[4], data[5]
    if flags & 3 or not flags & 0x20 or flags >> 6 != 1:
        raise BadPayload(f"lz4: FLG {flags:#04x}: reserved bit, dependent blocks or version other than 1")
    if descriptor & 0x8F or not 4 <= descriptor >> 4 <= 7:
        raise BadPayload(f"lz4: BD {descriptor:#04x}: reserved bit or block size")
    largest = 1 << (2 * (descriptor >> 4) + 8)
    at = 6 + (8 if flags & 8 else 0)
    if at >= len(data):
        raise BadPayload("lz4: the header is cut")
    if check_header and data[at] != lz4_header_checksum(data[4:at]):
        raise BadPayload("lz4: wrong header checksum")
    at += 1
    out = bytearray()
    while True:
        if len(data) - at < 4:
            raise BadPayload("lz4: no end mark")
        word = int.from_bytes(data[at : at + 4], "little")
        at += 4
        size = word & 0x7FFFFFFF
        if size == 0:
            break
        if size > largest:
            raise BadPayload(f"lz4: block of {size} bytes, at most {largest} by the header")
        if size > len(data) - at:
            raise BadPayload(f"lz4: block of {size} bytes, {len(data) - at} left")
        block = data[at : at + size]
        at += size
        out += block if word >> 31 else _lz4_block(block, largest)
        _bounded(out, limit)
        if flags & 0x10:
            if len(data) - at < 4:
                raise BadPayload("lz4: block checksum is cut")
            if int.from_bytes(data[at : at + 4], "little") != xxh32(block):
                raise BadPayload("lz4: wrong block checksum")
            at += 4
    if flags & 4:  # the content checksum must be there; Java does not compare it
        if len(data) - at < 4:
            raise BadPayload("lz4: content checksum is cut")
        at += 4
    if data[at : at + 4] == LZ4_MAGIC:
        raise BadPayload("lz4: another frame follows, which Kafka would drop")  # stricter
    return bytes(out)  # anything else behind the frame is ignored, as Java does


def _lz4_block(data: bytes, largest: int) -> bytes:
    """One block by the rules of the LZ4 library: the last sequence is literals only, and at least five of them."""
    out = bytearray()
    at = 0

    def extended(length: int, at: int) -> tuple[int, int]:
        while True:
            if at >= len(data):
                raise BadPayload("lz4: length is cut")
            length += data[at]
            at += 1
            if data[at - 1] != 255:
                return length, at

    while True:
        if at >= len(data):
            raise BadPayload("lz4: block ends in a match")
        token = data[at]
        at += 1
        literals = token >> 4
        if literals == 15:
            literals, at = extended(literals, at)
        if literals > len(data) - at:
            raise BadPayload("lz4: literals are cut")
        out += data[at : at + literals]
        at += literals
        if at == len(data):
            if len(out) > largest:
                raise BadPayload("lz4: block larger than the header allows")
            if not out:
                raise BadPayload("lz4: block of nothing")  # Java's streams take it for the end, or fail
            return bytes(out)
        if at > len(data) - 8 or len(out) > largest - 12:
            raise BadPayload("lz4: the last five bytes are not literals")
        distance = int.from_bytes(data[at : at + 2], "little")
        at += 2
        if distance > len(out):
            raise BadPayload(f"lz4: match from {distance} back, {len(out)} written")
        length = token & 15
        if length == 15:
            length, at = extended(length, at)
        length += 4
        if len(out) + length > largest - 5:
            raise BadPayload("lz4: block larger than the header allows")
        for _ in range(length):
            out.append(out[-distance] if distance else 0)  # the LZ4 library reads distance 0 as zeros


# --- zstd: frames one after another ----------------------------------------------------------------


def _zstd(data: bytes, limit: int) -> bytes:
    if not data:
        raise BadPayload("zstd: no frame")
    out = bytearray()
    rest = data
    while rest:
        engine = zstandard.ZstdDecompressor().decompressobj()
        try:
            while rest and not engine.eof:
                piece, rest = rest[:64], rest[64:]  # a few blocks at a time keeps a bomb small
                out += engine.decompress(piece)
                _bounded(out, limit)
            rest = engine.unused_data + rest
        except zstandard.ZstdError as error:
            raise BadPayload(f"zstd: {error}") from None
        if not engine.eof:
            raise BadPayload("zstd: the last frame is cut")
    return bytes(out)
