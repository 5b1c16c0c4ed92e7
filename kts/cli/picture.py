"""A plot of a partition's timestamps, from batch headers and time indexes alone: what it shows, where, and its words.

``image`` and ``page`` draw it; they decide nothing that a reader of the plot could tell apart.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from kts.dataset.scan import by_segment
from kts.model import NO_TIMESTAMP, TimestampType
from kts.segment.entries import Batches

from .output import counted
from .times import show_length, show_time

Array = npt.NDArray[np.int64]
MAX_BOXES = 4000  # of a partition; more would share pixels
MAX_MARKS = 600  # of each kind of mark
SLICE_BOXES = 2000
FAR_SPANS = 5  # a time this many usual spans away is an outlier
YEAR_1_MS, YEAR_9999_MS = -62_135_596_800_000, 253_402_300_799_000  # the range of calendars and drawing libraries


@dataclass
class Marks:
    """Points to mark, and their number before thinning."""

    offsets: Array = field(default_factory=lambda: np.zeros(0, np.int64))
    times: Array = field(default_factory=lambda: np.zeros(0, np.int64))
    count: int = 0
    stride: int = 1
    latest: tuple[int, int] = (0, -(2**63))

    def add(self, offsets: Array, times: Array) -> None:
        """Count all points, keep every ``stride``-th. The stride grows with the count."""
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
        """Add the latest point if thinning dropped it."""
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
    clipped: list[tuple[int, int]] = field(default_factory=list)  # (offset, time) outside the window, thinned
    batches: int = 0
    without_time: int = 0
    window: tuple[int, int] | None = None  # times from, to; None when there are none


def gather(log: Any, now_ms: int, advance: Callable[[int], None]) -> Picture:
    """Read the headers of a partition.

    Parameters
    ----------
    now_ms : int
        Batches with later times are in the future.
    advance : callable
        Called with the number of bytes read.
    """
    picture = Picture(f"{log.topic}-{log.partition}")
    greatest = -(2**63)
    for segment, scans in by_segment(log):
        parts = []
        before = segment.base_offset - 1
        for headers in scans:
            boxes, before = boxes_of(headers, before)
            advance(int(headers.column("size").sum()))
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


def boxes_of(headers: Batches, before: int) -> tuple[Array, int]:
    """The first and last offset and the lowest and greatest known time of each batch; and the last offset of all."""
    last, base = headers.column("last_offset"), headers.column("base_offset")
    previous = np.concatenate([[before], last[:-1]])
    first = np.where(headers.wrappers, np.minimum(previous + 1, last), base)
    high, low = headers.column("max_timestamp"), headers.column("base_timestamp")
    # Under LogAppendTime all records have the same time; a batch that the cleaner emptied or marked has no first time.
    appended = headers.column("timestamp_type") == TimestampType.LogAppendTime
    low = np.where(appended | (low == NO_TIMESTAMP) | (low > high), high, low)
    return np.stack([first, last, low, high]), int(last[-1])


def take_future(picture: Picture, boxes: Array, now_ms: int) -> Array:
    """Move times after now from the boxes to ``picture.future``; the earlier part of a box stays."""
    future = boxes[3] > now_ms
    if not future.any():
        return boxes
    picture.future.add(boxes[1][future], boxes[3][future])
    boxes = boxes.copy()
    boxes[3] = np.where(future, boxes[2], boxes[3])
    return boxes[:, boxes[2] <= now_ms]


def mark_late(picture: Picture, boxes: Array, greatest: int) -> int:
    """Mark batches that start before the greatest time so far. Returns the new greatest."""
    if not boxes.shape[1]:
        return greatest
    reached = np.maximum.accumulate(np.concatenate([[greatest], boxes[3]]))
    late = boxes[2] < reached[:-1]
    if late.any():
        picture.late.add(boxes[0][late], boxes[2][late])
        picture.most_late_ms = max(picture.most_late_ms, int((reached[:-1] - boxes[2])[late].max()))
    return int(reached[-1])


def thinned(boxes: Array, limit: int) -> Array:
    """Join neighbouring boxes until at most ``limit`` are left. They cover the same offsets and times."""
    count = boxes.shape[1]
    if count <= limit:
        return boxes
    starts = np.arange(0, count, -(-count // limit))
    reduce = (np.minimum, np.maximum, np.minimum, np.maximum)
    return np.stack([how.reduceat(row, starts) for how, row in zip(reduce, boxes, strict=True)])


def finish(picture: Picture) -> None:
    """Thin the boxes, choose the window of times, and move outliers to ``clipped``."""
    if not any(segment.boxes.shape[1] for segment in picture.segments) and picture.future.count:
        # All times are in the future: draw them as the boxes.
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
    """The range of the time axis: the usual times, and others unless they are too far away."""
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
    """Keep the boxes inside the window and list the times outside."""
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


# --- places ------------------------------------------------------------------------------------


MARGIN = 0.045  # of an axis, beside what is drawn
ARROW_ROOM = 0.06  # of the time axis, for arrows at an edge
COLOURS = ("#4477aa", "#ee8866", "#228833", "#aa3377", "#66ccee", "#bbaa22", "#7755bb", "#888888")  # of segments
LATE_COLOUR, FUTURE_COLOUR = "#d9720b", "#dd2233"
FEW_LATE = 100  # more of them are drawn behind the batches, because they would hide everything else
LAYERS = {"many late": 2, "batch": 3, "late": 4, "index": 4, "future": 5, "edge": 6}  # the greater hides the lesser


def on_calendar(picture: Picture) -> bool:
    """Whether all times in the window have dates; others are drawn as numbers."""
    if picture.window is None:
        return False
    start, end = picture.window
    return start >= YEAR_1_MS and end <= YEAR_9999_MS - 400 * 86_400_000  # ticks after the end need dates, too


def is_above(picture: Picture, time: int) -> bool:
    """Whether a time lies above the window."""
    return picture.window is not None and time > picture.window[1]


def at_edge(picture: Picture, above: bool) -> list[tuple[int, int]]:
    """The outliers, as (offset, time), at the upper or the lower edge."""
    return [(offset, time) for offset, time in picture.clipped if is_above(picture, time) == above]


def offset_range(picture: Picture) -> tuple[float, float]:
    """The range of the offset axis: everything drawn, with a margin."""
    ends = [segment.boxes[[0, 1]].ravel() for segment in picture.segments]
    offsets = np.concatenate([*ends, picture.future.offsets, [offset for offset, _ in picture.clipped]])
    begin, end = float(offsets.min()), float(offsets.max())
    room = max((end - begin) * 0.02, 0.6)
    return begin - room, end + room


def time_range(picture: Picture, row: float = 0) -> tuple[int, int]:
    """The range of the time axis: the window, margins, and room for arrows at the edges.

    Parameters
    ----------
    row : float
        The height of a line of text at the edge, as a part of the axis: room for the notes.
    """
    if picture.window is None:
        raise ValueError("a picture without times has no time axis")
    start, end = picture.window
    notes = [is_above(picture, time) for _, time, _ in edge_notes(picture)]
    top, bottom = (
        MARGIN + (ARROW_ROOM + row * notes.count(above) if at_edge(picture, above) else 0) for above in (True, False)
    )
    whole = (end - start or 1_200_000) / (1 - top - bottom)
    low, high = int(start - whole * bottom), int(end + whole * top)
    return (max(low, YEAR_1_MS), min(high, YEAR_9999_MS)) if on_calendar(picture) else (low, high)


# --- words -------------------------------------------------------------------------------------


HEADING = "Timestamps over offsets"
INDEX_LABEL = "time index entry"
NO_TIMESTAMPS = "no timestamps"
LEGEND_SEGMENTS = 8
ANNOTATED = 3


def time_title(picture: Picture) -> str:
    """The title of the time axis."""
    return "timestamp (UTC)" if on_calendar(picture) else "timestamp (ms since 1970)"


def named_segments(picture: Picture) -> int:
    """The number of segments with a line of their own in the legend."""
    return LEGEND_SEGMENTS if len(picture.segments) <= LEGEND_SEGMENTS else LEGEND_SEGMENTS - 1


def segment_label(picture: Picture, number: int) -> str | None:
    """A segment's line in the legend; None if there is no room for it."""
    shown = named_segments(picture)
    if number < shown:
        return f"segment {picture.segments[number].base_offset:,}"
    if number == shown:
        return f"… {len(picture.segments) - shown:,} more segments (colours repeat)"
    return None


