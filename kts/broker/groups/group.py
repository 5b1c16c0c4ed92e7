"""A group: its members, generation, state and committed offsets. ``rebalance`` decides when the state changes.

::

    Empty -> PreparingRebalance -> CompletingRebalance -> Stable; from each of these back to PreparingRebalance,
    from PreparingRebalance to Empty when no member is left, and from Empty to Dead.

Source: GroupMetadata (3.9).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Set
from enum import StrEnum
from typing import Any, NamedTuple

from kts.broker.codes import ErrorCode
from kts.coordinator_records.groups import CONSUMER, Committed, subscribed_topics
from kts.errors import KtsError

Protocols = tuple[tuple[str, bytes], ...]  # (name, metadata), the preferred first
MEMBER_BYTES = 2000  # estimated memory besides what the member sends
GROUP_BYTES, PENDING_BYTES, OFFSET_BYTES = 2000, 1500, 500  # estimated memory besides texts


class JoinResult(NamedTuple):
    """The answer to a JoinGroup. Only the leader gets ``members``: (member id, instance id, metadata)."""

    error: ErrorCode
    member_id: str
    generation_id: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader_id: str = ""
    skip_assignment: bool = False
    members: tuple[tuple[str, str | None, bytes], ...] = ()


class SyncResult(NamedTuple):
    """The answer to a SyncGroup."""

    error: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


class Member:
    """One member of a group. Only the group changes its protocols, ids and assignment, because it counts their memory.

    Parameters
    ----------
    instance_id : str, optional
        Of a static member.
    rebalance_timeout_ms, session_timeout_ms : int
        How long a rebalance waits for it, and how long it may send nothing.
    """

    def __init__(
        self,
        member_id: str,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocol_type: str,
        protocols: Protocols,
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocol_type = protocol_type
        self.protocols = protocols
        self.assignment = assignment
        self.is_new = False  # in its first rebalance it may not know its id yet, so it sends no heartbeats
        self.joining: asyncio.Future[JoinResult] | None = None
        self.syncing: asyncio.Future[SyncResult] | None = None
        self.deadline = 0.0  # by the event loop's clock
        self.timer: asyncio.TimerHandle | None = None

    @property
    def cost(self) -> int:
        """About how much memory the member takes, in bytes."""
        names = (self.member_id, self.instance_id or "", self.client_id, self.client_host)
        return MEMBER_BYTES + sum(map(len, names)) + cost_of(self.protocols) + len(self.assignment)

    def metadata(self, protocol_name: str | None) -> bytes:
        """The member's metadata for a protocol."""
        return next((metadata for name, metadata in self.protocols if name == protocol_name), b"")

    def vote(self, candidates: Set[str]) -> str | None:
        """The candidate that the member prefers."""
        return next((name for name, _ in self.protocols if name in candidates), None)

    def answer_join(self, result: JoinResult) -> bool:
        """Answer its JoinGroup, if one waits."""
        waiting, self.joining = self.joining, None
        if waiting is not None and not waiting.done():
            waiting.set_result(result)
        return waiting is not None

    def answer_sync(self, result: SyncResult) -> bool:
        """Answer its SyncGroup, if one waits."""
        waiting, self.syncing = self.syncing, None
        if waiting is not None and not waiting.done():
            waiting.set_result(result)
        return waiting is not None

    def stop_timer(self) -> None:
        """Stop the session timer."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


def cost_of(protocols: Protocols) -> int:
    """About how much memory protocols take, in bytes."""
    return sum(200 + len(name) + len(metadata) for name, metadata in protocols)


class State(StrEnum):
    """Kafka's states of a group."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


BEFORE = {
    State.PREPARING_REBALANCE: (State.STABLE, State.COMPLETING_REBALANCE, State.EMPTY),
    State.COMPLETING_REBALANCE: (State.PREPARING_REBALANCE,),
    State.STABLE: (State.COMPLETING_REBALANCE,),
    State.EMPTY: (State.PREPARING_REBALANCE,),
    State.DEAD: tuple(State),
}


class Usage:
    """The estimated memory of all groups, and the part of it that members and pending members take, in bytes."""

    def __init__(self) -> None:
        self.bytes = 0
        self.member_bytes = 0

    def of_members(self, change: int) -> None:
        """Add to the memory of members."""
        self.bytes += change
        self.member_bytes += change


