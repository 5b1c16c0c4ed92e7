"""Committed offsets beside the logs that they are of: those beyond a log's end, and those of an earlier time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kts.coordinator_records.groups import Committed, OffsetKey, offset_value, read_key, read_offset
from kts.dataset.newest import Loader
from kts.dataset.options import BATCH_BYTES
from kts.dataset.partition import PartitionLog
from kts.errors import KtsError
from kts.model import NO_TIMESTAMP
from kts.segment.damage import header_scan
from kts.segment.segment import Segment
from kts.times import show_time

if TYPE_CHECKING:
    import numpy.typing as npt

Ends = Callable[[str, int], int | None]  # the log end offset of a partition; None if it is not there
COLUMNS = ["timestamp", "key", "value"]


class Kept(NamedTuple):
    """What is left of a segment: parts of its file, as (start, end), and the last offset in them."""

    parts: list[tuple[int, int]]
    last_offset: int
    is_whole: bool


def parts_before(segments: Sequence[Segment], time_ms: int, skip_damage: bool) -> list[Kept]:
    """The parts of the segments of ``__consumer_offsets`` that were there before a time.

    These are the batches whose records are all earlier, or have no time. Of a transaction that had not ended then,
    nothing is left.

    Raises
    ------
    CorruptRecordError
        Damage, unless it is skipped.
    """
    batches = [_headers(one, skip_damage, closed=one is not segments[-1]) for one in segments]
    counts = [len(one["position"]) for one in batches]
    whole = {name: np.concatenate([one[name] for one in batches]) for name in batches[0]} if batches else {}
    if not whole:
        return []
    kept = (whole["max_timestamp"] < time_ms) | (whole["max_timestamp"] == NO_TIMESTAMP)
    ended: dict[int, bool] = {}  # by producer: whether the next marker is kept
    for row in np.flatnonzero(whole["transactional"] | whole["control"])[::-1].tolist():
        producer = int(whole["producer_id"][row])
        if whole["control"][row]:
            ended[producer] = bool(kept[row])
        elif not ended.get(producer, False):
            kept[row] = False
    found, start = list[Kept](), 0
    for one, count in zip(batches, counts, strict=True):
        chosen = kept[start : start + count]
        start += count
        ends = one["position"] + one["size"]
        parts = list(zip(one["position"][chosen].tolist(), ends[chosen].tolist(), strict=True))
        found.append(Kept(_joined(parts), int(one["last_offset"][chosen].max(initial=-1)), bool(chosen.all())))
    return found


def _headers(segment: Segment, skip_damage: bool, *, closed: bool) -> dict[str, npt.NDArray[np.int64]]:
    names = ("position", "size", "last_offset", "max_timestamp", "producer_id", "transactional", "control")
    found = list(header_scan(segment, 0, segment.base_offset, skip_damage, closed=closed))
    columns = {name: [one.column(name).astype(np.int64) for one in found] for name in names}
    return {name: np.concatenate([*each, np.empty(0, np.int64)]) for name, each in columns.items()}


def _joined(parts: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Parts of a file, with neighbours as one."""
    joined = list[tuple[int, int]]()
    for start, end in parts:
        if joined and joined[-1][1] == start:
            joined[-1] = joined[-1][0], end
        else:
            joined.append((start, end))
    return joined


class Moved(NamedTuple):
    """A committed offset that the copy of a group's log does not have as it is, and the record that takes its place."""

    message: str
    key: bytes
    committed: Committed

    @property
    def row(self) -> tuple[int, bytes, bytes]:
        """Its record: timestamp, key, value."""
        return self.committed.commit_ms, self.key, offset_value(self.committed)


def moved(source: PartitionLog, copy: PartitionLog, time_ms: int, end_of: Ends, skip_damage: bool) -> Iterator[Moved]:
    """The offsets of groups that lie beyond the ends of the copied logs, or are not known from before a time.

    Parameters
    ----------
    source, copy : PartitionLog
        A partition of ``__consumer_offsets``, and its copy, which has what was there before the time.
    end_of : callable
        The end of the copy of a partition.

    Notes
    -----
    If the first offset that a group committed after the time is all that is known of it, it began later, or the cleaner
    removed what it had committed before: the group had then read no further.
    """
    on_error = "skip" if skip_damage else "raise"
    loader = Loader()
    loader.read(copy, BATCH_BYTES, on_error)
    before, when = loader.newest, show_time(time_ms)
    for key, (_, value) in before.items():
        if (found := _read(key, value)) is not None:
            place, committed = found
            end = end_of(place.topic, place.partition)
            if end is not None and committed.offset > end:
                said = f"{_named(place)} committed offset {committed.offset} before {when}, and the copy ends at {end}"
                yield Moved(said, key, committed._replace(offset=end, leader_epoch=-1))
    for key, value in _first_after(source, time_ms, on_error).items():
        found = None if key in before else _read(key, value)
        end = None if found is None else end_of(found[0].topic, found[0].partition)
        if found is not None and end is not None:
            place, committed = found
            said = f"{_named(place)} has no offset from before {when}; the first one after it is {committed.offset}"
            said += f", and the copy ends at {end}" if committed.offset > end else ""
            yield Moved(said, key, committed._replace(offset=min(committed.offset, end), leader_epoch=-1))


def _first_after(log: PartitionLog, time_ms: int, on_error: str) -> dict[bytes, bytes | None]:
    """The first value of each key at or after a time, of any transaction: the group had read no further before."""
    import pyarrow as pa
    import pyarrow.compute as pc

    found: dict[bytes, bytes | None] = {}
    for rows in log.scan(columns=COLUMNS, on_error=on_error):
        late = rows.filter(pc.greater_equal(rows.column("timestamp").cast(pa.int64()), time_ms))
        numbered = pa.table({"key": late.column("key"), "row": np.arange(late.num_rows)})
        first = late.take(numbered.group_by("key").aggregate([("row", "min")]).column("row_min").combine_chunks())
        for key, value in zip(first.column("key").to_pylist(), first.column("value").to_pylist(), strict=True):
            if key is not None:
                found.setdefault(key, value)
    return found


def _read(key: bytes, value: bytes | None) -> tuple[OffsetKey, Committed] | None:
    """A committed offset; None for other records, tombstones, and what is no record of a group."""
    try:
        place = read_key(key)
        return (place, read_offset(value)) if isinstance(place, OffsetKey) and value is not None else None
    except KtsError:
        return None


def _named(place: OffsetKey) -> str:
    return f"group {place.group_id} of {place.topic}-{place.partition}"
