"""A plot of a partition's timestamps, from batch headers and time indexes alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from kts.model import NO_TIMESTAMP, TimestampType

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
    clipped: list[tuple[int, int]] = field(default_factory=list)  # (offset, time) outside the window
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
    """The header scans of a segment; none if it was deleted meanwhile."""
    from kts.segment.rereading import unless_deleted

    with unless_deleted(segment.path):
        yield from segment.batches()


def boxes_of(headers: Any, before: int) -> tuple[Array, int]:
    """The first and last offset and the lowest and greatest known time of each batch; and the last offset of all."""
    last = np.asarray(headers["lastOffset"], np.int64)
    previous = np.concatenate([[before], last[:-1]])
    base = headers["baseOffset"]
    first = np.where(
        np.asarray(base.is_null()), np.minimum(previous + 1, last), np.asarray(base.fill_null(0), np.int64)
    )
    high = np.asarray(headers["maxTimestamp"].cast("int64"), np.int64)
    low = np.asarray(headers["baseTimestamp"].cast("int64").fill_null(NO_TIMESTAMP), np.int64)
    # Under LogAppendTime all records have the same time; a batch that the cleaner emptied or marked has no first time.
    appended = np.asarray(headers["timestampType"]) == TimestampType.LogAppendTime
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


# --- words -------------------------------------------------------------------------------------


COLOURS = ("#4477aa", "#ee8866", "#228833", "#aa3377", "#66ccee", "#bbaa22", "#7755bb", "#888888")
LATE_COLOUR, FUTURE_COLOUR, INDEX_COLOUR = "#d9720b", "#cc1122", "#222222"
LEGEND_SEGMENTS = 8
ANNOTATED = 3


def segment_label(picture: Picture, number: int) -> str | None:
    """A segment's line in the legend; None if there is no room for it."""
    shown = LEGEND_SEGMENTS if len(picture.segments) <= LEGEND_SEGMENTS else LEGEND_SEGMENTS - 1
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
        parts.append(f"{len(picture.clipped):,} far outside: arrows at the edge")
    return "; ".join(parts)


def edge_notes(picture: Picture) -> list[tuple[int, int, str]]:
    """Offset, time and text of the first few outliers."""
    notes = [
        (offset, time, f"{show_time(time)}, batch that ends at {offset:,}")
        for offset, time in picture.clipped[:ANNOTATED]
    ]
    if len(picture.clipped) > ANNOTATED:
        offset, time, text = notes[-1]
        notes[-1] = (offset, time, f"{text} (and {len(picture.clipped) - ANNOTATED:,} more)")
    return notes


# --- drawing -----------------------------------------------------------------------------------


def import_library(kind: str) -> None:
    """Import the library that draws this kind of file.

    Raises
    ------
    ImportError
        The library is not installed.
    """
    import_module("plotly.graph_objects" if kind == "html" else "matplotlib.figure")


def draw(pictures: Sequence[Picture], file: BinaryIO, kind: str) -> None:
    """Draw into ``file`` as ``png``, ``svg`` or ``html``: one panel for each partition, one below the other."""
    if kind == "html":
        draw_page(pictures, file)
    else:
        draw_image(pictures, file, kind)


# --- PNG and SVG -------------------------------------------------------------------------------

WIDTH_INCHES, TITLE_INCHES, AXES_INCHES, LEGEND_INCHES = 11.0, 0.5, 3.9, 1.4
FEW_LATE = 100  # more of them are drawn behind the batches, because they would hide everything else
TICK_LABELS: dict[float, Any] = {  # by the unit of the ticks, in days
    365.0: "%Y",
    30.0: "%Y-%m",
    1.0: "%Y-%m-%d",
    1 / 24: "%Y-%m-%d %H:%M",
    1 / 1440: "%Y-%m-%d %H:%M",
    1 / 86400: "%Y-%m-%d %H:%M:%S",
}


def draw_image(pictures: Sequence[Picture], file: BinaryIO, kind: str) -> None:
    """Draw PNG or SVG with matplotlib."""
    from matplotlib.figure import Figure

    count, panel_height = len(pictures), TITLE_INCHES + AXES_INCHES + LEGEND_INCHES
    height = count * panel_height
    figure = Figure(figsize=(WIDTH_INCHES, height))
    panels = figure.subplots(count, 1, squeeze=False)[:, 0]
    figure.subplots_adjust(
        left=2.05 / WIDTH_INCHES,
        right=1 - 0.45 / WIDTH_INCHES,
        top=1 - TITLE_INCHES / height,
        bottom=LEGEND_INCHES / height,
        hspace=(TITLE_INCHES + LEGEND_INCHES) / AXES_INCHES,
    )
    for panel, picture in zip(panels, pictures, strict=True):
        draw_panel(panel, picture)
    figure.savefig(file, format=kind, dpi=120)


