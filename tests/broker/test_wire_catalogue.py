"""The catalogue of edge cases of messages of magic 0 and 1 (sections "Append" and "Search and fetch"), on the wire.

Format 0.10, CreateTime, codec of the producer, a broker of the 0.10 protocol; N is its clock. Numbers are the cases'.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from support.broker.asking import Asking

import kts
from kts.broker.broker import Broker
from kts.broker.request import ConnectionClose

N = 1_500_000_000_000
COLUMNS = ["offset", "timestamp", "timestampType", "magic", "value"]


def message(
    timestamp: int, value: bytes | None = b"v", *, magic: int = 1, key: bytes | None = b"k", attributes: int = 0
) -> bytes:
    """One message as a producer of that time writes it, offset 0."""
    body = struct.pack(">bb", magic, attributes) + (struct.pack(">q", timestamp) if magic else b"")
    for part in (key, value):
        body += struct.pack(">i", -1) if part is None else struct.pack(">i", len(part)) + part
    return struct.pack(">qiI", 0, len(body) + 4, zlib.crc32(body)) + body


def numbered(messages: list[bytes], offsets: list[int] | None = None) -> bytes:
    at = offsets or list(range(len(messages)))
    return b"".join(struct.pack(">q", offset) + one[8:] for offset, one in zip(at, messages, strict=True))


def wrapper(messages: list[bytes], *, offset: int, timestamp: int, offsets: list[int] | None = None) -> bytes:
    packer = zlib.compressobj(wbits=31)
    packed = packer.compress(numbered(messages, offsets)) + packer.flush()
    return struct.pack(">q", offset) + message(timestamp, packed, key=None, attributes=1)[8:]


class Case(NamedTuple):
    """A set, and what becomes of it: the code, and (timestamp, type, magic) of what is stored."""

    records: bytes
    code: int = 0
    stored: tuple[tuple[int, int, int], ...] = ()
    settings: dict[str, str] = {}  # noqa: RUF012 (never changed)
    append_time: int = -1


LIMIT = {"message.timestamp.difference.max.ms": "1000"}
APPENDED = {"message.timestamp.type": "LogAppendTime"}
OLD = {"message.format.version": "0.9.0"}
THREE = [message(N), message(N + 2), message(N + 1)]
IN_THREE = ((N, 0, 1), (N + 2, 0, 1), (N + 1, 0, 1))
SIZE = len(message(N))
CASES = {
    "1": Case(message(N - 5), 0, ((N - 5, 0, 1),)),
    "2 at the limit": Case(message(N - 1000), 0, ((N - 1000, 0, 1),), LIMIT),
    "2 beyond it": Case(message(N + 1001), 32, (), LIMIT),
    "3": Case(numbered([message(N), message(N - 1001), message(N)]), 32, (), LIMIT),
    "4 ours": Case(message(-1), 0, ((-1, 0, 1),), LIMIT),
    "5 ours": Case(message(0, magic=0), 0, ((-1, 0, 1),), LIMIT),
    "6": Case(message(N - 10**12), 0, ((N, 1, 1),), LIMIT | APPENDED, N),
    "7": Case(message(N, attributes=8), 32),
    "7 under LogAppendTime": Case(message(N, attributes=8), 32, (), APPENDED),
    "8": Case(numbered(THREE), 0, ((N, 1, 1),) * 3, APPENDED, N),
    "9": Case(message(0, magic=0), 0, ((-1, 0, 1),)),
    "9 under LogAppendTime": Case(message(0, magic=0), 0, ((N, 1, 1),), APPENDED, N),
    "10": Case(message(N), 0, ((-1, -1, 0),), OLD),
    "11": Case(message(N, key=None), 2, (), {"cleanup.policy": "compact"}),
    "11 a tombstone": Case(message(N, None), 0, ((N, 0, 1),), {"cleanup.policy": "compact"}),
    "12 exactly": Case(message(N), 0, ((N, 0, 1),), {"max.message.bytes": str(SIZE)}),
    "12 one more": Case(message(N, b"vv"), 10, (), {"max.message.bytes": str(SIZE)}),
    "13": Case(message(0, magic=0), 10, (), {"max.message.bytes": str(SIZE - 1)}),
    "14": Case(numbered(THREE), 18, (), {"segment.bytes": str(2 * SIZE)}),
    "15 nothing": Case(b""),
    "15 a cut entry": Case(message(N)[:-1]),
    "16": Case(message(N) + b"stray", 0, ((N, 0, 1),)),
    "17": Case(message(N) + message(N)[:-1] + b"?", 2),
    "18": Case(message(-5), 0, ((-5, 0, 1),)),
    "19": Case(message(2**63 - 1), 0, ((2**63 - 1, 0, 1),)),
    "21": Case(wrapper(THREE, offset=2, timestamp=N + 2), 0, IN_THREE),
    "22": Case(wrapper(THREE, offset=0, timestamp=0), 0, IN_THREE),
    "24": Case(wrapper(THREE, offset=2, timestamp=N + 2), 0, ((N, 1, 1),) * 3, APPENDED, N),
    "25": Case(wrapper([message(-1)], offset=0, timestamp=-1), 0, ((-1, 0, 1),)),
    "26": Case(wrapper(THREE, offset=2, timestamp=N + 2), 0, IN_THREE, {"compression.type": "snappy"}),
    "27 ours": Case(
        wrapper(THREE, offset=2, timestamp=N + 2),
        0,
        ((N, 1, 1),) * 3,
        APPENDED | {"compression.type": "uncompressed"},
        N,
    ),  # fmt: skip
    "28": Case(wrapper(THREE, offset=3, timestamp=N + 2, offsets=[0, 2, 3]), 0, IN_THREE),
    "29": Case(wrapper([wrapper(THREE, offset=2, timestamp=N)], offset=0, timestamp=N), 2),
    "30": Case(wrapper([message(0, magic=0)], offset=0, timestamp=N), 2),
    "31 ours": Case(wrapper([], offset=0, timestamp=N), 2),
    "34": Case(wrapper(THREE, offset=2, timestamp=N + 2), 0, ((-1, -1, 0),) * 3, OLD | LIMIT),
}


@pytest.fixture
def asking(tmp_path: Path) -> Iterator[Asking]:
    settings = {"inter.broker.protocol.version": "0.10.2"}
    with Asking(Broker(tmp_path / "data", settings, clock=lambda: N)) as found:
        yield found


@pytest.fixture
def topic(asking: Asking) -> Callable[..., kts.Log]:
    def make(settings: dict[str, str] | None = None, name: str = "t") -> kts.Log:
        configs = {"message.format.version": "0.10.2", **(settings or {})}
        return asking.broker.topics.create(name, 1, configs).partitions[0].log

    return make


def stored(log: kts.Log) -> tuple[tuple[int, int, int], ...]:
    table = kts.decode(log.read(0, 2**30).records, COLUMNS)
    assert table.column("offset").to_pylist() == list(range(table.num_rows))
    times = table.column("timestamp").cast("int64").to_pylist()
    rest = (table.column(name).to_pylist() for name in ("timestampType", "magic"))
    return tuple(zip(times, *rest, strict=True))


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("name", CASES)
def test_append(asking: Asking, topic: Callable[..., kts.Log], name: str, version: int) -> None:
    case = CASES[name]
    log = topic(case.settings)
    row = asking.produce("t", case.records, version=version, acks=1)
    assert (row["error_code"], row["base_offset"]) == (case.code, 0 if case.stored else -1)
    assert row["log_append_time_ms"] == (case.append_time if version == 2 and case.stored else -1)
    assert stored(log) == case.stored
    assert log.log_end_offset == len(case.stored)
    if case.code:  # 20
        with pytest.raises(ConnectionClose):
            asking.produce("t", case.records, version=version, acks=0)


def test_21_in_place_and_23_wrapper_times(asking: Asking, topic: Callable[..., kts.Log]) -> None:
    log = topic()
    asking.produce("t", message(N), version=2)
    sent = wrapper(THREE, offset=2, timestamp=0)
    assert asking.produce("t", sent, version=2)["base_offset"] == 1
    data = log.read(1, 2**20).records
    assert (len(data), data[34:]) == (len(sent), sent[34:])  # the payload's bytes
    assert struct.unpack_from(">q", data)[0] == 3
    assert struct.unpack_from(">q", data, 18)[0] == N + 2


def test_search_64_to_71(asking: Asking, topic: Callable[..., kts.Log]) -> None:
    log = topic()

    def ask(target: int, name: str = "t", **more: Any) -> tuple[int, int, int]:
        row = asking.list_offsets(name, target, version=1, **more)
        return row["error_code"], row["timestamp"], row["offset"]

    for at in (10, 30, 20, 40):
        asking.produce("t", message(at), version=2)
    assert ask(0) == ask(10) == (0, 10, 0)  # 64
    assert ask(41) == (0, -1, -1)
    assert ask(20) == (0, 30, 1)  # 65
    inner = [message(10), message(30), message(20)]
    topic(name="w")
    asking.produce("w", wrapper(inner, offset=2, timestamp=30), version=2)
    assert ask(15, "w") == (0, 30, 1)  # 66
    topic(APPENDED, name="a")
    asking.produce("a", wrapper(inner, offset=2, timestamp=30), version=2)
    assert ask(15, "a") == (0, N, 0)  # 67
    log.advance_high_watermark(2)
    assert (ask(-1), ask(-1, replica_id=0), ask(-2)) == ((0, -1, 2), (0, -1, 4), (0, -1, 0))  # 68
    topic(OLD, name="o")
    asking.produce("o", message(5, magic=0), version=2)
    assert (ask(5, "o"), ask(-1, "o"), ask(-2, "o")) == ((43, -1, -1), (0, -1, 1), (0, -1, 0))  # 69
    assert (ask(15), ask(35)) == ((0, 30, 1), (0, -1, -1))  # 70: offset 3 is beyond 2
    log.advance_high_watermark(3)
    assert ask(35) == (0, 40, 3)  # and passes where it is the high watermark


def test_fetch_35_and_72_to_74(asking: Asking, topic: Callable[..., kts.Log]) -> None:
    log = topic()
    for _ in range(10):
        asking.produce("t", message(N), version=2)
    sent = wrapper([message(N + at) for at in range(10)], offset=9, timestamp=N + 9)
    asking.produce("t", sent, version=2)

    def got(offset: int, version: int, **more: Any) -> bytes:
        row = asking.fetch("t", offset, version=version, **more)
        assert row["error_code"] == 0
        return bytes(row["records"])

    whole = log.read(0, 2**20).records
    for version in (2, 3):
        assert got(0, version) == whole  # 72
        assert got(15, version) == log.read(10, 2**20).records  # 35
    for version in (0, 1):
        table = kts.decode(got(0, version), ["offset", "magic"])
        assert table.column("offset").to_pylist() == list(range(20))
        assert set(table.column("magic").to_pylist()) == {0}
    size = len(message(N))
    for version in (0, 2):
        assert got(0, version, partition_max_bytes=10) == whole[:10]  # 73
    assert got(0, 3, partition_max_bytes=10) == whole[:size]
    assert got(20, 2) == b""  # 74
    assert asking.fetch("t", 21, version=2)["error_code"] == 1


def test_33_raw_snappy_and_32_lz4_of_each_magic(asking: Asking, topic: Callable[..., kts.Log]) -> None:
    log = topic()
    topic(OLD, name="o")
    rows = {"timestamp": [N, N + 1], "value": [b"a" * 50, b"b" * 50]}
    for codec in ("gzip", "snappy", "lz4"):
        for magic in (0, 1):
            data = kts.encode(rows, magic=magic, compression=codec)
            for name in ("t", "o"):
                assert asking.produce(name, data, version=magic * 2)["error_code"] == 0
    assert stored(log) == ((-1, 0, 1), (-1, 0, 1), (N, 0, 1), (N + 1, 0, 1)) * 3
    for name in ("t", "o"):
        for version in (0, 2, 4):
            values = kts.decode(asking.fetch(name, version=version)["records"], ["value"]).column("value").to_pylist()
            assert values == [b"a" * 50, b"b" * 50] * 6
