"""Every length and count field of messages, wrappers, batches and records at every extreme, and what must come of it.

A case's verdict is written down here, from the format's rule; where the bytes behind a lie decide (a shorter key turns
its rest into the value's length), it is None, and the reference decoder alone says.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import crc32c
from support.damage import fields, framing_cases
from support.damage.false_lengths import I32_MAX, Field, Lie, all_lies
from support.sets import generate

READ = "read"
ENDS = "the record ends inside a field, 0 bytes before its end"
LARGEST = I32_MAX - 12
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
RECS = (
    generate.Rec(0, 0, b"key-0", b"value of zero", [(b"h", b"x"), (b"name", None)]),
    generate.Rec(1, 5, None, b"v" * 70),
)


class Case(NamedTuple):
    """Bytes, what was done to them, and READ, a pattern of the error's words, or None."""

    name: str
    data: bytes
    verdict: str | None


def exactly(text: str) -> str:
    return re.escape(text)


@cache
def cases(magic: int, codec: int) -> list[Case]:
    """All cases of a magic and codec, none twice."""
    made = _batch_cases(codec) if magic == 2 else _message_cases(magic, codec)
    found: dict[bytes, Case] = {}
    for case in made:
        found.setdefault(case.data, case)
    return list(found.values())


def all_shapes() -> list[tuple[int, int]]:
    """Every magic with every codec that it can carry."""
    return [(magic, codec) for magic in range(3) for codec in range(5) if codec < 4 or magic == 2]


# --- batches --------------------------------------------------------------------------------------------


def _batch_cases(codec: int) -> Iterator[Case]:
    sizes = [len(generate.record(i, rec.timestamp, rec)) for i, rec in enumerate(RECS)]
    plain = b"".join(generate.record(i, rec.timestamp, rec) for i, rec in enumerate(RECS))
    payload = framing_cases.simple(codec, plain)
    entry = generate.batch(payload, 2, attributes=codec, last_delta=1, base_time=1000, max_time=1005)
    for lie in all_lies(entry, fields.batch_fields(entry, plain)):
        told = lie.told(entry)
        yield Case(str(lie), generate.reseal(told), _batch_rule(lie, entry, plain, sizes))
        if lie.field.name != "batch length":
            crc = crc32c.crc32c(told[21:])
            stored = int.from_bytes(entry[17:21], "big")
            yield Case(f"{lie}, CRC left", told, exactly(f"CRC is {crc:08x}, expected the stored {stored:08x}"))
    found = fields.record_fields(plain, 2)
    for lie in all_lies(plain, found):
        for name, changed, verdict in _record_lies(lie, plain, found):
            yield Case(name, fields.rebuild(entry, framing_cases.simple(codec, changed)), verdict)
    for case in framing_cases.cases(codec, 2, plain):
        yield Case(case.name, fields.rebuild(entry, case.payload), case.verdict)


def _batch_rule(lie: Lie, entry: bytes, plain: bytes, sizes: list[int]) -> str | None:
    value, name = lie.value, lie.field.name
    assert value is not None
    if name == "batch length":
        if value < 14:
            return exactly(f"size {value} is below the smallest message (14 bytes)")
        if value > LARGEST:
            return exactly(f"size {value} exceeds the largest entry Kafka can hold (2147483635 bytes)")
        return READ if value > lie.field.left else None
    if name == "record count":
        if value < 0:
            return exactly(f"record count {value} is negative")
        if 7 * value > len(plain):
            return exactly(f"record count {value} does not fit the {len(plain)} bytes of records")
        if value < len(sizes):
            left = sum(sizes[value:])
            return exactly(f"{left} bytes are left after the {value} records that the batch declares")
        return exactly(f"record 2 of {value}: {ENDS}")
    return READ  # the last offset delta and the base sequence are what they are


def _record_lies(lie: Lie, plain: bytes, found: list[Field]) -> Iterator[tuple[str, bytes, str | None]]:
    """The lie with the record's own length left, and made to fit where the lie takes more bytes or fewer."""
    name = lie.field.name
    i, what = int(name.split()[1]), name.split(maxsplit=2)[2]
    grown = len(lie.raw) - lie.field.size
    length = next(field for field in found if field.name == f"record {i} length")
    stated = value32(plain[length.at : length.at + length.size]) or 0
    told = lie.told(plain)
    yield str(lie), told, _record_rule(what, lie, i, 0 if what == "length" else grown, stated, False)
    if grown and what != "length":
        fitted = plain[: length.at] + generate.varint(stated + grown) + told[length.at + length.size :]
        yield f"{lie}, record length fitted", fitted, _record_rule(what, lie, i, 0, stated + grown, True)


def value32(raw: bytes) -> int | None:
    """What a varint of at most five bytes says; None for longer ones."""
    if len(raw) > 5:
        return None
    bits = sum((byte & 127) << 7 * n for n, byte in enumerate(raw)) & 0xFFFFFFFF
    return (bits >> 1) ^ -(bits & 1)


