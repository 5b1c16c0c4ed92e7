"""The offsets of a streaming query, and the tasks of its micro-batches; all of it runs on the driver."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from kts.dataset.increments import Json, Losses, Offsets, Reach, from_json, name_of, reach_of, to_json
from kts.dataset.options import TimeRange
from kts.dataset.partition import PartitionLog
from kts.model import LATEST, TopicPartition
from kts.segment.rereading import settled, warn
from kts.segment.transactions import log_end_offset
from kts.spark.options import Options
from kts.spark.planning import OffsetRange, Task, check_named, resolve, select_logs, tasks_of, time_of, unmatched


class Stream:
    """What a streaming query reads from its paths.

    Notes
    -----
    A query that starts at the latest offset starts at -1, and its first micro-batch is empty: it fixes the offsets in
    Spark's checkpoint, which keeps the ends of micro-batches, not their starts. A query that is killed before its first
    commit begins that micro-batch again, and would otherwise take a later offset for the latest.
    """

    def __init__(self, options: Options) -> None:
        self.options = options
        self._losses = Losses(options.fail_on_data_loss, "set failOnDataLoss to false to go on with what is there")
        self._known: Offsets | None = None  # the ends when they were last looked at
        self._target: Offsets | None = None  # of a query that reads what is available now
        self._last_trigger_s: float | None = None

    def initial(self) -> Json:
        """Where a new query starts; -1 is the latest offset.

        Raises
        ------
        FileNotFoundError, ValueError, UnknownTopicOrPartitionError, OffsetOutOfRangeError
            As for a batch query.
        """
        logs = select_logs(self.options)
        if not logs and self.options.subscribe_pattern is not None:
            warn(f"{unmatched(self.options)} yet: the query waits for one", None)
        check_named(self.options.start, logs)
        return to_json({name_of(log): settled(partial(self._start, log)) for log in logs})

    def _start(self, log: PartitionLog) -> int:
        bound, name = self.options.start, name_of(log)
        if bound.kind == "latest" or (bound.kind == "offsets" and bound.values[name.topic][name.partition] == LATEST):
            return LATEST
        # Also in front of an open transaction, whose records come when it ends.
        options = replace(self.options, scan=replace(self.options.scan, isolation="read_uncommitted"))
        found = resolve(log.listed(skip_damage=options.skips), options)
        unmatched = time_of(bound, name) is not None and found.start_offset == found.end_offset
        return LATEST if unmatched else found.start_offset

    def prepare_available_now(self) -> None:
        """Read what is stable now, and nothing that comes later."""
        self._target = {name: reach.stable for name, reach in self._reaches()}

    def latest(self, start: Json | None, most: int | None, least: int | None, now_s: float) -> Json:
        """The end of the next micro-batch.

        Parameters
        ----------
        start : dict, optional
            Its start; None if Spark does not say, as before 4.2.
        most : int, optional
            At most about so many offsets, shared among the partitions by what each has.
        least : int, optional
            ``start`` unless there are so many offsets, or ``maxTriggerDelay`` has passed since they last were.
        now_s : float
            A clock that only goes forward.

        Raises
        ------
        OffsetOutOfRangeError
            A partition is gone or ends before its start, and ``failOnDataLoss`` is true.
        """
        starts = (self._known or {}) if start is None else from_json(start)
        reaches = dict(self._reaches())
        self._losses.check_gone(starts, reaches)
        ends: Offsets = {}
        for name, reach in reaches.items():
            begun = starts.get(name, LATEST)
            self._losses.check_end(name, begun, reach.end)
            # A checkpoint of the high watermark may be older than what was read.
            ends[name] = max(reach.stable, begun) if begun <= reach.end else reach.stable
        self._known = ends
        if self._target is not None:
            least, ends = None, {name: end for name, end in ends.items() if name in self._target}
            for name, end in ends.items():
                begun = starts.get(name, LATEST)
                # Not in front of what was read, unless that is gone.
                ends[name] = max(min(end, self._target[name]), begun if begun <= end else LATEST)
        begins = {
            name: end if starts.get(name) == LATEST else max(starts.get(name, 0), reaches[name].first)
            for name, end in ends.items()
        }
        sizes = {name: max(0, end - begins[name]) for name, end in ends.items()}
        if start is not None and least is not None and self._waits(sum(sizes.values()), least, now_s):
            return start
        if start is not None and most is not None:
            shares = _shares(sizes, most)
            ends = {name: begins[name] + shares[name] if sizes[name] else end for name, end in ends.items()}
        return to_json(ends)

    def reported(self) -> Json | None:
        """The ends when they were last looked at."""
        return None if self._known is None else to_json(self._known)

    def _waits(self, count: int, least: int, now_s: float) -> bool:
        last = self._last_trigger_s
        if last is not None and count < least and (now_s - last) * 1000 < self.options.max_delay_ms:
            return True
        self._last_trigger_s = now_s
        return False

    def tasks(self, start: Json, end: Json) -> list[Task]:
        """The tasks of a micro-batch, the same offsets each time it is planned.

        Raises
        ------
        OffsetOutOfRangeError
            Offsets are no longer in the log, and ``failOnDataLoss`` is true.
        """
        starts, ends = from_json(start), from_json(end)
        logs = {name_of(log): log for log in self._logs()}
        for name in sorted((starts.keys() | ends.keys()) - logs.keys()):
            self._losses.tell(f"{name} is gone, with its offsets from {starts.get(name, 0)} on")

        def planned() -> list[Task]:
            found = (self._range(logs[name], starts.get(name, 0), ends[name]) for name in ends if name in logs)
            return tasks_of(list(found), self.options)

        return settled(planned)

    def _range(self, log: PartitionLog, start: int, end: int) -> OffsetRange:
        log, name = log.listed(skip_damage=self.options.skips), name_of(log)
        within = TimeRange(time_of(self.options.start, name) if self.options.scan.strict_time_range else None)
        self._losses.check_end(name, start, end)  # before pyspark 4.2 nothing else compares the two
        if not 0 <= start < end:  # -1 is the latest offset
            return OffsetRange(log, end, end, within)
        first = log.log_start_offset
        last = max(log_end_offset(log, skip_damage=self.options.skips), first)
        self._losses.check_start(name, start, end, first)
        if end > last:
            self._losses.tell(
                f"offsets {max(start, last)} to {end} (not included) of {name} are gone; it ends at {last}"
            )
        return OffsetRange(log, max(start, first), min(end, last), within)

    def _logs(self) -> list[PartitionLog]:
        return select_logs(self.options, only_known=not self.options.fail_on_data_loss)

    def _reaches(self) -> Iterator[tuple[TopicPartition, Reach]]:
        for log in self._logs():
            yield name_of(log), reach_of(log, self.options.scan.isolation, skip_damage=self.options.skips)


def _shares(sizes: Offsets, most: int) -> Offsets:
    """So many offsets shared in proportion, at least one to each partition that has any."""
    total = sum(sizes.values())
    if total <= most:
        return sizes
    return {name: min(size, max(1, most * size // total)) for name, size in sizes.items()}
