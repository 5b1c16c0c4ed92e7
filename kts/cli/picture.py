"""What a picture of a partition shows, gathered from batch headers and time indexes alone, and its words."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from kts.model import NO_TIMESTAMP, TimestampType

from .output import counted
from .times import show_length, show_time

Array = npt.NDArray[np.int64]
MAX_BOXES = 4000  # of a partition; more would lie on the same pixels
MAX_MARKS = 600  # of each kind of mark
SLICE_BOXES = 2000
FAR_SPANS = 5  # so many times the usual span away is an outlier
YEAR_1_MS, YEAR_9999_MS = -62_135_596_800_000, 253_402_300_799_000  # what calendars and drawing libraries reach


@dataclass
class Marks:
    """Single points, and how many there were before thinning."""

    offsets: Array = field(default_factory=lambda: np.zeros(0, np.int64))
    times: Array = field(default_factory=lambda: np.zeros(0, np.int64))
    count: int = 0
    stride: int = 1
    latest: tuple[int, int] = (0, -(2**63))

    def add(self, offsets: Array, times: Array) -> None:
        """Count all of them and keep every ``stride``-th, fewer as they become many."""
        top = int(times.argmax())
        self.latest = max(self.latest, (int(offsets[top]), int(times[top])), key=lambda mark: mark[1])
        kept = np.arange(-self.count % self.stride, len(offsets), self.stride)
        self.count += len(offsets)
        self.offsets = np.concatenate([self.offsets, offsets[kept]])
        self.times = np.concatenate([self.times, times[kept]])
        while len(self.offsets) > MAX_MARKS:
            self.stride *= 2
            self.offsets, self.times = self.offsets[::2], self.times[::2]

    def finish(self) -> None:
        """The latest one is always kept."""
        if self.count and self.latest[0] not in self.offsets:
            self.offsets = np.append(self.offsets, self.latest[0])
            self.times = np.append(self.times, self.latest[1])


@dataclass
class SegmentBoxes:
    """The batches of a segment: each a box of offsets (first to last) and times (low to high)."""

    base_offset: int
    boxes: Array  # 4 rows: first, last, low, high
    index_offsets: Array
    index_times: Array


@dataclass
class Picture:
    """One partition, ready to draw."""

    name: str
    segments: list[SegmentBoxes] = field(default_factory=list)
    late: Marks = field(default_factory=Marks)
    most_late_ms: int = 0
    future: Marks = field(default_factory=Marks)
    clipped: list[tuple[int, int]] = field(default_factory=list)  # (offset, time) outside the window
    batches: int = 0
    without_time: int = 0
    window: tuple[int, int] | None = None  # times from, to; None when there are none


def gather(log: Any, now_ms: int, advance: Callable[[int], None]) -> Picture:
    """Read the headers of a partition.

    Parameters
    ----------
    now_ms : int
        Batches that reach beyond it are future ones.
    advance : callable
        Told the bytes read.
    """
    picture = Picture(f"{log.topic}-{log.partition}")
    greatest = -(2**63)
    for segment in log.segments:
        parts = []
        before = segment.base_offset - 1
        for headers in surviving(segment):
            if not headers.num_rows:
                continue
            boxes, before = boxes_of(headers, before)
            advance(int(np.asarray(headers["sizeInBytes"], np.int64).sum()))
            picture.batches += boxes.shape[1]
            timed = boxes[:, boxes[3] != NO_TIMESTAMP]
            picture.without_time += boxes.shape[1] - timed.shape[1]
            timed = take_future(picture, timed, now_ms)
            greatest = mark_late(picture, timed, greatest)
            parts.append(thinned(timed, SLICE_BOXES))
        joined = np.concatenate(parts, axis=1) if parts else np.zeros((4, 0), np.int64)
        times, offsets = segment.time_index().entries()
        picture.segments.append(SegmentBoxes(segment.base_offset, joined, offsets, times))
    finish(picture)
    return picture


def surviving(segment: Any) -> Iterator[Any]:
    """Header scans of a segment, none if it is deleted meanwhile."""
    from kts.segment.rereading import unless_deleted

    with unless_deleted(segment.path):
        yield from segment.batches()


def boxes_of(headers: Any, before: int) -> tuple[Array, int]:
    """First and last offset, lowest and greatest known time of each batch; and the last offset of all."""
    last = np.asarray(headers["lastOffset"], np.int64)
    previous = np.concatenate([[before], last[:-1]])
    base = headers["baseOffset"]
    first = np.where(
        np.asarray(base.is_null()), np.minimum(previous + 1, last), np.asarray(base.fill_null(0), np.int64)
    )
    high = np.asarray(headers["maxTimestamp"].cast("int64"), np.int64)
    low = np.asarray(headers["baseTimestamp"].cast("int64").fill_null(NO_TIMESTAMP), np.int64)
    # Log append time is one for all records; a delete horizon and an emptied batch have no first time.
    appended = np.asarray(headers["timestampType"]) == TimestampType.LogAppendTime
    low = np.where(appended | (low == NO_TIMESTAMP) | (low > high), high, low)
    return np.stack([first, last, low, high]), int(last[-1])


def take_future(picture: Picture, boxes: Array, now_ms: int) -> Array:
    """Move what reaches beyond now out of the boxes; their early part stays if there is one."""
    future = boxes[3] > now_ms
    if not future.any():
        return boxes
    picture.future.add(boxes[1][future], boxes[3][future])
    boxes = boxes.copy()
    boxes[3] = np.where(future, boxes[2], boxes[3])
    return boxes[:, boxes[2] <= now_ms]


def mark_late(picture: Picture, boxes: Array, greatest: int) -> int:
    """Mark batches that begin before the greatest time so far; returns the new greatest."""
    if not boxes.shape[1]:
        return greatest
    reached = np.maximum.accumulate(np.concatenate([[greatest], boxes[3]]))
    late = boxes[2] < reached[:-1]
    if late.any():
        picture.late.add(boxes[0][late], boxes[2][late])
        picture.most_late_ms = max(picture.most_late_ms, int((reached[:-1] - boxes[2])[late].max()))
    return int(reached[-1])


def thinned(boxes: Array, limit: int) -> Array:
    """Neighbours joined until at most ``limit`` boxes are left; they cover the same offsets and times."""
    count = boxes.shape[1]
    if count <= limit:
        return boxes
    starts = np.arange(0, count, -(-count // limit))
    reduce = (np.minimum, np.maximum, np.minimum, np.maximum)
    return np.stack([how.reduceat(row, starts) for how, row in zip(reduce, boxes, strict=True)])


def finish(picture: Picture) -> None:
    """Thin, choose the window of times, and move what lies far outside it to ``clipped``."""
    if not any(segment.boxes.shape[1] for segment in picture.segments) and picture.future.count:
        # All of it lies in the future: then it is the picture.
        kept = picture.future
        kept.finish()
        picture.segments[0].boxes = np.stack([kept.offsets, kept.offsets, kept.times, kept.times])
    total = sum(segment.boxes.shape[1] for segment in picture.segments)
    for segment in picture.segments:
        share = max(2, MAX_BOXES * segment.boxes.shape[1] // max(total, 1))
        segment.boxes = thinned(segment.boxes, share)
        if len(segment.index_offsets) > MAX_MARKS:
            kept_entries = slice(None, None, -(-len(segment.index_offsets) // MAX_MARKS))
            segment.index_offsets = segment.index_offsets[kept_entries]
            segment.index_times = segment.index_times[kept_entries]
    picture.future.finish()
    everything = np.concatenate([segment.boxes for segment in picture.segments] or [np.zeros((4, 0), np.int64)], axis=1)
    if everything.shape[1]:
        picture.window = window_of(everything, picture.future.times)
        clip(picture)


def window_of(boxes: Array, future: Array) -> tuple[int, int]:
    """The times worth a place on the axis: the usual ones, and others unless they would squash them."""
    low, high = np.quantile(boxes[2], 0.02), np.quantile(boxes[3], 0.98)
    reach = FAR_SPANS * max(high - low, 60_000)
    times = np.concatenate([boxes[2], boxes[3]])
    near = times[(times >= low - reach) & (times <= high + reach) & (times >= YEAR_1_MS) & (times <= YEAR_9999_MS)]
    if not len(near):
        near = times
    start, end = int(near.min()), int(near.max())
    close = future[(future <= end + max(end - start, 60_000)) & (future <= YEAR_9999_MS)]
    return start, max(end, int(close.max())) if len(close) else end


def clip(picture: Picture) -> None:
    """Keep boxes inside the window; list what sticks out."""
    if picture.window is None:
        return
    start, end = picture.window
    for segment in picture.segments:
        first, last, low, high = segment.boxes
        above, below = high > end, low < start
        picture.clipped += zip(last[above].tolist(), high[above].tolist(), strict=True)
        picture.clipped += zip(first[below].tolist(), low[below].tolist(), strict=True)
        high = np.where(above, low, high)
        low = np.where(below, high, low)
        segment.boxes = np.stack([first, last, low, high])[:, (low >= start) & (high <= end)]
    marks = picture.future
    outside = marks.times > end
    picture.clipped += zip(marks.offsets[outside].tolist(), marks.times[outside].tolist(), strict=True)
    marks.offsets, marks.times = marks.offsets[~outside], marks.times[~outside]
    picture.clipped.sort()
    late = (picture.late.times >= start) & (picture.late.times <= end)
    picture.late.offsets, picture.late.times = picture.late.offsets[late], picture.late.times[late]
    for segment in picture.segments:
        seen = (segment.index_times >= start) & (segment.index_times <= end)
        segment.index_offsets, segment.index_times = segment.index_offsets[seen], segment.index_times[seen]


# --- words -------------------------------------------------------------------------------------


COLOURS = ("#4477aa", "#ee8866", "#228833", "#aa3377", "#66ccee", "#bbaa22", "#7755bb", "#888888")
LATE_COLOUR, FUTURE_COLOUR, INDEX_COLOUR = "#d9720b", "#cc1122", "#222222"
LEGEND_SEGMENTS = 8
ANNOTATED = 3


def segment_label(picture: Picture, number: int) -> str | None:
    """A segment's line in the legend; None for those beyond the few that fit."""
    shown = LEGEND_SEGMENTS if len(picture.segments) <= LEGEND_SEGMENTS else LEGEND_SEGMENTS - 1
    if number < shown:
        return f"segment {picture.segments[number].base_offset:,}"
    if number == shown:
        return f"… {len(picture.segments) - shown:,} more segments (colours repeat)"
    return None