def draw_panel(panel: Any, picture: Picture) -> None:
    """Draw axes, boxes, marks and the legend of one partition."""
    from matplotlib.collections import PolyCollection
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    panel.set_title(picture.name, loc="left", fontweight="bold")
    panel.set_title(subtitle(picture), loc="right", fontsize=9, color="#555555")
    panel.set_xlabel("offset")
    panel.tick_params(labelsize=9)
    panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    panel.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))
    panel.grid(color="#e4e4e4", linewidth=0.7)
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)
    if picture.window is None:
        panel.text(0.5, 0.5, "no timestamps", transform=panel.transAxes, ha="center", color="#555555", fontsize=14)
        panel.set_xticks([])
        panel.set_yticks([])
        return
    height = time_axis(panel, picture.window)
    low, high = (float(height(np.array([edge]))[0]) for edge in picture.window)
    margin = (high - low) * 0.05 or 1 / 1440
    panel.set_ylim(low - margin, high + margin * (4 if picture.clipped else 1))
    for number, segment in enumerate(picture.segments):
        colour = COLOURS[number % len(COLOURS)]
        first, last, bottom, top = segment.boxes
        x0, x1, y0, y1 = first - 0.4, last + 0.4, height(bottom), height(top)
        corners = np.stack(
            [np.stack([x0, y0], 1), np.stack([x0, y1], 1), np.stack([x1, y1], 1), np.stack([x1, y0], 1)], 1
        )
        label = segment_label(picture, number)
        panel.add_collection(
            PolyCollection(
                list(corners), facecolor=colour, edgecolor=colour, linewidth=2, joinstyle="round", label=label, zorder=3
            )
        )
        if number:
            panel.axvline(segment.base_offset - 0.5, color="#aaaaaa", linewidth=0.6, linestyle=(0, (4, 4)), zorder=0)
    draw_marks(panel, picture, height)
    ends = [segment.boxes[[0, 1]] for segment in picture.segments if segment.boxes.size]
    begin, end = min(int(pair.min()) for pair in ends), max(int(pair.max()) for pair in ends)
    room = max((end - begin) * 0.02, 1)
    panel.set_xlim(begin - room, end + room)
    draw_edges(panel, picture, begin, end)
    panel.legend(loc="upper left", bbox_to_anchor=(-0.01, -0.5 / AXES_INCHES), ncols=3, frameon=False, fontsize=9)


def time_axis(panel: Any, window: tuple[int, int]) -> Any:
    """Label the time axis with UTC dates, or with ms beyond the calendar. Returns the function from ms to height."""
    from matplotlib import dates as typed_dates

    dates: Any = typed_dates  # its functions have no types
    if window[0] >= YEAR_1_MS and window[1] <= YEAR_9999_MS - 400 * 86_400_000:
        locator = dates.AutoDateLocator(minticks=4, maxticks=9)
        panel.yaxis.set_major_locator(locator)
        formatter = dates.AutoDateFormatter(locator)
        formatter.scaled = TICK_LABELS | {
            1 / 86400e6: lambda days, _: dates.num2date(days).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
        }
        panel.yaxis.set_major_formatter(formatter)
        panel.set_ylabel("timestamp (UTC)")
        return lambda ms: dates.date2num(ms.astype("datetime64[ms]"))
    panel.set_ylabel("timestamp (ms since 1970)")
    return lambda ms: ms.astype(float)


def draw_marks(panel: Any, picture: Picture, height: Any) -> None:
    """Draw index entries, and batches out of order or in the future."""
    offsets = np.concatenate([segment.index_offsets for segment in picture.segments])
    times = np.concatenate([segment.index_times for segment in picture.segments])
    if len(offsets):
        panel.plot(
            offsets, height(times), "D", markersize=4.5, fillstyle="none", markeredgewidth=0.9, color=INDEX_COLOUR,
            label="time index entry", zorder=4,
        )  # fmt: skip
    if picture.late.count:
        panel.plot(
            picture.late.offsets, height(picture.late.times), "x", markersize=4.5, markeredgewidth=1.3,
            color=LATE_COLOUR, label=late_label(picture), zorder=4 if picture.late.count <= FEW_LATE else 2,
        )  # fmt: skip
    if picture.future.count:
        panel.plot(
            picture.future.offsets, height(picture.future.times), "^", markersize=7, color=FUTURE_COLOUR,
            label=future_label(picture), zorder=5,
        )  # fmt: skip


