"""Memory that is used again never shows through: no byte of an earlier record in what a later decode gives.

A decoder keeps scratch memory, decompressors and slabs of columns. Each pair first decodes a batch full of canaries,
which leaves them in that memory, then an entry that fails, is short, or claims more than it holds. The canary is looked
for in all that a caller can reach: the rows with every buffer that Arrow would send on, and the words of the errors.
Room behind the rows of a column keeps old bytes (a test shows them there); no row, offset or view leads to it.
"""

from __future__ import annotations

import ctypes
import random
import struct
import traceback
import zlib
from collections.abc import Iterator
from functools import cache

import lz4.block
import pyarrow as pa
import pytest
from support.damage import fields
from support.reference import reference_codecs
from support.reference.decoded import difference, rows_of
from support.sets import framings, generate

import kts

CANARY = b"CaNaRy!\xa5"
PAIRS = 10_000
CODECS = {"gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
NUMBER = int.from_bytes(CANARY, "little", signed=True)


def recs(word: bytes, time: int, count: int) -> list[generate.Rec]:
    """Records of a word of eight bytes over and over. Every record has the same size, whatever the word: were one more
    than those of a short payload read, it would be a whole one of those that lay there before."""
    text = word * 12
    return [generate.Rec(i, time, text, text, [(word[:6] * 5, text)]) for i in range(count)]


def records(word: bytes, count: int) -> bytes:
    return b"".join(generate.record(rec.offset, 0, rec) for rec in recs(word, 0, count))


def messages(magic: int, word: bytes, count: int) -> bytes:
    return b"".join(generate.message(r.offset, magic, 0, r.timestamp, r.key, r.value) for r in recs(word, 5, count))


@cache
def canaries(codec: int, magic: int) -> bytes:
    """An entry whose keys, values, headers and numbers are all canaries."""
    if magic == 2:
        plain = records(CANARY, 40)
        payload = generate.compress(random.Random(1), codec, 2, plain) if codec else plain
        return generate.batch(payload, 40, attributes=codec, last_delta=39, base_time=NUMBER, max_time=NUMBER,
                              pid=NUMBER)  # fmt: skip
    plain = messages(magic, CANARY, 40)
    payload = generate.compress(random.Random(1), codec, magic, plain)
    return generate.message(39, magic, codec, NUMBER, None, payload)


def clean(reached: bytes | str) -> bool:
    """No canary, nor a turned half of one."""
    data = reached.encode("utf-8", "replace") if isinstance(reached, str) else reached
    return b"CaNaRy" not in data and b"!\xa5Ca" not in data and b"yRaNaC" not in data


def reachable(batch: pa.RecordBatch) -> bytes:
    """Every buffer as Arrow sends it to another process: offsets, bitmaps, numbers, strings, whole variadic buffers."""
    return batch.serialize().to_pybytes()


def read(data: bytes, views: bool) -> tuple[list[pa.RecordBatch], BaseException | None]:
    """Pieces of one entry each, and the error that ends them."""
    pieces = []
    try:
        for piece in kts.iter_decode(data, kts.ALL_COLUMNS, slice_bytes=1, views=views, verify_crc=False):
            pieces.append(piece)
            del piece
    except kts.CorruptRecordError as error:
        return pieces, error
    return pieces, None


def words(error: BaseException) -> str:
    """All that an error says, with what it was raised from."""
    return repr(error) + "".join(traceback.format_exception(error)) + repr(error.__dict__)


def pairs(rng: random.Random, codec: int) -> Iterator[tuple[bytes, bytes]]:
    """(canaries, what is decoded after them)."""
    plain = records(b"other-8.", 5)
    targets = list(short_payloads(codec, plain))
    while True:
        magic = rng.choice((2, 2, 2, 0, 1)) if codec != 4 else 2
        how = rng.randrange(4)
        if how == 0:
            second = generate.batch(rng.choice(targets), rng.choice((1, 5, 6, 40)), attributes=codec)
        elif how == 1:
            out = bytearray(generate.compress(rng, codec, 2, plain))
            for _ in range(rng.randrange(1, 4)):
                out[rng.randrange(len(out))] = rng.randrange(256)
            cut = rng.choice((len(out), rng.randrange(len(out))))
            second = generate.batch(bytes(out[:cut]), rng.choice((1, 5, 6)), attributes=codec)
        elif how == 2:
            changed = bytearray(plain)
            changed[rng.randrange(len(changed))] = rng.choice((1, 127, 128, 255, rng.randrange(256)))
            count = rng.choice((4, 5, 6, 40))  # more than there are, too
            second = generate.batch(generate.compress(rng, codec, 2, bytes(changed)), count, attributes=codec)
        else:
            old = rng.randrange(2) if codec != 4 else 2
            inner = messages(old, b"other-8.", 5) if old < 2 else plain
            packed = generate.compress(rng, codec, old, inner[: rng.randrange(len(inner) + 1)])
            second = generate.batch(packed, 5, attributes=4) if old == 2 else generate.message(
                99, old, codec, 7, None, packed)  # fmt: skip
        yield canaries(codec, magic), second


def short_payloads(codec: int, plain: bytes) -> Iterator[bytes]:
    """Payloads that claim more than they hold, point in front of what they made, or lean on what came before them."""
    if codec == 1:
        for deflate in (
            b"\x4b\x04\x7e\x00",  # fixed codes: a literal, then a match further back than anything written
            b"\x03\x7e\x00\x00",
            zlib.compress(plain)[2:-4][:-3],
            b"\x04" + bytes(20),
        ):
            yield b"\x1f\x8b\x08" + bytes(7) + deflate + bytes(8)
        engine = zlib.compressobj(9, zlib.DEFLATED, -15, zdict=CANARY * 40)  # leans on a dictionary of canaries
        body = engine.compress(CANARY * 20) + engine.flush()
        yield b"\x1f\x8b\x08" + bytes(7) + body + struct.pack("<II", zlib.crc32(CANARY * 20), 8 * 20)
        for size in (len(plain) + len(plain) // 5, 20_000):
            yield zlib.compress(plain, wbits=31)[:-4] + struct.pack("<I", size)
    elif codec == 2:
        for claim in (len(plain) + 1, len(plain) + len(plain) // 5, 20 * len(plain)):
            block = generate.plain_varint(claim) + framings.snappy_block(plain)[2:]
            yield block
            yield reference_codecs.XERIAL_HEADER + struct.pack(">i", len(block)) + block
        for distance in (1, 9, 1000):  # a copy from in front of the block, as first element and behind a literal
            copy = b"\xfe" + struct.pack("<H", distance)
            yield generate.plain_varint(64) + copy
            yield generate.plain_varint(65) + b"\x00a" + copy
        sound = framings.snappy_block(plain)
        bad = generate.plain_varint(64) + b"\xfe\xff\x0f"
        yield reference_codecs.XERIAL_HEADER + b"".join(struct.pack(">i", len(b)) + b for b in (sound, bad))
    elif codec == 3:
        head = framings.lz4_repaired(reference_codecs.LZ4_MAGIC + b"\x60\x40\0")
        leaning = lz4.block.compress(CANARY * 20, store_size=False, dict=CANARY * 40)
        for block in (leaning, b"\x1fa\xff\xff\x64\x50abcde", b"\x0f\x01\x00\x64\x50abcde", b"\x1fa\x08\x00\xff\x10"):
            yield head + struct.pack("<I", len(block)) + block + bytes(4)
            yield head + struct.pack("<I", len(block)) + block
        for size in (len(plain) - 1, len(plain) + 1, len(plain) + len(plain) // 5, 60_000):
            yield head + struct.pack("<I", size | 1 << 31) + plain + bytes(4)
    else:
        for stated in (len(plain) + 1, len(plain) + len(plain) // 5, 60_000):
            frame, found = framings.zstd_frame(plain)
            yield frame[:5] + struct.pack("<I", stated) + frame[9:]
            yield frame[: found[1].at] + struct.pack("<I", stated << 3 | 1)[:3] + plain
            yield frame[: found[1].at] + struct.pack("<I", 60_000 << 3 | 5)[:3] + plain  # called compressed
        # a compressed block whose literals use the tables of a block before it, which there is none of
        yield b"\x28\xb5\x2f\xfd\x20\x40" + struct.pack("<I", 8 << 3 | 5)[:3] + b"\x43\x01\x01\xff\xff\xff\x00\x00"
        # one literal, one sequence by repeated offset 8 or by tables repeated: before the frame's beginning
        for modes in (0x54, 0xFC):
            body = b"\x08a\x01" + bytes([modes]) + b"\x02\x07\x09\x01"
            yield b"\x28\xb5\x2f\xfd\x20\x40" + struct.pack("<I", len(body) << 3 | 5)[:3] + body


@pytest.mark.slow
@pytest.mark.parametrize("views", [False, True], ids=["copied", "views"])
@pytest.mark.parametrize("codec", CODECS)
def test_no_earlier_byte_in_a_failed_or_short_decompression(seed: int, codec: str, views: bool) -> None:
    rng = random.Random(f"KTS_SEED={seed}, {codec}, {views}")
    counts = {"rows": 0, "refused": 0}
    some = pairs(rng, CODECS[codec])
    for i in range(PAIRS // 8):
        first, second = next(some)
        if i % 2:  # two calls: the slab and its columns are used again
            read(first, views)
            pieces, error = read(second, views)
        else:  # one buffer: the scratch memory and the decompressor, too
            pieces, error = read(first + second, views)
            assert pieces and pieces[0].num_rows == 40
            del pieces[0]
        for piece in pieces:
            assert clean(reachable(piece)), f"{rows_of(piece)}; {second.hex()}"
        assert error is None or clean(words(error)), f"{error!r}; {second.hex()}"
        counts["rows" if pieces else "refused"] += 1
    print(counts)
    assert min(counts.values()) > 50


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_in_one_piece_the_rows_behind_the_canaries_are_their_own(codec: int) -> None:
    plain = b"".join(generate.record(i, 0, generate.Rec(i, i, b"k", None if i % 2 else b"")) for i in range(9))
    payload = generate.compress(random.Random(2), codec, 2, plain) if codec else plain
    own = generate.batch(payload, 9, attributes=codec)
    alone = rows_of(kts.decode(own, kts.ALL_COLUMNS))
    for views in (False, True):
        both = rows_of(kts.decode(canaries(codec, 2) + own, kts.ALL_COLUMNS, views=views))[40:]
        at = len(canaries(codec, 2))
        assert difference(both, [row | {"position": at} for row in alone]) is None


def test_the_canary_is_in_the_memory_that_is_used_again_and_would_be_found() -> None:
    """Were a length of the second decode too large by a few bytes, its rows would show canaries."""
    first = kts.decode(canaries(3, 2), ["key"])
    assert not clean(reachable(first))
    address, size = first.column("key").buffers()[2].address, first.column("key").buffers()[2].size
    del first
    own = generate.batch(generate.record(0, 0, generate.Rec(0, 0, b"own key", b"")), 1)
    second = kts.decode(own, ["key"])
    data = second.column("key").buffers()[2]
    assert (data.address, data.size) == (address, 7)
    assert clean(reachable(second))
    assert not clean(ctypes.string_at(address, size))


def test_no_rows_show_nothing() -> None:
    """Offsets of a piece without rows begin at 0, whatever views lay in that memory before."""
    for views in (True, False):
        for codec in range(5):
            kts.decode(canaries(codec, 2), kts.ALL_COLUMNS, views=True)
            kts.decode(canaries(codec, 2), kts.ALL_COLUMNS, views=False)
            kts.decode(canaries(codec, 2), kts.ALL_COLUMNS, views=views)
            for data in (b"", canaries(0, 2)[:50], generate.batch(b"", 0)):
                nothing = kts.decode(data, kts.ALL_COLUMNS)
                nothing.validate(full=True)
                for name in ("key", "value", "headers"):
                    assert not any(bytes(nothing.column(name).buffers()[1] or b"")), name
                assert clean(reachable(nothing))


def test_entries_of_canaries_are_sound() -> None:
    for magic, codec in [(2, 0), *((magic, codec) for magic in (0, 1, 2) for codec in (1, 2, 3)), (2, 4)]:
        data = canaries(codec, magic)
        assert fields.codec_of(data) == codec
        table = kts.decode(data)
        assert table.num_rows == 40
        assert not clean(reachable(table))
