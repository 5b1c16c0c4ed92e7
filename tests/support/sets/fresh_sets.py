"""Sets of records that nobody recorded: a producer's, and recorded ones recombined and changed field by field."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Sequence
from typing import NamedTuple

from support.damage import fields
from support.reference import reference, reference_codecs
from support.sets import generate
from support.sets.generate import Rec, batch, message, record, wrap

from kts.compression import compressor

I64 = 2**63
SPECIAL = {
    1: (0, 1, 2, 3, 4, 5, 7, 8, 9, 10, 11, 12, 16, 0x20, 0x30, 0x40, 0x80, 0xFF, 0x7F),
    2: (0, 1, 2, 3, 4, 8, 9, 16, 17, 0x20, 0x30, 0x40, 0x80, 0x100, 0x7FFF, -1, -2, -(2**15)),
    4: (0, 1, 2, 3, 5, 13, 14, 49, -1, -2, 100, 2**31 - 1, -(2**31), 2**31 - 12, 2**31 - 13),
    8: (0, 1, -1, -2, -5, 3, 100, 2**31, -(2**31), 2**40, I64 - 1, -I64, 2**62, 1_500_000_000_000, -1_500_000_000_000),
}
# Where the fields of a header lie, and how wide they are.
BATCH = {0: 8, 8: 4, 12: 4, 16: 1, 17: 4, 21: 2, 23: 4, 27: 8, 35: 8, 43: 8, 51: 2, 53: 4, 57: 4}
MESSAGE = ({0: 8, 8: 4, 12: 4, 16: 1, 17: 1, 18: 4}, {0: 8, 8: 4, 12: 4, 16: 1, 17: 1, 18: 8, 26: 4})
LIKELY = {2: (21, 21, 23, 27, 35, 43, 51, 53, 57, 0), 1: (17, 17, 18, 18, 0), 0: (17, 0)}

Pool = Sequence[bytes]


class Style(NamedTuple):
    """What the producer of a set is like."""

    magic: int
    codec: int
    now: int
    client: str = ""  # any of CLIENTS


CLIENTS = ("java", "java", "kafka-python", "librdkafka", "gap", "zeros", "absolute", "shuffled")


def entries_of(data: bytes) -> tuple[list[bytes], bytes]:
    """The whole entries by their sizes, and what lies behind them."""
    found = []
    while len(data) >= 17:
        size = 12 + struct.unpack_from(">i", data, 8)[0]
        if size < 26 or size > len(data):
            break
        found.append(data[:size])
        data = data[size:]
    return found, data


def how_many(data: bytes) -> int:
    """The records of a set as a producer sends it, more or less."""
    entries, _ = entries_of(data)
    last = [1 + struct.unpack_from(">i", one, 23)[0] if one[16] == 2 and len(one) > 60 else 1 for one in entries]
    inner = [1 + struct.unpack_from(">q", one)[0] if one[16] < 2 and one[17] & 7 else 0 for one in entries]
    return sum(max(1, min(a, 9)) if not b else max(1, min(b, 9)) for a, b in zip(last, inner, strict=True))


def moved(data: bytes, start: int) -> bytes:
    """The set as a leader would have it whose log ended at an offset."""
    out = b""
    entries, tail = entries_of(data)
    for one in entries:
        count = how_many(one)
        place = start if one[16] == 2 else start + count - 1
        epoch = bytes(4) if one[16] == 2 else one[12:16]
        out += struct.pack(">q", place) + one[8:12] + epoch + one[16:]
        start += count
    return out + tail


# --- a producer's sets ---------------------------------------------------------------------------------


def times(rng: random.Random, now: int, count: int) -> list[int]:
    """Timestamps around a clock, in one of a few orders, sometimes with one far away."""
    order = rng.choice(("rising", "falling", "mixed", "same", "none", "rising", "rising"))
    step = rng.choice((1, 7, 500, 1000, 3_600_000))
    start = now + rng.choice((0, -1, 1, -1000, 1000, -999, 1001, -3_600_000, 3_600_000, 10**9, -(10**9)))
    found = {
        "rising": [start + i * step for i in range(count)],
        "falling": [start - i * step for i in range(count)],
        "mixed": [start + rng.randrange(-step, step) for _ in range(count)],
        "same": [start] * count,
        "none": [-1] * count,
    }[order]
    return [rng.choice(SPECIAL[8]) if rng.random() < 0.04 else one for one in found]


def records(rng: random.Random, now: int, count: int) -> list[Rec]:
    null_key = rng.choice((0, 0, 0.2, 1))
    headed = rng.random() < 0.3
    return [
        Rec(i, time, generate.blob(rng, null_key), generate.blob(rng), generate.headers(rng) if headed else ())
        for i, time in enumerate(times(rng, now, count))
    ]


def packed(rng: random.Random, codec: int, magic: int, plain: bytes) -> bytes:
    """Compressed as clients do it, now and then as nobody does."""
    if rng.random() < 0.1:
        return generate.compress(rng, codec, magic, plain)
    return compressor(codec, magic, None)(plain)


def sent(rng: random.Random, style: Style, idempotent: float = 0.25) -> bytes:
    """One set as a producer sends it."""
    many = records(rng, style.now, rng.choice((1, 1, 2, 3, 4, 7)))
    if style.magic == 2:
        return sent_batch(rng, style.codec, many, rng.random() < idempotent)
    if style.codec == 0:
        return b"".join(message(one.offset, style.magic, 0, one.timestamp, one.key, one.value) for one in many)
    return sent_wrapper(rng, style, many)


def sent_batch(rng: random.Random, codec: int, many: list[Rec], idempotent: bool) -> bytes:
    base_time = many[0].timestamp
    plain = b"".join(record(one.offset, wrap(one.timestamp - base_time), one) for one in many)
    attributes = codec | (rng.choice((8, 16, 32, 48, 64, 0x80)) if rng.random() < 0.1 else 0)
    return batch(
        packed(rng, codec, 2, plain) if codec else plain,
        len(many),
        last_delta=len(many) - 1,
        attributes=attributes | (16 if idempotent and rng.random() < 0.3 else 0),
        base_time=base_time,
        max_time=max(one.timestamp for one in many),
        pid=rng.choice((0, 4000)) if idempotent else -1,
        epoch=rng.choice((0, 5)) if idempotent else -1,
        sequence=rng.choice((0, 12, 2**31 - 1)) if idempotent else -1,
        leader_epoch=rng.choice((-1, -1, 0, 7)),
    )


def sent_wrapper(rng: random.Random, style: Style, many: list[Rec]) -> bytes:
    magic, codec, _, client = style
    client = client or rng.choice(CLIENTS)
    offsets = [one.offset for one in many]
    if client == "gap":
        offsets = [2 * offset for offset in offsets]
    elif client == "zeros":
        offsets = [0] * len(many)
    elif client == "absolute":
        offsets = [offset + 100 for offset in offsets]
    elif client == "shuffled":
        rng.shuffle(offsets)
    inner = zip(offsets, many, strict=True)
    plain = b"".join(message(offset, magic, 0, one.timestamp, one.key, one.value) for offset, one in inner)
    old = client in ("kafka-python", "librdkafka")
    time = {"kafka-python": 0, "librdkafka": many[0].timestamp}.get(client, max(one.timestamp for one in many))
    attributes = codec | (8 if rng.random() < 0.05 else 0)
    return message(0 if old else offsets[-1], magic, attributes, time, None, packed(rng, codec, magic, plain))


# --- changes: each takes a set and gives another one -----------------------------------------------------


def set_field(rng: random.Random, data: bytes, _: Pool) -> bytes:
    """One header field of one entry gets a value of interest; the CRC is right afterwards, mostly."""
    entries, tail = entries_of(data)
    if not entries:
        return data
    at = rng.randrange(len(entries))
    entry = bytearray(entries[at])
    magic = entry[16] if entry[16] < 3 else 1
    if magic == 2 and len(entry) < 61 or magic == 1 and len(entry) < 34:
        return data
    known = BATCH if magic == 2 else MESSAGE[magic]
    position = rng.choice(LIKELY[magic]) if rng.random() < 0.8 else rng.choice(list(known))
    width = known[position]
    value = rng.choice(SPECIAL[width])
    if rng.random() < 0.3:
        value = int.from_bytes(entry[position : position + width], "big", signed=True) + rng.choice((-1, 1))
    entry[position : position + width] = (value % (1 << 8 * width)).to_bytes(width, "big")
    sealed = generate.reseal(bytes(entry)) if rng.random() < 0.93 else bytes(entry)
    return b"".join(entries[:at]) + sealed + b"".join(entries[at + 1 :]) + tail


def inside(rng: random.Random, data: bytes, pool: Pool) -> bytes:
    """What is compressed in one entry is changed and compressed again, now and then by another codec."""
    entries, tail = entries_of(data)
    found = [i for i, one in enumerate(entries) if len(one) >= 61 and fields.codec_of(one) in (1, 2, 3, 4)]
    if not found:
        return set_field(rng, data, pool)
    at = rng.choice(found)
    entry = entries[at]
    codec, magic = fields.codec_of(entry), min(entry[16], 2)
    try:
        if magic == 2:
            plain = reference_codecs.decompress(codec, 2, entry[61:])
            plain = batch_inside(rng, entry, plain)
        else:
            plain = reference_codecs.decompress(codec, magic, reference.message_parts(entry[12:])[4] or b"")
            plain = changed(rng, plain, pool) if rng.random() < 0.9 else plain
        if rng.random() < 0.2:
            codec = rng.choice((1, 2, 3, 4) if magic == 2 else (1, 2, 3))
            place = 22 if magic == 2 else 17
            entry = entry[:place] + bytes([entry[place] & 0xF8 | codec]) + entry[place + 1 :]
        new = fields.rebuild(entry, packed(rng, codec, magic, plain))
    except (reference_codecs.BadPayload, reference.Wrong, struct.error, IndexError, ValueError):
        return set_field(rng, data, pool)
    return b"".join(entries[:at]) + new + b"".join(entries[at + 1 :]) + tail


def batch_inside(rng: random.Random, entry: bytes, plain: bytes) -> bytes:
    """Records of a batch with one field that lies, or with a byte changed."""
    count = struct.unpack_from(">i", entry, 57)[0]
    if rng.random() < 0.6 and 0 < count < 100:
        lies = list(fields.lies(plain, fields.record_fields(plain, count)))
        if lies:
            return rng.choice(lies)[1]
    return generate.mutate(rng, plain) if plain else plain


def lie(rng: random.Random, data: bytes, pool: Pool) -> bytes:
    """A length or count in one entry is wrong, its CRC right."""
    entries, tail = entries_of(data)
    if not entries:
        return data
    at = rng.randrange(len(entries))
    entry = entries[at]
    try:
        if entry[16] == 2 and not fields.codec_of(entry):
            known = fields.batch_fields(entry, entry[61:])
        else:
            known = fields.batch_fields(entry) if entry[16] == 2 else fields.message_fields(entry)
        lies = list(fields.lies(entry, known))
    except (struct.error, IndexError, ValueError):
        lies = []
    if not lies:
        return set_field(rng, data, pool)
    return b"".join(entries[:at]) + generate.reseal(rng.choice(lies)[1]) + b"".join(entries[at + 1 :]) + tail


def join(rng: random.Random, data: bytes, pool: Pool) -> bytes:
    """Another set before or behind it."""
    other = rng.choice(pool)
    return data + other if rng.random() < 0.5 else other + data


def reorder(rng: random.Random, data: bytes, _: Pool) -> bytes:
    """Entries dropped, doubled or in another order."""
    entries, tail = entries_of(data)
    if not entries:
        return data
    how = rng.randrange(3)
    if how == 0:
        del entries[rng.randrange(len(entries))]
    elif how == 1:
        entries.insert(rng.randrange(len(entries) + 1), rng.choice(entries))
    else:
        rng.shuffle(entries)
    return b"".join(entries) + tail


def tail(rng: random.Random, data: bytes, pool: Pool) -> bytes:
    """Bytes at the end that are no whole entry, or an end too early."""
    how = rng.randrange(5)
    if how == 0:
        return data + bytes(rng.choice((1, 11, 12, 13, 16, 17, 18, 26, 40, 61, 100)))
    if how == 1:
        return data + rng.randbytes(rng.randrange(1, 70))
    if how == 2:
        other = rng.choice(pool)
        return data + other[: rng.randrange(len(other) + 1)]
    if how == 3:
        return data[: rng.randrange(len(data) + 1)]
    size = rng.choice((*SPECIAL[4], 60, 200))
    return data + struct.pack(">qi", 0, size) + rng.randbytes(rng.choice((0, 4, 5, 30)))


def damage(rng: random.Random, data: bytes, _: Pool) -> bytes:
    """A byte or a few."""
    return generate.mutate(rng, data) if data else data


CHANGES: tuple[Callable[[random.Random, bytes, Pool], bytes], ...] = (
    set_field, set_field, set_field, set_field, inside, inside, inside, lie, join, reorder, tail, damage,
)  # fmt: skip


def changed(rng: random.Random, data: bytes, pool: Pool) -> bytes:
    """The set after one change of any kind."""
    return rng.choice(CHANGES)(rng, data, pool)


def fresh(rng: random.Random, pool: Pool, now: int, magics: Sequence[int]) -> bytes:
    """A set: recorded or new, as it is or changed up to three times."""
    magic = rng.choice(magics)
    style = Style(magic, rng.choice((0, 0, 1, 2, 3, 4) if magic == 2 else (0, 0, 1, 2, 3)), now)
    data = sent(rng, style) if rng.random() < 0.5 else rng.choice(pool)
    for _ in range(rng.choice((0, 0, 1, 1, 1, 2, 3))):
        data = changed(rng, data, pool)
    return data
