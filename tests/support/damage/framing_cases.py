"""Every length of every codec's framing at every extreme, and what must come of it.

The verdict is a pattern: words of our own where our own code looks, only the codec's name where its library does; None
where the bytes behind the lie decide, and the reference decoder alone says.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from support.damage.false_lengths import Lie, all_lies
from support.reference import reference_codecs
from support.sets import framings, generate

READ = "read"
BOUND = 134217728
BEYOND = re.escape(f"decompressing would pass the bound of {BOUND} bytes") + ".*max_decompressed_bytes.*"
LIBRARY = {1: "gzip data is damaged: .*", 2: "snappy data is damaged: .*", 3: "lz4 data is damaged: .*",
           4: "zstd data is damaged: .*"}  # fmt: skip
NOT_WHOLE = "zstd data is not a sequence of whole frames"


class Case(NamedTuple):
    """A payload, what was done to it, and READ, a pattern of the error's words, or None."""

    name: str
    payload: bytes
    verdict: str | None


def simple(codec: int, plain: bytes) -> bytes:
    """The bytes in the codec's plainest framing."""
    if codec == 0:
        return plain
    if codec == 1:
        return zlib.compress(plain, wbits=31)
    if codec == 2:
        block = framings.snappy_block(plain)
        return reference_codecs.XERIAL_HEADER + struct.pack(">i", len(block)) + block
    if codec == 3:
        head = framings.lz4_repaired(reference_codecs.LZ4_MAGIC + b"\x60\x40\0")
        return head + struct.pack("<I", len(plain) | 1 << 31) + plain + bytes(4)
    return framings.zstd_frame(plain)[0]


def cases(codec: int, magic: int, plain: bytes) -> Iterator[Case]:
    """Lies in the framing around sound records or inner messages."""
    if codec == 0:
        return
    rule = {1: _gzip, 2: _snappy, 3: _lz4, 4: _zstd}[codec]
    payload, found = framings.framed(codec, plain)
    for lie in all_lies(payload, found):
        told = framings.lz4_repaired(lie.told(payload)) if codec == 3 else lie.told(payload)
        yield Case(str(lie), told, rule(lie, plain, payload))
    more = {1: _gzip_names, 2: _snappy_raw, 3: _lz4_dictionary, 4: _zstd_sizes}[codec]
    yield from more(magic, plain)


# --- gzip ------------------------------------------------------------------------------------------------


def _gzip(lie: Lie, plain: bytes, payload: bytes) -> str | None:
    assert lie.value is not None
    if lie.field.name == "gzip size":
        return re.escape(f"gzip size is {len(plain)}, expected the stored {lie.value % 2**32}")
    if lie.field.name == "gzip extra length":
        return "gzip data has no member header" if lie.value % 65536 > lie.field.left else None
    return LIBRARY[1]  # a stored block's length and its complement no longer agree


def _gzip_names(magic: int, plain: bytes) -> Iterator[Case]:
    """Names, comments and extra fields without an end; a stored block of a false length, its complement true to it."""
    body = zlib.compressobj(0, zlib.DEFLATED, -15)
    stored = body.compress(plain) + body.flush()
    trailer = struct.pack("<II", zlib.crc32(plain), len(plain))
    for flag in (4, 8, 16, 2):
        head = b"\x1f\x8b\x08" + bytes([flag]) + bytes(6)
        for rest in (b"", b"\xff", b"a" * 300):
            yield Case(f"gzip flag {flag}, {len(rest)} bytes", head + rest, "gzip data has no member header")
    for size in (0, 1, len(plain) - 1, len(plain) + 1, len(plain) + 8, len(plain) + 9, 65535):
        told = stored[:1] + struct.pack("<HH", size, size ^ 0xFFFF) + stored[5:]
        verdict = "gzip (data|CRC|size) .*" if size else None  # eight zeros behind are the trailer of nothing
        yield Case(f"gzip stored block of {size}", b"\x1f\x8b\x08" + bytes(7) + told + trailer, verdict)


# --- snappy ------------------------------------------------------------------------------------------------


def _snappy(lie: Lie, plain: bytes, payload: bytes) -> str | None:
    name, value, left = lie.field.name, lie.value, lie.field.left
    if "version" in name:
        return READ  # of the first header, nobody looks at them
    if name.endswith("chunk 0 length") or name.endswith("chunk 1 length"):
        assert value is not None
        if not 0 <= value <= left:
            return re.escape(f"snappy chunk length {value} does not fit the {left} bytes left")
        return "snappy block has no length" if value == 0 else None
    if name.endswith("plain length"):
        return _snappy_plain(lie)
    return LIBRARY[2]


