"""What kts.encode writes, the slow reference decoder reads: random rows of every magic, codec and shape."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest
from support.golden import scaled
from support.reference import reference
from support.reference.decoded import difference
from support.sets import generate

import kts

Row = dict[str, Any]
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
FORMATS = [(magic, codec) for magic in (0, 1, 2) for codec in CODECS[: 5 if magic == 2 else 4]]
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def random_rows(rng: random.Random, headers: bool) -> list[generate.Rec]:
    while True:
        rows = generate.recs(rng, rng.choice((1, 2, 5, 40)))
        if rows[-1].offset < 2**63:
            return [row if headers else row._replace(headers=()) for row in rows]


def columns(rows: list[generate.Rec]) -> dict[str, pa.Array]:
    pairs = [[{"key": reference.java_utf8(name), "value": value} for name, value in row.headers] for row in rows]
    return {
        "offset": pa.array([row.offset for row in rows], pa.int64()),
        "timestamp": pa.array([row.timestamp for row in rows], pa.int64()),
        "key": pa.array([row.key for row in rows], pa.binary()),
        "value": pa.array([row.value for row in rows], pa.binary()),
        "headers": pa.array([each or None for each in pairs], HEADERS),
    }


def wanted(rows: list[generate.Rec], magic: int, codec: str, append_time: int | None) -> list[Row]:
    """What a reader must see."""
    found = []
    for row in rows:
        own = -1 if magic == 0 else row.timestamp
        replaced = (
            append_time is not None and magic == 1 and codec == "none"
        )  # a plain message has one place for a time
        found.append(
            {
                "offset": row.offset,
                "timestamp": own if append_time is None else append_time,
                "createTimestamp": None if replaced else own,
                "timestampType": -1 if magic == 0 else int(append_time is not None),
                "key": row.key,
                "value": row.value,
                "headers": [(reference.java_utf8(name), value) for name, value in row.headers] or None,
                "magic": magic,
                "codec": CODECS.index(codec),
            }
        )
    return found


@pytest.mark.parametrize(("magic", "codec"), FORMATS)
def test_what_is_encoded_is_what_the_reference_reads(seed: int, magic: int, codec: str) -> None:
    for i in range(scaled(40, 200)):
        where = f"KTS_SEED={seed}, magic {magic}, {codec}, {i}"
        rng = random.Random(where)
        rows = random_rows(rng, headers=magic == 2)
        append_time = rng.choice((None, None, 1_650_000_000_000, -1)) if magic else None
        data = kts.encode(
            columns(rows),
            magic=magic,
            compression=codec,
            batch_bytes=rng.choice((1, 100, 1000, 16384)),
            timestamp_type="CreateTime" if append_time is None else "LogAppendTime",
            log_append_time_ms=append_time,
        )
        expected = wanted(rows, magic, codec, append_time)
        got = [{name: row[name] for name in expected[0]} for row in reference.decode(data)]
        assert difference(got, expected) is None, f"{where}: {difference(got, expected)}"
        for batch in reference.scan_batches(data):
            assert batch["crcOk"], where
            within = [row for row in reference.decode(data) if row["position"] == batch["position"]]
            assert batch["lastOffset"] == within[-1]["offset"], where
            if magic and append_time is None:
                assert batch["maxTimestamp"] == max([-1] + [row["timestamp"] for row in within]) or (
                    magic == 1 and codec == "none"
                ), where


def test_random_batches_are_encoded_again_as_they_were(seed: int) -> None:
    compared = 0
    for i in range(scaled(400, 1500)):
        where = f"KTS_SEED={seed}, {i}"
        data, _ = generate.random_buffer(random.Random(where))
        expected = reference.decode(data)
        outer = {at: magic for at, _, magic in reference.entries(data)}
        if any(row["magic"] != outer[row["position"]] for row in expected):
            continue  # inner messages of another magic than their wrapper's: the rows do not say which that was
        rows = kts.decode(data, kts.ALL_COLUMNS)
        pairs = zip(expected, expected[1:], strict=False)
        if any(a["position"] == b["position"] and a["offset"] >= b["offset"] for a, b in pairs):
            with pytest.raises(ValueError, match="rise strictly"):
                kts.encode(rows, preserve_batches=True)
            continue
        again = reference.decode(kts.encode(rows, preserve_batches=True))
        for row in [*again, *expected]:
            del row["position"]  # batches without records are gone, and compressors differ
        assert difference(again, expected) is None, f"{where}: {difference(again, expected)}"
        compared += len(again)
    print(f"{compared} records")
    assert compared > scaled(1000, 5000)


def test_random_plain_batches_come_back_byte_for_byte(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(scaled(250, 1000)):
        rows = random_rows(rng, headers=True)
        rows = [row._replace(headers=[(n, v) for n, v in row.headers if b"\xed" not in n]) for row in rows]
        data = b"".join(
            generate.message(row.offset, rng.randrange(2), rng.choice((0, 8, -128)), row.timestamp, row.key, row.value)
            for row in rows
        )
        base = max(rows[0].offset - rng.choice((0, 3)), 0)
        data += generate.batch(
            b"".join(
                generate.record(row.offset - base, generate.wrap(row.timestamp - rows[0].timestamp), row)
                for row in rows
            ),
            len(rows),
            base=base,
            last_delta=rows[-1].offset - base + rng.choice((0, 5)),
            attributes=rng.choice((0, 8, 16, 32, 48, 64, 0x7F80)),
            base_time=rows[0].timestamp,
            max_time=rng.choice(generate.TIMES),
            pid=rng.choice((-1, 4000)),
            epoch=rng.choice((-1, 7)),
            sequence=rng.choice((-1, 0, 12, 2**31 - 3)),
            leader_epoch=rng.choice((-1, 0, 9)),
        )
        assert kts.encode(kts.decode(data, kts.ALL_COLUMNS), preserve_batches=True) == data, f"KTS_SEED={seed}"
