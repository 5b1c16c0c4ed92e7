"""LogAppendTime that never decreases, whichever replica leads and whatever its clock says."""

from __future__ import annotations

from kts.dataset.partition import PartitionLog
from kts.model import NO_TIMESTAMP
from kts.proposals.modes import AppendedSet, Mode


class MonotonicAppendTime(Mode):
    """``monotonic-append-time``: a leader stamps at least the timestamp of the last appended entry.

    Notes
    -----
    Every replica keeps that timestamp, and start-up reads it from the log. Under CreateTime nothing changes.
    Source: KIP-32, rejected option 1, its corner case of leader migration.
    """

    name = "monotonic-append-time"

    def __init__(self) -> None:
        self.last_ms = NO_TIMESTAMP

    def append_time(self, now_ms: int) -> int:
        return max(now_ms, self.last_ms)

    def opened(self, log: PartitionLog) -> None:
        self.last_ms = NO_TIMESTAMP
        for segment in reversed(log.segments):
            for batches in segment.batches():
                self.last_ms = int(batches.column("max_timestamp")[-1])
            if self.last_ms != NO_TIMESTAMP:
                return

    def truncated(self, log: PartitionLog) -> None:
        self.opened(log)

    def appended(self, appended: AppendedSet) -> None:
        times = appended.shallow.timestamps
        if len(times):
            self.last_ms = int(times[-1])
