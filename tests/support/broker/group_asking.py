"""Requests of a group's members to a broker in this process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from support.broker.asking import Body, answer
from support.broker.group_play import SESSION_MS, play, subscription

from kts.broker.broker import Broker
from kts.broker.codes import ErrorCode
from kts.broker.wire.messages import ApiKey


async def ask(broker: Broker, key: ApiKey, version: int, client_id: str | None = "c", /, **body: Any) -> Body:
    """A request as bytes, the answer from bytes."""
    found = await answer(broker, key, version, body, client_id)
    assert found is not None
    return found


def told(story: Callable[[], Any]) -> None:
    """Play a story."""
    play(story())


async def join(broker: Broker, version: int, member_id: str = "", client_id: str = "c", **more: Any) -> Body:
    """The answer to a member of group g that joins."""
    body: Body = {"group_id": "g", "session_timeout_ms": SESSION_MS, "rebalance_timeout_ms": 60_000}
    body |= {"protocol_type": "consumer", "protocols": [{"name": "range", "metadata": subscription("t")}]}
    return await ask(broker, ApiKey.JOIN_GROUP, version, client_id, **body | {"member_id": member_id} | more)


async def member_of(broker: Broker, client_id: str = "c", *, sync: bool = True, **more: Any) -> Body:
    """A member of group g; the join answer."""
    found = await join(broker, 3, "", client_id, **more)
    assert found["error_code"] == ErrorCode.NONE
    if sync:
        about = {"generation_id": found["generation_id"], "member_id": found["member_id"]}
        parts = [{"member_id": each["member_id"], "assignment": b"part"} for each in found["members"]]
        synced = await ask(broker, ApiKey.SYNC_GROUP, 3, **{"group_id": "g"} | about | {"assignments": parts})
        assert synced["error_code"] == ErrorCode.NONE
    return found


def asked_topics(broker: Broker, version: int, **partitions: list[Any]) -> list[Body]:
    """Topics by name, or by id where the version wants that; `gone` is one that is not there."""
    found = []
    for name, entries in partitions.items():
        topic = broker.topics.get(name)
        topic_id = bytes([9] * 16) if topic is None else topic.topic_id
        about = {"topic_id": topic_id} if version >= 10 else {"name": name}
        kind = "partitions" if entries and isinstance(entries[0], dict) else "partition_indexes"
        found.append(about | {kind: entries})
    return found


def codes(found: list[Body]) -> list[list[int]]:
    """The error codes of an answer's partitions, topic by topic."""
    return [[each["error_code"] for each in topic["partitions"]] for topic in found]
