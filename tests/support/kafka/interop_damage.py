"""Damage to sound record sets: anywhere with the CRCs left, or inside one entry with sizes and all CRCs made right."""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Callable, Sequence

from support.damage import fields
from support.reference import reference
from support.reference.reference_codecs import decompress
from support.sets import generate

MAX_BYTES = 4000  # of a set that is damaged; the damage is small, so larger ones would hide it


def damaged(rng: random.Random, sets: Sequence[bytes], count: int) -> list[bytes]:
    """So many sets, each damaged in one place or a few; half of them with right CRCs, inner ones included."""
    pool = [data for data in sets if 0 < len(data) <= MAX_BYTES]
    return [(_repaired if i % 2 else _left)(rng, rng.choice(pool)) for i in range(count)]


def _left(rng: random.Random, data: bytes) -> bytes:
    how = rng.randrange(10)
    if how == 0:
        return data[: rng.randrange(len(data))]
    if how == 1:
        other = bytearray(data)
        other[: rng.randrange(len(data))] = b""
        return bytes(other)
    if how == 2:
        return data + rng.choice((rng.randbytes(rng.randrange(1, 40)), bytes(rng.randrange(1, 40))))
    return _bytes(rng, data)


def _repaired(rng: random.Random, data: bytes) -> bytes:
    """One entry of the set damaged, the others as they were."""
    at, size, magic = rng.choice(list(reference.entries(data)))
    entry = data[at : at + size]
    codec = (entry[22] if magic == 2 else entry[17]) & 7
    hurt: list[Callable[[random.Random, bytes], bytes]] = [_header, _body, _body]
    if codec and size > 61:  # an empty batch has nothing inside
        hurt += [_inside] * 4 + [_framing]
    elif magic == 2 and not codec:
        hurt += [_inside]
    return data[:at] + rng.choice(hurt)(rng, entry) + data[at + size :]


def _bytes(rng: random.Random, data: bytes, lowest: int = 0) -> bytes:
    """One to three small changes from a position on."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        if len(out) <= lowest:
            break
        at = rng.randrange(lowest, len(out))
        how = rng.randrange(6)
        if how < 2:
            out[at] ^= 1 << rng.randrange(8)
        elif how == 2:
            out[at] = rng.choice((0, 1, 2, 127, 128, 255))
        elif how == 3:
            run = rng.choice((bytes(8), b"\xff" * 8, b"\x7f" + b"\xff" * 7, rng.randbytes(8)))
            run = run[: min(rng.choice((1, 2, 4, 8)), len(out) - at)]
            out[at : at + len(run)] = run
        elif how == 4:
            del out[at : at + rng.choice((1, 2, 4, 30))]
        else:
            out[at:at] = rng.choice((rng.randbytes(rng.randrange(1, 5)), bytes(out[at : at + 20])))
    return bytes(out)


def _sealed(entry: bytes) -> bytes:
    """The entry with its size and CRC made right."""
    return generate.reseal(entry[:8] + struct.pack(">i", len(entry) - 12) + entry[12:])


def _header(rng: random.Random, entry: bytes) -> bytes:
    """A header field that lies, or bits of the header turned over."""
    magic = entry[16]
    if rng.random() < 0.5:
        known = fields.batch_fields(entry) if magic == 2 else fields.message_fields(entry)
        return generate.reseal(rng.choice(list(fields.lies(entry, [rng.choice(known)])))[1])
    out = bytearray(entry)
    for _ in range(rng.choice((1, 1, 2))):
        out[rng.choice((*range(8), *range(12, min(len(out), 61 if magic == 2 else 34))))] ^= 1 << rng.randrange(8)
    return generate.reseal(bytes(out))


def _body(rng: random.Random, entry: bytes) -> bytes:
    """Bytes of the records, of a message's key or value, or of what is compressed."""
    return _sealed(_bytes(rng, entry, 61 if entry[16] == 2 else 18))


def _inside(rng: random.Random, entry: bytes) -> bytes:
    """What is compressed damaged before it is compressed, in any framing that the codec allows."""
    magic, codec, payload, around = _open(entry)
    plain = decompress(codec, magic, payload) if codec else payload
    if magic == 2:
        known = fields.record_fields(plain, struct.unpack_from(">i", entry, 57)[0])
    else:
        known = fields.inner_fields(plain) if codec else []
    if known and rng.random() < 0.5:
        plain = rng.choice(list(fields.lies(plain, [rng.choice(known)])))[1]
    else:
        plain = _bytes(rng, plain)
    if codec and magic < 2 and rng.random() < 0.8:
        plain = _inner_crcs(plain)
    return around(generate.compress(rng, codec, magic, plain) if codec else plain)


def _framing(rng: random.Random, entry: bytes) -> bytes:
    """The records as they were, in a frame with all optional fields, one of which lies."""
    magic, codec, payload, around = _open(entry)
    plain = decompress(codec, magic, payload)
    if len(plain) < 2 or len(plain) % 2:  # fields.framed cuts it in halves
        return _inside(rng, entry)
    framed, known = fields.framed(codec, plain)
    return around(rng.choice(list(fields.lies(framed, [rng.choice(known)])))[1])


def _open(entry: bytes) -> tuple[int, int, bytes, Callable[[bytes], bytes]]:
    """Magic, codec, what is compressed (records, or a message's value), and the entry around another of it."""
    magic = entry[16]
    if magic == 2:
        return 2, entry[22] & 7, entry[61:], lambda payload: _sealed(entry[:61] + payload)
    key_at = 26 if magic else 18
    value_at = key_at + 8 + max(0, *struct.unpack_from(">i", entry, key_at))
    before = entry[: value_at - 4]
    return magic, entry[17] & 7, entry[value_at:], lambda value: _sealed(before + struct.pack(">i", len(value)) + value)


def _inner_crcs(plain: bytes) -> bytes:
    """CRCs made right where the sizes, damaged or not, lead to whole inner messages."""
    out = bytearray(plain)
    at = 0
    while len(out) - at >= 16:
        size = int.from_bytes(out[at + 8 : at + 12], "big", signed=True)
        end = at + 12 + size
        if size < 4 or end > len(out):
            break
        out[at + 12 : at + 16] = struct.pack(">I", zlib.crc32(out[at + 16 : end]))
        at = end
    return bytes(out)
