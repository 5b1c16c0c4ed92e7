"""The events that a log reports to the proposals it follows (see ``kts.proposals``)."""

from __future__ import annotations

from typing import Protocol


class Listener(Protocol):
    """Receives the events of a log and decides on times and rolls. The thread that changes the log calls it."""

    def opened(self) -> None:
        """Start-up is done."""

    def append_time(self, now_ms: int) -> int:
        """The time that a set gets under LogAppendTime."""

    def time_roll(self, reason: str | None, now_ms: int, created_ms: int, limit_ms: int) -> str | None:
        """Why to roll an active segment that is neither full nor empty; None: do not roll.

        Parameters
        ----------
        reason : str, optional
            Why Kafka's own rule rolls it; None if it does not.
        created_ms : int
            When the segment was created.
        limit_ms : int
            ``segment.ms`` less the segment's jitter.
        """

    def idle_roll(self, now_ms: int, created_ms: int, limit_ms: int) -> str | None:
        """Why to roll an active segment that is not empty although nothing is appended; None: do not roll."""

    def appended(self, base_offset: int, records: bytes | memoryview, first_offset: int) -> None:
        """A set was written to the segment that starts at ``base_offset``."""

    def rolled(self, closed_base: int, new_base: int) -> None:
        """A segment was closed and a new one begins."""

    def removed(self, base_offset: int) -> None:
        """A segment was deleted."""

    def truncated(self) -> None:
        """The log ends earlier; whole segments may be gone."""

    def flushed(self) -> None:
        """Every record is on disk."""

    def closed(self) -> None:
        """The log was closed or abandoned."""
