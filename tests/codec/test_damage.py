"""Small batches that brokers wrote, damaged in every way, read from buffers that end at a forbidden page.

Every truncation, every single-bit flip (CRC left and CRC repaired) and every length or count field at its extremes
gives what the reference decoder says: the right rows, or a CorruptRecordError; never a crash or another exception.
"""

from __future__ import annotations

import random
import struct
import zlib
from collections import Counter
from collections.abc import Iterable
from functools import cache
from typing import Any, NamedTuple

import pytest
from support import TESTS
from support.damage import fields
from support.golden import golden_logs, scaled
from support.reference import reference, reference_codecs
from support.reference.agreement import check
from support.sets import generate

MOST_BYTES = 300
STEP = scaled(7, 1)  # of the bits that are flipped


class Entry(NamedTuple):
    """A batch or outermost message as a broker wrote it."""

    name: str
    data: bytes


@cache
def small_entries() -> list[Entry]:
    """One small entry of every magic, codec, timestamp type and kind of batch; with several records if there is one."""
    best: dict[tuple[int, ...], tuple[bool, int, bytes]] = {}
    for log in golden_logs():
        data = log.read_bytes()
        for at, size, magic in reference.entries(data):
            if size > MOST_BYTES:
                continue
            entry = data[at : at + size]
            attributes = entry[22] if magic == 2 else entry[17]
            count = struct.unpack_from(">i", entry, 57)[0] if magic == 2 else len(reference.decode(entry))
            kind = (magic, attributes & 7, attributes & 8, attributes & 0x70 if magic == 2 else 0, min(count, 1))
            rank = (count < 2, size, entry)
            best[kind] = min(best.get(kind, rank), rank)
    return [
        Entry(f"magic {kind[0]} codec {kind[1]} bits {kind[2] | kind[3]:#x} {len(entry)} bytes", entry)
        for kind, (_, _, entry) in sorted(best.items())
    ]


def check_all(cases: Iterable[tuple[str, bytes]]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for what, data in cases:
        counts["refused" if check(data, what) else "read"] += 1
    print(dict(counts))
    return counts


def entry_parameters() -> list[Any]:
    return [pytest.param(entry.data, id=entry.name) for entry in small_entries()]


def test_the_entries_cover_every_magic_and_codec() -> None:
    assert len(small_entries()) >= 20
    found = {
        (entry.data[16], (entry.data[22] if entry.data[16] == 2 else entry.data[17]) & 7) for entry in small_entries()
    }
    assert found == {(0, c) for c in range(4)} | {(1, c) for c in range(4)} | {(2, c) for c in range(5)}
    for entry in small_entries():
        assert not check(entry.data, entry.name)


@pytest.mark.slow
@pytest.mark.parametrize("data", entry_parameters())
def test_every_truncation_is_a_cut_tail(data: bytes) -> None:
    counts = check_all((f"first {n} bytes", data[:n]) for n in range(len(data)))
    assert counts["refused"] == 0
    sound = generate.message(5, 1, 0, 1000, b"k", b"v")
    check_all((f"a message and {n} bytes", sound + data[:n]) for n in range(0, len(data), 7))


@pytest.mark.slow
@pytest.mark.parametrize("data", entry_parameters())
def test_every_truncation_with_size_and_crc_repaired_is_refused(data: bytes) -> None:
    def cut(n: int) -> bytes:
        return generate.reseal(data[:8] + struct.pack(">i", n - 12) + data[12:n])

    counts = check_all((f"cut to {n} bytes", cut(n)) for n in range(17, len(data)))
    assert counts["read"] <= 8, counts  # an inner tail that is cut is left out, and a gzip or lz4 tail is not looked at


@pytest.mark.parametrize("data", entry_parameters())
def test_every_flipped_bit_is_found(data: bytes, seed: int) -> None:
    def flip(bit: int) -> bytes:
        changed = bytearray(data)
        changed[bit >> 3] ^= 1 << (bit & 7)
        return bytes(changed)

    bits = range(seed % STEP, 8 * len(data), STEP)
    counts = check_all((f"bit {bit}", flip(bit)) for bit in bits)
    # not under the CRC: the offset, the leader epoch; a size that grew is a cut tail, a size that shrank is not
    assert counts["refused"] > len(bits) - (8 * 12 + 32) / STEP - 2, counts
    check_all((f"bit {bit}, CRC repaired", generate.reseal(flip(bit))) for bit in bits)


def field_cases(data: bytes) -> Iterable[tuple[str, bytes]]:
    """Entries whose header fields, record fields or framing lie; sizes and CRCs outside of the lie are right."""
    magic = data[16]
    codec = fields.codec_of(data)
    header = fields.batch_fields(data) if magic == 2 else fields.message_fields(data)
    for what, changed in fields.lies(data, header):
        yield what, generate.reseal(changed)
        yield f"{what}, CRC left", changed
    if magic == 2:
        count = struct.unpack_from(">i", data, 57)[0]
        payload = data[61:]
    elif codec:
        count = 0
        payload = reference.message_parts(data[12:])[4] or b""
    else:
        return
    plain = reference_codecs.decompress(codec, magic, payload) if codec else payload
    inner = fields.record_fields(plain, count) if magic == 2 else fields.inner_fields(plain)
    for what, changed in fields.lies(plain, inner):
        changed = changed if magic == 2 else inner_crcs(changed, plain)
        yield what, fields.rebuild(data, fields.framed(codec, changed)[0] if codec else changed)
    if codec:
        framed, framing = fields.framed(codec, plain)
        for what, changed in fields.lies(framed, framing):
            yield what, fields.rebuild(data, changed)


def inner_crcs(changed: bytes, plain: bytes) -> bytes:
    """CRCs of inner messages repaired where the sound sizes put them."""
    out = bytearray(changed)
    at = 0
    while len(changed) == len(plain) and at < len(plain):
        end = at + 12 + struct.unpack_from(">i", plain, at + 8)[0]
        out[at + 12 : at + 16] = struct.pack(">I", zlib.crc32(changed[at + 16 : end]))
        at = end
    return bytes(out)


@pytest.mark.slow
@pytest.mark.parametrize("data", entry_parameters())
def test_every_length_and_count_at_its_extremes_is_refused_or_read_right(data: bytes) -> None:
    counts = check_all(field_cases(data))
    assert counts["refused"] > 10, counts


def test_random_bytes_behind_a_sound_entry(seed: int) -> None:
    rng = random.Random(seed)
    sound = generate.message(5, 1, 0, 1000, b"k", b"v")
    check_all((f"KTS_SEED={seed}", sound + rng.randbytes(rng.randrange(100))) for _ in range(scaled(500, 2000)))


def test_the_guard_page_is_there() -> None:
    """A process that reads one byte behind the data dies, so the tests above would have told."""
    import signal
    import subprocess
    import sys

    program = (
        "import ctypes\nfrom support.damage import guard\n"
        "buffer = guard.GuardedBuffer(10)\n"
        "assert bytes(buffer.put(b'0123456789')) == b'0123456789'\n"
        "ctypes.string_at(buffer.end, 1)\n"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=TESTS, capture_output=True, check=False)
    assert done.returncode == -signal.SIGSEGV or b"AddressSanitizer: SEGV" in done.stderr
