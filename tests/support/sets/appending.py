"""Sets as producers send them and topics to append them to, for the tests of the validator."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from support.sets import generate
from support.sets.generate import Rec, message

import kts
from kts.codec.validate import Validated, validate
from kts.compression import compressor
from kts.config import LogConfig

NOW = 1_500_000_000_000
START = 1000
FORMATS = {0: "0.9.0", 1: "0.10.2", 2: "3.0"}
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
GENERATIONS = ("0.10.2", "3.9")
LAT = {"message_timestamp_type": "LogAppendTime"}
LIMITED = {"message_timestamp_difference_max_ms": 1000}
COMPACTED = {"cleanup_policy": "compact"}
T0 = Rec(0, NOW, b"k", b"v")


def topic(magic: int = 1, *, generation: str | None = None, **settings: Any) -> LogConfig:
    """A topic of a message format; settings are Kafka's with underscores."""
    keys = {name.replace("_", "."): value for name, value in settings.items()}
    return LogConfig.of({"message.format.version": FORMATS[magic], **keys}, generation=generation)


def produced(
    rng: random.Random, magic: int, codec: int, records: Sequence[Rec], *, wrapper_offset: int | None = None
) -> bytes:
    """One batch or wrapper, or messages where nothing is compressed; offsets count from 0 as producers write them."""
    if magic == 2:
        base = records[0].timestamp
        payload = b"".join(generate.record(i, rec.timestamp - base, rec) for i, rec in enumerate(records))
        return generate.batch(
            generate.compress(rng, codec, 2, payload) if codec else payload,
            len(records),
            last_delta=len(records) - 1,
            attributes=codec,
            base_time=base,
            max_time=max(rec.timestamp for rec in records),
        )
    plain = b"".join(message(i, magic, 0, rec.timestamp, rec.key, rec.value) for i, rec in enumerate(records))
    if not codec:
        return plain
    last = len(records) - 1 if wrapper_offset is None else wrapper_offset
    time = max(rec.timestamp for rec in records)
    return message(last, magic, codec, time, None, generate.compress(rng, codec, magic, plain))


def plain(*timestamps: int, magic: int = 1, attributes: int = 0) -> bytes:
    """Messages with these times."""
    return b"".join(message(7 + i, magic, attributes, time, b"k", b"v") for i, time in enumerate(timestamps))


def wrapper(inner: bytes, *, offset: int = 0, magic: int = 1, attributes: int = 0, time: int = NOW) -> bytes:
    """A gzip wrapper around the bytes as they are."""
    return message(offset, magic, 1 | attributes, time, None, compressor(1, magic, None)(inner))


def batch(payload: bytes, count: int = 1, **how: int) -> bytes:
    """A record batch around the bytes as they are."""
    return generate.batch(payload, count, **({"last_delta": count - 1, "base_time": NOW, "max_time": NOW} | how))


def append(data: bytes, config: LogConfig, *, shipped: bool = False, **how: Any) -> Validated:
    asked = {"offset": START, "now_ms": NOW, "config": config, "behaviour": config.behaviour(shipped)}
    return validate(data, **(asked | how))


def refusal(data: bytes, config: LogConfig, **how: Any) -> kts.KtsError:
    """The error that the set is refused with; the buffer it came in is unchanged."""
    buf = bytearray(data)
    try:
        done = append(buf, config, **how)  # type: ignore[arg-type]
    except kts.KtsError as error:
        assert buf == data
        return error
    raise AssertionError(f"accepted: {done}")


def times(done: Validated) -> list[int]:
    return kts.decode(done.records, ["timestamp"]).column(0).cast(pa.int64()).to_pylist()


def column(done: Validated, name: str) -> list[Any]:
    return kts.decode(done.records, [name]).column(0).to_pylist()