def draw_edges(panel: Any, picture: Picture, begin: int, end: int) -> None:
    """Draw arrows at the edges for outliers, the first few with a text."""
    if picture.window is None or not picture.clipped:
        return
    for above in (True, False):
        there = [offset for offset, time in picture.clipped if (time > picture.window[1]) == above]
        place = 0.985 if above else 0.015
        panel.plot(
            there, [place] * len(there), "^" if above else "v", color=FUTURE_COLOUR, markersize=8,
            transform=panel.get_xaxis_transform(), zorder=6, clip_on=False,
        )  # fmt: skip
    for row, (offset, time, text) in enumerate(edge_notes(picture)):
        above = time > picture.window[1]
        right = offset > (begin + end) / 2
        panel.annotate(
            text, (offset, 0.92 - 0.05 * row if above else 0.08 + 0.05 * row), xycoords=panel.get_xaxis_transform(),
            xytext=(6 if right else -6, 0), textcoords="offset points", ha="right" if right else "left", va="center",
            fontsize=8.5, color=FUTURE_COLOUR, zorder=6,
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1},
        )  # fmt: skip


# --- HTML --------------------------------------------------------------------------------------

PANEL_PIXELS = 480
HOVER = "offset %{x:,}<br>%{customdata}"


def draw_page(pictures: Sequence[Picture], file: BinaryIO) -> None:
    """Draw one HTML page with plotly that needs no other file: zoom, hover, switch lines off."""
    make_subplots = import_module("plotly.subplots").make_subplots  # no type hints of its own
    titles = [f"<b>{picture.name}</b>  <span style='font-size:12px'>{subtitle(picture)}</span>" for picture in pictures]
    gap = 0.12 / len(pictures)
    figure = make_subplots(rows=len(pictures), cols=1, subplot_titles=titles, vertical_spacing=gap)
    for number, picture in enumerate(pictures, start=1):
        draw_rows(figure, picture, number)
    figure.update_xaxes(title_text="offset", tickformat=",d")
    figure.update_layout(
        height=PANEL_PIXELS * len(pictures) + 60,
        template="plotly_white",
        hovermode="closest",
        legend={"tracegroupgap": PANEL_PIXELS // 8},
        title_text="timestamps over offsets",
    )
    page = figure.to_html(include_plotlyjs=True, full_html=True, config={"scrollZoom": True, "displaylogo": False})
    file.write(page.encode("utf-8"))


def draw_rows(figure: Any, picture: Picture, number: int) -> None:
    """Draw one partition: a line for each batch in its segment's colour, then the marks."""
    scatter = import_module("plotly.graph_objects").Scatter
    group = {"legendgroup": str(number), "legendgrouptitle_text": picture.name}
    if picture.window is None:
        figure.update_yaxes(title_text="no timestamps", row=number, col=1)
        return
    calendar = picture.window[0] >= YEAR_1_MS and picture.window[1] <= YEAR_9999_MS
    figure.update_yaxes(title_text="timestamp (UTC)" if calendar else "timestamp (ms since 1970)", row=number, col=1)

    def add(name: str, offsets: Array, times: Array, **style: Any) -> None:
        heights = times.astype("datetime64[ms]") if calendar else times
        shown = [show_time(time) for time in times.tolist()]
        trace = scatter(x=offsets, y=heights, customdata=shown, name=name, hovertemplate=HOVER, **style, **group)
        figure.add_trace(trace, row=number, col=1)

    for place, segment in enumerate(picture.segments):
        colour = COLOURS[place % len(COLOURS)]
        first, last, low, high = segment.boxes
        # Two points per batch. The line connects neighbouring batches.
        offsets, times = np.stack([first, last], 1).ravel(), np.stack([low, high], 1).ravel()
        name = f"segment {segment.base_offset:,}"
        add(name, offsets, times, mode="lines+markers", line={"color": colour, "width": 1.5}, marker={"size": 4})
    entries = np.concatenate([segment.index_offsets for segment in picture.segments])
    times = np.concatenate([segment.index_times for segment in picture.segments])
    if len(entries):
        diamond = {"symbol": "diamond-open", "size": 8, "color": INDEX_COLOUR}
        add("time index entry", entries, times, mode="markers", marker=diamond)
    if picture.late.count:
        cross = {"symbol": "x-thin", "size": 8, "line": {"color": LATE_COLOUR, "width": 2}}
        add(late_label(picture), picture.late.offsets, picture.late.times, mode="markers", marker=cross)
    if picture.future.count:
        triangle = {"symbol": "triangle-up", "size": 11, "color": FUTURE_COLOUR}
        add(future_label(picture), picture.future.offsets, picture.future.times, mode="markers", marker=triangle)
    for row, (offset, time, text) in enumerate(edge_notes(picture)):
        above = time > picture.window[1]
        figure.add_annotation(
            x=offset,
            y=1 if above else 0,
            yref="y domain" if number == 1 else f"y{number} domain",
            xref="x" if number == 1 else f"x{number}",
            text=("▲ " if above else "▼ ") + text,
            font={"color": FUTURE_COLOUR, "size": 11},
            showarrow=False,
            yshift=(-14 - 15 * row) if above else (14 + 15 * row),
        )
