"""What is fuzzed: how an input becomes bytes for the codec, where inputs begin, and how one becomes another."""

from __future__ import annotations

import random
import struct
from typing import Any, Protocol

from support.golden import golden_logs
from support.reference import reference, reference_codecs
from support.sets import codec_streams, generate

from fuzz import checks, frames, mutators, structure
from fuzz.avro_target import AvroTarget
from fuzz.indexes import IndexTarget

Others = list[bytes]
SMALL = 700


class Target(Protocol):
    """A name, first inputs, and the three things done with an input."""

    name: str

    def seeds(self, rng: random.Random) -> list[bytes]: ...

    def mutate(self, rng: random.Random, data: bytes, others: Others) -> bytes: ...

    def buffer(self, data: bytes) -> bytes:
        """What the library is given; a find is kept in this form."""
        ...

    def check(self, buffer: bytes, rng: random.Random, full: bool) -> Exception | None:
        """Raises for a promise broken; the damage, or None for sound data."""
        ...


class Entries:
    """Message sets and record batches: the input is the buffer itself."""

    name = "entries"

    def seeds(self, rng: random.Random) -> list[bytes]:
        found = [generate.random_buffer(rng, 3)[0] for _ in range(200)]
        kinds = {}
        for log in golden_logs():
            data = log.read_bytes()
            for at, size, magic in reference.entries(data):
                if size < SMALL:
                    kinds.setdefault((magic, data[at + 22 if magic == 2 else at + 17]), data[at : at + size])
        return [*found, *kinds.values()]

    def mutate(self, rng: random.Random, data: bytes, others: Others) -> bytes:
        for _ in range(rng.choice((1, 1, 1, 2, 4))):
            if rng.random() < 0.7:
                data = structure.mutate_entries(rng, data, others)
            else:
                data = mutators.mutate(rng, data, others, rng.choice((1, 1, 2, 4)))
                data = generate.reseal(data) if rng.random() < 0.7 else data
        return data

    def buffer(self, data: bytes) -> bytes:
        return data

    def check(self, buffer: bytes, rng: random.Random, full: bool) -> Exception | None:
        return checks.check(buffer, rng, full)


class Frames(Entries):
    """Compressed payloads of one codec: magic (1 byte), record count (2 bytes), payload."""

    HEAD = struct.Struct(">Bh")

    def __init__(self, codec: int) -> None:
        self.codec = codec
        self.name = reference_codecs.CODEC_NAMES[codec]

    def seeds(self, rng: random.Random) -> list[bytes]:
        found = [self.HEAD.pack(2, case.count) + case.payload for case in codec_streams.TABLES[self.name][1]]
        for _ in range(60):
            magic = 2 if self.codec == reference_codecs.ZSTD else rng.choice((0, 1, 2, 2))
            plain, count = self.plain(rng, magic)
            found.append(self.HEAD.pack(magic, count) + generate.compress(rng, self.codec, magic, plain))
        return found

    def plain(self, rng: random.Random, magic: int) -> tuple[bytes, int]:
        recs = generate.recs(rng, rng.choice((1, 2, 5)))
        if magic == 2:
            return b"".join(generate.record(i, 0, rec) for i, rec in enumerate(recs)), len(recs)
        return b"".join(generate.message(i, magic, 0, 5, rec.key, rec.value) for i, rec in enumerate(recs)), len(recs)

    def mutate(self, rng: random.Random, data: bytes, others: Others) -> bytes:
        magic, count = self.HEAD.unpack_from(data.ljust(3, b"\0"))
        payload = data[3:]
        how = rng.random()
        if how < 0.03:
            magic, count = rng.choice((0, 1, 2, 2)), count + rng.choice((0, 1, -1))
        elif how < 0.15:
            plain = frames.plain_of(self.codec, magic % 3, payload)
            plain, count = structure.mutate_plain(rng, magic % 3, plain, count, others)
            payload = frames.frame(rng, self.codec, magic % 3, plain)
        else:
            other = rng.choice(others)[3:] if others else b""
            payload = mutators.mutate(rng, payload, [other], rng.choice((1, 1, 1, 2, 4)))
            if rng.random() < 0.6:
                payload = frames.repair_frame(self.codec, payload)
        return self.HEAD.pack(magic % 3, generate.wrap(count, 16)) + payload

    def buffer(self, data: bytes) -> bytes:
        magic, count = self.HEAD.unpack_from(data.ljust(3, b"\0"))
        if magic % 3 == 2:
            return generate.batch(data[3:], count, attributes=self.codec, last_delta=max(0, count - 1))
        return generate.message(1 << 40, magic % 3, self.codec, 7, None, data[3:])


