"""The proposals that a log follows, as one listener of the log. A log without proposals runs none of this code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kts.dataset.partition import PartitionLog
from kts.log.listeners import Index
from kts.proposals.shallow import Shallow, shallow_entries


class AppendedSet(NamedTuple):
    """One appended set."""

    base_offset: int  # of the segment
    records: bytes | memoryview
    shallow: Shallow


class Mode:
    """One proposal's rule in a log. A method that a subclass does not define does nothing."""

    name = ""

    def opened(self, log: PartitionLog) -> None:
        """The log was opened; its files are as start-up left them."""

    def append_time(self, now_ms: int) -> int:
        """The timestamp that a leader gives a set under LogAppendTime when its clock shows ``now_ms``."""
        return now_ms

    def appended(self, appended: AppendedSet) -> None:
        """A set was written."""

    def rolled(self, log: PartitionLog, closed_base: int, new_base: int) -> None:
        """A segment was closed, and a new one begins."""

    def truncated(self, log: PartitionLog) -> None:
        """The log ends earlier. Whole segments may be gone; the last one left is active again."""

    def removed(self, base_offset: int) -> None:
        """The oldest segment was deleted."""

    def flushed(self) -> None:
        """The log's files were synced."""

    def closed(self) -> None:
        """The log was closed."""


class RollingMode(Mode):
    """A mode that decides when the active segment is rolled by time.

    Attributes
    ----------
    rolls_idle : bool
        The paper says so also of a log to which nothing is appended.
    """

    rolls_idle = False

    def due(self, now_ms: int, created_ms: int, limit_ms: int) -> str | None:
        """Why to roll now; None: do not roll."""
        raise TypeError(f"{type(self).__name__} has no rule")


class Proposals:
    """The modes of one log, as its listener.

    Attributes
    ----------
    modes : dict of str to Mode
    index : Index or None
        The first mode that searches by time, if there is one.

    Raises
    ------
    ValueError
        A mode twice, or two modes that decide when to roll.
    """

    def __init__(self, log: PartitionLog, modes: Sequence[Mode], *, allow_negative: bool = False) -> None:
        self._log = log
        self._allow_negative = allow_negative
        self.modes = {mode.name: mode for mode in modes}
        rolling = [mode for mode in modes if isinstance(mode, RollingMode)]
        if len(self.modes) < len(modes) or len(rolling) > 1:
            names = ", ".join(mode.name for mode in modes)
            raise ValueError(f"proposals: expected each once and one rule for rolling at most, found {names}")
        self._rolling = rolling[0] if rolling else None
        self.index = next((mode for mode in modes if isinstance(mode, Index)), None)

    def __getitem__(self, name: str) -> Mode:
        return self.modes[name]

    def opened(self) -> None:
        """Start-up is done."""
        for mode in self.modes.values():
            mode.opened(self._log)

    def append_time(self, now_ms: int) -> int:
        """The time that a set gets under LogAppendTime."""
        for mode in self.modes.values():
            now_ms = mode.append_time(now_ms)
        return now_ms

    def time_roll(self, reason: str | None, now_ms: int, created_ms: int, limit_ms: int) -> str | None:
        """Why to roll by time; the shipped rule's reason if no mode decides."""
        return reason if self._rolling is None else self._rolling.due(now_ms, created_ms, limit_ms)

    def idle_roll(self, now_ms: int, created_ms: int, limit_ms: int) -> str | None:
        """Why to roll a segment to which nothing is appended; None: only the next append asks."""
        rolling = self._rolling
        return rolling.due(now_ms, created_ms, limit_ms) if rolling is not None and rolling.rolls_idle else None

    def appended(self, base_offset: int, records: bytes | memoryview, first_offset: int) -> None:
        """A set was written to the segment."""
        shallow = shallow_entries(records, first_offset, allow_negative=self._allow_negative)
        appended = AppendedSet(base_offset, records, shallow)
        for mode in self.modes.values():
            mode.appended(appended)

    def rolled(self, closed_base: int, new_base: int) -> None:
        """A segment was closed, and a new one begins."""
        for mode in self.modes.values():
            mode.rolled(self._log, closed_base, new_base)

    def truncated(self) -> None:
        """The log ends earlier."""
        for mode in self.modes.values():
            mode.truncated(self._log)

    def removed(self, base_offset: int) -> None:
        """A segment was deleted."""
        for mode in self.modes.values():
            mode.removed(base_offset)

    def flushed(self) -> None:
        """The log was synced."""
        for mode in self.modes.values():
            mode.flushed()

    def closed(self) -> None:
        """The log was closed."""
        for mode in self.modes.values():
            mode.closed()
