"""New entries, records and messages from old ones: sizes and CRCs are made right again, mostly."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from typing import Any

from support.sets import generate

from fuzz import mutators
from fuzz.frames import MOST_PLAIN, frame, plain_of

BATCH_FIELDS = (
    *((">q", 0), (">i", 12), (">h", 21), (">i", 23), (">q", 27)),
    *((">q", 35), (">q", 43), (">h", 51), (">i", 53), (">i", 57)),
)
MESSAGE_FIELDS = ((">q", 0), (">b", 17), (">q", 18), (">i", 18), (">i", 26))
# around what is kept in views, copied at once, or needs one byte more of length
LENGTHS = (0, 1, 11, 12, 13, 16, 31, 32, 33, 63, 64, 65, 127, 128, 129, 300)

Others = Sequence[bytes]


# --- entries ---------------------------------------------------------------------------------------


def split(data: bytes) -> list[bytes]:
    """Whole entries, as far as their sizes lead, and the rest."""
    found = []
    while len(data) >= 17:
        end = 12 + int.from_bytes(data[8:12], "big", signed=True)
        if end < 26 or end > len(data):
            break
        found.append(data[:end])
        data = data[end:]
    return [*found, data] if data else found


def seal(rng: random.Random, entry: bytes, sure: bool = False) -> bytes:
    """Size and CRC of one entry made right, or (seldom) not."""
    if len(entry) < 17:
        return entry
    if sure or rng.random() < 0.9:
        entry = entry[:8] + struct.pack(">i", len(entry) - 12) + entry[12:]
    return generate.reseal(entry) if sure or rng.random() < 0.95 else entry


def mutate_entries(rng: random.Random, data: bytes, others: Others) -> bytes:
    """One of: entries moved about, a field of a header, the bytes of an entry, what is inside it."""
    entries = split(data)
    if not entries:
        return generate.random_entries(rng)[0]
    at = rng.randrange(len(entries))
    how = rng.randrange(8)
    if how == 0:
        theirs = split(rng.choice(others)) if others else []
        entries[at : at + rng.randrange(2)] = theirs[: rng.randrange(1, 4)]
    elif how == 1:
        entries.insert(rng.randrange(len(entries) + 1), rng.choice((entries[at], generate.random_entries(rng)[0])))
    elif how == 2:
        del entries[at]
    elif how in (3, 4):
        entries[at] = seal(rng, header_field(rng, entries[at]))
    elif how == 5:
        entries[at] = seal(rng, mutators.mutate(rng, entries[at], others, 1))
    else:
        entries[at] = inside(rng, entries[at], others)
    return b"".join(entries)


def header_field(rng: random.Random, entry: bytes) -> bytes:
    """One field of the header set to another number."""
    form, at = rng.choice(BATCH_FIELDS if entry[16:17] == b"\2" else MESSAGE_FIELDS)
    width = struct.calcsize(form)
    if rng.random() < 0.2:
        form, at, width = ">b", 16, 1  # the magic
        value = rng.choice((0, 1, 2, 0, 1, 2, 3, -1))
    elif width == 8 or rng.random() < 0.3:
        value = mutators.number(rng, 8 * width)
    else:
        value = struct.unpack_from(form, entry.ljust(at + width, b"\0"), at)[0] ^ 1 << rng.randrange(8)
    return entry[:at] + struct.pack(form, generate.wrap(value, 8 * width)) + entry[at + width :]


def inside(rng: random.Random, entry: bytes, others: Others) -> bytes:
    """The records or inner messages changed, and compressed again, perhaps by another codec."""
    if len(entry) < 61 and entry[16:17] == b"\2" or len(entry) < 34 or entry[16] > 2:
        return entry
    magic = entry[16]
    start = 61 if magic == 2 else value_at(entry)
    head, payload, codec = entry[:start], entry[start:], entry[22 if magic == 2 else 17] & 7
    payload = plain_of(codec, magic, payload)
    count = struct.unpack_from(">i", head, 57)[0] if magic == 2 else 0
    plain, count = mutate_plain(rng, magic, payload, count, others)
    codec = rng.randrange(5) if rng.random() < 0.2 else codec
    framed = frame(rng, codec, magic, plain) if 0 < codec < 5 else plain
    out = bytearray(head)
    out[22 if magic == 2 else 17] ^= (out[22 if magic == 2 else 17] ^ codec) & 7
    out[-4:] = struct.pack(">i", count if magic == 2 else len(framed))
    return seal(rng, bytes(out) + framed)


def value_at(entry: bytes) -> int:
    """Where the value of a message begins."""
    key_at = 26 if entry[16] else 18
    key = int.from_bytes(entry[key_at : key_at + 4], "big", signed=True)
    return min(len(entry), key_at + 8 + min(max(0, key), len(entry) - key_at - 8))


def mutate_plain(rng: random.Random, magic: int, plain: bytes, count: int, others: Others) -> tuple[bytes, int]:
    """What an entry holds, changed as records, as messages or as bytes; and the count that it should declare."""
    if rng.random() < 0.3:
        changed = mutators.mutate(rng, plain, others, rng.choice((1, 1, 2, 4)))[:MOST_PLAIN]
        return (changed, count) if magic == 2 else (seal_inner(rng, changed), count)
    if magic < 2:
        return mutate_messages(rng, plain, others)[:MOST_PLAIN], count
    records = parse(plain)
    if records is None:
        return mutators.mutate(rng, plain, others, 1), count + rng.choice((0, 0, 1, -1))
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        mutate_records(rng, records, others)
    count = len(records) if rng.random() < 0.95 else mutators.number(rng, 16)
    return b"".join(write(rng, record) for record in records)[:MOST_PLAIN], count


# --- records ---------------------------------------------------------------------------------------

Record = list[Any]  # attributes, time delta, offset delta, key, value, headers as lists of two


def parse(plain: bytes) -> list[Record] | None:
    """Records that fill the bytes, or None."""
    at = 0

    def varint() -> int:
        nonlocal at
        raw = shift = 0
        while True:
            byte = plain[at]
            at += 1
            raw |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return generate.wrap((raw >> 1) ^ -(raw & 1))

    def string() -> bytes | None:
        nonlocal at
        size = varint()
        at += max(0, size)
        return None if size < 0 else plain[at - size : at]

    records: list[Record] = []
    try:
        while at < len(plain):
            varint()
            at += 1
            record: Record = [plain[at - 1], varint(), varint(), string(), string()]
            records.append([*record, [[string(), string()] for _ in range(min(varint(), 5000))]])
    except IndexError:
        return None
    return records if at == len(plain) else None


def mutate_records(rng: random.Random, records: list[Record], others: Others) -> None:
    if not records or rng.random() < 0.1:
        records.insert(rng.randrange(len(records) + 1), [0, 0, len(records), b"k", b"v", []])
    at = rng.randrange(len(records))
    record = records[at]
    how = rng.randrange(12)
    if how == 0:
        records[at:at] = [list(record) for _ in range(rng.choice((1, 1, 2, 8, 70)))]
    elif how == 1:
        del records[at]
    elif how == 2:
        record[0] = rng.choice(mutators.BYTES)
    elif how == 3:
        record[1] = mutators.number(rng)
    elif how == 4:
        record[2] = mutators.number(rng, 32)
    elif how < 9:
        record[rng.choice((3, 4))] = string(rng, record[4], others)
    else:
        headers = [list(pair) for pair in record[5]]
        if headers and rng.random() < 0.3:
            del headers[rng.randrange(len(headers))]
        elif headers and rng.random() < 0.7:
            pair = rng.choice(headers)
            which = rng.randrange(2)
            pair[which] = string(rng, pair[which], others)
        else:
            headers += [[rng.choice((b"h", "ключ".encode(), b"\xed\xa0\x80")), b"v"]] * rng.choice((1, 1, 2, 40))
        record[5] = headers


def string(rng: random.Random, old: bytes | None, others: Others) -> bytes | None:
    how = rng.random()
    if how < 0.15:
        return None
    if how < 0.5 and old:
        return mutators.mutate(rng, old, others, 1)[:2000]
    return (rng.choice(mutators.WORDS) + bytes(300))[: rng.choice(LENGTHS)]


def write(rng: random.Random, record: Record) -> bytes:
    """The record's bytes; seldom with a needlessly long varint or a wrong length."""
    attributes, time, offset, key, value, headers = record
    pad = rng.randrange(1, 5) if rng.random() < 0.02 else 0
    body = bytes([attributes]) + generate.varint(time) + generate.varint(offset, pad)
    body += generate.sized(key) + generate.sized(value) + generate.varint(len(headers))
    body += b"".join(generate.sized(part) for pair in headers for part in pair)
    wrong = rng.choice((1, -1, 7)) if rng.random() < 0.02 else 0
    return generate.varint(len(body) + wrong) + body


# --- inner messages --------------------------------------------------------------------------------


def seal_inner(rng: random.Random, plain: bytes) -> bytes:
    """CRCs of inner messages made right where sizes lead to them."""
    return b"".join(seal(rng, piece) if piece[16:17] in (b"\0", b"\1") else piece for piece in split(plain))


def mutate_messages(rng: random.Random, plain: bytes, others: Others) -> bytes:
    messages = split(plain)
    if not messages or rng.random() < 0.1:
        messages.append(generate.message(len(messages), rng.randrange(2), 0, 7, b"k", b"v"))
    at = rng.randrange(len(messages))
    how = rng.randrange(6)
    if how == 0:
        messages[at:at] = [messages[at]] * rng.choice((1, 1, 2, 30))
    elif how == 1:
        del messages[at]
    elif how == 2:
        messages[at] = seal(rng, header_field(rng, messages[at]))
    elif how == 3:
        messages[at] = seal(rng, mutators.mutate(rng, messages[at], others, 1))
    else:
        key, value = string(rng, None, others), string(rng, b"value", others)
        time = mutators.number(rng)
        messages[at] = generate.message(mutators.number(rng), rng.randrange(2), rng.choice((0, 0, 8)), time, key, value)
    return b"".join(messages)