def _record_rule(what: str, lie: Lie, i: int, grown: int, length: int, fitted: bool) -> str | None:
    left = lie.field.left - grown
    where = f"record {i} of 2: "
    if left < 0:
        return None  # the lie itself no longer fits the record
    if what == "timestamp delta":
        if len(lie.raw) > 10:
            return exactly(f"{where}a varint has no end within 10 bytes")
        return READ if fitted or len(lie.raw) == lie.field.size else None
    value = value32(lie.raw)
    if value is None:
        return exactly(f"{where}a varint has no end within 5 bytes")
    if what == "offset delta":
        return READ if fitted or len(lie.raw) == lie.field.size else None
    if what == "length":
        if not 0 <= value <= left:
            return exactly(f"{where}record length {value} exceeds the {left} bytes left")
        return exactly(f"{where}{ENDS}") if value < 2 else None
    if what == "header count":
        if not 0 <= value <= left:
            return exactly(f"{where}header count {value} does not fit the {left} bytes left")
        if value == 0 and left:
            return exactly(f"{where}record length {length} leaves {left} bytes after the record's last field")
        return exactly(f"{where}{ENDS}") if value and not left else None
    part = "header " + what.split()[2] if what.startswith("header") else what.split()[0]
    if part == "header key" and not 0 <= value <= left:
        return exactly(f"{where}header key length {value} does not fit the {left} bytes left")
    if value > left:
        return exactly(f"{where}{part} length {value} exceeds the {left} bytes left")
    if value == left and part != "header value":
        return exactly(f"{where}{ENDS}")
    return None


# --- messages -------------------------------------------------------------------------------------------


def _message_cases(magic: int, codec: int) -> Iterator[Case]:
    inner = [generate.message(i, magic, 0, 1000 + i, rec.key, rec.value) for i, rec in enumerate(RECS)]
    plain = b"".join(inner)
    entry = generate.message(1, magic, codec, 1001, None, framing_cases.simple(codec, plain)) if codec else inner[0]
    for lie in all_lies(entry, fields.message_fields(entry)):
        told = lie.told(entry)
        yield Case(str(lie), generate.reseal(told), _message_rule(lie, magic, codec))
        if lie.field.name != "message size":
            crc, stored = zlib.crc32(told[16:]), int.from_bytes(entry[12:16], "big")
            yield Case(f"{lie}, CRC left", told, exactly(f"CRC is {crc:08x}, expected the stored {stored:08x}"))
    if not codec:
        return
    for lie in all_lies(plain, fields.inner_fields(plain)):
        i = int(lie.field.at >= len(inner[0]))
        told = _inner_resealed(lie.told(plain), plain, i, len(inner[0]))
        verdict = _inner_rule(lie, magic, i)
        yield Case(f"inner {lie}", fields.rebuild(entry, framing_cases.simple(codec, told)), verdict)
        if lie.field.name != "message size":
            at, left = (len(inner[0]), lie.told(plain)) if i else (0, lie.told(plain)[: len(inner[0])])
            crc, stored = zlib.crc32(left[at + 16 :]), int.from_bytes(plain[at + 12 : at + 16], "big")
            words = f"inner message {i}: inner message CRC is {crc:08x}, expected the stored {stored:08x}"
            changed = fields.rebuild(entry, framing_cases.simple(codec, lie.told(plain)))
            yield Case(f"inner {lie}, CRC left", changed, exactly(words))
    for case in framing_cases.cases(codec, magic, plain):
        yield Case(case.name, fields.rebuild(entry, case.payload), case.verdict)


def _inner_resealed(told: bytes, plain: bytes, i: int, first: int) -> bytes:
    """The CRC of inner message i computed over the bytes that its (perhaps false) size says."""
    at = first if i else 0
    size = struct.unpack_from(">i", told, at + 8)[0]
    end = at + 12 + size if 14 <= size <= len(told) - at - 12 else len(told) if i else first
    return told[: at + 12] + struct.pack(">I", zlib.crc32(told[at + 16 : end])) + told[at + 16 :]


def _parts_rule(lie: Lie) -> str | None:
    """Key and value of a message."""
    value, left = lie.value, lie.field.left
    assert value is not None
    if value > left:
        return f"{lie.field.name} {value} exceeds the {left} bytes left"
    if lie.field.name == "value length":
        return f"value length {value} leaves {left - max(0, value)} bytes after the message's value"
    return None


def _message_rule(lie: Lie, magic: int, codec: int) -> str | None:
    value, left = lie.value, lie.field.left
    assert value is not None
    if lie.field.name != "message size":
        words = _parts_rule(lie)
        return None if words is None else exactly(words)
    if value < 14:
        return exactly(f"size {value} is below the smallest message (14 bytes)")
    if value > LARGEST:
        return exactly(f"size {value} exceeds the largest entry Kafka can hold (2147483635 bytes)")
    return READ if value > left else None


def _inner_rule(lie: Lie, magic: int, i: int) -> str | None:
    value, left = lie.value, lie.field.left
    assert value is not None
    if lie.field.name != "message size":
        words = _parts_rule(lie)
        return None if words is None else exactly(f"inner message {i}: {words}")
    if value < 14:
        return exactly(f"inner message {i}: inner message size {value} is below the smallest message (14 bytes)")
    if value > left:  # the inner tail is cut, as Kafka has it
        return READ if i else exactly("a compressed message holds no inner message")
    return None
