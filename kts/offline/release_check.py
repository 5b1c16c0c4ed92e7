"""What a producer of the records of a log would be told by a broker of a release, counted by rule and time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kts.arguments import INT32_MAX, INT64_MAX
from kts.behaviour import NEWEST
from kts.codec.encode import encode, int64s
from kts.codec.validate import Validated, rules_of
from kts.config import LogConfig
from kts.dataset.partition import PartitionLog
from kts.dataset.scan import segment_batches
from kts.errors import CorruptRecordError, InvalidRecordError, InvalidTimestampError, KtsError, RecordTooLargeError
from kts.model import NO_TIMESTAMP, TimestampType

if TYPE_CHECKING:
    import pyarrow as pa

Starts = Callable[[Any], Any]  # the start of the interval of each time, in ms
Counts = dict[tuple["RefusalRule", int | None], tuple[int, int]]  # records, and the offset of the first
ROWS = 1 << 16  # that are judged at once
COLUMNS = ("offset", "timestamp", "timestampType", "magic", "key")
DAY_MS = 86_400_000


class RefusalRule(NamedTuple):
    """Why records are refused: the setting or format that decides it, and the error."""

    name: str
    error: type[KtsError]


class RefusedRecords(NamedTuple):
    """Records of a partition that one rule refuses, of one interval.

    Attributes
    ----------
    start_ms : int or None
        Start of the interval of their timestamps; None for -1, which is no timestamp.
    records : int
    first_offset : int
        The offset of the first of them.
    """

    rule: RefusalRule
    start_ms: int | None
    records: int
    first_offset: int


def by_day(times: Any) -> Any:
    """The start of the UTC day of each time."""
    return np.maximum(times // DAY_MS, -(2**63 // DAY_MS)) * DAY_MS


def check_release(
    log: PartitionLog,
    config: LogConfig,
    now_ms: int,
    starts: Starts = by_day,
    progress: Callable[[int], None] | None = None,
) -> list[RefusedRecords]:
    """What a broker would refuse of the records of a partition, if a producer sent them now as they are.

    Parameters
    ----------
    config : LogConfig
        The topic's settings, with the release: ``LogConfig(release="4.3")``.
    now_ms : int
        The broker's clock.
    starts : callable
        Intervals; by default days of UTC.
    progress : callable, optional
        Called with the number of ``.log`` bytes whose headers were just read.

    Returns
    -------
    list of RefusedRecords
        By rule and interval, in order. A record counts once, for the first of: its message format, the size of its
        batch, its key, its timestamp. Control records are a broker's own and do not count; timestamps of type
        LogAppendTime are a broker's, too, and are not judged.

    Raises
    ------
    CorruptRecordError
        The log is damaged.

    Notes
    -----
    Records are read only of batches of which the header leaves it open.

    Source: LogValidator, ProduceRequest.validateRecords; KIP-32, KIP-724, KIP-937, KIP-1030.
    """
    counts: Counts = {}
    judge = _Judge(config, now_ms)
    latest, begin = None, 0
    for segment, headers in segment_batches(log):
        ends = int64s(headers.column("lastOffset"), "lastOffset") + 1
        begins = np.concatenate([[begin if segment == latest else segment.base_offset], ends])
        for first, end in runs_of(judge.open(headers), begins):
            for rows in log.scan(columns=COLUMNS, starting_offsets=first, ending_offsets=end):
                for start in range(0, rows.num_rows, ROWS):
                    _add(counts, judge.refused(rows.slice(start, ROWS), headers), starts)
        latest, begin = segment, begins[-1]
        if progress is not None:
            progress(int(int64s(headers.column("sizeInBytes"), "sizeInBytes").sum()))
    ordered = sorted(counts.items(), key=lambda one: (one[0][0].name, one[0][1] is not None, one[0][1] or 0))
    return [RefusedRecords(rule, start, *found) for (rule, start), found in ordered]


class _Judge:
    """The rules of a topic under a release, at one time."""

    def __init__(self, config: LogConfig, now_ms: int) -> None:
        self.config, self.now_ms = config, now_ms
        self.behaviour = behaviour = config.behaviour()
        self.formats = {
            magic: RefusalRule(f"message format {magic}", InvalidRecordError if magic < 2 else CorruptRecordError)
            for magic in range(3)
            if not behaviour.least_magic <= magic <= behaviour.greatest_magic
        }
        self.size = RefusalRule("max.message.bytes", RecordTooLargeError)
        self.sets_times = config.message_timestamp_type == "LogAppendTime"  # those that producers send do not count
        before, self.after = (INT64_MAX,) * 2 if self.sets_times else rules_of(config, None, "client").limits
        # Of a batch of format 2 every record is judged; older formats end at the first that is refused.
        together = LogConfig(
            message_timestamp_before_max_ms=before,
            message_timestamp_after_max_ms=self.after,
            message_timestamp_missing=config.message_timestamp_missing,
            allow_negative_timestamps=config.allow_negative_timestamps,
            cleanup_policy=config.cleanup_policy,
            max_message_bytes=INT32_MAX,
            release=NEWEST.release,
        )
        self.rules = rules_of(together, None, "client")
        self.needs_records = config.compacted or before < INT64_MAX or config.message_timestamp_missing != "accept"

    def open(self, headers: pa.RecordBatch) -> Any:
        """Which batches may have records that are refused."""
        magic, size = np.asarray(headers.column("magic")), np.asarray(headers.column("sizeInBytes"))
        latest = int64s(headers.column("maxTimestamp").cast("int64"), "maxTimestamp")
        found = np.isin(magic, list(self.formats)) | (size > self.config.max_message_bytes)
        found |= (latest > min(self.now_ms + self.after, INT64_MAX)) | self.needs_records
        if self.after < INT64_MAX:
            found |= magic < 2  # a wrapper's greatest time is what its producer wrote
        return found & ~np.asarray(headers.column("control").cast("int8")).astype(bool)

    def refused(self, rows: pa.RecordBatch, headers: pa.RecordBatch) -> Iterator[tuple[RefusalRule, Any, Any]]:
        """The offsets and times of the rows that each rule refuses."""
        offsets, times = (int64s(rows.column(name).cast("int64"), name) for name in ("offset", "timestamp"))
        magic, left = np.asarray(rows.column("magic")), np.ones(len(offsets), np.bool_)
        of_batch = np.searchsorted(int64s(headers.column("lastOffset"), "lastOffset"), offsets)
        too_large = np.asarray(headers.column("sizeInBytes"))[of_batch] > self.config.max_message_bytes
        for rule, those in [*((rule, magic == one) for one, rule in self.formats.items()), (self.size, too_large)]:
            yield rule, offsets[left & those], times[left & those]
            left &= ~those
        sent = left & (np.asarray(rows.column("timestampType")) != TimestampType.LogAppendTime)
        keyless = np.asarray(rows.column("key").is_null())
        for rule, numbers in self._by_records(np.where(sent, times, self.now_ms), keyless & left).items():
            chosen = np.array(numbers)
            yield rule, offsets[chosen], times[chosen]

    def _by_records(self, times: Any, keyless: Any) -> dict[RefusalRule, list[int]]:
        """The numbers of the rows that are refused for their key or their timestamp."""
        import pyarrow as pa

        keys = pa.array(np.zeros(len(times), "S1"), pa.binary(), mask=keyless)
        sent = encode({"key": keys, "timestamp": times}, batch_bytes=INT32_MAX)
        done = self.rules.appender.append(sent, 0, self.now_ms, 0)
        refusal = None if isinstance(done, Validated) else done.refusal()
        found = dict[RefusalRule, list[int]]()
        if refusal is None:
            return found
        for row, time, why in refusal[-2]:
            found.setdefault(self._rule(time, why), []).append(row)
        if not found:
            raise self.rules.certain_error(done, self.now_ms)
        return found

    def _rule(self, time: int, why: str) -> RefusalRule:
        if why == "NO_KEY":
            return RefusalRule("cleanup.policy", InvalidRecordError)
        if why == "NO_TIME":
            return RefusalRule("message.timestamp.missing", InvalidTimestampError)
        if not self.behaviour.limits_before_and_after:
            return RefusalRule("message.timestamp.difference.max.ms", InvalidTimestampError)
        side = "after" if time > self.now_ms else "before"
        return RefusalRule(f"message.timestamp.{side}.max.ms", InvalidTimestampError)


def runs_of(chosen: Any, begins: Any) -> Iterator[tuple[int, int]]:
    """Ranges of offsets that hold the chosen batches; those that follow each other are one."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], chosen, [False]]).astype(np.int8)))
    for start, end in edges.reshape(-1, 2):
        yield int(begins[start]), int(begins[end])


def _add(counts: Counts, refused: Iterable[tuple[RefusalRule, Any, Any]], starts: Starts) -> None:
    for rule, offsets, times in refused:
        timed = times != NO_TIMESTAMP
        for part in (timed, ~timed):
            if not part.any():
                continue
            values = starts(times[part]) if part is timed else np.zeros(int(part.sum()), np.int64)
            found, first, amounts = np.unique(values, return_index=True, return_counts=True)
            for start, at, amount in zip(found.tolist(), offsets[part][first].tolist(), amounts.tolist(), strict=True):
                key = (rule, start if part is timed else None)
                records, first_offset = counts.get(key, (0, at))
                counts[key] = records + amount, first_offset
