"""The group coordinator of a broker: the one thing that the handlers of group requests talk to.

Source: GroupCoordinator, GroupMetadataManager (3.9), the classic protocol.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from kts.broker.codes import ErrorCode
from kts.broker.groups.commits import Commits, Partition
from kts.broker.groups.group import Group, State
from kts.broker.groups.journal import Journal
from kts.broker.groups.member import JoinResult, SyncResult
from kts.broker.groups.membership import Join, Membership, Sync
from kts.broker.groups.rebalance import Rebalancing
from kts.broker.groups.records import Committed, OffsetKey, group_key, group_value, read_group, read_key, read_offset
from kts.broker.groups.registry import GroupSettings, Registry
from kts.broker.groups.storing import restore, stored
from kts.errors import KtsError

if TYPE_CHECKING:
    from kts.broker.topics import Topics

# How a failure to write a group down is told to its members.
STORE_ERRORS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.INVALID_COMMIT_OFFSET_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


class Coordinator:
    """All groups of a broker, as ``__consumer_offsets`` tells at the start.

    Parameters
    ----------
    topics : Topics
    settings : GroupSettings
    clock : callable
        Gives ms since the epoch, for what is written and for the retention of offsets. Members are watched by the event
        loop's own time.

    Notes
    -----
    All requests come from one event loop. An open transaction's commits are as good as aborted: nobody here can end it.
    """

    def __init__(self, topics: Topics, settings: GroupSettings, clock: Callable[[], int]) -> None:
        self.settings = settings
        self.registry = Registry(settings, clock)
        self.journal = Journal(topics, settings, clock)
        self.rebalancing = Rebalancing(self.registry, self.store)
        self.membership = Membership(self.registry, self.rebalancing)
        self.commits = Commits(self.registry, self.rebalancing, self.journal)
        self._next_expiry: float | None = None
        self._load()

    def _load(self) -> None:
        groups: dict[str, bytes] = {}
        offsets: list[tuple[OffsetKey, bytes]] = []
        for key, value in self.journal.load():
            try:
                found = read_key(key)
                if isinstance(found, OffsetKey):
                    offsets.append((found, value))
                elif found is not None:
                    groups[found] = value
            except KtsError as error:
                self.journal.problems.append(f"a record without a meaning: {error}")
        for group_id, value in groups.items():
            try:
                restored = read_group(value)
                restore(self.registry.create(group_id), restored)
            except KtsError as error:
                self.journal.problems.append(f"group {group_id!r}: {error}")
        for (group_id, topic, partition), value in offsets:
            try:
                committed = read_offset(value)
            except KtsError as error:
                self.journal.problems.append(f"group {group_id!r}, offset of {topic}-{partition}: {error}")
                continue
            group = self.registry.groups.get(group_id) or self.registry.create(group_id)
            group.put_offset(topic, partition, committed)
        self.registry.max_bytes = max(self.settings.max_bytes, 2 * self.registry.usage.bytes)

    def start(self) -> None:
        """Watch members from now on, by the running event loop; every request does this by itself."""
        if self.registry.bind():
            for group in list(self.registry.groups.values()):
                self.rebalancing.resume(group)

    def tick(self) -> None:
        """Called about once a second: forget expired offsets, every ``offsets.retention.check.interval.ms``."""
        self.start()
        now = self.registry.loop.time()
        if self._next_expiry is not None and now < self._next_expiry:
            return
        if self._next_expiry is not None:
            self.commits.expire()
        self._next_expiry = now + self.settings.retention_check_interval_ms / 1000

    def close(self) -> None:
        """Watch nobody any more."""
        self.registry.close()

    def store(self, group: Group, assignments: dict[str, bytes]) -> ErrorCode:
        """Write a group down."""
        try:
            value = group_value(stored(group, assignments))
        except KtsError:
            return ErrorCode.UNKNOWN_SERVER_ERROR
        error = self.journal.append(group.group_id, [(group_key(group.group_id), value)])
        return STORE_ERRORS.get(error, error)

    # --- members ----------------------------------------------------------------------------------

    def join(self, asked: Join) -> asyncio.Future[JoinResult]:
        """See ``Membership.join``."""
        self.start()
        return self.membership.join(asked)

    def sync(self, asked: Sync) -> asyncio.Future[SyncResult]:
        """See ``Membership.sync``."""
        self.start()
        return self.membership.sync(asked)

    def heartbeat(self, group_id: str, member_id: str, instance_id: str | None, generation_id: int) -> ErrorCode:
        """See ``Membership.heartbeat``."""
        self.start()
        return self.membership.heartbeat(group_id, member_id, instance_id, generation_id)

    def leave(self, group_id: str, leaving: list[tuple[str, str | None]]) -> tuple[ErrorCode, list[ErrorCode]]:
        """See ``Membership.leave``."""
        self.start()
        return self.membership.leave(group_id, leaving)

    # --- offsets ----------------------------------------------------------------------------------

    def commit(
        self,
        group_id: str,
        member_id: str,
        instance_id: str | None,
        generation_id: int,
        offsets: Mapping[Partition, Committed],
    ) -> dict[Partition, ErrorCode]:
        """See ``Commits.commit``."""
        self.start()
        return self.commits.commit(group_id, member_id, instance_id, generation_id, offsets)

    def fetch(self, group_id: str, partitions: Iterable[Partition] | None) -> dict[Partition, Committed]:
        """See ``Commits.fetch``."""
        return self.commits.fetch(group_id, partitions)

    def delete_offsets(
        self, group_id: str, partitions: Iterable[Partition]
    ) -> tuple[ErrorCode, dict[Partition, ErrorCode]]:
        """See ``Commits.delete``."""
        return self.commits.delete(group_id, partitions)

    def topics_deleted(self, names: Iterable[str]) -> None:
        """Topics are gone, and with them what was committed for them."""
        self.commits.forget_topics(names)

    # --- groups -----------------------------------------------------------------------------------

    def group(self, group_id: str) -> Group | None:
        """A group, if there is one of that id."""
        return self.registry.groups.get(group_id)

    def groups(self, states: Iterable[str] = ()) -> list[Group]:
        """All groups, or those in one of the states, in whatever case they are written."""
        wanted = {state.lower() for state in states}
        return [group for group in self.registry.groups.values() if not wanted or group.state.lower() in wanted]

    def delete_group(self, group_id: str) -> ErrorCode:
        """Delete a group that has no members, with its offsets."""
        group = self.group(group_id)
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if group.state is not State.EMPTY:
            return ErrorCode.NON_EMPTY_GROUP
        for member_id in list(group.pending):
            group.remove_pending(member_id)
        self.commits.clean([group], lambda each: list(each.offsets))
        return ErrorCode.NONE if self.group(group_id) is None else ErrorCode.COORDINATOR_NOT_AVAILABLE
