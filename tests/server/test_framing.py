"""Frames out of bytes that come in any pieces, and nothing on the word of a length."""

from __future__ import annotations

import random
import struct
import tracemalloc

import pytest

from kts.errors import InvalidRequestError, UnsupportedVersionError
from kts.server.framing import RECEIVED_AT_ONCE, SCRATCH_BYTES, Framing

MOST = 1 << 22


def limit(api_key: int) -> int:
    if api_key > 60:
        raise UnsupportedVersionError(f"expected an API key up to 60, found {api_key}")
    return MOST if api_key == 0 else MOST // 4


def framing(scratch_bytes: int = SCRATCH_BYTES) -> Framing:
    return Framing(memoryview(bytearray(scratch_bytes)), limit)


def feed(frames: Framing, data: bytes, pieces: random.Random | None = None) -> list[bytes]:
    """What comes out when the bytes arrive as the buffer takes them, or in smaller pieces."""
    found, position = [], 0
    while position < len(data):
        buffer = frames.buffer()
        assert len(buffer) > 0
        count = min(len(buffer), len(data) - position)
        if pieces is not None:
            count = pieces.randint(1, min(count, pieces.choice([1, 3, 10, 5000, 1 << 30])))
        buffer[:count] = data[position : position + count]
        del buffer
        position += count
        frames.received(count)
        while (frame := frames.frame()) is not None:
            found.append(bytes(frame))
    return found


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def test_frames_come_out_as_they_went_in_however_their_bytes_arrive(rng: random.Random) -> None:
    for _ in range(60):
        sizes = [rng.choice([2, 3, 9, 100, 5000, 65536, 65532, 65533, 300_000, rng.randint(2, 1 << 20)])
                 for _ in range(rng.randint(1, 8))]  # fmt: skip
        bodies = [b"\0\0" + rng.randbytes(size - 2) for size in sizes]
        frames = framing(rng.choice([64, 1000, SCRATCH_BYTES]))
        pieces = rng if sum(sizes) < 100_000 else None
        assert feed(frames, b"".join(map(framed, bodies)), pieces) == bodies
        assert not frames.waiting
        assert frames.held_bytes == 0


def test_a_whole_frame_is_announced_before_it_is_taken(rng: random.Random) -> None:
    for size in (2, 50, 200_000):
        frames = framing()
        data = framed(bytes(size)) + framed(bytes(20))
        position = 0
        while position < len(data):
            buffer = frames.buffer()
            count = min(len(buffer), len(data) - position, rng.randint(1, 60_000))
            buffer[:count] = data[position : position + count]
            del buffer
            position += count
            frames.received(count)
            for _ in range(3):
                whole = frames.whole
                given = frames.frame()
                assert whole == (given is not None)
        assert not frames.waiting


@pytest.mark.parametrize("size", [-(2**31), -1, 0, 1, MOST + 1, 2**31 - 1])
def test_a_size_that_no_request_has_is_refused_with_the_size(size: int) -> None:
    with pytest.raises(InvalidRequestError, match=f"found {size}$"):
        feed(framing(), struct.pack(">ih", size, 0))


def test_only_requests_with_records_may_be_as_large_as_the_setting() -> None:
    assert feed(framing(), struct.pack(">ih", MOST, 0)) == []
    with pytest.raises(InvalidRequestError, match=f"at most {MOST // 4} bytes for API key 3, found {MOST}"):
        feed(framing(), struct.pack(">ih", MOST, 3))


def test_an_api_that_nobody_serves_is_refused_before_its_bytes_are_there() -> None:
    with pytest.raises(UnsupportedVersionError, match="found 61"):
        feed(framing(), struct.pack(">ih", 1000, 61))


def test_a_claimed_length_takes_no_memory_until_its_bytes_are_there() -> None:
    body = bytes(MOST)
    data = framed(body)
    frames = framing()
    feed(frames, data[:6])
    tracemalloc.start()
    try:
        for sent in (6, 1000, SCRATCH_BYTES, 500_000, MOST - 1):
            frames = framing()
            feed(frames, data[:sent])
            assert frames.held_bytes <= sent
            assert frames.filled_bytes + 4 >= sent
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 4 * MOST


def test_a_large_frame_is_received_into_the_buffer_that_is_given_out() -> None:
    frames = framing()
    body = b"\0\0" + bytes(range(256)) * 4096
    assert feed(frames, framed(body)[:SCRATCH_BYTES]) == []
    assert len(frames.buffer()) <= RECEIVED_AT_ONCE
    rest = framed(body)[SCRATCH_BYTES:]
    given = None
    while rest:
        buffer = frames.buffer()
        count = min(len(buffer), len(rest))
        buffer[:count] = rest[:count]
        owner = buffer.obj
        del buffer
        rest = rest[count:]
        frames.received(count)
        given = frames.frame()
    assert given is not None
    assert given.obj is owner
    assert given == body


def test_what_comes_before_anybody_asks_is_held_in_one_buffer_and_counted(rng: random.Random) -> None:
    frames = framing()
    body = b"\0\0" + rng.randbytes(MOST - 2)
    data = framed(b"\0\3first") + framed(body)
    first = None
    while data:
        buffer = frames.buffer()
        count = min(len(buffer), len(data))
        buffer[:count] = data[:count]
        del buffer
        data = data[count:]
        frames.received(count)
        if first is None:
            first = frames.frame()  # it is being answered: nobody asks for more
        assert frames.whole == (not data)
        assert frames.held_bytes >= frames.filled_bytes - SCRATCH_BYTES
    assert first == b"\0\3first"
    assert frames.frame() == body


@pytest.mark.parametrize(
    "lie", [struct.pack(">ih", 2**31 - 1, 0), struct.pack(">ih", 1000, 61)], ids=["size", "API key"]
)
def test_nothing_is_received_behind_a_size_that_will_be_refused(lie: bytes) -> None:
    frames = framing()
    for data in (framed(b"\0\3first"), lie):
        frames.buffer()[: len(data)] = data
        frames.received(len(data))
    assert frames.frame() == b"\0\3first"
    assert frames.whole
    with pytest.raises((InvalidRequestError, UnsupportedVersionError)):
        frames.frame()
