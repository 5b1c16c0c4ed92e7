"""Payloads that decompress to 256 MiB, or claim 2 GiB and 1 TiB, meet a bound of 16 MiB: refused, in little memory."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import zlib
from functools import cache

import pytest
from support import TESTS
from support.damage.bombs import BOUND, MIB, Bomb, bombs, entry, frame, framings, magics
from support.reference import reference_codecs
from support.sets import generate

import kts

pytestmark = pytest.mark.slow

CALLS = ("decode", "views", "iter_decode", "max_timestamp")
HANGS_SECONDS = 300  # the whole table takes some seconds; a machine may be busy, and a sanitizer slow
MEMORY_MIB = 2 * BOUND / MIB + 32
SANITIZED = "asan" in os.environ.get("LD_PRELOAD", "")  # it keeps freed memory, and the high-water mark says nothing
CLAIMS = (2**31 - 1, 2**32 - 1, 2**40, 2**62, 2**64 - 1)


@cache
def measured() -> dict[tuple[str, str, str], list[str]]:
    """The table of measure_bombs.py, made in a process of its own: (name, magic, call) to the rest."""
    done = subprocess.run(
        [sys.executable, "-m", "support.damage.measure_bombs"],
        cwd=TESTS,
        capture_output=True,
        text=True,
        check=False,
        timeout=HANGS_SECONDS,
    )
    assert done.returncode == 0, done.stdout[-500:] + done.stderr[-3000:]
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    return {(name, magic, call): rest for name, magic, call, *rest in rows}


@pytest.mark.parametrize("bomb", [pytest.param(bomb, id=bomb.name) for bomb in bombs()])
def test_a_bomb_is_refused_in_little_memory(bomb: Bomb) -> None:
    for magic in magics(bomb.codec):
        for call in CALLS:
            error, text, seconds, grown_mib = measured()[bomb.name, str(magic), call]
            print(f"{bomb.name}, magic {magic}, {call}: {error} after {seconds} s of CPU, {grown_mib} MiB more memory")
            assert error == bomb.error
            assert ("max_decompressed_bytes" in text) == (error == "DecompressionLimitError")
            assert text.endswith("at position 0")
            assert float(grown_mib) < MEMORY_MIB or SANITIZED


def test_every_measured_bomb_is_one_of_the_table() -> None:
    expected = {(b.name, str(magic), call) for b in bombs() for magic in magics(b.codec) for call in CALLS}
    assert set(measured()) == expected
    assert len({bomb.name for bomb in bombs()}) == len(bombs()) == 43


@pytest.mark.parametrize("name", framings(0))
def test_the_default_bound_holds_for_the_maximum(name: str) -> None:
    codec, payload = framings(2 * 128 * MIB)[name]
    with pytest.raises(kts.DecompressionLimitError, match="max_decompressed_bytes"):
        kts.max_timestamp(entry(codec, 2, payload()))


def one_record(magic: int, size: int) -> tuple[bytes, int]:
    """The front of a record or message that has ``size`` bytes with the zeros of its value; how many zeros follow."""
    if magic == 2:
        length = size - 13
        whole = generate.record(0, 0, generate.Rec(0, 0, None, bytes(length)))
        assert len(whole) == size and whole.endswith(bytes(length + 1))  # the zero behind them: no headers
        return whole[: size - length - 1], length + 1
    length = size - (34 if magic else 26)
    whole = generate.message(0, magic, 0, 7, None, bytes(length))
    assert len(whole) == size
    return whole[: size - length], length


NEAR = 4 * MIB  # another bound, of some members, chunks, blocks and frames of each framing
AT_THE_BOUND = [(codec, magic, name) for name, (codec, _) in framings(0).items() for magic in magics(codec)]


@pytest.mark.parametrize(("codec", "magic", "name"), AT_THE_BOUND)
def test_up_to_the_bound_is_read_and_one_byte_more_is_not(codec: int, magic: int, name: str) -> None:
    for size in (NEAR - 1, NEAR, NEAR + 1):
        front, rest = one_record(magic, size)
        data = entry(codec, magic, framings(rest, front)[name][1]())
        bound = {"max_decompressed_bytes": NEAR}
        calls = (
            lambda data=data, bound=bound: kts.decode(data, ["value"], **bound),
            lambda data=data, bound=bound: kts.decode(data, ["value"], views=True, **bound),
            lambda data=data, bound=bound: next(kts.iter_decode(data, ["value"], **bound)),
            lambda data=data, bound=bound: kts.max_timestamp(data, **bound),
        )
        if size > NEAR:
            for call in calls:
                with pytest.raises(kts.DecompressionLimitError):
                    call()
        else:
            for call in calls[:3]:
                assert call().column(0).to_pylist() == [bytes(rest - (magic == 2))]
            assert calls[3]().timestamp_ms == (-1, 7, 0)[magic]


def claims() -> list[tuple[str, int, bytes]]:
    """Small payloads that claim to be huge, around a record that is whole."""
    plain = generate.record(0, 0, generate.Rec(0, 0, b"k", b"v"))
    found = []
    for claim in CLAIMS:
        size = generate.plain_varint(claim)
        found.append((f"snappy block of {claim}", 2, size + b"\x00a"))
        chunk = reference_codecs.XERIAL_HEADER + struct.pack(">i", len(size) + 2) + size + b"\x00a"
        found.append((f"snappy chunk of {claim}", 2, chunk))
        frame = b"\x28\xb5\x2f\xfd\xe0" + struct.pack("<Q", claim) + struct.pack("<I", len(plain) << 3 | 1)[:3] + plain
        found.append((f"zstd content of {claim}", 4, frame))
        window = b"\x28\xb5\x2f\xfd\xc0\xff" + frame[5:]
        found.append((f"zstd content of {claim}, largest window", 4, window))
        gzip = zlib.compress(plain, wbits=31)
        found.append((f"gzip of {claim}", 1, gzip[:-4] + struct.pack("<I", claim % 2**32)))
    run = struct.pack("<I", (2**21 - 1) << 3 | 3)[:3]  # the largest run-length block that can be written
    found.append(("zstd run of 2 MiB", 4, b"\x28\xb5\x2f\xfd\x00\xff" + run + b"a"))
    return found


@pytest.mark.parametrize(("codec", "payload"), [pytest.param(c, p, id=name) for name, c, p in claims()])
def test_a_claimed_size_is_not_believed(codec: int, payload: bytes) -> None:
    with pytest.raises(kts.CorruptRecordError):
        kts.decode(entry(codec, 2, payload), max_decompressed_bytes=BOUND)
    with pytest.raises(kts.CorruptRecordError):
        kts.decode(entry(codec, 2, payload), max_decompressed_bytes=2**61)


def test_a_content_size_that_lies_is_not_looked_at_in_lz4() -> None:
    """As in Kafka: eight bytes of the descriptor, whatever they say."""
    plain = generate.record(0, 0, generate.Rec(0, 0, b"k", b"v"))
    stored = struct.pack("<I", len(plain) | 1 << 31) + plain
    payload = frame(0, 4, claim=2**64 - 1)[:-4] + stored + bytes(4)
    assert kts.decode(entry(3, 2, payload), ["value"]).column(0).to_pylist() == [b"v"]
