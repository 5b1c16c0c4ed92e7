"""The group coordinator of a broker: the requests of members, and the groups as ``__consumer_offsets`` stores them.

Source: GroupCoordinator, GroupMetadataManager (3.9), the classic protocol.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from kts.broker.codes import ErrorCode
from kts.broker.groups.commits import COMMIT_ERRORS, OffsetCommits, PartitionKey
from kts.broker.groups.group import (
    Group,
    JoinResult,
    Member,
    Protocols,
    State,
    SyncResult,
    check_generation,
    check_member,
    cost_of,
)
from kts.broker.groups.journal import Journal
from kts.broker.groups.rebalance import NEW_MEMBER_TIMEOUT_MS, Rebalancing
from kts.broker.groups.registry import GroupSettings, Registry
from kts.broker.topics import Topics
from kts.coordinator_records.groups import (
    Committed,
    OffsetKey,
    group_key,
    group_value,
    read_group,
    read_key,
    read_offset,
)
from kts.errors import KtsError

MAX_NAME_BYTES = 32_000  # of a client id in a member id, which must stay below 32 KB

# The answer to members whose group could not be stored.
STORE_ERRORS = COMMIT_ERRORS | {ErrorCode.INVALID_COMMIT_OFFSET_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR}


class Join(NamedTuple):
    """A JoinGroup request. A new member has an empty ``member_id``."""

    group_id: str
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    needs_member_id: bool = True  # a new member joins twice, the second time with the assigned id
    may_skip_assignment: bool = True


class Sync(NamedTuple):
    """A SyncGroup request; ``assignments`` come from the leader."""

    group_id: str
    generation_id: int
    member_id: str
    instance_id: str | None
    protocol_type: str | None
    protocol_name: str | None
    assignments: dict[str, bytes]


class Coordinator:
    """All groups of a broker, loaded from ``__consumer_offsets``.

    Parameters
    ----------
    topics : Topics
    settings : GroupSettings
    clock : callable
        Returns ms since the epoch, for what is written and for the retention of offsets. Session timeouts run by the
        event loop's clock.

    Notes
    -----
    All requests come from one event loop. Offsets of open transactions are ignored, since no transaction ends here.
    """

    def __init__(self, topics: Topics, settings: GroupSettings, clock: Callable[[], int]) -> None:
        self.settings = settings
        self.registry = Registry(settings, clock)
        self.journal = Journal(topics, settings, clock)
        self.rebalancing = Rebalancing(self.registry, self.store)
        self.commits = OffsetCommits(self.registry, self.rebalancing, self.journal)
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
                self.journal.problems.append(f"a record is malformed: {error}")
        for group_id, value in groups.items():
            try:
                restored = read_group(value)
                self.registry.create(group_id).restore(restored)
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
        """Run session timeouts in the current event loop. Every request calls this."""
        if self.registry.bind():
            for group in list(self.registry.groups.values()):
                self.rebalancing.resume(group)

    def tick(self) -> None:
        """Expire offsets every ``offsets.retention.check.interval.ms``; to be called about once a second."""
        self.start()
        now = self.registry.loop.time()
        if self._next_expiry is not None and now < self._next_expiry:
            return
        if self._next_expiry is not None:
            self.commits.expire()
        self._next_expiry = now + self.settings.retention_check_interval_ms / 1000

    def close(self) -> None:
        """Cancel all timers."""
        self.registry.close()

    def store(self, group: Group, assignments: dict[str, bytes]) -> ErrorCode:
        """Store a group."""
        try:
            value = group_value(group.stored(assignments))
        except KtsError:
            return ErrorCode.UNKNOWN_SERVER_ERROR
        error = self.journal.append(group.group_id, [(group_key(group.group_id), value)])
        return STORE_ERRORS.get(error, error)

    # --- join -------------------------------------------------------------------------------------

    def join(self, asked: Join) -> asyncio.Future[JoinResult]:
        """Join a group. The answer comes when the rebalance is complete."""
        self.start()
        answer: asyncio.Future[JoinResult] = self.registry.loop.create_future()
        error = self._join(asked, answer)
        if error is not None and not answer.done():
            answer.set_result(error)
        return answer

    def _join(self, asked: Join, answer: asyncio.Future[JoinResult]) -> JoinResult | None:
        """The answer, or None if it has to wait."""
        settings = self.registry.settings
        if not asked.group_id:
            return JoinResult(ErrorCode.INVALID_GROUP_ID, asked.member_id)
        if not settings.min_session_timeout_ms <= asked.session_timeout_ms <= settings.max_session_timeout_ms:
            return JoinResult(ErrorCode.INVALID_SESSION_TIMEOUT, asked.member_id)
        group = self.registry.groups.get(asked.group_id)
        if group is None and asked.member_id:
            return JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, asked.member_id)
        if not self.registry.has_room_for_member(_cost(asked)):
            return JoinResult(ErrorCode.GROUP_MAX_SIZE_REACHED, "")
        if group is None:
            group = self.registry.create(asked.group_id)
        if not self._accepts(group, asked.member_id):
            if asked.member_id in group.members:
                group.members[asked.member_id].answer_join(JoinResult(ErrorCode.GROUP_MAX_SIZE_REACHED, ""))
                group.remove(asked.member_id)
            found: JoinResult | None = JoinResult(ErrorCode.GROUP_MAX_SIZE_REACHED, "")
        elif not group.supports(asked.protocol_type, asked.protocols):
            found = JoinResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, asked.member_id)
        elif not asked.member_id:
            found = self._new_member(group, asked, answer)
        else:
            found = self._known_member(group, asked, answer)
        self.rebalancing.try_complete_join(group)
        return found

    def _accepts(self, group: Group, member_id: str) -> bool:
        """Whether the group has room for a member (``group.max.size``)."""
        most, member = self.registry.settings.max_size, group.members.get(member_id)
        if group.state is State.PREPARING_REBALANCE:
            return (member is not None and member.joining is not None) or group.awaiting < most
        return group.state is State.EMPTY or member is not None or len(group.members) < most

    def _new_member(self, group: Group, asked: Join, answer: asyncio.Future[JoinResult]) -> JoinResult | None:
        member_id = new_member_id(asked.client_id if asked.instance_id is None else asked.instance_id)
        if asked.instance_id is not None and asked.instance_id in group.static:
            return self._static_member_back(group, asked, member_id, asked.instance_id, answer)
        if asked.instance_id is None and asked.needs_member_id:
            self.rebalancing.watch_pending(group, member_id, asked.session_timeout_ms)
            return JoinResult(ErrorCode.MEMBER_ID_REQUIRED, member_id)
        self._add(group, asked, member_id, answer)
        return None

    def _add(self, group: Group, asked: Join, member_id: str, answer: asyncio.Future[JoinResult]) -> None:
        timeouts = (asked.rebalance_timeout_ms, asked.session_timeout_ms)
        who = (member_id, asked.instance_id, asked.client_id, asked.client_host)
        member = Member(*who, *timeouts, asked.protocol_type, asked.protocols)
        member.is_new = True
        if group.state is State.PREPARING_REBALANCE and group.generation_id == 0:
            group.new_member_added = True
        member.joining = answer
        group.add(member)
        self.rebalancing.heard_of(group, member, NEW_MEMBER_TIMEOUT_MS)
        self.rebalancing.maybe_prepare(group)

    def _known_member(self, group: Group, asked: Join, answer: asyncio.Future[JoinResult]) -> JoinResult | None:
        member_id = asked.member_id
        if member_id in group.pending:
            if asked.instance_id is not None:
                return JoinResult(ErrorCode.UNKNOWN_SERVER_ERROR, member_id)  # static members get no pending ids
            self._add(group, asked, member_id, answer)
            return None
        error = check_member(group, member_id, asked.instance_id)
        if error:
            return JoinResult(error, member_id)
        member = group.members[member_id]
        if group.state is State.EMPTY:
            return JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, member_id)
        same = member.protocols == asked.protocols
        if group.state is State.COMPLETING_REBALANCE and same:
            return group.joined(member_id)  # its answer may have been lost
        if group.state is State.STABLE and same and group.leader_id != member_id:
            return group.joined(member_id)
        self._update(group, member, asked, answer)
        self.rebalancing.maybe_prepare(group)
        return None

    def _update(self, group: Group, member: Member, asked: Join, answer: asyncio.Future[JoinResult]) -> None:
        """A member joins again; an earlier request that still waits is answered."""
        member.answer_join(JoinResult(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
        group.update(member, asked.protocols, asked.rebalance_timeout_ms, asked.session_timeout_ms)
        member.joining = answer

    def _static_member_back(
        self, group: Group, asked: Join, member_id: str, instance_id: str, answer: asyncio.Future[JoinResult]
    ) -> JoinResult | None:
        """A static member was restarted: it replaces itself, if possible without a rebalance."""
        old_member_id, old_leader_id = group.static[instance_id], group.leader_id
        member = group.replace_static(instance_id, member_id)
        before = (member.protocols, member.rebalance_timeout_ms, member.session_timeout_ms)
        self._update(group, member, asked, answer)
        self.rebalancing.heard_of(group, member)
        if group.state is State.COMPLETING_REBALANCE:
            self.rebalancing.prepare(group)
        elif group.state is State.STABLE and group.select_protocol() != group.protocol_name:
            self.rebalancing.maybe_prepare(group)
        elif group.state is State.STABLE:
            member.joining = None
            error = self.rebalancing.store(group, {key: each.assignment for key, each in group.members.items()})
            if error:
                group.update(member, *before)
                self.rebalancing.heard_of(group, group.replace_static(instance_id, old_member_id))
                return JoinResult(error, "", group.generation_id, group.protocol_type, group.protocol_name)
            if asked.may_skip_assignment:
                leads = group.leader_id == member_id
                return group.joined(member_id)._replace(skip_assignment=leads)
            # an older client must not believe that it leads: its assignments would be ignored
            return group.joined(member_id, as_leader=False, leader_id=old_leader_id)
        return None

    # --- sync -------------------------------------------------------------------------------------

    def sync(self, asked: Sync) -> asyncio.Future[SyncResult]:
        """Get the assignment. The answer comes when the leader has assigned."""
        self.start()
        answer: asyncio.Future[SyncResult] = self.registry.loop.create_future()
        found = self._sync(asked, answer)
        if found is not None and not answer.done():
            answer.set_result(found)
        return answer

    def _sync(self, asked: Sync, answer: asyncio.Future[SyncResult]) -> SyncResult | None:
        if not asked.group_id:
            return SyncResult(ErrorCode.INVALID_GROUP_ID)
        group = self.registry.groups.get(asked.group_id)
        if group is None:
            return SyncResult(ErrorCode.UNKNOWN_MEMBER_ID)
        error = check_member(group, asked.member_id, asked.instance_id) or check_generation(group, asked.generation_id)
        if error:
            return SyncResult(error)
        for named, known in ((asked.protocol_type, group.protocol_type), (asked.protocol_name, group.protocol_name)):
            if named is not None and named != known:
                return SyncResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        member = group.members[asked.member_id]
        if group.state is State.PREPARING_REBALANCE:
            return SyncResult(ErrorCode.REBALANCE_IN_PROGRESS)
        if group.state is State.STABLE:
            self.rebalancing.synced(group, member.member_id)
            self.rebalancing.heard_of(group, member)
            return SyncResult(ErrorCode.NONE, group.protocol_type, group.protocol_name, member.assignment)
        if group.state is not State.COMPLETING_REBALANCE:
            return SyncResult(ErrorCode.UNKNOWN_MEMBER_ID)
        member.answer_sync(SyncResult(ErrorCode.REBALANCE_IN_PROGRESS))  # an earlier request that still waits
        member.syncing = answer
        self.rebalancing.synced(group, member.member_id)
        if group.leader_id == member.member_id:
            self._assign(group, asked.assignments)
        return None

    def _assign(self, group: Group, assignments: dict[str, bytes]) -> None:
        """Store the leader's assignments, then answer all members."""
        parts = {member_id: assignments.get(member_id, b"") for member_id in group.members}
        error = self.rebalancing.store(group, parts)
        for member in group.members.values():
            group.assign(member, b"" if error else parts[member.member_id])
        self.rebalancing.answer_syncs(group, error)
        if error:
            self.rebalancing.maybe_prepare(group)
        else:
            group.move_to(State.STABLE, self.registry.clock())

    # --- heartbeat and leave ----------------------------------------------------------------------

    def heartbeat(self, group_id: str, member_id: str, instance_id: str | None, generation_id: int) -> ErrorCode:
        """Restart a member's session timeout."""
        self.start()
        if not group_id:
            return ErrorCode.INVALID_GROUP_ID
        group = self.registry.groups.get(group_id)
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        error = check_member(group, member_id, instance_id) or check_generation(group, generation_id)
        if error:
            return error
        self.rebalancing.heard_of(group, group.members[member_id])
        return ErrorCode.REBALANCE_IN_PROGRESS if group.state is State.PREPARING_REBALANCE else ErrorCode.NONE

    def leave(self, group_id: str, leaving: list[tuple[str, str | None]]) -> tuple[ErrorCode, list[ErrorCode]]:
        """Remove members: (member id, instance id) each. An empty member id means the static member of the instance."""
        self.start()
        if not group_id:
            return ErrorCode.INVALID_GROUP_ID, []
        group = self.registry.groups.get(group_id)
        if group is None:
            return ErrorCode.NONE, [ErrorCode.UNKNOWN_MEMBER_ID] * len(leaving)
        return ErrorCode.NONE, [self._leave(group, *each) for each in leaving]

    def _leave(self, group: Group, member_id: str, instance_id: str | None) -> ErrorCode:
        if member_id in group.pending:
            self.rebalancing.remove_pending_member(group, member_id)
            return ErrorCode.NONE
        if not member_id:
            member_id = group.static.get(instance_id or "", "")
        error = check_member(group, member_id, instance_id)
        if not error:
            self.rebalancing.remove_member(group, group.members[member_id])
        return error

    # --- offsets ----------------------------------------------------------------------------------

    def commit(
        self,
        group_id: str,
        member_id: str,
        instance_id: str | None,
        generation_id: int,
        offsets: Mapping[PartitionKey, Committed],
        *,
        tells_groups: bool = False,
    ) -> dict[PartitionKey, ErrorCode]:
        """Commit offsets; see ``OffsetCommits.commit``."""
        self.start()
        return self.commits.commit(group_id, member_id, instance_id, generation_id, offsets, tells_groups=tells_groups)

    def fetch(self, group_id: str, partitions: Iterable[PartitionKey] | None) -> dict[PartitionKey, Committed]:
        """Committed offsets; see ``OffsetCommits.fetch``."""
        return self.commits.fetch(group_id, partitions)

    def delete_offsets(
        self, group_id: str, partitions: Iterable[PartitionKey]
    ) -> tuple[ErrorCode, dict[PartitionKey, ErrorCode]]:
        """Delete committed offsets; see ``OffsetCommits.delete``."""
        return self.commits.delete(group_id, partitions)

    def topics_deleted(self, names: Iterable[str]) -> None:
        """Delete the committed offsets of deleted topics."""
        self.commits.forget_topics(names)

    # --- groups -----------------------------------------------------------------------------------

    def group(self, group_id: str) -> Group | None:
        """The group with an id, if it exists."""
        return self.registry.groups.get(group_id)

    def groups(self, states: Iterable[str] = ()) -> list[Group]:
        """All groups, or those in one of the states (in any case)."""
        wanted = {state.lower() for state in states}
        return [group for group in self.registry.groups.values() if not wanted or group.state.lower() in wanted]

    def delete_group(self, group_id: str) -> ErrorCode:
        """Delete a group without members, and its offsets."""
        group = self.group(group_id)
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if group.state is not State.EMPTY:
            return ErrorCode.NON_EMPTY_GROUP
        for member_id in list(group.pending):
            group.remove_pending(member_id)
        self.commits.clean([group], lambda each: list(each.offsets))
        return ErrorCode.NONE if self.group(group_id) is None else ErrorCode.COORDINATOR_NOT_AVAILABLE


def new_member_id(name: str) -> str:
    """A new member id."""
    return f"{name.encode()[:MAX_NAME_BYTES].decode(errors='ignore')}-{uuid.uuid4()}"


def _cost(asked: Join) -> int:
    names = (asked.group_id, asked.member_id, asked.instance_id or "", asked.client_id)
    return 5000 + 2 * sum(map(len, names)) + cost_of(asked.protocols)
