"""Answers that no leader gives: an error that says so, a log that stays sound, and all is well when the leader is."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.broker.follow_serving import Copy, KtsLeader, copying
from support.golden import scaled
from support.processes.cli_runs import run

import kts
from kts.broker import wire
from kts.broker.wire.messages import ApiKey

pytestmark = pytest.mark.slow

SESSIONS = scaled(20, 50)
NUMBERS = [-1, -2, 0, 1, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63), 1000, 2**40]
HEADER_BYTES = 21  # of a batch, without the attributes and what else its CRC covers


@pytest.fixture
def leader(tmp_path: Path, rng: random.Random) -> Iterator[KtsLeader]:
    with KtsLeader(tmp_path / "leader") as leader:
        leader.create("t")
        leader.produce("t", rng, 60)
        yield leader


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Where everything in a body lies: (container, key)."""
    for key in list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, key
        yield from places(value[key])


def another(value: Any, rng: random.Random) -> Any:
    """Something else of the same type."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return rng.choice([*NUMBERS, value + 1, value - 1, rng.randrange(300)])
    if isinstance(value, str):
        return rng.choice(["", "t", "../t", value + "x", value[:-1], "x" * 1000])
    if isinstance(value, list):
        return rng.choice([[], value * 2, value[1:], value * 50])
    if isinstance(value, bytes | memoryview):
        return damaged(bytes(value), rng)
    return value


def damaged(records: bytes, rng: random.Random) -> bytes:
    """Batches with some bits turned where a CRC covers them, or not all of them."""
    found = bytearray(records)
    if len(found) < 100:
        return bytes(found)
    if rng.random() < 0.3:
        return bytes(found[: rng.randrange(len(found))])
    headers = kts.scan_batches(bytes(found))
    at = rng.randrange(headers.num_rows)
    start, size = headers["position"][at].as_py(), headers["sizeInBytes"][at].as_py()
    found[start + rng.randrange(HEADER_BYTES, size)] ^= 1 << rng.randrange(8)
    return bytes(found)


class Lies:
    """An answer in two is not what the leader said."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.told = 0

    def fields(self, api: int, version: int, frame: bytes) -> bytes | None:
        """Another value in a field or two."""
        if self.rng.random() < 0.5:
            return struct.pack(">i", len(frame)) + frame
        correlation, body = wire.decode_response(api, version, memoryview(frame))
        for _ in range(self.rng.randint(1, 2)):
            container, key = self.rng.choice(list(places(body)))
            container[key] = another(container[key], self.rng)
        self.told += 1
        try:
            chunks = wire.encode_response(api, version, correlation, body)
        except kts.InvalidRequestError:  # no such number in that field
            return None
        return b"".join(bytes(chunk) if isinstance(chunk, bytes | memoryview) else chunk.read() for chunk in chunks)

    def bytes(self, api: int, version: int, frame: bytes) -> bytes | None:
        """Bits turned, bytes missing, sizes that are none."""
        found, way = bytearray(frame), self.rng.randrange(6)
        head = 12 if api == ApiKey.FETCH else len(found)  # what is behind has batches, whose headers no CRC covers
        size = len(found)
        if way == 0:
            for _ in range(self.rng.randint(1, 3)):
                found[self.rng.randrange(min(head, len(found)))] ^= 1 << self.rng.randrange(8)
        elif way == 1:
            size = self.rng.choice([-1, 0, 3, -(2**31), 2**31 - 1, size + 1000, size // 2])
        elif way == 2:
            del found[self.rng.randrange(len(found)) :]
            size = self.rng.choice([size, len(found)])
        elif way == 3:
            found = bytearray(self.rng.randbytes(len(found)))
        self.told += way < 4
        return struct.pack(">i", size) + bytes(found)


def check_sound(copy: Copy, leader: KtsLeader) -> None:
    """Every record is the leader's, none is missing in between, and the end is the leader's end."""
    rows = [
        kts.decode(data, ["offset", "timestamp", "key", "value"]).to_pylist()
        for data in (copy.bytes, b"".join(log for name, log in leader.files("t").items() if name.endswith(".log")))
    ]
    theirs = {row["offset"]: row for row in rows[1]}
    assert all(theirs[row["offset"]] == row for row in rows[0])
    held = [row["offset"] for row in rows[0] if row["offset"] >= copy.log.log_start_offset]
    assert held == list(range(copy.log.log_start_offset, copy.log.log_end_offset))
    assert copy.log.log_end_offset == leader.log("t").log_end_offset


@pytest.mark.parametrize("kind", ["fields", "bytes"])
def test_lies_leave_a_sound_copy(kind: str, leader: KtsLeader, tmp_path: Path, rng: random.Random) -> None:
    lies = Lies(rng)
    errors: set[str] = set()
    truth = leader.proxy.answer
    for session in range(SESSIONS):
        folder = tmp_path / f"copy-{session // 5}"
        leader.proxy.answer = getattr(lies, kind)
        with copying(leader.address, folder, "t", max_frame_bytes=1 << 20, timeout_s=0.1) as copy:
            for _ in range(rng.randrange(12)):
                copy.fetcher.step()
            errors |= {type(each.error).__name__ for each in copy.fetcher.troubles.values()}
            assert all(isinstance(each, kts.KtsError) for each in copy.fetcher.failed.values())
        assert run("verify", folder).exit_code == 0
        if session % 5 == 4:
            leader.proxy.answer = truth
            with copying(leader.address, folder, "t") as copy:
                copy.fetcher.catch_up()
                check_sound(copy, leader)
    print(f"{lies.told} lies, {sorted(errors)}")
    assert lies.told > SESSIONS and len(errors) > 1


def test_damaged_records_are_refused_whole_and_said(leader: KtsLeader, tmp_path: Path) -> None:
    truth = leader.proxy.answer

    def flip(api: int, version: int, frame: bytes) -> bytes | None:
        found = bytearray(frame)
        if api == ApiKey.FETCH:
            body = wire.decode_response(api, version, memoryview(frame))[1]
            records = bytes(body["responses"][0]["partitions"][0]["records"])
            headers = kts.scan_batches(records)
            last = headers.num_rows - 1
            end = headers["position"][last].as_py() + headers["sizeInBytes"][last].as_py()
            found[frame.index(records) + end - 1] ^= 4  # the rest of the answer is right
        return truth(api, version, bytes(found))

    leader.proxy.answer = flip
    with copying(leader.address, tmp_path / "copy", "t") as copy:
        with pytest.raises(kts.CorruptRecordError, match="CRC"):
            copy.fetcher.catch_up()
        assert copy.log.log_end_offset == 0 and copy.bytes == b""
        assert copy.said[0].startswith("t-0: ") and len(copy.said) == 1
