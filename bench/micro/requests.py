"""A broker's answers in one process, without sockets, against the call of the log that each of them needs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import kts
from bench.corpora import START_MS
from kts.broker.broker import Broker
from kts.broker.handlers import handle
from kts.broker.request import Request
from kts.broker.wire.messages import ApiKey

from .append import NOW_MS, appending, new_folder, sets, topic
from .cases import Case, Pair, Settings, Work, corpus_of

TOPIC = "bench"
SEARCHES = 200  # requests of a round
Body = dict[str, Any]


def produce(records: bytes) -> Request:
    body = {"transactional_id": None, "acks": 1, "timeout_ms": 10_000}
    data = [{"name": TOPIC, "topic_id": bytes(16), "partition_data": [{"index": 0, "records": records}]}]
    return Request(ApiKey.PRODUCE, 9, "bench", body | {"topic_data": data})


def list_offsets(timestamp_ms: int) -> Request:
    asked = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": timestamp_ms}
    body = {"replica_id": -1, "isolation_level": 0, "topics": [{"name": TOPIC, "partitions": [asked]}]}
    return Request(ApiKey.LIST_OFFSETS, 7, "bench", body)


def partitions_of(answer: Body) -> list[Body]:
    """Of the only topic of an answer."""
    [topic_answer] = answer.get("responses") or answer["topics"]
    found: list[Body] = topic_answer.get("partition_responses") or topic_answer["partitions"]
    return found


def answering(requests: list[Request]) -> Callable[..., None]:
    """One request after the other; an error code stops it."""

    async def answers(broker: Broker) -> None:
        for request in requests:
            answer = await handle(broker, request)
            if answer is None or partitions_of(answer)[0]["error_code"]:
                raise ValueError(f"expected no error, found {answer}")

    return lambda broker, runner, _: runner.run(answers(broker))


def new_broker() -> tuple[Broker, asyncio.Runner, TemporaryDirectory[str]]:
    """A broker with one empty partition, and an event loop."""
    folder, runner = new_folder(), asyncio.Runner()
    broker = Broker(Path(folder.name, "logs"), clock=lambda: NOW_MS)
    broker.topics.create(TOPIC)
    runner.get_loop()
    return broker, runner, folder


def close(broker: Broker, runner: asyncio.Runner, folder: TemporaryDirectory[str]) -> None:
    broker.close()
    runner.close()
    folder.cleanup()


def produce_case(size: str, settings: Settings) -> Case:
    def prepare() -> dict[str, Work]:
        appended = sets(corpus_of(settings, 2, "none", size))
        requests = [produce(one) for one in appended]
        return {
            "Produce": Work(answering(requests), len(requests), None, new_broker, close),
            "Log.append": appending(topic(2, "producer", "CreateTime", "3.9"), appended),
        }

    pairs = (Pair("Produce", "Log.append", share=True),)
    return Case("requests", f"Produce of 16 KiB, v2 none {size}", "us", ("Produce", "Log.append"), pairs, prepare)


def list_offsets_case(settings: Settings) -> Case:
    """Searches by time all over the log."""

    def prepare() -> dict[str, Work]:
        corpus = corpus_of(settings, 2, "none", "100 B")
        appended = sets(corpus)
        step = max(1, corpus.records // SEARCHES)
        times = [START_MS + offset for offset in range(0, corpus.records, step)]
        broker, runner, folder = new_broker()
        answering([produce(one) for one in appended])(broker, runner, folder)
        closed = Path(folder.name, "closed", f"{TOPIC}-0")
        with kts.Log(closed, topic(2, "producer", "CreateTime", "3.9"), clock=lambda: NOW_MS) as log:
            for one in appended:
                log.append(one)
        reader = kts.open(closed)
        batch = corpus.front(0).data
        ask = answering([list_offsets(time) for time in times])

        def search() -> int:
            return [reader.offset_for_timestamp(time) for time in times][-1].offset

        def decode() -> None:
            for _ in times:
                kts.decode(batch, ["offset", "timestamp"])

        return {
            "ListOffsets": Work(lambda: ask(broker, runner, folder), len(times)),
            "PartitionLog": Work(search, len(times), times[-1] - START_MS),
            "decode of a batch": Work(decode, len(times)),
        }

    pairs = (
        Pair("ListOffsets", "decode of a batch", share=True),
        Pair("PartitionLog", "decode of a batch", share=True),
    )
    contenders = ("ListOffsets", "PartitionLog", "decode of a batch")
    return Case("requests", "search by time, v2 none 100 B", "us", contenders, pairs, prepare)


def cases(settings: Settings) -> Iterator[Case]:
    for size in ("100 B", "1 KB"):
        yield produce_case(size, settings)
    yield list_offsets_case(settings)
