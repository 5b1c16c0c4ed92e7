"""Records over a real socket: every version, long polls, acks 0, and files that are sent while they are deleted."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.clients.raw_client import RawClient

import kts
from kts.broker import wire
from kts.broker.broker import Broker
from kts.broker.wire.messages import ApiKey
from kts.server.server import ServerThread

NOW = 1_500_000_000_000


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerThread]:
    with Broker(tmp_path / "data", clock=lambda: NOW) as broker, ServerThread(broker) as running:
        yield running


def batch(*times: int, size: int = 10, **more: Any) -> bytes:
    return kts.encode({"timestamp": list(times), "value": [b"v" * size] * len(times)}, batch_bytes=2**30, **more)


def produced(topic: Any, data: bytes, acks: int = 1) -> dict[str, Any]:
    rows = [{"index": 0, "records": data}]
    topics = [{"name": topic.name, "topic_id": topic.topic_id, "partition_data": rows}]
    return {"acks": acks, "timeout_ms": 30_000, "topic_data": topics}


def fetched(topic: Any, offset: int, **more: Any) -> dict[str, Any]:
    rows = [{"partition": 0, "fetch_offset": offset, "partition_max_bytes": 2**28}]
    topics = [{"topic": topic.name, "topic_id": topic.topic_id, "partitions": rows}]
    return {"max_wait_ms": 60_000, "min_bytes": 1, "max_bytes": 2**28, "topics": topics, **more}


def row(answer: dict[str, Any]) -> Any:
    (topic,) = answer["responses"]
    (found,) = topic["partitions"] if "partitions" in topic else topic["partition_responses"]
    return found


def test_every_version_of_produce_and_fetch(server: ServerThread) -> None:
    topic = server.broker.topics.create("t")
    with RawClient(server.address) as client:
        for version in range(14):
            answer = row(client.ask(ApiKey.PRODUCE, version, produced(topic, batch(NOW + version))))
            assert (answer["error_code"], answer["base_offset"]) == (0, version)
        for version in range(19):
            answer = row(client.ask(ApiKey.FETCH, version, fetched(topic, 0)))
            table = kts.decode(answer["records"], ["offset", "timestamp"])
            assert table.column("offset").to_pylist() == list(range(14))
            times = table.column("timestamp").cast("int64").to_pylist()
            assert times == ([NOW + at for at in range(14)] if version >= 2 else [-1] * 14)


def test_acks_0_goes_without_an_answer_until_something_is_refused(server: ServerThread) -> None:
    topic = server.broker.topics.create("t")
    with RawClient(server.address) as client:
        for version in (0, 2, 3, 9, 13):
            client.send(client.request(ApiKey.PRODUCE, version, produced(topic, batch(NOW), acks=0)))
        assert len(kts.decode(row(client.ask(ApiKey.FETCH, 12, fetched(topic, 0)))["records"], ["offset"])) == 5
        client.send(client.request(ApiKey.PRODUCE, 9, produced(topic, b"nothing", acks=0)))
        assert client.is_closed()
    assert topic.partitions[0].log.log_end_offset == 5


@pytest.mark.parametrize("version", [0, 3, 4, 12, 18])
def test_a_long_poll_ends_with_what_another_connection_sends(server: ServerThread, version: int) -> None:
    topic = server.broker.topics.create("t")
    with RawClient(server.address) as reader, RawClient(server.address) as writer:
        for at in range(3):
            reader.send(reader.request(ApiKey.FETCH, version, fetched(topic, at)))
            answer = row(writer.ask(ApiKey.PRODUCE, 9, produced(topic, batch(NOW + at))))
            assert answer["base_offset"] == at
            _, found = wire.decode_response(ApiKey.FETCH, version, reader.frame())
            assert kts.decode(row(found)["records"], ["offset"]).column("offset").to_pylist() == [at]


def test_large_sets_pass_unchanged_and_stay_readable_while_they_are_deleted(server: ServerThread) -> None:
    topic = server.broker.topics.create("t", 1, {"max.message.bytes": "100000000"})
    large = [batch(NOW + at, size=7_000_000) for at in range(3)]
    with RawClient(server.address) as writer, RawClient(server.address) as reader:
        for data in large:
            assert row(writer.ask(ApiKey.PRODUCE, 9, produced(topic, data)))["error_code"] == 0
        stored = topic.partitions[0].log.read(0, 2**30).records
        reader.send(reader.request(ApiKey.FETCH, 12, fetched(topic, 0)))
        head = reader.receive(100_000)  # it is being sent
        server.broker.topics.delete("t")
        size = int.from_bytes(head[:4], "big")
        whole = head + reader.receive(size + 4 - len(head))
        assert stored in whole


@pytest.mark.slow
def test_many_converted_sets_at_once_hold_up_nobody(server: ServerThread) -> None:
    """Conversions run in threads: a producer gets its answers meanwhile."""
    topic = server.broker.topics.create("t")
    other = server.broker.topics.create("other")
    rows = {"timestamp": [NOW] * 10_000, "value": [b"value %d" % at for at in range(10_000)]}
    data = kts.encode(rows, compression="gzip", batch_bytes=2**30)
    with RawClient(server.address) as writer:
        for _ in range(4):
            assert row(writer.ask(ApiKey.PRODUCE, 9, produced(topic, data)))["error_code"] == 0
        counts = list[int]()

        def read() -> None:
            with RawClient(server.address) as reader:
                for _ in range(3):
                    records = row(reader.ask(ApiKey.FETCH, 0, fetched(topic, 0)))["records"]
                    counts.append(kts.decode(records, ["offset"]).num_rows)

        threads = [threading.Thread(target=read) for _ in range(4)]
        for thread in threads:
            thread.start()
        answered = 0
        while any(thread.is_alive() for thread in threads):
            assert row(writer.ask(ApiKey.PRODUCE, 9, produced(other, batch(NOW))))["base_offset"] == answered
            answered += 1
        for thread in threads:
            thread.join()
    assert counts == [counts[0]] * 12
    assert counts[0] >= 10_000
    print("answers meanwhile:", answered)
    assert answered > 12
