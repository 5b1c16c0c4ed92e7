"""Damage of every kind to sound Kafka bytes, many thousand times a second, and what must hold of whatever comes out."""

from __future__ import annotations

import random
import struct
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from support.damage import fields
from support.damage.guard import GuardedBuffer
from support.reference import reference, reference_codecs
from support.reference.decoded import difference, rows_of
from support.reference.verdict import disagreement
from support.sets import generate

import kts

MOST_BYTES = 4096
COMPARED_EACH = 7  # the reference decoder reads every seventh
EXTREMES = (b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"\xff\xff\xff\xff", b"\0\0\0\0", b"\0\0\0\1", b"\xfe\xff\xff\xff\x0f")


class Seed(NamedTuple):
    """One sound entry: where its lengths and counts lie, and its records or inner messages decompressed."""

    data: bytes
    lengths: list[fields.Field]
    plain: bytes
    plain_lengths: list[fields.Field]


def seed_of(data: bytes) -> Seed:
    """What the mutations want to know of an entry."""
    magic = data[16]
    codec = fields.codec_of(data)
    lengths = fields.batch_fields(data) if magic == 2 else fields.message_fields(data)
    plain = b""
    if magic == 2:
        count = struct.unpack_from(">i", data, 57)[0]
        plain = reference_codecs.decompress(codec, 2, data[61:]) if codec and len(data) > 61 else data[61:]
        inner = fields.record_fields(plain, count)
        if not codec:
            lengths += [field._replace(at=field.at + 61) for field in inner]
    elif codec:
        plain = reference_codecs.decompress(codec, magic, reference.message_parts(data[12:])[4] or b"")
        inner = fields.inner_fields(plain)
    else:
        inner = []
    return Seed(data, lengths, plain if codec else b"", inner if codec else [])


# --- kinds: each takes a copy of the bytes and damages it -------------------------------------------


def flip(rng: random.Random, out: bytearray, _: list[fields.Field]) -> None:
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        out[rng.randrange(len(out))] ^= 1 << rng.randrange(8)


def set_byte(rng: random.Random, out: bytearray, _: list[fields.Field]) -> None:
    out[rng.randrange(len(out))] = rng.choice((0, 1, 2, 126, 127, 128, 254, 255, rng.randrange(256)))


def set_word(rng: random.Random, out: bytearray, _: list[fields.Field]) -> None:
    word = rng.choice(EXTREMES)
    at = rng.randrange(len(out))
    out[at : at + len(word)] = word[: len(out) - at]


def insert(rng: random.Random, out: bytearray, _: list[fields.Field]) -> None:
    at = rng.randrange(len(out))
    out[at:at] = rng.randbytes(rng.randrange(1, 9))


def delete(rng: random.Random, out: bytearray, _: list[fields.Field]) -> None:
    at = rng.randrange(len(out))
    del out[at : at + rng.randrange(1, 9)]


