"""A length or count field, and what a liar would write into it."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from support.sets import generate

I32_MIN, I32_MAX = -(2**31), 2**31 - 1
LONG_VARINTS = (
    b"\xff\xff\xff\xff\x0f",
    b"\x80\x80\x80\x80\x70",  # what does not fit is dropped
    b"\x80\x80\x80\x80\x80\x01",
    b"\xff" * 9 + b"\x01",
    b"\x80" * 10 + b"\x01",
)


class Field(NamedTuple):
    """A length or count: where it lies, how it is written, and what the format allows it at most."""

    name: str
    at: int
    size: int
    kind: str  # "varint", "plain" (varint of an unsigned number), "block" (a zstd block's header) or a struct format
    left: int

    def write(self, value: int) -> bytes:
        """The value as the field's bytes."""
        if self.kind == "varint":
            return generate.varint(value)
        if self.kind == "plain":
            return generate.plain_varint(value % 2**32)
        if self.kind == "block":  # a raw block, the last one
            return struct.pack("<I", (value % 2**21) << 3 | 1)[:3]
        bits = 8 * struct.calcsize(self.kind)
        return struct.pack(self.kind, value % 2**bits if self.kind[-1].isupper() else value)


class Lie(NamedTuple):
    """A field, the value that it is given (None: bytes that no value has), and those bytes."""

    field: Field
    value: int | None
    raw: bytes

    def told(self, data: bytes) -> bytes:
        """The data with the field overwritten."""
        return data[: self.field.at] + self.raw + data[self.field.at + self.field.size :]

    def __str__(self) -> str:
        return f"{self.field.name} at {self.field.at} := {self.raw.hex()}"


def all_lies(data: bytes, fields: list[Field]) -> Iterator[Lie]:
    """Every field at every extreme that changes something."""
    for field in fields:
        values = dict.fromkeys((I32_MIN, -2, -1, 0, 1, field.left - 1, field.left, field.left + 1, I32_MAX))
        told = [Lie(field, value, field.write(value)) for value in values]
        if field.kind in ("varint", "plain"):
            told += [Lie(field, None, raw) for raw in LONG_VARINTS]
        for lie in told:
            if lie.told(data) != data:
                yield lie
