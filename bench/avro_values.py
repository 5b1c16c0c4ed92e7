"""Avro values into columns, beside fastavro: values a second."""

from __future__ import annotations

import io
import random
from typing import Any

import fastavro
import pyarrow as pa

import kts.avro

from .table import Report, cpu_seconds, medians, reached

GOAL_MROWS = 5.0
SCHEMA: Any = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": "string"},
        {"name": "price", "type": "double"},
        {"name": "discount", "type": ["null", "int"]},
        {"name": "note", "type": "string"},
    ],
}
ID = 7  # of the schema in a registry


def values(count: int, seed: int) -> list[bytes]:
    """Values of about 100 B."""
    rng, found = random.Random(seed), []
    for number in range(count):
        out = io.BytesIO()
        row = {"id": rng.getrandbits(40), "customer": f"customer {number % 1000}", "price": rng.random()}
        row |= {"discount": rng.choice([None, 5, 10_000]), "note": "n" * rng.randint(50, 80)}
        fastavro.schemaless_writer(out, SCHEMA, row)
        found.append(out.getvalue())
    return found


def by_fastavro(data: list[bytes], type_: pa.DataType) -> pa.Array:
    parsed = fastavro.parse_schema(SCHEMA)
    return pa.array([fastavro.schemaless_reader(io.BytesIO(one), parsed, None) for one in data], type_)


def run(report: Report, total_bytes: int, seed: int, rounds: int) -> None:
    """One table: plain values, and those behind the id of their schema that are read as a later one."""
    data = values(total_bytes // 100, seed)
    later = SCHEMA | {"fields": [*SCHEMA["fields"], {"name": "more", "type": ["null", "string"], "default": None}]}
    plain, framed = kts.avro.AvroDecoder(SCHEMA), kts.avro.AvroDecoder({ID: SCHEMA}, reader_schema=later)
    column = pa.array(data, pa.binary())
    prefixed = pa.array([b"\0" + ID.to_bytes(4, "big") + one for one in data], pa.binary())
    if not plain.decode(column).equals(by_fastavro(data, plain.type)):
        raise ValueError("expected what fastavro reads")
    names = ["kts.avro", "kts.avro, by ids, with a schema of one field more", "fastavro and pyarrow.array"]
    works = [
        lambda: plain.decode(column),
        lambda: framed.decode(prefixed),
        lambda: by_fastavro(data, plain.type),
    ]
    found = medians({name: cpu_seconds(work) for name, work in zip(names, works, strict=True)}, rounds)
    rates = {name: len(data) / seconds / 1e6 for name, seconds in found.items()}
    size = sum(map(len, data)) // len(data)
    report.table(
        f"Avro values of {size} B and five fields into columns",
        ["what", "M values per CPU s", "goal", "reached", "times fastavro's"],
        [
            [name, f"{rate:.2f}", f"{GOAL_MROWS}", reached(rate, GOAL_MROWS), f"{rate / rates[names[2]]:.1f}"]
            if name != names[2]
            else [name, f"{rate:.2f}", "", "", ""]
            for name, rate in rates.items()
        ],
    )
