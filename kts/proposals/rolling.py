"""When the proposals would roll the active segment: three rules, each in place of the shipped one.

The shipped rule compares the timestamps of messages with each other. These compare one time with the clock, so that
the two by timestamps also roll a log to which nothing is appended: "if no message is appended in log.roll.ms after
largest appended timestamp, a new log segment will be rolled out" (KIP-32, proposed changes 7.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from kts.dataset.partition import PartitionLog
from kts.errors import CorruptRecordError, KtsError
from kts.proposals.modes import AppendedSet, RollingMode
from kts.proposals.shallow import record_timestamps, shallow_entries, with_a_time
from kts.segment.entries import at

if TYPE_CHECKING:
    import numpy.typing as npt


class WallClock(RollingMode):
    """Roll once the segment is older than ``segment.ms``, by the clock alone.

    Notes
    -----
    Source: KIP-33, "currently based on the creating time of the log segment"; KIP-32, motivation 2; shipped in 0.10.0.
    A new replica of an old segment counts as new; the KIPs were written to fix this. As in 0.10.0, only an append asks.
    """

    name = "wall-clock"

    def due(self, now_ms: int, created_ms: int, limit_ms: int) -> str | None:
        """Why to roll the active segment now; None: do not roll.

        Parameters
        ----------
        now_ms : int
            The clock.
        created_ms : int
            When the segment was created.
        limit_ms : int
            ``segment.ms`` less the segment's jitter.
        """
        if now_ms - created_ms > limit_ms:
            return f"created {now_ms - created_ms} ms ago, over {limit_ms} ms"
        return None


class TimestampMode(RollingMode):
    """Roll by the age of one appended timestamp; before there is one, by the age of the segment.

    Parameters
    ----------
    allow_negative : bool
        Timestamps below 0 other than -1 count too (KIP-228).

    Attributes
    ----------
    timestamp_ms : int or None
        The timestamp that counts, of those appended; None before the first.
    """

    which = ""
    rolls_idle = True
    pick: ClassVar[np.ufunc]  # chooses the timestamp that counts from two

    def __init__(self, *, allow_negative: bool = False) -> None:
        self.allow_negative = allow_negative
        self.timestamp_ms: int | None = None

    def observe(self, timestamps: npt.NDArray[np.int64]) -> None:
        """Take appended timestamps into account."""
        times = timestamps[with_a_time(timestamps, self.allow_negative)]
        if len(times):
            found = int(self.pick.reduce(times))
            self.timestamp_ms = found if self.timestamp_ms is None else int(self.pick(found, self.timestamp_ms))

    def truncated(self, log: PartitionLog) -> None:
        self.opened(log)

    def due(self, now_ms: int, created_ms: int, limit_ms: int) -> str | None:
        """Why to roll the active segment before the next append; arguments as of ``WallClock.due``."""
        if self.timestamp_ms is None:
            return WallClock().due(now_ms, created_ms, limit_ms)
        if now_ms > self.timestamp_ms + limit_ms:
            age = now_ms - self.timestamp_ms
            return f"{self.which} timestamp {self.timestamp_ms} is {age} ms old, over {limit_ms} ms"
        return None


class LargestTimestamp(TimestampMode):
    """Roll once the largest timestamp ever seen is older than ``segment.ms`` by the clock.

    Notes
    -----
    Source: KIP-32, proposed changes 7.3; KIP-33, "Enforce time based log rolling". Before the first timestamp, the age
    of the segment counts (KIP-33, migration). A log that is filled with old messages rolls at each append, as the KIP
    warns.
    """

    name, which, pick = "largest-timestamp", "largest", np.maximum

    def opened(self, log: PartitionLog) -> None:
        # The broker's start-up in KIP-33: back from the active segment until the largest timestamp is known.
        self.timestamp_ms = None
        found = log.max_timestamp()
        if found is not None and not (self.allow_negative and found.timestamp_ms < 0):
            self.observe(np.array([found.timestamp_ms]))
            return
        for segment in log.segments if found is not None else []:  # as a number, -1 is greater than earlier times
            for _, data in segment.slices():
                self.observe(shallow_entries(data, segment.base_offset, allow_negative=True).timestamps)

    def appended(self, appended: AppendedSet) -> None:
        self.observe(appended.shallow.timestamps)


class EarliestTimestamp(TimestampMode):
    """Roll once the earliest timestamp in the active segment is older than ``segment.ms`` by the clock.

    Notes
    -----
    Source: KIP-32, "Options comparison", option 4; the text that KIP-33 replaced with the largest timestamp. Start-up
    reads the active segment for it. Before the first timestamp, the age of the segment counts. Of a batch whose records
    cannot be read, which a follower stores as it comes, the header's greatest timestamp counts.
    """

    name, which, pick = "earliest-timestamp", "earliest", np.minimum

    def opened(self, log: PartitionLog) -> None:
        self.timestamp_ms = None
        for segment in log.segments[-1:]:
            for position, data in segment.slices():
                try:
                    self._observe_records(data, segment.base_offset)
                except CorruptRecordError as error:
                    raise at(error, segment.path, position) from error.__cause__

    def appended(self, appended: AppendedSet) -> None:
        self._observe_records(appended.records, appended.base_offset)

    def _observe_records(self, records: bytes | memoryview, base_offset: int) -> None:
        try:
            times = record_timestamps(records)
        except KtsError:
            times = shallow_entries(records, base_offset).timestamps
        self.observe(times)

    def rolled(self, log: PartitionLog, closed_base: int, new_base: int) -> None:
        self.timestamp_ms = None
