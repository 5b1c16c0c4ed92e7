"""Malformed requests given to a broker in this process: decoded, handled and answered, or refused as they should be."""

from __future__ import annotations

import asyncio
import random
import traceback
from collections import Counter, deque
from contextlib import suppress
from pathlib import Path

from support.broker.malformed_requests import malformed_requests
from support.clients.raw_client import batch

from kts.broker import wire
from kts.broker.broker import Broker
from kts.broker.codes import ApiError, ErrorCode
from kts.broker.handlers import handle
from kts.broker.request import ConnectionClose, Request
from kts.errors import InvalidRequestError, KtsError, LogStorageError, UnsupportedVersionError
from kts.server.dispatch import refusal

TOPICS = ("a", "topic-1")  # whose names the requests have
WAITING = 200  # requests that may wait at a time: for members, for data
RECREATED = 20_000


def play(folder: Path, seed: int, count: int) -> tuple[Counter[str], list[str]]:
    """How many came to which end, and what went wrong."""
    return asyncio.run(_play(folder, seed, count))


async def _play(folder: Path, seed: int, count: int) -> tuple[Counter[str], list[str]]:
    rng = random.Random(seed)
    ends: Counter[str] = Counter()
    faults: list[str] = []
    waiting: deque[asyncio.Task[None]] = deque()

    async def answer(header: wire.RequestHeader, body: dict[str, object]) -> None:
        request = Request(header.api_key, header.api_version, header.client_id, body)
        try:
            try:
                reply = await handle(broker, request)
            except KtsError as error:
                reply = refusal(request, error)
            if reply is not None:
                wire.encode_response(header.api_key, header.api_version, header.correlation_id, reply)
            ends["answered"] += 1
        except ConnectionClose:
            ends["closed"] += 1
        except asyncio.CancelledError:
            ends["given up"] += 1
        except Exception:
            faults.append(f"{header}: {body}\n{traceback.format_exc()}")

    with Broker(folder, {"auto.create.topics.enable": "false"}) as broker:
        broker.coordinator.start()
        for number, frame in enumerate(malformed_requests(rng, count)):
            if number % RECREATED == 0:
                _make_topics(broker)
            try:
                header, body = wire.decode_request(memoryview(frame))
            except InvalidRequestError:
                ends["malformed"] += 1
                continue
            except UnsupportedVersionError:
                ends["unsupported"] += 1
                continue
            task = asyncio.ensure_future(answer(header, body))
            await asyncio.sleep(0)
            if not task.done():
                waiting.append(task)
            if len(waiting) > WAITING:
                oldest = waiting.popleft()
                oldest.cancel()
                await asyncio.wait([oldest])
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        _make_topics(broker)
        answered = [broker.topics.get(name) for name in TOPICS]
        for topic in answered:
            if topic is None or topic.partitions[0].append(batch([b"still here"])).entries != 1:
                faults.append(f"{topic} takes no records any more")
    return ends, faults


def _make_topics(broker: Broker) -> None:
    for name in TOPICS:
        try:
            topic = broker.topics.create(name, 2)
        except ApiError as error:
            if error.error != ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
        else:
            with suppress(LogStorageError):  # it may be deleted already
                topic.partitions[0].append(batch([b"value"] * 10))