def _snappy_plain(lie: Lie) -> str:
    if len(lie.raw) > 5:
        return "snappy block has no length"
    value = sum((byte & 127) << 7 * n for n, byte in enumerate(lie.raw))
    if value > BOUND - 200:
        return BEYOND
    if value == 0:
        return "snappy block claims no bytes but has some"
    return LIBRARY[2] if value < 22 * lie.field.left else "snappy block of [0-9]+ bytes claims [0-9]+"


def _snappy_raw(magic: int, plain: bytes) -> Iterator[Case]:
    payload, found = framings.snappy_raw(plain)
    for lie in all_lies(payload, found):
        yield Case(f"raw {lie}", lie.told(payload), _snappy(lie, plain, payload))
    for size in (22 * len(plain) // 2, 22 * len(payload), 22 * len(payload) + 1, BOUND, BOUND + 1):
        told = generate.plain_varint(size) + payload[found[0].size :]
        words = LIBRARY[2] if size <= 22 * len(told) else "snappy block of [0-9]+ bytes claims [0-9]+"
        yield Case(f"raw snappy of {size}", told, words if size <= BOUND else BEYOND)


# --- lz4 --------------------------------------------------------------------------------------------------


def _lz4(lie: Lie, plain: bytes, payload: bytes) -> str | None:
    assert lie.value is not None
    if lie.field.name == "lz4 content size":
        return READ  # nobody looks at it
    size = lie.value & 0x7FFFFFFF
    if size == 0:
        return READ if lie.field.name == "lz4 end mark" else None
    if size > 65536:
        return re.escape(f"lz4 block of {size} bytes exceeds the frame's 65536")
    if size + 4 > lie.field.left:
        return re.escape(f"lz4 block of {size} bytes exceeds the {lie.field.left} left")
    return None


def _lz4_dictionary(magic: int, plain: bytes) -> Iterator[Case]:
    """The flag of a dictionary id, with and without the four bytes of one; a content size under a wrong checksum."""
    payload, _ = framings.framed(3, plain)
    words = "lz4 frame descriptor 79 40 is not one that Kafka reads"
    for more in (b"", bytes(4), b"\xff" * 4):
        told = payload[:4] + b"\x79" + payload[5:14] + more + payload[14:]
        yield Case(f"lz4 dictionary id {more.hex()}", framings.lz4_repaired(told), words)
    for size in (0, 1, len(plain) - 1, len(plain) + 1, 2**31 - 1, 2**63, 2**64 - 1):
        told = payload[:6] + struct.pack("<Q", size) + payload[14:]
        sound = framings.lz4_repaired(told) == told
        words = "lz4 frame descriptor checksum is [0-9a-f]{2}, expected the stored [0-9a-f]{2}"
        yield Case(f"lz4 content size {size}, checksum left", told, READ if magic == 0 or sound else words)


# --- zstd -------------------------------------------------------------------------------------------------


def _zstd(lie: Lie, plain: bytes, payload: bytes) -> str | None:
    assert lie.value is not None
    name, left = lie.field.name, lie.field.left
    stated = int.from_bytes(lie.raw, "little")
    if name == "zstd skippable length":
        return NOT_WHOLE if stated > left else None
    if name.startswith("zstd content size"):
        stated += 256 if len(lie.raw) == 2 else 0
        return NOT_WHOLE if stated > left else LIBRARY[4]
    return NOT_WHOLE if stated >> 3 > left else None


def _zstd_sizes(magic: int, plain: bytes) -> Iterator[Case]:
    """Content sizes of every width, and a dictionary id, which needs a dictionary."""
    plain = plain * (256 // len(plain) + 1)  # two bytes state 256 and more
    for width in (1, 2, 4, 8):
        if width == 1 and len(plain) > 255:
            continue
        payload, found = framings.zstd_frame(plain, width)
        for lie in all_lies(payload, found):
            yield Case(f"{lie} of {len(plain)}", lie.told(payload), _zstd(lie, plain, payload))
    for code, width in ((1, 1), (2, 2), (3, 4)):
        payload, _ = framings.zstd_frame(plain)
        told = payload[:4] + bytes([payload[4] | code]) + b"\x07" * width + payload[5:]
        yield Case(f"zstd dictionary id of {width} bytes", told, LIBRARY[4])
