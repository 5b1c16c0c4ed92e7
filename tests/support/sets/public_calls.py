"""Every public call of the codec and the indexes on small bytes, sound and damaged, for the tests that repeat them."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from support.sets import generate

import kts
from kts.codec.validate import validate, validate_follower
from kts.compression import CODEC_NAMES
from kts.config import LogConfig

Call = Callable[[], Any]
KINDS = [(magic, name) for magic in (0, 1, 2) for name in CODEC_NAMES if magic == 2 or name != "zstd"]
# magic and codec of a set, format and compression.type of the topic
APPENDS = [
    (2, "none", 2, "producer"),
    (1, "none", 1, "producer"),
    (2, "lz4", 2, "producer"),
    (2, "none", 2, "gzip"),
    (2, "snappy", 2, "zstd"),
    (2, "none", 1, "producer"),
    (1, "gzip", 2, "producer"),
    (1, "lz4", 1, "uncompressed"),
    (0, "none", 1, "lz4"),
]


def rows(count: int, headers: bool) -> pa.RecordBatch:
    """Rows with null, empty, short and long strings; as Arrow, which pyarrow need not make out of Python's objects."""
    keys, values = [b"k", None, b"key" * 10, b"", b"x"], [b"v" * 50, b"", None, b"q", b"z" * 13]
    columns: dict[str, list[Any]] = {"timestamp": [1, 2, 3, None, 5], "key": keys, "value": values}
    types = {"timestamp": pa.int64(), "key": pa.binary(), "value": pa.binary()}
    if headers:
        columns["headers"] = [[("a", b"1")], None, [], [("b", None), ("c", b"")], None]
        types["headers"] = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    arrays = {name: pa.array((cells * count)[:count], types[name]) for name, cells in columns.items()}
    return pa.RecordBatch.from_pydict(arrays)


def broken_payload(magic: int, codec: str) -> bytes:
    """An entry with the right CRC around bytes that are not of the codec."""
    number = CODEC_NAMES.index(codec)
    payload = b"\x01\x02 neither a frame nor a record"
    if magic == 2:
        return generate.batch(payload, 1, attributes=number)
    return generate.message(0, magic, number, 1, None, payload)


def read_calls(data: bytes, piece: int, **options: Any) -> dict[str, Call]:
    """All that reads entries."""
    return {
        "decode": lambda: kts.decode(data, kts.ALL_COLUMNS, **options),
        "decode views": lambda: kts.decode(data, kts.ALL_COLUMNS, views=True, **options),
        "iter_decode": lambda: list(kts.iter_decode(data, slice_bytes=piece, **options)),
        "iter_decode views": lambda: list(kts.iter_decode(data, slice_bytes=piece, views=True, **options)),
        "iter_decode abandoned": lambda: next(kts.iter_decode(data, slice_bytes=piece, **options)),
        "max_timestamp": lambda: kts.max_timestamp(data, **options),
    }


def kind_calls(magic: int, codec: str, count: int) -> dict[str, Call]:
    """Reading and writing of one magic and codec."""
    batch = rows(count, headers=magic == 2)

    def encode() -> bytes:
        return kts.encode(batch, magic=magic, compression=codec, batch_bytes=8 * count)

    data = encode()
    every = kts.decode(data, kts.ALL_COLUMNS)
    calls = read_calls(data, 8 * count)
    calls["scan_batches"] = lambda: kts.scan_batches(data)
    calls["valid_bytes"] = lambda: kts.valid_bytes(data)
    calls["encode"] = encode
    calls["encode, preserve_batches"] = lambda: kts.encode(every, preserve_batches=True)
    return calls


def damaged_calls(magic: int, codec: str, count: int) -> dict[str, Call]:
    """The same calls on bytes that are refused."""
    data = kts.encode(rows(count, headers=False), magic=magic, compression=codec, batch_bytes=8 * count)
    calls = {}
    inputs = {"wrong CRC": data[:-1] + bytes([data[-1] ^ 1]), "size 5": data + struct.pack(">qi", 9, 5) + bytes(20)}
    for name, bad in inputs.items():
        calls |= {f"{call}, {name}": run for call, run in read_calls(bad, 8 * count).items()}
        calls[f"scan_batches, {name}"] = lambda bad=bad: kts.scan_batches(bad)
        calls[f"valid_bytes, {name}"] = lambda bad=bad: kts.valid_bytes(bad)
    if codec != "none":
        broken = broken_payload(magic, codec)
        calls |= {f"{call}, broken payload": run for call, run in read_calls(broken, 8 * count).items()}
        calls |= {f"{call}, bound": run for call, run in read_calls(data, 8 * count, max_decompressed_bytes=10).items()}
    return calls


