"""What an extension of the log brings: a listener, and with it an index by which the log searches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from kts.config import LogConfig, extension
from kts.dataset.partition import PartitionLog
from kts.model import TimestampOffset


class SearchAnswer(Protocol):
    """The answer of an index."""

    @property
    def found(self) -> TimestampOffset | None:
        """The first record at or after the target; None if there is none."""


@runtime_checkable
class Index(Protocol):
    """A search by time in place of the log's own. It never answers with -1."""

    def search(self, log: Any, target_ms: int) -> SearchAnswer:
        """The first record at or after the target."""


class Listener(Protocol):
    """Receives the events of a log and decides on times and rolls. The thread that changes the log calls it."""

    @property
    def index(self) -> Index | None:
        """The index by which the log searches; None leaves that to others."""

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


class Maker(Protocol):
    """Makes a listener (``kts.config.Extension``)."""

    def __call__(self, value: Any, log: PartitionLog, config: LogConfig) -> Listener:
        """The listener of a log for a value of the extension's setting."""


def opened(asked: Mapping[str, Any], log: PartitionLog, config: LogConfig) -> dict[str, Listener]:
    """The listeners that values of settings ask for, by the settings' names, after start-up is done.

    Raises
    ------
    ValueError
        An extension cannot be imported, or refuses the value.
    """
    makers = {name: extension(name).listener for name in asked}
    found: dict[str, Listener] = {name: make(asked[name], log, config) for name, make in makers.items() if make}
    for listener in found.values():
        listener.opened()
    return found
