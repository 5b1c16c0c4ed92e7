"""Requests that a hostile or broken client sends: valid ones of every API and version, damaged in one to three places.

``malformed_requests`` yields frames without their size, for the decoder, the handlers or a socket alike.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator

from support.broker.wire_bodies import frame_of, random_body

from kts.broker.wire.messages import MESSAGES

HOSTILE = [
    struct.pack(">i", value) for value in (-1, -2, 0x7FFFFFFF, -0x80000000, 0x7FFFFFF0, 0x00FFFFFF, 0xFFFF, 1, 0)
]
HOSTILE += [struct.pack(">h", value) for value in (-1, -2, 0x7FFF, -0x8000, 0x0FFF, 1)]
HOSTILE += [b"\x00", b"\x01", b"\x7f", b"\x80", b"\xff", b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x07"]
HOSTILE += [
    b"\xff\xff\xff\xff\xff",
    b"\x80\x80\x80\x80\x00",
    b"\x80\x80\x80\x80\x80\x01",
    b"\xff" * 12,
    b"\xfe\xff\xff\x7f",
]
Damage = Callable[[random.Random, bytearray, int], None]


def _overwrite(rng: random.Random, frame: bytearray, at: int) -> None:
    value = HOSTILE[int(rng.random() * len(HOSTILE))]
    frame[at : at + len(value)] = value


def _flip(rng: random.Random, frame: bytearray, at: int) -> None:
    frame[at] ^= 1 << int(rng.random() * 8)


def _cut(rng: random.Random, frame: bytearray, at: int) -> None:
    del frame[at:]


def _remove(rng: random.Random, frame: bytearray, at: int) -> None:
    del frame[at : at + 1 + int(rng.random() * 8)]


def _insert(rng: random.Random, frame: bytearray, at: int) -> None:
    frame[at:at] = HOSTILE[int(rng.random() * len(HOSTILE))]


def _repeat(rng: random.Random, frame: bytearray, at: int) -> None:
    frame[at:at] = frame[at : at + 40]


def _number(rng: random.Random, frame: bytearray, at: int) -> None:
    frame[0:4] = struct.pack(">hh", int(rng.random() * 70) - 2, int(rng.random() * 22) - 2)


DAMAGES: list[Damage] = [_overwrite, _overwrite, _overwrite, _flip, _flip, _cut, _remove, _insert, _repeat, _number]


def valid_requests(rng: random.Random, of_each: int = 3) -> list[bytes]:
    """Frames of every API and version."""
    return [
        frame_of(message, version, False, random_body(rng, message.request, version))
        for message in MESSAGES.values()
        for version in message.versions
        for _ in range(of_each)
    ]


def malformed_requests(rng: random.Random, count: int, valid: list[bytes] | None = None) -> Iterator[bytes]:
    """``count`` damaged frames without their size; by chance some are still well formed, or another request."""
    frames = valid or valid_requests(rng)
    draw = rng.random
    for _ in range(count):
        frame = bytearray(frames[int(draw() * len(frames))])
        for _ in range(1 + int(draw() * 3)):
            if len(frame):
                # The first bytes decide most: half of all damages are there.
                reach = len(frame) if draw() < 0.5 else min(len(frame), 48)
                DAMAGES[int(draw() * len(DAMAGES))](rng, frame, int(draw() * reach))
        yield bytes(frame)