def late_label(picture: Picture) -> str:
    """Out-of-order batches, counted."""
    return f"out of order: {counted(picture.late.count, 'batch')}, up to {show_length(picture.most_late_ms)} late"


def future_label(picture: Picture) -> str:
    """Batches beyond now, counted."""
    return f"in the future: {counted(picture.future.count, 'batch')}"


def subtitle(picture: Picture) -> str:
    """How much is shown, and what is not."""
    parts = [f"{counted(picture.batches, 'batch')} in {counted(len(picture.segments), 'segment')}"]
    if picture.without_time:
        parts.append(f"{counted(picture.without_time, 'batch')} without a timestamp not shown")
    if picture.clipped:
        parts.append(f"{len(picture.clipped):,} far outside: arrows at the edge")
    return "; ".join(parts)


def edge_notes(picture: Picture) -> list[tuple[int, int, str]]:
    """Offset, time and text for the first few times that lie far outside."""
    notes = [
        (offset, time, f"{show_time(time)}, batch that ends at {offset:,}")
        for offset, time in picture.clipped[:ANNOTATED]
    ]
    if len(picture.clipped) > ANNOTATED:
        offset, time, text = notes[-1]
        notes[-1] = (offset, time, f"{text} (and {len(picture.clipped) - ANNOTATED:,} more)")
    return notes
