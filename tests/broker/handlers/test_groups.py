"""Each version of each request about groups, through the wire's layouts, to a broker and back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.broker.group_play import SESSION_MS, Clock, T, advance, play, settle, subscription

from kts.broker import wire
from kts.broker.broker import Broker
from kts.broker.codes import ApiKey, ErrorCode
from kts.broker.handlers import handle
from kts.broker.request import Request

Body = dict[str, Any]
CONFIG = {"node.id": 5, "group.initial.rebalance.delay.ms": 0}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(tmp_path / "data", CONFIG, clock=Clock()) as found:
        found.topics.create("t", 2, {})
        found.topics.create("u", 1, {})
        yield found


async def ask(broker: Broker, key: ApiKey, version: int, client_id: str | None = "c", /, **body: Any) -> Body:
    """A request as bytes, the answer from bytes."""
    frame = wire.encode_request(key, version, 7, client_id, body)
    header, decoded = wire.decode_request(memoryview(frame)[4:])
    request = Request(header.api_key, header.api_version, header.client_id, decoded)
    answer = await handle(broker, request)
    assert answer is not None
    chunks = wire.encode_response(key, version, 7, answer)
    assert all(isinstance(chunk, bytes | memoryview) for chunk in chunks)
    correlation_id, found = wire.decode_response(key, version, memoryview(b"".join(map(bytes, chunks)))[4:])  # type: ignore[arg-type]
    assert correlation_id == 7
    return found


def versions(key: ApiKey) -> list[int]:
    first, last = wire.versions(key)
    return list(range(first, last + 1))


def told(story: Callable[[], Any]) -> None:
    play(story())


async def join(broker: Broker, version: int, member_id: str = "", client_id: str = "c", **more: Any) -> Body:
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


@pytest.mark.parametrize("version", versions(ApiKey.FIND_COORDINATOR))
def test_the_coordinator_is_this_broker_and_of_transactions_nobody(broker: Broker, version: int) -> None:
    async def story() -> None:
        batched = version >= 4
        names = {"coordinator_keys": ["g", "h"]} if batched else {"key": "g"}
        found = await ask(broker, ApiKey.FIND_COORDINATOR, version, **names)
        for each in found["coordinators"] if batched else [found]:
            where = (each["error_code"], each["node_id"], each["host"], each["port"])
            assert where == (ErrorCode.NONE, 5, "127.0.0.1", 9092)
        topic = broker.topics.get("__consumer_offsets")
        assert topic is not None
        assert topic.is_internal
        assert topic.config.cleanup_policy == "compact"
        if batched:
            assert [each["key"] for each in found["coordinators"]] == ["g", "h"]
        refused, nowhere = ErrorCode.INVALID_REQUEST, (-1, "", -1)
        for key_type, code, place in ((1, ErrorCode.NONE, (5, "127.0.0.1", 9092)), (2, refused, nowhere)):
            if version >= 1:
                found = await ask(broker, ApiKey.FIND_COORDINATOR, version, key_type=key_type, **names)
                for each in found["coordinators"] if batched else [found]:
                    assert (each["error_code"], each["node_id"], each["host"], each["port"]) == (code, *place)

    told(story)


@pytest.mark.parametrize("version", versions(ApiKey.JOIN_GROUP))
def test_join(broker: Broker, version: int) -> None:
    async def story() -> None:
        found = await join(broker, version)
        if version >= 4:
            assert found["error_code"] == ErrorCode.MEMBER_ID_REQUIRED
            assert found["protocol_name"] == (None if version >= 7 else "")
            assert found["generation_id"] == -1
            found = await join(broker, version, found["member_id"])
        assert found["error_code"] == ErrorCode.NONE
        assert found["generation_id"] == 1
        assert found["protocol_name"] == "range"
        assert found["protocol_type"] == ("consumer" if version >= 7 else None)
        assert found["leader"] == found["member_id"]
        assert found["member_id"].startswith("c-")
        assert found["members"] == [
            {"member_id": found["member_id"], "group_instance_id": None, "metadata": subscription("t")}
        ]
        group = broker.coordinator.group("g")
        assert group is not None
        (member,) = group.members.values()
        assert member.rebalance_timeout_ms == (60_000 if version else SESSION_MS)
        assert (member.client_id, member.client_host) == ("c", "/127.0.0.1")

    told(story)


@pytest.mark.parametrize("version", versions(ApiKey.JOIN_GROUP)[5:])
def test_a_static_member_needs_no_second_request(broker: Broker, version: int) -> None:
    async def story() -> None:
        found = await join(broker, version, group_instance_id="i")
        assert found["error_code"] == ErrorCode.NONE
        assert found["member_id"].startswith("i-")
        assert found["members"][0]["group_instance_id"] == "i"

    told(story)


@pytest.mark.parametrize("version", versions(ApiKey.SYNC_GROUP))
def test_sync(broker: Broker, version: int) -> None:
    async def story() -> None:
        joined = await member_of(broker, sync=False)
        body: Body = {"group_id": "g", "generation_id": 1, "member_id": joined["member_id"]}
        body["assignments"] = [{"member_id": joined["member_id"], "assignment": b"a"}]
        if version >= 5:
            for name, error in ((None, ErrorCode.INCONSISTENT_GROUP_PROTOCOL), ("x", 23)):
                wrong = {"protocol_type": "consumer", "protocol_name": name}
                assert (await ask(broker, ApiKey.SYNC_GROUP, version, **body, **wrong))["error_code"] == error
            body |= {"protocol_type": "consumer", "protocol_name": "range"}
        found = await ask(broker, ApiKey.SYNC_GROUP, version, **body)
        assert (found["error_code"], found["assignment"]) == (ErrorCode.NONE, b"a")
        names = ("consumer", "range") if version >= 5 else (None, None)
        assert (found["protocol_type"], found["protocol_name"]) == names
        wrong = body | {"generation_id": 9}
        assert (await ask(broker, ApiKey.SYNC_GROUP, version, **wrong))["error_code"] == ErrorCode.ILLEGAL_GENERATION

    told(story)


@pytest.mark.parametrize("version", versions(ApiKey.HEARTBEAT))
def test_heartbeat(broker: Broker, version: int) -> None:
    async def story() -> None:
        joined = await member_of(broker)
        body: Body = {"group_id": "g", "generation_id": 1, "member_id": joined["member_id"]}
        assert (await ask(broker, ApiKey.HEARTBEAT, version, **body))["error_code"] == ErrorCode.NONE
        for name, value, error in (
            ("generation_id", 2, ErrorCode.ILLEGAL_GENERATION),
            ("member_id", "x", ErrorCode.UNKNOWN_MEMBER_ID),
            ("group_id", "x", ErrorCode.UNKNOWN_MEMBER_ID),
            ("group_id", "", ErrorCode.INVALID_GROUP_ID),
        ):
            assert (await ask(broker, ApiKey.HEARTBEAT, version, **body | {name: value}))["error_code"] == error

    told(story)


@pytest.mark.parametrize("version", versions(ApiKey.LEAVE_GROUP))
def test_leave(broker: Broker, version: int) -> None:
    async def story() -> None:
        joined = await member_of(broker)
        leaving = [joined["member_id"], "nobody"]
        if version < 3:
            errors = [
                (await ask(broker, ApiKey.LEAVE_GROUP, version, group_id="g", member_id=each))["error_code"]
                for each in leaving
            ]
        else:
            members = [{"member_id": each} for each in leaving]
            found = await ask(broker, ApiKey.LEAVE_GROUP, version, group_id="g", members=members)
            assert found["error_code"] == ErrorCode.NONE
            assert [each["member_id"] for each in found["members"]] == leaving
            errors = [each["error_code"] for each in found["members"]]
        assert errors == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]
        found = await ask(broker, ApiKey.LEAVE_GROUP, version, group_id="", member_id="x", members=[])
        assert found["error_code"] == ErrorCode.INVALID_GROUP_ID

    told(story)


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
    return [[each["error_code"] for each in topic["partitions"]] for topic in found]


@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_COMMIT))
def test_commit(broker: Broker, version: int) -> None:
    async def story() -> None:
        unknown = ErrorCode.UNKNOWN_TOPIC_ID if version >= 10 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        entries = [
            {"partition_index": 0, "committed_offset": 5, "committed_metadata": None},
            {"partition_index": 1, "committed_offset": 6, "committed_metadata": "x" * 4097},
            {"partition_index": 2, "committed_offset": 7, "committed_metadata": ""},
        ]
        if version >= 6:
            entries[0]["committed_leader_epoch"] = 3
        if version == 1:
            entries[0]["commit_timestamp"] = T - 1
        body: Body = {"group_id": "s", "topics": asked_topics(broker, version, t=entries, gone=entries[:1])}
        if 2 <= version <= 4:
            body["retention_time_ms"] = 1000
        found = await ask(broker, ApiKey.OFFSET_COMMIT, version, **body)
        expected = [[0, ErrorCode.OFFSET_METADATA_TOO_LARGE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION], [unknown]]
        assert codes(found["topics"]) == expected
        ((place, committed),) = broker.coordinator.fetch("s", None).items()
        assert place == ("t", 0)
        assert committed.offset == 5
        assert committed.leader_epoch == (3 if version >= 6 else -1)
        assert committed.commit_ms == (T - 1 if version == 1 else T)
        assert committed.expire_ms == (T + 1000 if 2 <= version <= 4 else None)
        only_unknown = {"topics": asked_topics(broker, version, gone=entries[:1])}
        assert codes((await ask(broker, ApiKey.OFFSET_COMMIT, version, **body | only_unknown))["topics"]) == [[unknown]]
        if version >= 1:
            body |= {"group_id": "nobody", "generation_id_or_member_epoch": 1, "member_id": "x"}
            found = await ask(broker, ApiKey.OFFSET_COMMIT, version, **body)
            assert codes(found["topics"])[0][:2] == [ErrorCode.ILLEGAL_GENERATION] * 2

    told(story)


@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_FETCH))
def test_fetch(broker: Broker, version: int) -> None:
    async def story() -> None:
        entry = {"partition_index": 1, "committed_offset": 5, "committed_leader_epoch": 2, "committed_metadata": "m"}
        for group_id in ("a", "b"):
            topics = asked_topics(broker, 6, t=[entry], u=[entry | {"partition_index": 0}])
            await ask(broker, ApiKey.OFFSET_COMMIT, 6, group_id=group_id, topics=topics)
        asked = asked_topics(broker, version, t=[1, 0, 77], gone=[3])
        if version < 8:
            groups = [await ask(broker, ApiKey.OFFSET_FETCH, version, group_id="a", topics=asked)]
        else:
            wanted = [{"group_id": name, "topics": asked} for name in ("a", "b", "nobody")]
            found = await ask(broker, ApiKey.OFFSET_FETCH, version, groups=wanted, require_stable=True)
            groups = found["groups"]
            assert [each["group_id"] for each in groups] == ["a", "b", "nobody"]
        gone = ErrorCode.UNKNOWN_TOPIC_ID if version >= 10 else 0
        for number, group in enumerate(groups):
            known = number < 2
            assert group["error_code"] == ErrorCode.NONE
            first, second, third = group["topics"][0]["partitions"]
            assert first["committed_offset"] == (5 if known else -1)
            assert first["metadata"] == ("m" if known else "")
            assert first["committed_leader_epoch"] == (2 if known and version >= 5 else -1)
            assert [each["partition_index"] for each in (second, third)] == [0, 77]
            assert [each["committed_offset"] for each in (second, third)] == [-1, -1]
            assert codes(group["topics"]) == [[0, 0, 0], [gone]]
        if version >= 2:
            if version < 8:
                found = await ask(broker, ApiKey.OFFSET_FETCH, version, group_id="a", topics=None)
            else:
                wanted = [{"group_id": "a", "topics": None}]
                found = (await ask(broker, ApiKey.OFFSET_FETCH, version, groups=wanted))["groups"][0]
            ids = {broker.topics.get(name).topic_id: name for name in ("t", "u")}  # type: ignore[union-attr]
            names = [each["name"] if version < 10 else ids[each["topic_id"]] for each in found["topics"]]
            assert sorted(names) == ["t", "u"]

    told(story)


@pytest.mark.parametrize("version", versions(ApiKey.DESCRIBE_GROUPS))
def test_describe(broker: Broker, version: int) -> None:
    async def story() -> None:
        joined = await member_of(broker, sync=False)
        (waiting,) = (await ask(broker, ApiKey.DESCRIBE_GROUPS, version, groups=["g"]))["groups"]
        assert (waiting["group_state"], waiting["protocol_data"]) == ("CompletingRebalance", "")
        assert waiting["members"][0]["member_metadata"] == b""
        parts = [{"member_id": joined["member_id"], "assignment": b"part"}]
        await ask(
            broker,
            ApiKey.SYNC_GROUP,
            0,
            **{"group_id": "g", "generation_id": 1, "member_id": joined["member_id"], "assignments": parts},
        )
        more = {"include_authorized_operations": True} if version >= 3 else {}
        stable, dead = (await ask(broker, ApiKey.DESCRIBE_GROUPS, version, groups=["g", "x"], **more))["groups"]
        assert stable["error_code"] == ErrorCode.NONE
        assert (stable["group_state"], stable["protocol_type"], stable["protocol_data"]) == (
            "Stable",
            "consumer",
            "range",
        )
        assert stable["authorized_operations"] == (328 if version >= 3 else -(2**31))
        (member,) = stable["members"]
        assert member == {
            "member_id": joined["member_id"],
            "group_instance_id": None,
            "client_id": "c",
            "client_host": "/127.0.0.1",
            "member_metadata": subscription("t"),
            "member_assignment": b"part",
        }
        assert (dead["group_id"], dead["group_state"], dead["members"]) == ("x", "Dead", [])
        assert dead["error_code"] == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else ErrorCode.NONE)

    told(story)


@pytest.mark.parametrize("version", versions(ApiKey.LIST_GROUPS))
def test_list(broker: Broker, version: int) -> None:
    async def story() -> None:
        await member_of(broker)
        entry = {"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}
        await ask(broker, ApiKey.OFFSET_COMMIT, 2, group_id="s", topics=asked_topics(broker, 2, t=[entry]))

        async def listed(**filters: Any) -> list[tuple[str, str, str, str]]:
            found = await ask(broker, ApiKey.LIST_GROUPS, version, **filters)
            assert found["error_code"] == ErrorCode.NONE
            names = ("group_id", "protocol_type", "group_state", "group_type")
            return sorted(tuple(each[name] for name in names) for each in found["groups"])

        state = ["Empty", "Stable"] if version >= 4 else ["", ""]
        kind = "classic" if version >= 5 else ""
        assert await listed() == [("g", "consumer", state[1], kind), ("s", "", state[0], kind)]
        if version >= 4:
            assert [each[0] for each in await listed(states_filter=["sTABLE"])] == ["g"]
            assert [each[0] for each in await listed(states_filter=["Empty", "Stable"])] == ["g", "s"]
            assert await listed(states_filter=["Dead"]) == []
        if version >= 5:
            assert [each[0] for each in await listed(types_filter=["Classic", "share"])] == ["g", "s"]
            assert await listed(types_filter=["consumer"]) == []

    told(story)


@pytest.mark.parametrize("version", versions(ApiKey.DELETE_GROUPS))
def test_delete_groups(broker: Broker, version: int) -> None:
    async def story() -> None:
        await member_of(broker)
        entry = {"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}
        await ask(broker, ApiKey.OFFSET_COMMIT, 2, group_id="s", topics=asked_topics(broker, 2, t=[entry]))
        found = await ask(broker, ApiKey.DELETE_GROUPS, version, groups_names=["g", "s", "x", "s"])
        assert {each["group_id"]: each["error_code"] for each in found["results"]} == {
            "g": ErrorCode.NON_EMPTY_GROUP,
            "s": ErrorCode.NONE,
            "x": ErrorCode.GROUP_ID_NOT_FOUND,
        }

    told(story)


def test_delete_offsets(broker: Broker) -> None:
    async def story() -> None:
        await member_of(broker)
        entry = {"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}
        await ask(broker, ApiKey.OFFSET_COMMIT, 2, group_id="s", topics=asked_topics(broker, 2, t=[entry], u=[entry]))
        topics = [{"name": name, "partitions": [{"partition_index": 0}]} for name in ("t", "gone")]
        topics.append({"name": "u", "partitions": [{"partition_index": 7}]})
        found = await ask(broker, ApiKey.OFFSET_DELETE, 0, group_id="s", topics=topics)
        assert codes(found["topics"]) == [[0], [3], [3]]
        assert list(broker.coordinator.fetch("s", None)) == [("u", 0)]
        found = await ask(broker, ApiKey.OFFSET_DELETE, 0, group_id="g", topics=topics)
        assert codes(found["topics"]) == [[ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC], [3], [3]]
        found = await ask(broker, ApiKey.OFFSET_DELETE, 0, group_id="nobody", topics=topics)
        assert found["error_code"] == ErrorCode.GROUP_ID_NOT_FOUND

    told(story)


def test_a_client_that_goes_away_while_it_waits_leaves_nothing_behind(broker: Broker) -> None:
    async def story() -> None:
        first = await member_of(broker)
        late = asyncio.ensure_future(join(broker, 3, "", "late"))
        await settle()
        late.cancel()
        await settle()
        assert late.cancelled()
        body: Body = {"group_id": "g", "generation_id": 1, "member_id": first["member_id"]}
        assert (await ask(broker, ApiKey.HEARTBEAT, 3, **body))["error_code"] == ErrorCode.REBALANCE_IN_PROGRESS
        again = await join(broker, 3, first["member_id"])
        assert len(again["members"]) == 2  # as in Kafka it counts until it has been silent for long enough
        await advance(SESSION_MS * 0.7)
        body["generation_id"] = again["generation_id"]
        assert (await ask(broker, ApiKey.HEARTBEAT, 3, **body))["error_code"] == ErrorCode.NONE
        await advance(SESSION_MS * 0.4)
        assert len((await join(broker, 3, first["member_id"]))["members"]) == 1

    told(story)


def test_a_protocol_that_is_named_twice_counts_once(broker: Broker) -> None:
    async def story() -> None:
        twice = [{"name": name, "metadata": name.encode()} for name in ("a", "b", "a")]
        found = await join(broker, 3, protocols=twice)
        assert (found["error_code"], found["protocol_name"]) == (ErrorCode.NONE, "b")

    told(story)


def test_an_endless_retention_is_the_longest_there_is(broker: Broker) -> None:
    async def story() -> None:
        entry = {"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}
        topics = asked_topics(broker, 2, t=[entry])
        for retention, expire in ((2**63 - 1, 2**63 - 1), (-2, T - 2), (-(2**63), 0)):
            found = await ask(broker, ApiKey.OFFSET_COMMIT, 2, group_id="s", topics=topics, retention_time_ms=retention)
            assert codes(found["topics"]) == [[0]]
            assert broker.coordinator.fetch("s", None)["t", 0].expire_ms == expire

    told(story)


def test_what_is_asked_for_twice_is_answered_once(broker: Broker) -> None:
    """Else a small request would have an answer that no memory holds."""

    async def story() -> None:
        entry = {"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}
        await ask(broker, ApiKey.OFFSET_COMMIT, 2, group_id="s", topics=asked_topics(broker, 2, t=[entry]))
        wanted = [{"group_id": "s", "topics": None}] * 3 + [{"group_id": "s", "topics": []}]
        found = await ask(broker, ApiKey.OFFSET_FETCH, 8, groups=wanted)
        assert [len(each["topics"]) for each in found["groups"]] == [1, 0]
        assert len((await ask(broker, ApiKey.DESCRIBE_GROUPS, 5, groups=["s"] * 1000))["groups"]) == 1

    told(story)


def test_a_client_with_an_endless_name_becomes_a_member(broker: Broker) -> None:
    async def story() -> None:
        name = "\N{SNAKE}" * 8191
        first = await join(broker, 9, "", name)
        assert first["error_code"] == ErrorCode.MEMBER_ID_REQUIRED
        assert (await join(broker, 9, first["member_id"], name))["error_code"] == ErrorCode.NONE

    told(story)
