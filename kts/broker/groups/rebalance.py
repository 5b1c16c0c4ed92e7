"""Rebalances and session timeouts.

A rebalance waits until all members have joined or the longest rebalance timeout has passed. The leader then assigns; a
member that does not ask for its assignment within the same timeout is removed. A member that sends nothing is removed
after its session timeout.

Source: GroupCoordinator, DelayedJoin, InitialDelayedJoin, DelayedSync, DelayedHeartbeat (3.9).
"""

from __future__ import annotations

from collections.abc import Callable

from kts.broker.codes import ErrorCode
from kts.broker.groups.group import Group, JoinResult, Member, State, SyncResult
from kts.broker.groups.registry import Registry

NEW_MEMBER_TIMEOUT_MS = 5 * 60 * 1000  # for a JoinGroup that waits, of a member that may be gone
Store = Callable[[Group, dict[str, bytes]], ErrorCode]


class Rebalancing:
    """The timers of all groups, and the transitions that they cause.

    Parameters
    ----------
    store : callable
        Stores a group and its assignments.
    """

    def __init__(self, registry: Registry, store: Store) -> None:
        self.registry = registry
        self.store = store

    # --- sessions ---------------------------------------------------------------------------------

    def heard_of(self, group: Group, member: Member, timeout_ms: int | None = None) -> None:
        """Restart a member's session timeout."""
        timeout_ms = member.session_timeout_ms if timeout_ms is None else timeout_ms
        member.deadline = self.registry.loop.time() + timeout_ms / 1000
        if member.timer is None or member.timer.when() > member.deadline:
            member.stop_timer()
            member.timer = self.registry.after(timeout_ms, self._session_over, group, member)

    def _session_over(self, group: Group, member: Member) -> None:
        member.timer = None
        left = member.deadline - self.registry.loop.time()
        if left > 1e-6:  # a heartbeat only moves the deadline; the timer follows when it fires
            member.timer = self.registry.after(left * 1000, self._session_over, group, member)
        elif group.members.get(member.member_id) is not member:
            return
        elif member.is_new or (member.joining is None and member.syncing is None):
            self.remove_member(group, member)

    def watch_pending(self, group: Group, member_id: str, timeout_ms: int) -> None:
        """Note a member id that was assigned; it must be used before the timeout."""
        group.add_pending(member_id, self.registry.after(timeout_ms, self.remove_pending_member, group, member_id))

    def remove_pending_member(self, group: Group, member_id: str) -> None:
        """Remove a pending member id."""
        group.remove_pending(member_id)
        self.try_complete_join(group)

    def remove_member(self, group: Group, member: Member) -> None:
        """Remove a member; the others rebalance."""
        member.answer_join(JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, ""))
        member.answer_sync(SyncResult(ErrorCode.UNKNOWN_MEMBER_ID))
        group.remove(member.member_id)
        if group.state in (State.STABLE, State.COMPLETING_REBALANCE):
            self.prepare(group)
        else:
            self.try_complete_join(group)

    def resume(self, group: Group) -> None:
        """Continue a group in the current event loop; requests that waited in another one are gone."""
        group.stop_timers()
        for member in list(group.members.values()):
            member.joining = member.syncing = None
            self.heard_of(group, member)
        if group.state is State.PREPARING_REBALANCE:
            self._wait_for_all(group)
        elif group.state is State.COMPLETING_REBALANCE:
            self._wait_for_sync(group)
        elif len(group.members) > self.registry.settings.max_size:
            self.maybe_prepare(group)

    # --- joining ----------------------------------------------------------------------------------

    def maybe_prepare(self, group: Group) -> None:
        """Begin a rebalance, unless one has begun."""
        if group.state in (State.STABLE, State.COMPLETING_REBALANCE, State.EMPTY):
            self.prepare(group)

    def prepare(self, group: Group) -> None:
        """Begin a rebalance: all members must join again."""
        if group.state is State.COMPLETING_REBALANCE:
            for member in group.members.values():
                group.assign(member, b"")
            self.answer_syncs(group, ErrorCode.REBALANCE_IN_PROGRESS)
        self._stop_waiting_for_sync(group)
        first = group.state is State.EMPTY
        group.move_to(State.PREPARING_REBALANCE, self.registry.clock())
        if first:
            delay = self.registry.settings.initial_rebalance_delay_ms
            self._wait_for_first(group, delay, max(group.rebalance_timeout_ms - delay, 0))
        else:
            self._wait_for_all(group)

    def _wait_for_first(self, group: Group, delay_ms: int, remaining_ms: int) -> None:
        """Wait for more members of a group that was empty (``group.initial.rebalance.delay.ms``)."""
        group.waits_for_first = True
        group.join_timer = self.registry.after(delay_ms, self._first_over, group, delay_ms, remaining_ms)

    def _first_over(self, group: Group, delay_ms: int, remaining_ms: int) -> None:
        if group.new_member_added and remaining_ms:
            group.new_member_added = False
            next_ms = min(self.registry.settings.initial_rebalance_delay_ms, remaining_ms)
            self._wait_for_first(group, next_ms, max(remaining_ms - delay_ms, 0))
        else:
            self._complete_join(group)

    def _wait_for_all(self, group: Group) -> None:
        group.waits_for_first = False
        group.join_timer = self.registry.after(group.rebalance_timeout_ms, self._complete_join, group)
        self.try_complete_join(group)

    def try_complete_join(self, group: Group) -> None:
        """Complete the join phase if all members have joined."""
        if group.state is State.PREPARING_REBALANCE and not group.waits_for_first and group.all_joined:
            self._complete_join(group)

    def _complete_join(self, group: Group) -> None:
        """Complete the join phase: the members that joined are the next generation."""
        if group.join_timer is not None:
            group.join_timer.cancel()
        group.join_timer = None
        group.waits_for_first = False
        if group.state is not State.PREPARING_REBALANCE:
            return
        for member in list(group.members.values()):
            if member.joining is None and member.instance_id is None:
                group.remove(member.member_id)
        if group.members and not group.elect_joined_leader():
            self._wait_for_some(group)
            return
        group.next_generation(self.registry.clock())
        if not group.members:
            self.store(group, {})  # if it fails, the old generation returns at a restart and times out
            return
        for member in group.members.values():
            member.answer_join(group.joined(member.member_id))
            self.heard_of(group, member)
            member.is_new = False
            group.unsynced.add(member.member_id)
        self._wait_for_sync(group)

    def _wait_for_some(self, group: Group) -> None:
        """Only static members are left and none has joined; wait for their session timeouts."""
        patience_ms = max(group.rebalance_timeout_ms, 1000)
        group.join_timer = self.registry.after(patience_ms, self._complete_join, group)

    # --- assigning --------------------------------------------------------------------------------

    def answer_syncs(self, group: Group, error: ErrorCode) -> None:
        """Answer all waiting SyncGroup requests."""
        for member in group.members.values():
            if error:
                answered = member.answer_sync(SyncResult(error))
            else:
                names = (group.protocol_type, group.protocol_name)
                answered = member.answer_sync(SyncResult(error, *names, member.assignment))
            if answered:
                self.heard_of(group, member)

    def _wait_for_sync(self, group: Group) -> None:
        group.sync_timer = self.registry.after(group.rebalance_timeout_ms, self._sync_over, group, group.generation_id)

    def synced(self, group: Group, member_id: str) -> None:
        """Note that a member asked for its assignment."""
        group.unsynced.discard(member_id)
        if not group.unsynced:
            self._stop_waiting_for_sync(group)

    def _stop_waiting_for_sync(self, group: Group) -> None:
        group.unsynced.clear()
        if group.sync_timer is not None:
            group.sync_timer.cancel()
            group.sync_timer = None

    def _sync_over(self, group: Group, generation_id: int) -> None:
        group.sync_timer = None
        current = group.generation_id == generation_id and group.state in (State.COMPLETING_REBALANCE, State.STABLE)
        if current and group.unsynced:
            for member_id in list(group.unsynced):
                group.remove(member_id)
            self.prepare(group)
