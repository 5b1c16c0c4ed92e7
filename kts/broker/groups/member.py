"""A member of a group: what it supports, what it was given, and the requests of it that wait for an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Set
from typing import NamedTuple

from kts.broker.codes import ErrorCode

Protocols = tuple[tuple[str, bytes], ...]  # (name, metadata), the preferred first
MEMBER_BYTES = 2000  # what a member costs besides what it sends


class JoinResult(NamedTuple):
    """The answer to a JoinGroup; ``members`` is empty but for the leader: (member id, instance id, metadata)."""

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
    """One member; the group that it is in changes it.

    Parameters
    ----------
    instance_id : str, optional
        Of a static member.
    rebalance_timeout_ms, session_timeout_ms : int
        How long a rebalance waits for it; how long it may be silent.
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
        self.is_new = False  # in its first rebalance: it may not know its id yet, and so cannot send heartbeats
        self.joining: asyncio.Future[JoinResult] | None = None
        self.syncing: asyncio.Future[SyncResult] | None = None
        self.deadline = 0.0  # of the event loop's time
        self.timer: asyncio.TimerHandle | None = None

    @property
    def cost(self) -> int:
        """About how much memory it takes, in bytes."""
        names = (self.member_id, self.instance_id or "", self.client_id, self.client_host)
        return MEMBER_BYTES + sum(map(len, names)) + cost_of(self.protocols) + len(self.assignment)

    def metadata(self, protocol_name: str | None) -> bytes:
        """What it said to a protocol."""
        return next((metadata for name, metadata in self.protocols if name == protocol_name), b"")

    def vote(self, candidates: Set[str]) -> str | None:
        """The protocol it likes best of those."""
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
        """It is watched no more."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


def cost_of(protocols: Protocols) -> int:
    """About how much memory protocols take, in bytes."""
    return sum(200 + len(name) + len(metadata) for name, metadata in protocols)
