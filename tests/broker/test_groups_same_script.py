"""One script of group requests, told to a real broker and to ours: the same answers, word for word."""

from __future__ import annotations

import re
import socket
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic
from support.broker.group_play import subscription
from support.golden import PATIENCE_S
from support.kafka.brokers import STEADY
from support.kafka.brokers import Broker as RealBroker
from support.waiting import wait_until

from kts.broker import wire
from kts.broker.broker import Broker
from kts.broker.codes import ErrorCode
from kts.broker.wire.messages import ApiKey
from kts.server.server import ServerThread

Body = dict[str, Any]
MEMBER_ID = re.compile(r"(\w+)-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
BEFORE = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR)


class Wire:
    """A connection, and the names that the script gives to member ids, which no two brokers have in common."""

    aliases: dict[str, str]

    def __init__(self, bootstrap: str, aliases: dict[str, str], transcript: list[str], name: str) -> None:
        host, port = bootstrap.split(":")
        self.socket = socket.create_connection((host, int(port)), PATIENCE_S)
        self.stream = self.socket.makefile("rb")
        self.aliases, self.transcript, self.name = aliases, transcript, name
        self.asked: tuple[ApiKey, int] | None = None

    def send(self, key: ApiKey, version: int, /, **body: Any) -> None:
        self.asked = key, version
        self.socket.sendall(wire.encode_request(key, version, 1, self.name, body))

    def receive(self) -> Body:
        assert self.asked is not None
        size = int.from_bytes(self.stream.read(4), "big")
        found = wire.decode_response(*self.asked, memoryview(self.stream.read(size)))[1]
        if found.get("error_code") in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED) and found.get("member_id"):
            self.aliases.setdefault(found["member_id"], f"<{self.name}{len(self.aliases)}>")
        key, version = self.asked
        self.transcript.append(f"{self.name} {key.name} {version}: {self.plain(found)}")
        return found

    def ask(self, key: ApiKey, version: int, /, **body: Any) -> Body:
        self.send(key, version, **body)
        return self.receive()

    def plain(self, value: Any) -> Any:
        """Without what differs between any two runs: member ids, and the order of members."""
        if isinstance(value, dict):
            return {name: self.plain(each) for name, each in value.items() if name not in ("port", "throttle_time_ms")}
        if isinstance(value, list):
            return sorted((self.plain(each) for each in value), key=repr)
        if not isinstance(value, str):
            return value
        return self.aliases.get(value) or MEMBER_ID.sub(r"<\1 that joins>", value)


class Player(Wire):
    """A member by hand."""

    member_id = ""
    generation_id = -1

    def joining(self, version: int, *, protocols: tuple[str, ...] = ("range",), **more: Any) -> None:
        body: Body = {"group_id": "g", "session_timeout_ms": 1_000_000, "rebalance_timeout_ms": 1_000_000}
        body |= {"protocol_type": "consumer", "member_id": self.member_id}
        body["protocols"] = [{"name": name, "metadata": subscription("t")} for name in protocols]
        self.send(ApiKey.JOIN_GROUP, version, **body | more)

    def joined(self) -> Body:
        found = self.receive()
        if found["error_code"] in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
            self.member_id, self.generation_id = found["member_id"], found["generation_id"]
        return found

    def join(self, version: int, **more: Any) -> Body:
        self.joining(version, **more)
        return self.joined()

    def syncing(self, version: int, *parts: Player, **more: Any) -> None:
        assignments = [{"member_id": each.member_id, "assignment": each.name.encode()} for each in parts]
        body: Body = {"group_id": "g", "generation_id": self.generation_id, "member_id": self.member_id}
        names = {"protocol_type": "consumer", "protocol_name": "range"} if version >= 5 else {}
        self.send(ApiKey.SYNC_GROUP, version, **body | names | {"assignments": assignments} | more)

    def sync(self, version: int, *parts: Player, **more: Any) -> Body:
        self.syncing(version, *parts, **more)
        return self.receive()

    def heartbeat(self, version: int = 3, **more: Any) -> Body:
        body = {"group_id": "g", "generation_id": self.generation_id, "member_id": self.member_id}
        return self.ask(ApiKey.HEARTBEAT, version, **body | more)

    def commit(self, version: int, offset: int = 1, *, partition: int = 0, topic: str = "t", **more: Any) -> Body:
        metadata = more.pop("metadata", "m")
        entry: Body = {"partition_index": partition, "committed_offset": offset, "committed_metadata": metadata}
        body: Body = {"group_id": "g", "topics": [{"name": topic, "partitions": [entry]}]}
        if version >= 1:
            body |= {"generation_id_or_member_epoch": self.generation_id, "member_id": self.member_id}
        return self.ask(ApiKey.OFFSET_COMMIT, version, **body | more)

    def leave(self, version: int = 3, **more: Any) -> Body:
        if version < 3:
            return self.ask(ApiKey.LEAVE_GROUP, version, **{"group_id": "g", "member_id": self.member_id} | more)
        members = more.pop("members", [{"member_id": self.member_id}])
        return self.ask(ApiKey.LEAVE_GROUP, version, **{"group_id": "g", "members": members} | more)


