"""Pictures as PNG and SVG, drawn by matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, BinaryIO

import numpy as np
from matplotlib import dates as typed_dates
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from .picture import (
    COLOURS,
    FUTURE_COLOUR,
    INDEX_COLOUR,
    LATE_COLOUR,
    YEAR_1_MS,
    YEAR_9999_MS,
    Picture,
    edge_notes,
    future_label,
    late_label,
    segment_label,
    subtitle,
)

dates: Any = typed_dates  # its functions have no types
WIDTH_INCHES, TITLE_INCHES, AXES_INCHES, LEGEND_INCHES = 11.0, 0.5, 3.9, 1.4
FEW_LATE = 100  # more of their marks are drawn behind the batches, or nothing else would be seen
TICK_LABELS: dict[float, Any] = {  # by the unit of the ticks, in days
    365.0: "%Y",
    30.0: "%Y-%m",
    1.0: "%Y-%m-%d",
    1 / 24: "%Y-%m-%d %H:%M",
    1 / 1440: "%Y-%m-%d %H:%M",
    1 / 86400: "%Y-%m-%d %H:%M:%S",
    1 / 86400e6: lambda days, _: dates.num2date(days).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3],
}


def draw(pictures: Sequence[Picture], file: BinaryIO, kind: str) -> None:
    """One panel a partition, below each other, into ``file``; ``kind`` is ``png`` or ``svg``."""
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
    """Axes, boxes, marks and the legend of one partition."""
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
    marks(panel, picture, height)
    ends = [segment.boxes[[0, 1]] for segment in picture.segments if segment.boxes.size]
    begin, end = min(int(pair.min()) for pair in ends), max(int(pair.max()) for pair in ends)
    room = max((end - begin) * 0.02, 1)
    panel.set_xlim(begin - room, end + room)
    edges(panel, picture, begin, end)
    panel.legend(loc="upper left", bbox_to_anchor=(-0.01, -0.5 / AXES_INCHES), ncols=3, frameon=False, fontsize=9)


def time_axis(panel: Any, window: tuple[int, int]) -> Any:
    """Put dates in UTC on the axis, or plain ms where no calendar reaches; gives ms -> height."""
    if window[0] >= YEAR_1_MS and window[1] <= YEAR_9999_MS - 400 * 86_400_000:
        locator = dates.AutoDateLocator(minticks=4, maxticks=9)
        panel.yaxis.set_major_locator(locator)
        formatter = dates.AutoDateFormatter(locator)
        formatter.scaled = TICK_LABELS
        panel.yaxis.set_major_formatter(formatter)
        panel.set_ylabel("timestamp (UTC)")
        return lambda ms: dates.date2num(ms.astype("datetime64[ms]"))
    panel.set_ylabel("timestamp (ms since 1970)")
    return lambda ms: ms.astype(float)


def marks(panel: Any, picture: Picture, height: Any) -> None:
    """Index entries, out-of-order and future batches."""
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


def edges(panel: Any, picture: Picture, begin: int, end: int) -> None:
    """Arrows at the edges for times that lie far outside, the first few with their text."""
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
