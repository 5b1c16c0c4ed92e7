"""The columns of Avro values: they grow, and a value that is refused leaves nothing in them, wherever it ends."""

from __future__ import annotations

import io
import random
from typing import Any

import fastavro
import pyarrow as pa
from support.reference.avro_reference import SchemaMaker, random_value, shown, stripped

import kts.avro


def written(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, value)
    return out.getvalue()


def test_what_is_cut_anywhere_leaves_nothing_in_the_columns(rng: random.Random) -> None:
    for _ in range(40):
        schema = stripped(SchemaMaker(rng).record())
        sound = [written(schema, random_value(rng, schema)) for _ in range(60)]
        decoder = kts.avro.AvroDecoder(schema)
        right = shown(decoder.decode(pa.array(sound, pa.binary())))
        values, expected = list[bytes](), list[Any]()
        for value, row in zip(sound, right, strict=True):
            for _ in range(rng.randrange(4)):
                cut = rng.randrange(len(value) or 1)
                if cut < len(value):
                    values.append(value[:cut])
                    expected.append(None)
            values.append(value)
            expected.append(row)
        found = decoder.decode_all(pa.array(values, pa.binary()))
        found.values.validate(full=True)
        assert repr(shown(found.values)) == repr(expected), schema
        assert sorted(found.refused) == [row for row, one in enumerate(expected) if one is None]


def test_columns_grow_with_what_is_put_into_them() -> None:
    """Of one value, from one item to a million: the bitmap, the offsets and the bytes of a list's items."""
    told = {"type": "array", "items": ["null", "string"]}
    for count in (1, 7, 8, 9, 63, 64, 65, 511, 1025, 100_001):
        data = written(told, [None if number % 3 == 0 else "x" * (number % 5) for number in range(count)])
        found = kts.avro.decode(pa.array([b"\0", data, None, data], pa.binary()), told)
        found.validate(full=True)
        assert found[1].as_py() == found[3].as_py() == [
            None if number % 3 == 0 else "x" * (number % 5) for number in range(count)
        ]  # fmt: skip


def test_defaults_of_wide_records_end_at_a_bound() -> None:
    """Each item of a byte would become 5,001 columns' worth: half a second of filling, then the refusal."""
    wide = [{"name": f"f{number}", "type": "int", "default": 1} for number in range(5000)]
    writer = {"type": "array", "items": {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}}
    reader = {
        "type": "array",
        "items": {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}, *wide]},
    }
    values = [written(writer, [{"a": 1}] * count) for count in (3, 10_000)]
    decoder = kts.avro.AvroDecoder(writer, reader_schema=reader)
    found = decoder.decode_all(pa.array(values, pa.binary()))
    assert len(found.values[0]) == 3 and found.values[0][2].as_py()["f4999"] == 1
    assert found.refused[1].startswith("it has more than 16,777,216 fields and items")