def index_calls(count: int) -> dict[str, Call]:
    """Time index and offset index, with what they refuse."""
    times = b"".join(struct.pack(">qi", 1000 + 7 * i, 10 * i) for i in range(count))
    places = b"".join(struct.pack(">ii", 1 + 7 * i, 10 * i) for i in range(count))
    queries = np.arange(0, 9 * count, 3, dtype=np.int64)
    calls: dict[str, Call] = {}
    for kind, data in ((kts.TimeIndex, times), (kts.OffsetIndex, places)):
        index, wrong, name = kind(data, 5), kind(data[::-1], 5), kind.__name__
        calls |= {
            f"{name}": lambda kind=kind, data=data: len(kind(data, 5)),
            f"{name}.lookup": lambda index=index: index.lookup(1100),
            f"{name}.lookup_many": lambda index=index: index.lookup_many(queries),
            f"{name}.entries": lambda index=index: index.entries(),
            f"{name}.check": lambda index=index: index.check(),
            f"{name}.check, damaged": lambda wrong=wrong: wrong.check(),
            f"{name}, no buffer": lambda kind=kind: kind(5, 5),
            f"{name}, no base offset": lambda kind=kind, data=data: kind(data, -1),
            f"{name}.lookup, text": lambda index=index: index.lookup("x"),
            f"{name}.lookup, too large": lambda index=index: index.lookup(2**70),
            f"{name}.lookup_many, floats": lambda index=index: index.lookup_many(np.zeros(3)),
        }
    return calls


def append_calls(count: int) -> dict[str, Call]:
    """What a leader and a follower do with sets: kept in place, decompressed to be looked at, written anew, refused."""
    formats = {0: "0.9.0", 1: "0.10.2", 2: "3.0"}
    calls: dict[str, Call] = {}
    for magic, codec, to, compression in APPENDS:
        batch = rows(count, headers=magic == to == 2)
        data = kts.encode(batch, magic=magic, compression=codec, batch_bytes=2**20)
        keys = {"message.format.version": formats[to], "compression.type": compression}
        sound, strict = (LogConfig.of(keys | more, generation="3.9") for more in ({}, {"cleanup.policy": "compact"}))
        name = f"magic {magic} {codec} to {to} {compression}"
        calls[f"{name}: append"] = lambda data=data, config=sound: validate(data, offset=7, now_ms=5, config=config)
        calls[f"{name}: append, no key"] = lambda data=data, config=strict: validate(
            data, offset=7, now_ms=5, config=config
        )
        calls[f"{name}: follow"] = lambda data=data, config=sound: validate_follower(data, end_offset=0, config=config)
        broken = data[:-1] + bytes([data[-1] ^ 1])
        calls[f"{name}: follow, wrong CRC"] = lambda data=broken, config=sound: validate_follower(
            data, end_offset=0, config=config
        )
    return calls


def argument_calls() -> dict[str, Call]:
    """Arguments that are refused."""
    return {
        "decode, no buffer": lambda: kts.decode(5),
        "decode, gaps": lambda: kts.decode(memoryview(b"abcdef")[::2]),
        "decode, no column": lambda: kts.decode(b"", ["nothing"]),
        "iter_decode, no slice": lambda: kts.iter_decode(b"", slice_bytes=0),
        "scan_batches, no buffer": lambda: kts.scan_batches(5),
        "valid_bytes, no buffer": lambda: kts.valid_bytes(None),
        "max_timestamp, no bound": lambda: kts.max_timestamp(b"", max_decompressed_bytes=-1),
        "encode, no codec": lambda: kts.encode({}, compression="brotli"),
        "encode, no rows": lambda: kts.encode(5),
    }


def groups(count: int) -> dict[str, dict[str, Call]]:
    """All calls by codec and the rest by what it is, on entries with ``count`` records in all."""
    found: dict[str, dict[str, Call]] = {name: {} for name in CODEC_NAMES}
    for magic, codec in KINDS:
        calls = kind_calls(magic, codec, count)
        if magic == max(m for m, name in KINDS if name == codec):
            calls |= damaged_calls(magic, codec, count)
        found[codec] |= {f"magic {magic} {codec}: {name}": run for name, run in calls.items()}
    return found | {"indexes": index_calls(count), "arguments": argument_calls(), "appending": append_calls(count)}


def plain(value: Any) -> Any:
    """A result as a value that can be compared."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    return [plain(part) for part in value] if isinstance(value, (list, tuple)) else value


def attempt(run: Call) -> Any:
    """What a call gives, or the exception that it raises."""
    try:
        return run()
    except BaseException as error:  # pyo3's panics are no Exceptions
        return error


def outcome(found: Any, *, words: bool = True) -> Any:
    """What ``attempt`` found, as a value that can be compared; an error's text only with ``words``."""
    if not isinstance(found, BaseException):
        return plain(found)
    place = [getattr(found, name, None) for name in ("position", "offset", "record_index")]
    return type(found).__name__, str(found) * words, *place