def swap(rng: random.Random, out: bytearray, _: list[fields.Field]) -> None:
    size = rng.randrange(1, max(2, len(out) // 3))
    a, b = rng.randrange(len(out)), rng.randrange(len(out))
    a, b = min(a, b), max(a, b)
    size = min(size, b - a, len(out) - b)
    out[a : a + size], out[b : b + size] = out[b : b + size], out[a : a + size]


def repeat(rng: random.Random, out: bytearray, _: list[fields.Field]) -> None:
    at = rng.randrange(len(out))
    piece = out[at : at + rng.randrange(1, 40)]
    out[at:at] = piece * rng.choice((1, 1, 2, 9))


def truncate(rng: random.Random, out: bytearray, _: list[fields.Field]) -> None:
    del out[rng.randrange(len(out)) :]


def lie(rng: random.Random, out: bytearray, lengths: list[fields.Field]) -> None:
    if not lengths:
        return set_word(rng, out, lengths)
    field = rng.choice(lengths)
    if field.at + field.size <= len(out):
        value = rng.choice((-(2**31), -2, -1, 0, 1, field.left - 1, field.left, field.left + 1, 2**31 - 1))
        raw = rng.choice(fields.LONG_VARINTS) if field.kind == "varint" and rng.random() < 0.2 else field.write(value)
        out[field.at : field.at + field.size] = raw
    return None


KINDS: tuple[Callable[[random.Random, bytearray, list[fields.Field]], None], ...] = (
    flip, set_byte, set_word, insert, delete, swap, repeat, truncate, lie, lie,
)  # fmt: skip


class Mutator:
    """An endless supply of damaged entries, ``KTS_SEED`` for ``KTS_SEED`` the same."""

    def __init__(self, rng: random.Random, seeds: list[Seed]) -> None:
        self.rng, self.seeds = rng, seeds
        self.counts: Counter[str] = Counter()

    def next(self) -> bytes:
        """Damaged bytes; the CRC is repaired in half of them, and in half of those a size made wrong by the damage."""
        rng = self.rng
        seed = rng.choice(self.seeds)
        sealed = rng.random() < 0.5
        how = rng.random()
        if seed.plain and how < 0.25:
            data, what = self.inside(seed), "inside"
        elif how > 0.9:
            other = rng.choice(self.seeds).data
            data, what = seed.data[: rng.randrange(len(seed.data))] + other[rng.randrange(len(other)) :], "splice"
        else:
            out = bytearray(seed.data)
            kind = rng.choice(KINDS)
            kind(rng, out, seed.lengths)
            data, what = bytes(out), kind.__name__
        self.counts[what] += 1
        if sealed:
            self.counts["sealed"] += 1
            if 12 < len(data) != len(seed.data) and rng.random() < 0.5:
                data = data[:8] + struct.pack(">i", len(data) - 12) + data[12:]
            data = generate.reseal(data)
        if rng.random() < 0.1:
            data = rng.choice(self.seeds).data + data
        return data[:MOST_BYTES]

    def inside(self, seed: Seed) -> bytes:
        """The records or inner messages damaged, then compressed again: what is behind the decompressor is reached."""
        out = bytearray(seed.plain)
        self.rng.choice(KINDS)(self.rng, out, seed.plain_lengths)
        plain = bytes(out)
        if seed.data[16] < 2 and self.rng.random() < 0.8:
            plain = generate.reseal(plain)
        return fields.rebuild(seed.data, generate.compress(self.rng, fields.codec_of(seed.data), seed.data[16], plain))


# --- what must hold ---------------------------------------------------------------------------------


class Checker:
    """Reads each input from memory that ends, or begins, at a forbidden page."""

    def __init__(self) -> None:
        self.guard = GuardedBuffer(2 * MOST_BYTES)
        self.counts: Counter[str] = Counter()

    def check(self, i: int, data: bytes) -> None:
        """Rows that Arrow finds sound, or a CorruptRecordError; for every seventh exactly what the reference says."""
        buf = self.guard.put(data) if i & 1 else self.guard.put_first(data)
        error = None
        try:
            batch = kts.decode(buf, kts.ALL_COLUMNS, views=bool(i & 2), verify_crc=bool(i & 12))
        except kts.CorruptRecordError as caught:
            error = caught
        except BaseException as wrong:
            raise AssertionError(f"{wrong!r}; {data.hex()}") from wrong
        if error is None:
            try:
                batch.validate(full=True)
            except Exception as wrong:
                raise AssertionError(f"{wrong!r}; {data.hex()}") from wrong
            assert batch.num_rows == 0 or batch.column("position")[-1].as_py() < len(data), data.hex()
        elif not 0 <= error.position < len(data):
            raise AssertionError(f"position of {error!r}; {data.hex()}")
        self.counts["read" if error is None else "refused"] += 1
        if i % COMPARED_EACH == 0:
            self.compare(data, buf)

    def compare(self, data: bytes, buf: memoryview) -> None:
        """All rows before the damage, and the damage."""
        self.counts["compared"] += 1
        expected, damage = [], None
        try:
            for _, rows in reference.decode_entries(data):
                expected += rows
        except reference.Corrupt as corrupt:
            damage = corrupt
        got, error = [], None
        views = bool(self.counts["compared"] & 1)
        try:
            for batch in kts.iter_decode(buf, kts.ALL_COLUMNS, slice_bytes=1 + len(data) // 2, views=views):
                got += rows_of(batch)
        except kts.CorruptRecordError as caught:
            error = caught
        wrong = disagreement(error, damage) or difference(got, expected)
        assert wrong is None, f"{wrong}; {data.hex()}"
        self.counts["compared, damaged" if damage else "compared, read"] += 1


def run(where: str, seeds: list[Seed], count: int) -> None:
    """So many mutations of the seeds."""
    mutator, checker = Mutator(random.Random(where), seeds), Checker()
    for i in range(count):
        checker.check(i, mutator.next())
    print(where, dict(mutator.counts), dict(checker.counts))
    assert set(mutator.counts) >= {kind.__name__ for kind in KINDS} | {"inside", "splice", "sealed"}
    assert abs(mutator.counts["sealed"] - count / 2) < count / 50
    assert checker.counts["compared"] == -(-count // COMPARED_EACH)
    assert min(checker.counts["compared, damaged"], checker.counts["compared, read"]) > count / COMPARED_EACH / 10