def late_label(picture: Picture) -> str:
    """How many batches are out of order."""
    return f"out of order: {counted(picture.late.count, 'batch')}, up to {show_length(picture.most_late_ms)} late"


def future_label(picture: Picture) -> str:
    """How many batches lie in the future."""
    return f"in the future: {counted(picture.future.count, 'batch')}"


def subtitle(picture: Picture) -> str:
    """The numbers of batches that are shown and not shown."""
    parts = [f"{counted(picture.batches, 'batch')} in {counted(len(picture.segments), 'segment')}"]
    if picture.without_time:
        parts.append(f"{counted(picture.without_time, 'batch')} without a timestamp not shown")
    if picture.clipped:
        parts.append(f"far outside: {counted(len(picture.clipped), 'arrow')} at the edge")
    return "; ".join(parts)


def arrow_number(picture: Picture, offset: int, time: int) -> str:
    """What stands beside an arrow and before its note, so that each note has its arrow; empty without need or note."""
    number = picture.clipped.index((offset, time)) + 1
    return "" if len(picture.clipped) == 1 or number > ANNOTATED else str(number)


def edge_notes(picture: Picture) -> list[tuple[int, int, str]]:
    """Offset, time and text of the first few outliers."""
    notes = list[tuple[int, int, str]]()
    for offset, time in picture.clipped[:ANNOTATED]:
        number, edge = arrow_number(picture, offset, time), "ends" if is_above(picture, time) else "starts"
        notes.append((offset, time, f"{number}{': ' * bool(number)}{show_time(time)}, batch that {edge} at {offset:,}"))
    if len(picture.clipped) > ANNOTATED:
        offset, time, text = notes[-1]
        notes[-1] = (offset, time, f"{text} (and {counted(len(picture.clipped) - ANNOTATED, 'more arrow')})")
    return notes