class Plain(Entries):
    """What is inside a batch or wrapper, compressed by this class: see ``HEAD``, then records or inner messages."""

    name = "plain"
    # magic and codec, seed of the compression, attributes, record count, last offset delta, offset, time
    HEAD = struct.Struct(">BBhhiqq")
    KINDS = ((2, 0), (2, 1), (2, 2), (2, 3), (2, 4), (1, 1), (1, 2), (1, 3), (0, 1), (0, 2), (0, 3))

    MOST_REPEATED = 100_000
    TIMES = {20: 3, 21: 10, 22: 40, 23: 100}  # by what is left of the first byte: as much again and again

    def seeds(self, rng: random.Random) -> list[bytes]:
        found = []
        for _ in range(150):
            kind, recs = rng.randrange(len(self.KINDS)), generate.recs(rng, rng.choice((0, 1, 2, 5)))
            base = recs[0].offset if recs else 0
            if self.KINDS[kind][0] == 2:
                plain = b"".join(generate.record(rec.offset - base, i, rec) for i, rec in enumerate(recs))
            else:
                magic = self.KINDS[kind][0]
                messages = [(rec.offset - base, magic, 0, rec.timestamp, rec.key, rec.value) for rec in recs]
                plain = b"".join(generate.message(*message) for message in messages)
            attributes, time = rng.choice((0, 0, 8, 16, 32, 48)), rng.choice(generate.TIMES)
            found.append(self.HEAD.pack(kind, 0, attributes, len(recs), len(recs), base, time) + plain)
        return found

    def head(self, data: bytes) -> tuple[list[Any], bytes]:
        size = self.HEAD.size
        return list(self.HEAD.unpack_from(data.ljust(size, b"\0"))), data[size:]

    def mutate(self, rng: random.Random, data: bytes, others: Others) -> bytes:
        head, plain = self.head(data)
        magic = self.KINDS[head[0] % len(self.KINDS)][0]
        if rng.random() < 0.2:
            at = rng.randrange(len(head))
            bits = (8, 8, 16, 16, 32, 64, 64)[at]
            number = mutators.number(rng, bits)
            head[at] = number % 256 if at < 2 else number
        else:
            other = self.head(rng.choice(others))[1] if others else b""
            plain, count = structure.mutate_plain(rng, magic, plain, head[3], [other])
            head[3] = generate.wrap(count, 16)
        return self.HEAD.pack(*head) + plain

    def buffer(self, data: bytes) -> bytes:
        (kind, seed, attributes, count, last_delta, offset, time), plain = self.head(data)
        magic, codec = self.KINDS[kind % len(self.KINDS)]
        times = min(self.TIMES.get(kind // len(self.KINDS), 1), 1 + self.MOST_REPEATED // (len(plain) + 1))
        plain, count = plain * times, count * times
        attributes = attributes & ~7 | codec
        if codec:
            plain = frames.frame(random.Random(seed), codec, magic, plain)
        if magic < 2:
            return generate.message(offset, magic, attributes, time, None, plain)
        more = {"pid": offset, "sequence": last_delta} if attributes & 16 else {}
        head = {"base": offset, "last_delta": last_delta, "attributes": attributes, "base_time": time, "max_time": time}
        return generate.batch(plain, count, **head, **more)


def targets() -> dict[str, Target]:
    """Every target by name."""
    found: list[Target] = [Entries(), Plain(), *(Frames(codec) for codec in (1, 2, 3, 4))]
    found += [IndexTarget("timeindex"), IndexTarget("offsetindex"), AvroTarget()]
    return {target.name: target for target in found}
