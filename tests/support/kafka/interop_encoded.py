"""Random batches written by `kts.encode`, and what any reader must find in them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from support.kafka.interop import Ints, Read, column, header_lists

import kts

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
LEVELS = {"none": (None,), "snappy": (None,), "gzip": range(1, 10), "lz4": range(17), "zstd": (-7, 1, 2, 5, 9, 13, 19)}
I64 = np.iinfo(np.int64)
I32_MAX, I16_MAX = 2**31 - 1, 2**15 - 1
OFFSETS = (0, 0, 0, 1, 100, I32_MAX - 3, 2**31, 2**40, 2**62)
TIMES = (-1, 0, 1, 1_500_000_000_000, 1_700_000_123_456, 253_402_300_799_999, -2, -62_135_596_800_000, I64.min, I64.max)
NAMES = np.array(["", "h", "trace-id", "größe", "\U0001f600", "x" * 70], object)
FOLLOW = ("magic", "baseOffset", "lastOffset", "count", "baseTimestamp", "maxTimestamp", "baseSequence")
PRODUCER = ("producerId", "producerEpoch", "partitionLeaderEpoch", "transactional", "control")


class Encoded(NamedTuple):
    """The sets, one a call; the rows that went in, as they must come out; their own times; a call's number of
    rows and base sequence."""

    sets: list[bytes]
    rows: pa.Table
    created: Ints
    counts: Ints
    base_sequences: Ints


def encoded(seed: int, calls: int) -> Encoded:
    """Of every magic, codec and level, with extreme offsets and times; small batches, now and then a large one."""
    rng = np.random.default_rng(seed)
    counts = np.where(rng.random(calls) < 0.005, 150, rng.integers(1, 9, calls))
    facts = _facts(rng, calls)
    rows = _rows(rng, counts, np.repeat(facts["magic"] == 2, counts))
    sets, first = [], 0
    for call, count in enumerate(counts.tolist()):
        fact = {name: values[call].item() for name, values in facts.items()}
        sets.append(kts.encode(rows.slice(first, count), **_arguments(rng, fact)))
        first += count
    return Encoded(sets, _expected(rows, counts, facts), rows.column("timestamp").to_numpy(), counts, facts["sequence"])


def _rows(rng: np.random.Generator, counts: Ints, may_have_headers: Any) -> pa.RecordBatch:
    total, calls = int(counts.sum()), len(counts)
    firsts = np.cumsum(counts) - counts
    kind = rng.random(total)
    steps = np.where(kind < 0.8, 1, np.where(kind < 0.99, rng.integers(2, 10, total), rng.integers(1, 2**33, total)))
    offsets = np.cumsum(steps)
    offsets -= np.repeat(offsets[firsts], counts)
    bases = rng.choice(OFFSETS, calls)
    bases = np.where(rng.random(calls) < 0.1, I64.max - offsets[firsts + counts - 1], bases)
    near = np.repeat(rng.choice(TIMES, calls), counts)
    times = np.where(rng.random(total) < 0.1, rng.choice(TIMES, total), near + rng.integers(-1000, 1000, total))
    headers = np.where(may_have_headers & (rng.random(total) < 0.3), rng.integers(1, 5, total), 0)
    keys = pa.array(rng.choice(NAMES, int(headers.sum())), pa.string())
    return pa.RecordBatch.from_pydict(
        {
            "offset": pa.array(offsets + np.repeat(bases, counts), pa.int64()),
            "timestamp": pa.array(times, pa.int64()),
            "key": _blobs(rng, total, 20),
            "value": _blobs(rng, total, 200),
            "headers": header_lists(headers, keys, _blobs(rng, len(keys), 30)),
        }
    )


def _blobs(rng: np.random.Generator, count: int, most: int) -> pa.Array:
    """Byte strings: null, empty, random, all alike; one in some thousands is large."""
    kind = rng.random(count)
    sizes = np.where(kind < 0.15, 0, rng.integers(1, most, count))
    sizes = np.where(kind > 0.9997, 70_000, sizes).tolist()
    noise, letters = rng.bytes(140_000), bytes(range(97, 123)) * 3000
    starts = rng.integers(0, 70_000, count).tolist()
    alike = (rng.random(count) < 0.5).tolist()
    return pa.array(
        [
            None if null else letters[:size] if same else noise[start : start + size]
            for null, size, same, start in zip((kind < 0.1).tolist(), sizes, alike, starts, strict=True)
        ],
        pa.binary(),
    )


def _facts(rng: np.random.Generator, calls: int) -> dict[str, Any]:
    """What each call says of its batches; -1 and false where its format cannot say it."""

    def some(chance: float) -> Any:
        return rng.random(calls) < chance

    magic = rng.choice((0, 1, 2, 2, 2), calls)
    batches = magic == 2
    producer = batches & some(0.3)

    def of(which: Any, *values: int) -> Any:
        return np.where(which, rng.choice(np.array(values, np.int64), calls), -1)

    return {
        "magic": magic,
        "codec": np.where(batches, rng.integers(0, 5, calls), rng.integers(0, 4, calls)),
        "append": (magic > 0) & some(0.3),
        "time": rng.choice(TIMES, calls),
        "batchBytes": rng.choice((1, 200, 400, 16384, 16384, I32_MAX), calls),
        "producerId": of(producer, 0, 1, 4000, 2**62, I64.max),
        "producerEpoch": of(producer, 0, 5, I16_MAX),
        "sequence": of(producer, -1, 0, 7, I32_MAX - 2, I32_MAX),
        "partitionLeaderEpoch": of(batches, -1, 0, 3, I32_MAX),
        "transactional": producer & some(0.5),
        "control": producer & some(0.2),
    }


def _arguments(rng: np.random.Generator, fact: dict[str, Any]) -> dict[str, Any]:
    codec = CODECS[fact["codec"]]
    arguments = {
        "magic": fact["magic"],
        "compression": codec,
        "level": rng.choice(np.array(LEVELS[codec], object)) if rng.random() < 0.2 else None,
        "batch_bytes": fact["batchBytes"],
    }
    if fact["append"]:
        arguments |= {"timestamp_type": "LogAppendTime", "log_append_time_ms": fact["time"]}
    if fact["magic"] == 2:
        arguments |= {
            "producer_id": fact["producerId"],
            "producer_epoch": fact["producerEpoch"],
            "base_sequence": fact["sequence"],
            "partition_leader_epoch": fact["partitionLeaderEpoch"],
            "transactional": fact["transactional"],
            "control": fact["control"],
        }
    return arguments


def _expected(rows: pa.RecordBatch, counts: Ints, facts: dict[str, Any]) -> pa.Table:
    """The rows as decoded, but for what follows from how they were cut into batches."""
    row = {name: np.repeat(values, counts) for name, values in facts.items()}
    magic, append = row["magic"], row["append"]
    times = np.where(append, row["time"], rows.column("timestamp").to_numpy())
    row["timestamp"] = np.where(magic == 0, -1, times)
    row["timestampType"] = np.where(magic == 0, -1, append)
    schema = kts.decode(b"", [*kts.codec.columns.DEFAULT_COLUMNS, "magic", "codec", *PRODUCER]).schema
    arrays = [
        rows.column(field.name)
        if field.name in ("offset", "key", "value", "headers")
        else column(row[field.name].astype(np.int64), field)
        for field in schema
    ]
    return pa.table(arrays, schema)


def batches_of(made: Encoded, read: Read) -> dict[str, tuple[Ints, Ints]]:
    """Header fields (as read, as they follow from the rows inside and from the call), and the rows' sequences."""
    offsets, positions = made.rows["offset"].to_numpy(), read.records["position"].to_numpy()
    begins = np.ones(len(offsets), bool)
    begins[1:] = positions[1:] != positions[:-1]
    begins[np.cumsum(made.counts)[:-1]] = True
    firsts = np.flatnonzero(begins)
    sizes = np.diff(firsts, append=len(offsets))
    got = {name: pc.fill_null(read.batches[name].cast(pa.int64()), 0).to_numpy() for name in FOLLOW}
    magic, wrapped = got["magic"], read.batches["codec"].to_numpy() != 0
    batch = magic == 2

    created = made.created[firsts]
    greatest = np.maximum(np.maximum.reduceat(made.created, firsts), -1)
    own = np.where(batch | wrapped, greatest, created)
    append = read.batches["timestampType"].to_numpy() == 1
    times = np.where(append, made.rows["timestamp"].cast(pa.int64()).to_numpy()[firsts], own)
    times = np.where(magic == 0, -1, times)

    base, last = offsets[firsts], offsets[firsts + sizes - 1]
    stated = got["baseSequence"]
    follow = np.where(stated < 0, -1, (stated + last - base + 1) % 2**31)
    sequences = np.concatenate([[0], follow[:-1]])
    sequences[np.cumsum(read.batch_counts) - read.batch_counts] = made.base_sequences
    row_base, row_stated = np.repeat(base, sizes), np.repeat(stated, sizes)
    row_sequences = np.where(row_stated < 0, -1, (row_stated + offsets - row_base) % 2**31)

    unsaid = wrapped & ~batch
    return {
        "magic": (magic, made.rows["magic"].to_numpy()[firsts]),
        "baseOffset": (got["baseOffset"], np.where(unsaid, 0, base)),
        "lastOffset": (got["lastOffset"], last),
        "count": (got["count"], np.where(unsaid, 0, sizes)),
        "baseTimestamp": (got["baseTimestamp"], np.where(batch, created, times)),
        "maxTimestamp": (got["maxTimestamp"], times),
        "baseSequence": (stated, sequences),
        "sequence": (read.records["sequence"].to_numpy(), row_sequences),
    }
