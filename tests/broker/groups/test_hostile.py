"""Requests about groups that no client would send: each is answered or refused, and nothing of them stays."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest
from support.broker.group_play import Clock, advance, play, settle, subscription
from support.broker.wire_bodies import random_body

from kts.broker import wire
from kts.broker.broker import Broker
from kts.broker.handlers import handle
from kts.broker.request import Request
from kts.broker.wire.messages import MESSAGES, ApiKey
from kts.errors import InvalidRequestError

REQUESTS = 1500
GROUP_APIS = [
    ApiKey.FIND_COORDINATOR,
    ApiKey.JOIN_GROUP,
    ApiKey.SYNC_GROUP,
    ApiKey.HEARTBEAT,
    ApiKey.LEAVE_GROUP,
    ApiKey.OFFSET_COMMIT,
    ApiKey.OFFSET_FETCH,
    ApiKey.OFFSET_DELETE,
    ApiKey.DESCRIBE_GROUPS,
    ApiKey.LIST_GROUPS,
    ApiKey.DELETE_GROUPS,
]


class Attacker:
    """Sends what it likes, often enough with names and numbers that were answered before."""

    def __init__(self, broker: Broker, rng: random.Random) -> None:
        self.broker, self.rng = broker, rng
        self.member_ids = ["", "nobody"]
        self.waiting: list[asyncio.Task[None]] = []
        self.answered = 0

    def likely(self, name: str) -> Any:
        """A value that leads somewhere."""
        rng = self.rng
        pools: dict[str, list[Any]] = {
            "group_id": ["g", "g", "g", "h", ""],
            "groups_names": [["g", "h"]],
            "member_id": ["", "", *self.member_ids[-5:]],
            "group_instance_id": [None, None, "i", "j"],
            "generation_id": [0, 1, 2, 3, -1],
            "generation_id_or_member_epoch": [0, 1, 2, 3, -1],
            "session_timeout_ms": [6000, 10_000],
            "rebalance_timeout_ms": [0, 1000, 2**31 - 1, -(2**31)],
            "protocol_type": ["consumer", "consumer", "connect"],
            "protocol_name": ["range"],
            "name": ["t", "range"],
            "metadata": [subscription("t"), b""],
            "partition_index": [0, 1],
        }
        return rng.choice(pools[name]) if name in pools and rng.random() < 0.8 else None

    def steered(self, body: Any) -> Any:
        if isinstance(body, list):
            return [self.steered(each) for each in body]
        if not isinstance(body, dict):
            return body
        found = {name: self.steered(value) for name, value in body.items()}
        for name, value in found.items():
            better = self.likely(name)
            fits = isinstance(better, type(value)) and not (isinstance(value, list) and dict in map(type, value))
            if better is not None and fits:
                found[name] = better
        return found

    def strike(self) -> None:
        """One request."""
        key = self.rng.choice([*GROUP_APIS, *[ApiKey.JOIN_GROUP] * 8, *[ApiKey.SYNC_GROUP] * 4])
        message = MESSAGES[key]
        version = self.rng.choice(message.versions)
        body = self.steered(random_body(self.rng, message.request, version))
        frame = wire.encode_request(key, version, 1, self.rng.choice([None, "", "c"]), body)
        header, decoded = wire.decode_request(memoryview(frame)[4:])
        request = Request(header.api_key, header.api_version, header.client_id, decoded)
        self.waiting.append(asyncio.ensure_future(self.handle(request)))

    async def handle(self, request: Request) -> None:
        reply = await handle(self.broker, request)
        assert reply is not None
        try:
            wire.encode_response(request.api_key, request.version, 1, reply)
        except InvalidRequestError as error:
            pytest.fail(f"{ApiKey(request.api_key).name} {request.version}: {request.body} has the answer {error}")
        if reply.get("member_id"):
            self.member_ids.append(reply["member_id"])
        self.answered += 1


def test_random_requests_are_all_answered_and_leave_nothing(tmp_path: Path, rng: random.Random) -> None:
    async def story() -> None:
        with Broker(tmp_path / "data", clock=Clock()) as broker:
            broker.topics.create("t", 2)
            attacker = Attacker(broker, rng)
            for number in range(REQUESTS):
                attacker.strike()
                if rng.random() < 0.05:
                    rng.choice(attacker.waiting).cancel()  # its connection goes away
                if number % 50 == 0:
                    await advance(rng.choice([0, 0, 1000, 7000, 70_000]))
                else:
                    await settle() if rng.random() < 0.3 else None
            for _ in range(60):
                await advance(100_000)
            await advance(2**31)
            await settle()
            assert all(each.done() for each in attacker.waiting)
            for each in attacker.waiting:
                if not each.cancelled():
                    each.result()
            assert attacker.answered > REQUESTS / 2
            for group in broker.coordinator.groups():
                assert not group.members, group.group_id
                assert not group.pending
                assert not broker.coordinator.delete_group(group.group_id)
            usage = broker.coordinator.registry.usage
            assert (usage.bytes, usage.member_bytes) == (0, 0)
            assert broker.topics.names() in (["t"], ["__consumer_offsets", "t"])

    play(story())
