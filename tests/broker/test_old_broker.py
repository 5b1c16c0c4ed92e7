"""One random script against a real 0.10.2.2 and a broker of ours with its protocol: the same answers and records."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from support.broker.wire_peer import Peer
from support.golden import PATIENCE_S, RECORD_COLUMNS, rows
from support.kafka.brokers import STEADY
from support.kafka.brokers import Broker as RealBroker

import kts
from kts.broker.broker import Broker
from kts.broker.codes import ErrorCode
from kts.broker.wire.messages import ApiKey
from kts.server.server import ServerThread

OPERATIONS = 600
PAST = 1_000_000_000_000  # times of records; what is later was given by a broker
CODECS = ("none", "gzip", "snappy", "lz4")


class Topic(NamedTuple):
    """A topic of both brokers."""

    name: str
    configs: dict[str, str]

    @property
    def magic(self) -> int:
        return 0 if self.configs["message.format.version"] == "0.9.0" else 1

    @property
    def keeps_sets(self) -> bool:
        """Whether sets of the topic's own magic stay as they come, so that bytes can be compared."""
        return self.magic == 1 and "compression.type" not in self.configs


def topics() -> list[Topic]:
    found = []
    for form in ("0.9.0", "0.10.2"):
        for kind in ("CreateTime", "LogAppendTime"):
            for codec in (None, "gzip", "lz4"):
                configs = {"message.format.version": form, "message.timestamp.type": kind, "segment.bytes": "20000"}
                configs |= {} if codec is None else {"compression.type": codec}
                found.append(Topic(f"t-{len(found)}", configs))
    found.append(Topic("compacted", {"message.format.version": "0.10.2", "cleanup.policy": "compact"}))
    return found


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Peer, Peer]]:
    """Kafka 0.10.2.2 and ours, with the same topics."""
    folder = tmp_path_factory.mktemp("both")
    (folder / "real").mkdir()
    with RealBroker("0.10.2.2", folder / "real", STEADY) as real:
        real.start()
        host, _, port = real.bootstrap.rpartition(":")
        settings = {"inter.broker.protocol.version": "0.10.2"}
        with (
            Broker(folder / "ours", settings) as broker,
            ServerThread(broker) as server,
            Peer(host, port) as kafka,
            Peer(*server.address) as ours,
        ):
            for peer in (kafka, ours):
                create(peer)
            yield kafka, ours


def create(peer: Peer) -> None:
    asked = [
        {
            "name": topic.name,
            "num_partitions": 1,
            "replication_factor": 1,
            "assignments": [],
            "configs": [{"name": name, "value": value} for name, value in topic.configs.items()],
        }
        for topic in topics()
    ]
    body = {"topics": asked, "timeout_ms": 30_000, "validate_only": False}
    deadline = time.monotonic() + PATIENCE_S
    while True:
        answer = peer.ask(ApiKey.CREATE_TOPICS, 1, body)
        assert isinstance(answer, dict)
        if {each["error_code"] for each in answer["topics"]} <= {0, ErrorCode.TOPIC_ALREADY_EXISTS}:
            break
        assert time.monotonic() < deadline, answer  # it hears later that it is in the cluster
        time.sleep(0.1)
    while any(list_offsets(peer, topic.name, -1)[0] for topic in topics()):  # it hears later that it leads them
        assert time.monotonic() < deadline
        time.sleep(0.05)


def produce(peer: Peer, topic: str, version: int, records: bytes) -> tuple[int, ...]:
    rows = [{"index": 0, "records": records}]
    body = {"acks": 1, "timeout_ms": 10_000, "topic_data": [{"name": topic, "partition_data": rows}]}
    answer = peer.ask(ApiKey.PRODUCE, version, body)
    assert isinstance(answer, dict)
    row = answer["responses"][0]["partition_responses"][0]
    return row["error_code"], row["base_offset"], late(row["log_append_time_ms"])


def fetch(peer: Peer, topic: str, version: int, offset: int, limit: int) -> tuple[int, int, bytes]:
    partition = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": limit}
    body = {"replica_id": -1, "max_wait_ms": 0, "min_bytes": 0, "max_bytes": 2**28}
    answer = peer.ask(ApiKey.FETCH, version, {**body, "topics": [{"topic": topic, "partitions": [partition]}]})
    assert isinstance(answer, dict)
    row = answer["responses"][0]["partitions"][0]
    return row["error_code"], row["high_watermark"], bytes(row["records"])


def list_offsets(peer: Peer, topic: str, target: int, replica: int = -1) -> tuple[int, ...]:
    rows = [{"partition_index": 0, "timestamp": target}]
    body = {"replica_id": replica, "topics": [{"name": topic, "partitions": rows}]}
    answer = peer.ask(ApiKey.LIST_OFFSETS, 1, body)
    assert isinstance(answer, dict)
    row = answer["topics"][0]["partitions"][0]
    return row["error_code"], late(row["timestamp"]), row["offset"]


