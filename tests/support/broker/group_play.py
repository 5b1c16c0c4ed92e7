"""Groups to play with: an event loop whose time can be moved, and members that know what to say."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from kts.broker.codes import ErrorCode
from kts.broker.groups import Coordinator, GroupSettings
from kts.broker.groups.coordinator import Join, Sync
from kts.broker.groups.group import JoinResult, SyncResult
from kts.broker.settings.broker import BrokerConfig
from kts.broker.topics import Topics
from kts.coordinator_records.groups import Committed

T = 1_700_000_000_000
GROUP = "g"
SESSION_MS, REBALANCE_MS = 10_000, 60_000
DAY_MS = 24 * 3_600_000
Story = Callable[[Coordinator], Coroutine[Any, Any, None]]
Tell = Callable[..., None]  # plays a story; settings of the coordinator by keyword


class Loop(asyncio.SelectorEventLoop):
    """The real event loop, whose clock can be put ahead. By itself it goes at a twentieth of the pace: a busy machine
    ends no session before a test does."""

    ahead_s = 0.0

    def time(self) -> float:
        return super().time() / 20 + self.ahead_s


class Clock:
    """What the broker takes for the time of day."""

    def __init__(self, now_ms: int = T) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        return self.now_ms


async def settle() -> None:
    """Let everything happen that is due."""
    for _ in range(20):
        await asyncio.sleep(0)


async def advance(ms: float) -> None:
    """Put the clock ahead, and let happen what is due then."""
    await settle()
    loop = asyncio.get_running_loop()
    if not isinstance(loop, Loop):
        raise TypeError(f"this is for {Loop}, not for {loop}")
    loop.ahead_s += ms / 1000
    await settle()


def play(story: Coroutine[Any, Any, None]) -> None:
    """Run a story in a loop of its own; what goes wrong in a callback or timer is a failure too."""
    problems: list[dict[str, Any]] = []
    with asyncio.Runner(loop_factory=Loop) as runner:
        runner.get_loop().set_exception_handler(lambda _, found: problems.append(found))
        runner.run(story)
    for found in problems:
        raise found.get("exception") or RuntimeError(found["message"])


def open_topics(directory: Path, clock: Clock, *topics_of_users: str, **settings: object) -> Topics:
    """A broker's topics, some of them with four partitions each."""
    config = {"node.id": 1, "cluster.id": "groupplayclusteridAAAAA"} | settings
    topics = Topics(directory, BrokerConfig.of(config), clock)
    for name in topics_of_users:
        if topics.get(name) is None:
            topics.create(name, 4, {})
    return topics


def subscription(*topics: str) -> bytes:
    """What a consumer says to a protocol: version 0 of the consumer protocol."""
    names = [name.encode() for name in topics]
    texts = b"".join(struct.pack(">h", len(name)) + name for name in names)
    return struct.pack(">hi", 0, len(names)) + texts + struct.pack(">i", -1)


class Member:
    """A client that is, was, or wants to be a member of a group."""

    def __init__(
        self,
        coordinator: Coordinator,
        name: str,
        *,
        instance_id: str | None = None,
        group_id: str = GROUP,
        protocols: tuple[tuple[str, bytes], ...] = (("range", subscription("t")),),
        protocol_type: str = "consumer",
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        version: int = 9,
    ) -> None:
        self.coordinator = coordinator
        self.name = name
        self.instance_id = instance_id
        self.group_id = group_id
        self.protocols = protocols
        self.protocol_type = protocol_type
        self.session_ms = session_ms
        self.rebalance_ms = rebalance_ms
        self.version = version
        self.member_id = ""
        self.generation_id = -1

    def ask_to_join(self) -> asyncio.Future[JoinResult]:
        """One JoinGroup."""
        return self.coordinator.join(
            Join(
                self.group_id,
                self.member_id,
                self.instance_id,
                self.name,
                "/127.0.0.1",
                self.rebalance_ms,
                self.session_ms,
                self.protocol_type,
                self.protocols,
                needs_member_id=self.version >= 4,
                may_skip_assignment=self.version >= 9,
            )
        )

    async def join(self) -> JoinResult:
        """As clients do: ask again with the id that was given, and note what was answered."""
        found = await self.ask_to_join()
        if found.error == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = found.member_id
            found = await self.ask_to_join()
        if not found.error:
            self.member_id, self.generation_id = found.member_id, found.generation_id
        return found

    def ask_to_sync(self, assignments: dict[str, bytes] | None = None) -> asyncio.Future[SyncResult]:
        """One SyncGroup."""
        who = (self.group_id, self.generation_id, self.member_id, self.instance_id)
        return self.coordinator.sync(Sync(*who, None, None, assignments or {}))

    async def take_part(self) -> bytes:
        """Join, assign to each member its own id if it leads, and get the own part."""
        while True:
            joined = await self.join()
            if joined.error == ErrorCode.REBALANCE_IN_PROGRESS:
                continue
            assert not joined.error, joined
            synced = await self.ask_to_sync({key: key.encode() for key, _, _ in joined.members})
            if synced.error != ErrorCode.REBALANCE_IN_PROGRESS:
                assert not synced.error, synced
                return synced.assignment

    def heartbeat(self) -> ErrorCode:
        return self.coordinator.heartbeat(self.group_id, self.member_id, self.instance_id, self.generation_id)

    def leave(self) -> ErrorCode:
        _, errors = self.coordinator.leave(self.group_id, [(self.member_id, self.instance_id)])
        return errors[0]

    def commit(self, offset: int, partition: int = 0, *, topic: str = "t", metadata: str = "") -> ErrorCode:
        who = (self.group_id, self.member_id, self.instance_id, self.generation_id)
        committed = Committed(offset, -1, metadata, self.coordinator.registry.clock())
        return self.coordinator.commit(*who, {(topic, partition): committed})[topic, partition]


async def members(coordinator: Coordinator, count: int, **how: Any) -> list[Member]:
    """A stable group of so many members; the first one leads."""
    found = [Member(coordinator, f"c{number}", **how) for number in range(count)]
    for number in range(1, count + 1):
        now = found[number - 1 :: -1]  # the new one first: it is what makes the others join again
        parts = await asyncio.gather(*(member.take_part() for member in now))
        assert parts == [member.member_id.encode() for member in now]
    return found


def make(topics: Topics, clock: Clock, **settings: Any) -> Coordinator:
    """A coordinator with settings of one's own."""
    return Coordinator(topics, GroupSettings(**settings), clock)


class Restartable:
    """A coordinator that can be started again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = Clock()
        self.open()

    def open(self, **settings: Any) -> Coordinator:
        self.topics: Topics = open_topics(self.folder, self.clock)
        self.coordinator = make(self.topics, self.clock, **settings)
        return self.coordinator

    def restart(self, **settings: Any) -> Coordinator:
        self.coordinator.close()
        self.topics.close()
        return self.open(**settings)


def commit(coordinator: Coordinator, group_id: str, offsets: dict[tuple[str, int], Committed]) -> set[ErrorCode]:
    """As an administrator, or a consumer that is in no group."""
    return set(coordinator.commit(group_id, "", None, -1, offsets).values())


def committed(offset: int, now_ms: int = T, metadata: str = "", expire_ms: int | None = None) -> Committed:
    return Committed(offset, 3, metadata, now_ms, expire_ms)
