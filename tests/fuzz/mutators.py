"""New bytes from old ones, without knowing what they mean."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence

from support.sets import generate

I64 = 2**63
NUMBERS = sorted(
    {0, 1, -1, -2, 2, 5, 7, 10, 11, 12, 14, 16, 17, 22, 26, 34, 49, 61, 63, 64, 65, 100, 255, 256, 4096, 65535, 65536}
    | {(1 << bits) + d for bits in (7, 8, 14, 15, 16, 20, 21, 28, 31, 32, 62) for d in (-1, 0, 1)}
    | {-(1 << bits) + d for bits in (7, 8, 14, 15, 16, 20, 21, 28, 31, 32, 62) for d in (-1, 0, 1)}
    | {I64 - 1, -I64, I64 - 12}
)
BYTES = (0, 1, 2, 3, 4, 7, 8, 15, 16, 32, 64, 127, 128, 129, 130, 192, 240, 254, 255)
WORDS = (
    b"\x1f\x8b\x08\x00",
    b"\x1f\x8b\x08\x1e",
    b"\x82SNAPPY\0",
    b"\x82SNAPPY\0\0\0\0\1\0\0\0\1",
    b"\x82SNA",
    b"\x04\x22\x4d\x18",
    b"\x04\x22\x4d\x18\x60\x40\x82",
    b"\x60\x40\x82",
    b"\x68\x40",
    b"\x74\x70",
    b"\0\0\0\0",
    b"\0\0\0\x80",
    b"\x28\xb5\x2f\xfd",
    b"\x28\xb5\x2f\xfd\x00",
    b"\x28\xb5\x2f\xfd\x20\x00\x01\x00\x00",
    b"\x28\xb5\x2f\xfd\xa0",
    b"\x50\x2a\x4d\x18\0\0\0\0",
    b"\x5f\x2a\x4d\x18",
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\x80\x80\x80\x80\x08",
    b"\xff\xff\xff\xff\x0f",
    b"\x80" * 9 + b"\x01",
    b"\xff" * 9 + b"\x01",
    b"\xff" * 10 + b"\x01",
    b"\xed\xa0\x80",
    b"\xf4\x90\x80\x80",
    b"\xf0\x9f\x98\x80",
    b"\xe2\x82",
    b"\xc0\xaf",
)


def number(rng: random.Random, bits: int = 64) -> int:
    """Small, at an edge, or anything."""
    kind = rng.random()
    if kind < 0.7:
        value = rng.choice(NUMBERS) + rng.choice((0, 0, 0, 1, -1))
    elif kind < 0.9:
        value = rng.randrange(-20, 200)
    else:
        value = rng.getrandbits(bits)
    return generate.wrap(value, bits)


def packed(rng: random.Random, value: int, width: int) -> bytes:
    """Big-endian (mostly), in so many bytes."""
    return (value % (1 << 8 * width)).to_bytes(width, "little" if rng.random() < 0.25 else "big")


def set_bit(rng: random.Random, out: bytearray, other: bytes) -> None:
    out[rng.randrange(len(out))] ^= 1 << rng.randrange(8)


def set_byte(rng: random.Random, out: bytearray, other: bytes) -> None:
    out[rng.randrange(len(out))] = rng.choice(BYTES) if rng.random() < 0.5 else rng.randrange(256)


def add_to_byte(rng: random.Random, out: bytearray, other: bytes) -> None:
    at = rng.randrange(len(out))
    out[at] = (out[at] + rng.choice((1, -1, 2, -2, 4, 8, 16, -16, 35, -35))) % 256


def set_number(rng: random.Random, out: bytearray, other: bytes) -> None:
    width = rng.choice((2, 4, 4, 4, 8))
    at = rng.randrange(len(out))
    out[at : at + width] = packed(rng, number(rng), width)[: len(out) - at]


def add_to_number(rng: random.Random, out: bytearray, other: bytes) -> None:
    width = rng.choice((2, 4, 4, 8))
    if len(out) >= width:
        at = rng.randrange(len(out) - width + 1)
        value = int.from_bytes(out[at : at + width], "big")
        value += rng.choice((1, -1, 2, 7, -7, 12, -12, len(out), -len(out)))
        out[at : at + width] = (value % (1 << 8 * width)).to_bytes(width, "big")


def set_length(rng: random.Random, out: bytearray, other: bytes) -> None:
    """Write how much is left, or nearly, as an int32 or a varint."""
    at = rng.randrange(len(out))
    left = len(out) - at - 4 + rng.randrange(-2, 3)
    out[at : at + 4] = struct.pack(">i", left)
    if rng.random() < 0.5:
        raw = generate.varint(left + 3)
        out[at : at + 4] = raw


def edit_varint(rng: random.Random, out: bytearray, other: bytes) -> None:
    """Replace the varint that begins anywhere by a neighbour, by any other, or by a longer form of itself."""
    at = end = rng.randrange(len(out))
    raw = shift = 0
    while end < len(out) and shift < 64:
        raw |= (out[end] & 127) << shift
        shift += 7
        end += 1
        if out[end - 1] < 128:
            break
    value = (raw >> 1) ^ -(raw & 1)
    how = rng.randrange(4)
    if how == 0:
        value += rng.choice((1, -1, 2, -2, 64, -64))
    elif how == 1:
        value = number(rng)
    out[at:end] = generate.varint(generate.wrap(value), rng.randrange(1, 9) if how == 2 else 0)


def drop(rng: random.Random, out: bytearray, other: bytes) -> None:
    at = rng.randrange(len(out))
    del out[at : at + size(rng, len(out))]


def cut(rng: random.Random, out: bytearray, other: bytes) -> None:
    del out[rng.randrange(len(out)) :]


def repeat(rng: random.Random, out: bytearray, other: bytes) -> None:
    at = rng.randrange(len(out))
    piece = out[at : at + size(rng, len(out))]
    to = at + len(piece) if rng.random() < 0.5 else rng.randrange(len(out))
    out[to:to] = piece * rng.choice((1, 1, 1, 2, 3, 10))


def insert(rng: random.Random, out: bytearray, other: bytes) -> None:
    at = rng.randrange(len(out) + 1)
    n = size(rng, 100)
    out[at:at] = rng.choice((rng.randbytes(n), bytes(n), b"\xff" * n, b"\x80" * n))


def insert_word(rng: random.Random, out: bytearray, other: bytes) -> None:
    at = rng.randrange(len(out) + 1)
    word = rng.choice(WORDS)
    out[at : at + (len(word) if rng.random() < 0.5 else 0)] = word


def move(rng: random.Random, out: bytearray, other: bytes) -> None:
    at, to, n = rng.randrange(len(out)), rng.randrange(len(out)), size(rng, len(out))
    piece = bytes(out[at : at + n])
    out[to : to + len(piece)] = piece


def splice(rng: random.Random, out: bytearray, other: bytes) -> None:
    """A piece of another input, in place of some of ours or between."""
    if other:
        at, start = rng.randrange(len(out) + 1), rng.randrange(len(other))
        piece = other[start : start + size(rng, len(other))]
        out[at : at + rng.choice((0, len(piece)))] = piece


def cross(rng: random.Random, out: bytearray, other: bytes) -> None:
    out[rng.randrange(len(out)) :] = other[rng.randrange(len(other) + 1) :]


MUTATORS = (
    *(set_bit, set_byte, add_to_byte, set_number, add_to_number, set_length, edit_varint, edit_varint, drop, cut),
    *(repeat, insert, insert_word, move, splice, splice, cross),
)


def size(rng: random.Random, most: int) -> int:
    """Mostly small."""
    return rng.randint(1, max(1, min(most, rng.choice((1, 2, 4, 8, 12, 16, 32, 64, 1024)))))


def mutate(rng: random.Random, data: bytes, others: Sequence[bytes], times: int) -> bytes:
    """The data after a few mutations; ``others`` are inputs to take pieces from."""
    out = bytearray(data)
    for _ in range(times):
        if not out:
            out += rng.randbytes(rng.randrange(1, 9))
        rng.choice(MUTATORS)(rng, out, rng.choice(others) if others else b"")
    return bytes(out)