def late(timestamp: int) -> int:
    """A broker's own time is whatever its clock said."""
    return 10**18 if timestamp > PAST + 10**9 else timestamp


def entries(data: bytes) -> list[tuple[Any, ...]]:
    """Offset, magic, codec and type of the outer entries, as far as they are whole."""
    table = kts.scan_batches(data)
    names = ("lastOffset", "magic", "codec", "timestampType", "crcOk")
    return list(zip(*(table.column(name).to_pylist() for name in names), strict=True))


def records(data: bytes) -> list[Any]:
    return [row._replace(timestamp=late(row.timestamp)) for row in rows(kts.decode(data, RECORD_COLUMNS))]


def a_set(rng: random.Random, compacted: bool) -> tuple[bytes, str, int]:
    """Messages as a producer may send them; some of them wrong."""
    count, magic, codec = rng.randrange(1, 12), rng.choice([0, 1, 1]), rng.choice(CODECS)
    keys = [None if rng.random() < (0.02 if compacted else 0.3) else b"k%d" % rng.randrange(9) for _ in range(count)]
    columns: dict[str, Any] = {
        "timestamp": [PAST + rng.randrange(10**6) if rng.random() < 0.9 else -1 for _ in range(count)],
        "key": keys,
        "value": [None if rng.random() < 0.1 else rng.randbytes(rng.randrange(200)) for _ in range(count)],
    }
    more: dict[str, Any] = {}
    if magic == 1 and rng.random() < 0.12:
        more = {"timestamp_type": "LogAppendTime", "log_append_time_ms": PAST}  # 32
    data = kts.encode(columns, magic=magic, compression=codec, batch_bytes=2**20, **more)
    what = rng.random()
    if what < 0.04:
        return data[:-1] + bytes([data[-1] ^ 1]), codec, magic  # 2
    if what < 0.08:
        return data + data[: rng.randrange(1, 11)], codec, magic
    if what < 0.1:
        return data[:-1], codec, magic
    return data, codec, magic


def test_the_same_script_has_the_same_answers(both: tuple[Peer, Peer], rng: random.Random) -> None:
    kafka, ours = both
    made = topics()
    ends = dict.fromkeys((topic.name for topic in made), 0)
    plain = {topic.name: topic.keeps_sets for topic in made}
    seen: dict[str, int] = {}
    for _ in range(OPERATIONS):
        topic = rng.choice(made)
        kind = rng.choice(["produce", "produce", "fetch", "fetch", "list"])
        if kind == "produce":
            data, codec, magic = a_set(rng, topic.name == "compacted")
            version = rng.randrange(3)
            asked: tuple[Any, ...] = (topic.name, version, data)
            answers = [produce(peer, *asked) for peer in (kafka, ours)]
            assert answers[1] == answers[0], (topic, codec, magic, version)
            seen[f"error {answers[0][0]}"] = seen.get(f"error {answers[0][0]}", 0) + 1
            if magic != topic.magic and codec != "none":
                plain[topic.name] = False  # compressed anew, by another library
            ends[topic.name] = max(ends[topic.name], list_offsets(kafka, topic.name, -1)[2])
        elif kind == "fetch":
            offset = rng.randrange(ends[topic.name] + 2)
            version = rng.randrange(4)
            limit = rng.choice([2**20, rng.randrange(1, 3000)]) if plain[topic.name] else 2**20
            found = [fetch(peer, topic.name, version, offset, limit) for peer in (kafka, ours)]
            assert found[1][:2] == found[0][:2], (topic, version, offset, limit)
            assert entries(found[1][2]) == entries(found[0][2]), (topic, version, offset, limit)
            assert records(found[1][2]) == records(found[0][2]), (topic, version, offset, limit)
            converts = version <= 1 and topic.magic == 1
            if plain[topic.name] and not converts and topic.configs.get("message.timestamp.type") != "LogAppendTime":
                assert found[1][2] == found[0][2], (topic, version, offset, limit)
            name = f"fetch {version} {'converted' if converts else 'as it lies'}"
            seen[name] = seen.get(name, 0) + bool(found[0][2])
        else:
            target = rng.choice([-1, -2, PAST + rng.randrange(10**6), PAST, 2**60])
            replica = rng.choice([-1, -1, -2])
            asked = (topic.name, target, replica)
            answers = [list_offsets(peer, *asked) for peer in (kafka, ours)]
            assert answers[1] == answers[0], (topic, target)
            seen["found"] = seen.get("found", 0) + (answers[0][1] > 0)
    print(seen)
    assert {"error 0", "error 2", "error 32", "fetch 0 converted", "fetch 2 as it lies", "found"} <= seen.keys()
