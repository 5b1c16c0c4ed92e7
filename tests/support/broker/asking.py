"""Requests to a broker in this process, each through the bytes that a socket would carry."""

from __future__ import annotations

import asyncio
from typing import Any

import kts
from kts.broker import wire
from kts.broker.broker import Broker
from kts.broker.handlers import handle
from kts.broker.request import Request
from kts.broker.topics import Topic
from kts.broker.wire.messages import ApiKey
from kts.store.local import FileRange

Body = dict[str, Any]


def versions(api: ApiKey) -> list[int]:
    """All served versions of an API."""
    first, last = wire.versions(api)
    return list(range(first, last + 1))


async def answer(broker: Broker, api: ApiKey, version: int, body: Body, client_id: str | None = "tests") -> Body | None:
    """The answer's body as a client decodes it; None where there is none."""
    frame = wire.encode_request(api, version, 7, client_id, body)
    header, decoded = wire.decode_request(memoryview(frame)[4:])
    assert header == (api, version, 7, client_id)
    found = await handle(broker, Request(api, version, client_id, decoded))
    if found is None:
        return None
    sent = b"".join(
        part.read() if isinstance(part, FileRange) else bytes(part)
        for part in wire.encode_response(api, version, 7, found)
    )
    assert int.from_bytes(sent[:4], "big") == len(sent) - 4
    correlation, decoded = wire.decode_response(api, version, memoryview(sent)[4:])
    assert correlation == 7
    return decoded


class Asking:
    """A broker and an event loop to ask it in; a context manager that closes both."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.runner = asyncio.Runner()

    def __enter__(self) -> Asking:
        return self

    def __exit__(self, *_: object) -> None:
        self.runner.close()
        self.broker.close()

    def ask(self, api: ApiKey, version: int, body: Body, client_id: str | None = "tests") -> Any:
        """The answer's body."""
        # Runner.run would set a handler for SIGINT each time, which costs as much as a small request.
        return self.runner.get_loop().run_until_complete(answer(self.broker, api, version, body, client_id))

    # --- topics and records, not through a request ------------------------------------------------

    def create(self, name: str = "t", partitions: int = 1, **configs: str) -> Topic:
        """A new topic; its settings with underscores."""
        settings = {key.replace("_", "."): value for key, value in configs.items()}
        return self.broker.topics.create(name, partitions, settings)

    def append(self, *times: int, name: str = "t", **more: Any) -> kts.Log:
        """The log of a topic's first partition, with one more set, of records of these times."""
        topic = self.broker.topics.get(name)
        assert topic is not None
        topic.partitions[0].append(kts.encode({"timestamp": list(times), "key": [b"k"] * len(times)}, **more))
        return topic.partitions[0].log

    # --- the usual questions, about one partition -------------------------------------------------

    def delete_records(self, offset: int, *, name: str = "t", partition: int = 0, version: int = 2) -> tuple[int, int]:
        """The error and the low watermark that DeleteRecords answers."""
        rows = [{"partition_index": partition, "offset": offset}]
        body = {"topics": [{"name": name, "partitions": rows}], "timeout_ms": 1000}
        row = self.ask(ApiKey.DELETE_RECORDS, version, body)["topics"][0]["partitions"][0]
        assert row["partition_index"] == partition
        return row["error_code"], row["low_watermark"]

    def produce(
        self, topic: str, records: Any, *, version: int = 9, acks: int = -1, partition: int = 0, **more: Any
    ) -> Any:
        """The partition's row of a produce answer."""
        found = self.broker.topics.get(topic)
        one = {"index": partition, "records": records}
        named = {"name": topic, "topic_id": b"\1" * 16 if found is None else found.topic_id}
        body = {"acks": acks, "timeout_ms": 1000, "topic_data": [{**named, "partition_data": [one]}], **more}
        response = self.ask(ApiKey.PRODUCE, version, body)
        return None if response is None else response["responses"][0]["partition_responses"][0]

    def fetch_all(self, version: int, topics: dict[str, dict[int, Body]], **more: Any) -> Any:
        """A whole fetch answer; of each partition what differs from the defaults, as `fetch_offset`."""
        asked = []
        for topic, partitions in topics.items():
            found = self.broker.topics.get(topic)
            rows = [
                {"partition": at, "fetch_offset": 0, "partition_max_bytes": 2**20, **one}
                for at, one in partitions.items()
            ]
            known = b"\1" * 16 if found is None else found.topic_id
            asked.append({"topic": topic, "topic_id": known, "partitions": rows})
        body = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 2**30, "topics": asked, **more}
        return self.ask(ApiKey.FETCH, version, body)

    def fetch(self, topic: str, offset: int = 0, *, version: int = 12, partition: int = 0, **more: Any) -> Any:
        """The partition's row of a fetch answer; keywords of the partition or of the request."""
        keys = {"partition_max_bytes", "current_leader_epoch", "last_fetched_epoch", "log_start_offset"}
        one = {"fetch_offset": offset, **{key: value for key, value in more.items() if key in keys}}
        rest = {key: value for key, value in more.items() if key not in keys}
        return self.fetch_all(version, {topic: {partition: one}}, **rest)["responses"][0]["partitions"][0]

    def list_offsets(self, topic: str, timestamp: int, *, version: int = 7, partition: int = 0, **more: Any) -> Any:
        """The partition's row of a ListOffsets answer."""
        keys = {"current_leader_epoch", "max_num_offsets"}
        one = {"partition_index": partition, "timestamp": timestamp, **{k: v for k, v in more.items() if k in keys}}
        rest = {"replica_id": -1, **{key: value for key, value in more.items() if key not in keys}}
        body = {**rest, "topics": [{"name": topic, "partitions": [one]}]}
        return self.ask(ApiKey.LIST_OFFSETS, version, body)["topics"][0]["partitions"][0]


NOT_FOUND = (0, -1, -1)


def listed(row: Body) -> tuple[int, int, int]:
    """The error, timestamp and offset of a row of ListOffsets."""
    return row["error_code"], row["timestamp"], row["offset"]