class Group:
    """One group.

    Parameters
    ----------
    now_ms : int
        When the group was created.
    usage : Usage
        Counts the memory of the group.
    """

    def __init__(self, group_id: str, now_ms: int, usage: Usage) -> None:
        self.group_id = group_id
        self.state = State.EMPTY
        self.state_ms = now_ms  # when it entered this state; -1 is unknown
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.generation_id = 0
        self.leader_id: str | None = None
        self.members: dict[str, Member] = {}
        self.static: dict[str, str] = {}  # instance id -> member id
        self.unsynced: set[str] = set()  # members of this generation that have not asked for their assignment
        self.topics: frozenset[str] | None = None  # that its consumers subscribe to; None is unknown
        self.offsets: dict[tuple[str, int], Committed] = {}
        self.pending: dict[str, asyncio.TimerHandle] = {}  # member ids that are not in use yet
        self.new_member_added = False
        self.join_timer: asyncio.TimerHandle | None = None
        self.sync_timer: asyncio.TimerHandle | None = None
        self.waits_for_first = False  # the initial rebalance delay runs
        self._supported: Counter[str] = Counter()
        self._usage = usage
        usage.bytes += GROUP_BYTES + len(group_id)

    def forget(self) -> None:
        """Stop all timers and release the group's memory in ``Usage``."""
        self.stop_timers()
        self._usage.bytes -= GROUP_BYTES + len(self.group_id)
        self.remove_offsets(list(self.offsets))

    def stop_timers(self) -> None:
        """Cancel all timers."""
        for timer in (self.join_timer, self.sync_timer):
            if timer is not None:
                timer.cancel()
        self.join_timer = self.sync_timer = None
        for member_id in list(self.pending):
            self.remove_pending(member_id)
        for member in self.members.values():
            member.stop_timer()

    # --- members ----------------------------------------------------------------------------------

    @property
    def is_consumer_group(self) -> bool:
        return self.protocol_type == CONSUMER

    @property
    def awaiting(self) -> int:
        """Number of members whose JoinGroup waits."""
        return sum(member.joining is not None for member in self.members.values())

    @property
    def all_joined(self) -> bool:
        return not self.pending and all(member.joining is not None for member in self.members.values())

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of the members."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def add(self, member: Member) -> None:
        """Add a member."""
        if not self.members:
            self.protocol_type = member.protocol_type
        if member.instance_id is not None:
            self.static[member.instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self._supported.update(name for name, _ in member.protocols)
        self._usage.of_members(member.cost)
        self.remove_pending(member.member_id)

    def remove(self, member_id: str) -> None:
        """Remove a member, if it is one. If it led, the next member leads."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self._supported.subtract(name for name, _ in member.protocols)
            self._supported = +self._supported
            self._usage.of_members(-member.cost)
            member.stop_timer()
            if member.instance_id is not None:
                self.static.pop(member.instance_id, None)
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        self.remove_pending(member_id)
        self.unsynced.discard(member_id)

    def add_pending(self, member_id: str, timer: asyncio.TimerHandle) -> None:
        """Note a member id that was assigned; the timer removes it."""
        self.pending[member_id] = timer
        self._usage.of_members(PENDING_BYTES + len(member_id))

    def remove_pending(self, member_id: str) -> None:
        """Remove a pending member id."""
        timer = self.pending.pop(member_id, None)
        if timer is not None:
            timer.cancel()
            self._usage.of_members(-PENDING_BYTES - len(member_id))

    def update(self, member: Member, protocols: Protocols, rebalance_timeout_ms: int, session_timeout_ms: int) -> None:
        """Change what a member supports."""
        self._usage.of_members(-member.cost)
        self._supported.subtract(name for name, _ in member.protocols)
        member.protocols = protocols
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms
        self._supported.update(name for name, _ in member.protocols)
        self._supported = +self._supported
        self._usage.of_members(member.cost)

    def assign(self, member: Member, assignment: bytes) -> None:
        """Set a member's assignment."""
        self._usage.of_members(len(assignment) - len(member.assignment))
        member.assignment = assignment

    def replace_static(self, instance_id: str, new_member_id: str) -> Member:
        """Give a static member a new member id; requests with the old one are fenced."""
        old_member_id = self.static[instance_id]
        member = self.members.pop(old_member_id)
        member.answer_join(JoinResult(ErrorCode.FENCED_INSTANCE_ID, old_member_id))
        member.answer_sync(SyncResult(ErrorCode.FENCED_INSTANCE_ID))
        self._usage.of_members(len(new_member_id) - len(old_member_id))
        member.member_id = new_member_id
        self.members[new_member_id] = member
        self.static[instance_id] = new_member_id
        if self.leader_id == old_member_id:
            self.leader_id = new_member_id
        return member

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Whether these protocols have one in common with all members."""
        if self.state is State.EMPTY:
            return bool(protocol_type and protocols)
        everyone = len(self.members)
        return self.protocol_type == protocol_type and any(self._supported[name] == everyone for name, _ in protocols)

    def select_protocol(self) -> str | None:
        """Of the protocols that all members support, the one that most prefer."""
        everyone = len(self.members)
        candidates = {name for name, count in self._supported.items() if count == everyone}
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return votes.most_common(1)[0][0]

    def elect_joined_leader(self) -> bool:
        """Keep the leader if it joined, else choose a member that did; whether there is one."""
        if self.leader_id is None:
            return False
        if self.members[self.leader_id].joining is None:
            joined = next((key for key, member in self.members.items() if member.joining is not None), None)
            if joined is None:
                return False
            self.leader_id = joined
        return True

    def is_subscribed(self, topic: str) -> bool:
        """Whether members may read a topic; True if that is unknown."""
        return self.topics is None or topic in self.topics

    # --- states -----------------------------------------------------------------------------------

    def move_to(self, state: State, now_ms: int) -> None:
        """Change the state.

        Raises
        ------
        KtsError
            The state cannot follow the current one.
        """
        if self.state not in BEFORE[state]:
            before = [str(each) for each in BEFORE[state]]
            raise KtsError(f"group {self.group_id!r}: expected one of {before} before {state}, found {self.state}")
        self.state = state
        self.state_ms = now_ms

    def next_generation(self, now_ms: int) -> None:
        """Begin a generation with the members that joined."""
        self.generation_id += 1
        self.protocol_name = self.select_protocol() if self.members else None
        self.topics = self.subscriptions()
        self.move_to(State.COMPLETING_REBALANCE if self.members else State.EMPTY, now_ms)
        self.unsynced.clear()

    def subscriptions(self) -> frozenset[str] | None:
        """The topics that the members subscribe to; None for other groups and unreadable subscriptions."""
        if not self.is_consumer_group or (self.members and self.protocol_name is None):
            return None
        found: frozenset[str] = frozenset()
        for member in self.members.values():
            topics = subscribed_topics(member.metadata(self.protocol_name))
            if topics is None:
                return None
            found |= topics
        return found

    # --- answers ----------------------------------------------------------------------------------

    def joined(self, member_id: str, *, as_leader: bool | None = None, leader_id: str | None = None) -> JoinResult:
        """The answer to a member of the current generation. The leader gets all members."""
        leads = self.leader_id == member_id if as_leader is None else as_leader
        name = self.protocol_name
        members = [(each.member_id, each.instance_id, each.metadata(name)) for each in self.members.values()]
        return JoinResult(
            ErrorCode.NONE,
            member_id,
            self.generation_id,
            self.protocol_type,
            self.protocol_name,
            (self.leader_id if leader_id is None else leader_id) or "",
            members=tuple(members) if leads else (),
        )

    # --- offsets ----------------------------------------------------------------------------------

    def put_offset(self, topic: str, partition: int, committed: Committed) -> None:
        """Set a committed offset."""
        self.remove_offsets([(topic, partition)])
        self.offsets[topic, partition] = committed
        self._usage.bytes += OFFSET_BYTES + len(topic) + len(committed.metadata)

    def remove_offsets(self, partitions: list[tuple[str, int]]) -> list[tuple[str, int]]:
        """Remove committed offsets; returns those that existed."""
        gone = []
        for topic, partition in partitions:
            found = self.offsets.pop((topic, partition), None)
            if found is not None:
                self._usage.bytes -= OFFSET_BYTES + len(topic) + len(found.metadata)
                gone.append((topic, partition))
        return gone

    # --- the group's metadata record --------------------------------------------------------------

    def stored(self, assignments: Mapping[str, bytes]) -> dict[str, Any]:
        """The fields of the group's metadata record, with each member's assignment."""
        members = [
            {
                "member_id": member.member_id,
                "group_instance_id": member.instance_id,
                "client_id": member.client_id,
                "client_host": member.client_host,
                "rebalance_timeout": member.rebalance_timeout_ms,
                "session_timeout": member.session_timeout_ms,
                "subscription": member.metadata(self.protocol_name),
                "assignment": assignments.get(member.member_id, b""),
            }
            for member in self.members.values()
        ]
        return {
            "protocol_type": self.protocol_type or "",
            "generation": self.generation_id,
            "protocol": self.protocol_name,
            "leader": self.leader_id,
            "current_state_timestamp": self.state_ms,
            "members": members,
        }

    def restore(self, found: Mapping[str, Any]) -> None:
        """Restore the group from a metadata record; the group must be new."""
        self.protocol_type = found["protocol_type"] or None
        self.protocol_name = found["protocol"]
        self.generation_id = found["generation"]
        self.state_ms = found["current_state_timestamp"]
        for each in found["members"]:
            self.add(
                Member(
                    each["member_id"],
                    each["group_instance_id"],
                    each["client_id"],
                    each["client_host"],
                    each["rebalance_timeout"],
                    each["session_timeout"],
                    found["protocol_type"],
                    ((found["protocol"] or "", each["subscription"]),),
                    each["assignment"],
                )
            )
        if found["leader"] in self.members:
            self.leader_id = found["leader"]
        self.state = State.STABLE if self.members else State.EMPTY
        self.topics = self.subscriptions()


def check_member(group: Group, member_id: str, instance_id: str | None) -> ErrorCode:
    """NONE for a member, else the reason: unknown, or fenced by a newer member with the same instance id."""
    if instance_id is not None:
        known = group.static.get(instance_id)
        if known is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if known != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
    return ErrorCode.NONE if member_id in group.members else ErrorCode.UNKNOWN_MEMBER_ID


def check_generation(group: Group, generation_id: int) -> ErrorCode:
    return ErrorCode.NONE if generation_id == group.generation_id else ErrorCode.ILLEGAL_GENERATION
