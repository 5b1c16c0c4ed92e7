"""Payloads that decompress to 256 MiB, or claim to, meet a bound of 16 MiB: refused, in little memory."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path

import cramjam
import generate
import lz4.block
import pytest
import reference_codecs
import zstandard

import kts

MIB = 1 << 20
BOUND = 16 * MIB
BOMB = 256 * MIB
CLAIMS = (2**31 - 1, 2**32 - 1, 2**62, 2**64 - 1)


@cache
def gzip_bomb() -> bytes:
    engine = zlib.compressobj(9, zlib.DEFLATED, 31)
    zeros = bytes(MIB)
    return b"".join(engine.compress(zeros) for _ in range(BOMB // MIB)) + engine.flush()


@cache
def gzip_bomb_of_members() -> bytes:
    engine = zlib.compressobj(9, zlib.DEFLATED, 31)
    return (engine.compress(bytes(MIB)) + engine.flush()) * (BOMB // MIB)


@cache
def snappy_bomb() -> bytes:
    chunk = bytes(cramjam.snappy.compress_raw(bytes(MIB)))
    return reference_codecs.XERIAL_HEADER + (struct.pack(">i", len(chunk)) + chunk) * (BOMB // MIB)


@cache
def snappy_raw_bomb() -> bytes:
    return bytes(cramjam.snappy.compress_raw(bytes(BOMB)))


@cache
def lz4_bomb() -> bytes:
    descriptor = b"\x60\x70"  # independent blocks of 4 MiB
    block = lz4.block.compress(bytes(4 * MIB), store_size=False)
    head = reference_codecs.LZ4_MAGIC + descriptor + bytes([reference_codecs.lz4_header_checksum(descriptor)])
    return head + (struct.pack("<I", len(block)) + block) * (BOMB // (4 * MIB)) + bytes(4)


@cache
def zstd_bomb() -> bytes:
    engine = zstandard.ZstdCompressor(write_content_size=False).compressobj()
    return b"".join(engine.compress(bytes(MIB)) for _ in range(BOMB // MIB)) + engine.flush()


@cache
def zstd_bomb_of_frames() -> bytes:
    return zstandard.compress(bytes(MIB)) * (BOMB // MIB)


def zstd_bomb_that_states_its_size() -> bytes:
    return zstandard.compress(bytes(BOMB))


BOMBS: dict[str, tuple[int, Callable[[], bytes]]] = {
    "gzip": (1, gzip_bomb),
    "gzip members": (1, gzip_bomb_of_members),
    "snappy": (2, snappy_bomb),
    "snappy raw": (2, snappy_raw_bomb),
    "lz4": (3, lz4_bomb),
    "zstd": (4, zstd_bomb),
    "zstd frames": (4, zstd_bomb_of_frames),
    "zstd with its size": (4, zstd_bomb_that_states_its_size),
}
MEASURE = """
import resource, sys, time
import kts
data = open(sys.argv[1], "rb").read()
small = kts.encode({"value": [b"warm"]}, compression=sys.argv[2])
kts.decode(small, kts.ALL_COLUMNS)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for call in (
    lambda: kts.decode(data, max_decompressed_bytes=int(sys.argv[3])),
    lambda: kts.decode(data, views=True, max_decompressed_bytes=int(sys.argv[3])),
    lambda: list(kts.iter_decode(data, max_decompressed_bytes=int(sys.argv[3]))),
):
    try:
        call()
    except kts.DecompressionLimitError as error:
        assert "max_decompressed_bytes" in str(error), error
        assert error.position == 0, error
    else:
        raise AssertionError("not refused")
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def entry(codec: int, magic: int, payload: bytes) -> bytes:
    if magic == 2:
        return generate.batch(payload, 1, attributes=codec)
    return generate.message(0, magic, codec, 0, None, payload)


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_in_little_memory(name: str, magic: int, tmp_path: Path) -> None:
    codec, payload = BOMBS[name]
    if codec == 4 and magic < 2:
        with pytest.raises(kts.CorruptRecordError):  # zstd came with magic 2
            kts.decode(entry(codec, magic, payload()))
        return
    (tmp_path / "bomb").write_bytes(entry(codec, magic, payload()))
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(tmp_path / "bomb"), reference_codecs.CODEC_NAMES[codec], str(BOUND)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    grown_mib = int(done.stdout) / 1024
    print(f"{name}, magic {magic}: {(tmp_path / 'bomb').stat().st_size} bytes, {grown_mib:.0f} MiB more memory")
    keeps_freed_memory = "asan" in os.environ.get("LD_PRELOAD", "")
    assert grown_mib < 3 * BOUND / MIB or keeps_freed_memory


@pytest.mark.parametrize("name", BOMBS)
def test_the_default_bound_holds_for_the_maximum(name: str) -> None:
    codec, payload = BOMBS[name]
    with pytest.raises(kts.DecompressionLimitError, match="max_decompressed_bytes"):
        kts.max_timestamp(entry(codec, 2, payload()))


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_data_of_just_the_bound_is_read(codec: int) -> None:
    value = bytes(100_000)
    data = kts.encode({"value": [value]}, compression=reference_codecs.CODEC_NAMES[codec], batch_bytes=1 << 20)
    plain = len(reference_codecs.decompress(codec, 2, data[61:]))
    assert kts.decode(data, ["value"], max_decompressed_bytes=plain).column(0)[0].as_py() == value
    with pytest.raises(kts.DecompressionLimitError):
        kts.decode(data, max_decompressed_bytes=plain - 1)


def claims() -> list[tuple[str, int, bytes]]:
    """Small payloads that claim to be huge."""
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
    descriptor = b"\x68\x40" + b"\xff" * 8
    head = reference_codecs.LZ4_MAGIC + descriptor + bytes([reference_codecs.lz4_header_checksum(descriptor)])
    payload = head + struct.pack("<I", len(plain) | 1 << 31) + plain + bytes(4)
    assert kts.decode(entry(3, 2, payload), ["value"]).column(0).to_pylist() == [b"v"]