def tell(bootstrap: str) -> list[str]:
    """The script; what was answered."""
    transcript: list[str] = []
    aliases: dict[str, str] = {}

    def player(name: str) -> Player:
        return Player(bootstrap, aliases, transcript, name)

    def see(*groups: str) -> None:
        watcher.ask(ApiKey.LIST_GROUPS, 5)
        for version in (0, 5):
            watcher.ask(ApiKey.DESCRIBE_GROUPS, version, groups=list(groups or ("g",)))
        watcher.ask(ApiKey.OFFSET_FETCH, 8, groups=[{"group_id": each, "topics": None} for each in groups or ("g",)])

    def busy(asked: Player) -> None:
        """Until the broker has seen a request that waits."""
        key = ApiKey.HEARTBEAT
        body = {"group_id": "g", "generation_id": asked.generation_id, "member_id": asked.member_id}

        def in_progress() -> bool:
            probe.send(key, 3, **body)
            size = int.from_bytes(probe.stream.read(4), "big")
            found = wire.decode_response(key, 3, memoryview(probe.stream.read(size)))[1]
            return bool(found["error_code"] == ErrorCode.REBALANCE_IN_PROGRESS)

        wait_until("a rebalance has begun", in_progress)

    watcher, probe, a, b, c = (player(name) for name in ("watcher", "probe", "a", "b", "c"))

    def loaded() -> bool:
        probe.ask(ApiKey.FIND_COORDINATOR, 4, coordinator_keys=["g"])
        found = probe.ask(ApiKey.OFFSET_FETCH, 7, group_id="g", topics=None)
        return found["error_code"] not in BEFORE and probe.heartbeat()["error_code"] not in BEFORE

    wait_until("the coordinator is there", loaded)
    transcript.clear()

    # nobody is there
    see("g", "")
    a.heartbeat()
    a.heartbeat(group_id="")
    a.sync(0, a)
    a.leave()
    a.leave(0)
    a.leave(group_id="")
    a.join(3, member_id="ghost")
    a.join(3, group_id="")
    for timeout in (5_999, 1_800_001, -1):
        a.join(3, session_timeout_ms=timeout)
    a.join(3, protocols=())
    a.join(3, protocol_type="")
    a.commit(2, generation_id_or_member_epoch=3)
    watcher.ask(ApiKey.DELETE_GROUPS, 1, groups_names=["nobody", "g", ""])
    watcher.ask(ApiKey.OFFSET_DELETE, 0, group_id="nobody", topics=[])

    # a consumer without a group
    for version in (2, 6, 8, 9):
        c.commit(version, version, group_id="simple")
    c.commit(6, group_id="simple", partition=7)
    c.commit(6, group_id="simple", topic="gone")
    c.commit(6, group_id="simple", metadata="x" * 4097)
    c.commit(6, -5, group_id="simple", metadata=None)
    see("simple")
    watcher.ask(ApiKey.OFFSET_FETCH, 1, group_id="simple", topics=[{"name": "t", "partition_indexes": [0, 1, 9]}])

    # one member
    a.join(4)
    see()
    a.joining(4)
    a.joined()
    see()
    a.commit(2)
    a.heartbeat()
    a.sync(5, a, protocol_name="roundrobin")
    a.sync(5, a, protocol_type="connect")
    a.sync(5, a, protocol_name=None)
    a.sync(5, a)
    see()
    for version in (2, 7):
        a.commit(version, 10 + version)
    a.heartbeat(generation_id=7)
    a.commit(7, generation_id_or_member_epoch=7)
    a.commit(7, member_id="ghost")
    a.commit(7, generation_id_or_member_epoch=-1, member_id="")
    a.sync(3, a, generation_id=9)
    a.sync(3, a, member_id="ghost")
    b.join(3, protocol_type="connect")
    b.join(3, protocols=("roundrobin",))
    watcher.ask(ApiKey.DELETE_GROUPS, 1, groups_names=["g"])
    deleted = [{"name": name, "partitions": [{"partition_index": 0}]} for name in ("t", "gone")]
    watcher.ask(ApiKey.OFFSET_DELETE, 0, group_id="g", topics=deleted)

    # a second one
    b.joining(3)
    busy(a)
    see()
    a.heartbeat()
    a.sync(3, a)
    a.commit(7, 20)
    a.join(9)
    b.joined()
    see()
    a.commit(7, 21)
    b.heartbeat()
    b.syncing(3)
    a.sync(3, a, b)
    b.receive()
    see()
    b.join(3)  # a follower with nothing new
    b.sync(3)
    a.joining(9)  # the leader: all have to join again
    busy(b)
    b.join(3)
    a.joined()
    b.sync(3, member_id=a.member_id, generation_id=1)
    a.sync(3, a, b)
    b.sync(3)
    b.leave(0)
    b.heartbeat()
    a.heartbeat()
    a.join(9)
    a.sync(3, a)

    # static members
    b.member_id = ""
    b.joining(7, group_instance_id="i")
    busy(a)
    a.join(9)
    b.joined()
    b.syncing(3, group_instance_id="i")
    a.sync(3, a, b)
    b.receive()
    see()
    old_id = b.member_id
    b.member_id = ""
    b.join(7, group_instance_id="i")
    b.heartbeat(group_instance_id="i", member_id=old_id)
    b.heartbeat(group_instance_id="nobody")
    b.heartbeat(group_instance_id="i")
    b.commit(7, 30, group_instance_id="i", member_id=old_id)
    b.commit(7, 31, group_instance_id="i")
    b.sync(3, group_instance_id="i", member_id=old_id)
    b.sync(3, group_instance_id="i")
    b.join(7, group_instance_id="i", member_id=old_id)
    a.heartbeat()
    see()
    going = [
        {"member_id": "", "group_instance_id": "nobody"},
        {"member_id": old_id, "group_instance_id": "i"},
        {"member_id": "", "group_instance_id": "i"},
        {"member_id": "", "group_instance_id": None},
    ]
    a.leave(3, members=going)
    a.heartbeat()
    see()
    a.leave(5)
    see()
    a.heartbeat()
    a.commit(7, 40)
    c.commit(7, 41)
    for version, filters in ((4, {"states_filter": ["empty"]}), (5, {"types_filter": ["Classic"]})):
        watcher.ask(ApiKey.LIST_GROUPS, version, **filters)
    watcher.ask(ApiKey.LIST_GROUPS, 5, types_filter=["consumer"])
    watcher.ask(ApiKey.OFFSET_DELETE, 0, group_id="g", topics=deleted)
    watcher.ask(ApiKey.DELETE_GROUPS, 2, groups_names=["g", "simple"])
    see("g", "simple")
    for each in (watcher, probe, a, b, c):
        each.socket.close()
    return transcript


def test_a_script_of_group_requests_has_the_answers_of_a_real_broker(tmp_path: Path) -> None:
    folder = tmp_path / "real"
    folder.mkdir()
    with RealBroker("3.9.2", folder, STEADY | {"group.initial.rebalance.delay.ms": 0}) as real:
        real.start()
        admin = AdminClient({"bootstrap.servers": real.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic("t", 2, 1)], operation_timeout=PATIENCE_S)["t"].result()
        expected = tell(real.bootstrap)
    with Broker(tmp_path / "data", {"auto.create.topics.enable": "false"}) as broker:
        broker.topics.create("t", 2)
        with ServerThread(broker) as server:
            host, port = server.address
            found = tell(f"{host}:{port}")
    for number, (mine, real_one) in enumerate(zip(found, expected, strict=True)):
        assert mine == real_one, f"answer {number} differs"
    assert len(found) > 140
