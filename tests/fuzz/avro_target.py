"""What must hold for any bytes as an Avro value: what its specification says, and within bounds."""

from __future__ import annotations

import io
import json
import random
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
from support.reference.avro_reference import AvroCursor, SchemaMaker, Unsound, random_value, shown, stripped

import kts.avro
from fuzz import mutators
from fuzz.checks import GUARD, need

SCHEMAS: list[Any] = [stripped(SchemaMaker(random.Random(number)).record()) for number in range(48)]
NOTHING = {"type": "record", "name": "Nothing", "fields": []}
MOST_BYTES = 200_000  # of an array that the slow reader makes, too
BOUNDS = ("it has too many fields", "more than 65,536 items", "it has more than 16,777,216")


class AvroTarget:
    """Input: which schema (1 byte), then the value."""

    name = "avro"

    def __init__(self) -> None:
        self.decoders: dict[int, tuple[kts.avro.AvroDecoder, kts.avro.AvroDecoder]] = {}

    def seeds(self, rng: random.Random) -> list[bytes]:
        found = []
        for number, schema in enumerate(SCHEMAS):
            for _ in range(3):
                out = io.BytesIO()
                fastavro.schemaless_writer(out, schema, random_value(rng, schema))
                found.append(bytes([number]) + out.getvalue()[:600])
        return found

    def mutate(self, rng: random.Random, data: bytes, others: list[bytes]) -> bytes:
        head = bytes([rng.randrange(256)]) if rng.random() < 0.05 else data[:1]
        other = rng.choice(others)[1:] if others else b""
        return head + mutators.mutate(rng, data[1:], [other], rng.choice((1, 1, 2, 4)))

    def buffer(self, data: bytes) -> bytes:
        return data or b"\0"

    def check(self, buffer: bytes, rng: random.Random, full: bool) -> Exception | None:
        """Decode the value between others, and skip it; the memory ends where it does."""
        number, value = buffer[0] % len(SCHEMAS), buffer[1:]
        schema = SCHEMAS[number]
        if number not in self.decoders:
            skipping = kts.avro.AvroDecoder(schema, reader_schema=NOTHING)
            self.decoders[number] = kts.avro.AvroDecoder(schema), skipping
        decoder, skipping = self.decoders[number]
        edges = np.array([0, len(value), len(value), 2 * len(value)], np.int32)
        data = pa.py_buffer(GUARD.put(value + value))
        column = pa.Array.from_buffers(pa.binary(), 3, [pa.py_buffer(b"\5"), pa.py_buffer(edges), data])
        found = decoder.decode_all(column)
        found.values.validate(full=True)
        need(found.refused.keys() in (set(), {0, 2}), f"rows {sorted(found.refused)} are refused")
        why = found.refused.get(0)
        if found.values.nbytes < MOST_BYTES and not (why or "").startswith(BOUNDS):
            try:
                right = AvroCursor(value).whole(schema)
            except Unsound:
                right = None
            need((why is None) == (right is not None), f"{why}, and the specification: {right is not None}")
            need(repr(shown(found.values)) == repr([right, None, right]), json.dumps(schema))
        passed = skipping.decode_all(column)
        need(not passed.refused or why is not None, f"{passed.refused}, though the value is sound")
        return None if why is None else ValueError(why)
