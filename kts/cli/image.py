"""Draws plots as PNG, SVG or PDF, with matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, BinaryIO

import numpy as np

from .picture import (
    COLOURS,
    FEW_LATE,
    FUTURE_COLOUR,
    INDEX_LABEL,
    LATE_COLOUR,
    LAYERS,
    NO_TIMESTAMPS,
    Picture,
    arrow_number,
    at_edge,
    edge_notes,
    future_label,
    is_above,
    late_label,
    offset_range,
    on_calendar,
    segment_label,
    subtitle,
    time_range,
    time_title,
)

WIDTH_INCHES, TITLE_INCHES, AXES_INCHES, LEGEND_INCHES = 11.0, 0.7, 3.9, 1.35
LEFT_INCHES, RIGHT_INCHES = 2.05, 0.45
TITLE_POINTS, LONG_NAME = 12, 80  # a longer name is written smaller
NOTE_ROW = 0.05  # the height of a note, as a part of the axis
INDEX_COLOUR, TEXT_COLOUR, GRID_COLOUR = "#222222", "#555555", "#e4e4e4"
NO_DATES = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}  # the same plot gives the same bytes
TICK_LABELS: dict[float, Any] = {  # by the unit of the ticks, in days
    365.0: "%Y",
    30.0: "%Y-%m",
    1.0: "%Y-%m-%d",
    1 / 24: "%Y-%m-%d %H:%M",
    1 / 1440: "%Y-%m-%d %H:%M",
    1 / 86400: "%Y-%m-%d %H:%M:%S",
}


def draw_image(pictures: Sequence[Picture], file: BinaryIO, kind: str) -> None:
    """Draw PNG, SVG or PDF."""
    from matplotlib import rc_context

    with rc_context({"svg.hashsalt": "kts"}):
        figure_of(pictures).savefig(file, format=kind, dpi=120, metadata=NO_DATES.get(kind))


def figure_of(pictures: Sequence[Picture]) -> Any:
    """The figure of all panels."""
    from matplotlib.figure import Figure

    count, panel_height = len(pictures), TITLE_INCHES + AXES_INCHES + LEGEND_INCHES
    height = count * panel_height
    figure = Figure(figsize=(WIDTH_INCHES, height))
    panels = figure.subplots(count, 1, squeeze=False)[:, 0]
    figure.subplots_adjust(
        left=LEFT_INCHES / WIDTH_INCHES,
        right=1 - RIGHT_INCHES / WIDTH_INCHES,
        top=1 - TITLE_INCHES / height,
        bottom=LEGEND_INCHES / height,
        hspace=(TITLE_INCHES + LEGEND_INCHES) / AXES_INCHES,
    )
    for panel, picture in zip(panels, pictures, strict=True):
        draw_panel(panel, picture)
    return figure


def draw_panel(panel: Any, picture: Picture) -> None:
    """Draw axes, boxes, marks and the legend of one partition."""
    from matplotlib.collections import PolyCollection
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    points = TITLE_POINTS * min(1, LONG_NAME / len(picture.name))
    panel.set_title(picture.name, loc="left", fontweight="bold", fontsize=points, pad=22)
    panel.annotate(
        subtitle(picture), (0, 1), (0, 8), xycoords="axes fraction", textcoords="offset points",
        fontsize=9, color=TEXT_COLOUR,
    )  # fmt: skip
    panel.set_xlabel("offset")
    panel.tick_params(labelsize=9)
    panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    panel.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8, min_n_ticks=1))
    panel.grid(color=GRID_COLOUR, linewidth=0.7)
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)
    if picture.window is None:
        panel.text(0.5, 0.5, NO_TIMESTAMPS, transform=panel.transAxes, ha="center", color=TEXT_COLOUR, fontsize=14)
        panel.set_xticks([])
        panel.set_yticks([])
        return
    height = time_axis(panel, picture)
    panel.set_ylim(*height(np.array(time_range(picture, NOTE_ROW))))
    for number, segment in enumerate(picture.segments):
        colour = COLOURS[number % len(COLOURS)]
        first, last, bottom, top = segment.boxes
        x0, x1, y0, y1 = first - 0.4, last + 0.4, height(bottom), height(top)
        corners = np.stack(
            [np.stack([x0, y0], 1), np.stack([x0, y1], 1), np.stack([x1, y1], 1), np.stack([x1, y0], 1)], 1
        )
        label, layer = segment_label(picture, number), LAYERS["batch"]
        panel.add_collection(
            PolyCollection(
                list(corners), facecolor=colour, edgecolor=colour, linewidth=2, joinstyle="round", label=label,
                zorder=layer,
            )
        )  # fmt: skip
        if number:
            panel.axvline(segment.base_offset - 0.5, color="#aaaaaa", linewidth=0.6, linestyle=(0, (4, 4)), zorder=0)
    draw_marks(panel, picture, height)
    panel.set_xlim(*offset_range(picture))
    draw_edges(panel, picture)
    panel.legend(loc="upper left", bbox_to_anchor=(-0.01, -0.5 / AXES_INCHES), ncols=3, frameon=False, fontsize=9)


def time_axis(panel: Any, picture: Picture) -> Any:
    """Label the time axis with UTC dates, or with ms beyond the calendar. Returns the function from ms to height."""
    from matplotlib import dates as typed_dates
    from matplotlib.ticker import FuncFormatter

    dates: Any = typed_dates  # its functions have no types
    panel.set_ylabel(time_title(picture))
    if not on_calendar(picture):
        panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        panel.tick_params(axis="y", labelsize=8)
        return lambda ms: ms.astype(float)
    locator = dates.AutoDateLocator(minticks=4, maxticks=9)
    panel.yaxis.set_major_locator(locator)
    formatter = dates.AutoDateFormatter(locator)
    formatter.scaled = TICK_LABELS | {
        1 / 86400e6: lambda days, _: dates.num2date(days).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    }
    panel.yaxis.set_major_formatter(formatter)
    return lambda ms: dates.date2num(ms.astype("datetime64[ms]"))


def draw_marks(panel: Any, picture: Picture, height: Any) -> None:
    """Draw index entries, and batches out of order or in the future."""
    offsets = np.concatenate([segment.index_offsets for segment in picture.segments])
    times = np.concatenate([segment.index_times for segment in picture.segments])
    if len(offsets):
        panel.plot(
            offsets, height(times), "D", markersize=4.5, fillstyle="none", markeredgewidth=0.9, color=INDEX_COLOUR,
            label=INDEX_LABEL, zorder=LAYERS["index"],
        )  # fmt: skip
    if picture.late.count:
        layer = LAYERS["late" if picture.late.count <= FEW_LATE else "many late"]
        panel.plot(
            picture.late.offsets, height(picture.late.times), "x", markersize=4.5, markeredgewidth=1.3,
            color=LATE_COLOUR, label=late_label(picture), zorder=layer,
        )  # fmt: skip
    if picture.future.count:
        panel.plot(
            picture.future.offsets, height(picture.future.times), "^", markersize=7, color=FUTURE_COLOUR,
            label=future_label(picture), zorder=LAYERS["future"],
        )  # fmt: skip


def draw_edges(panel: Any, picture: Picture) -> None:
    """Draw arrows at the edges for outliers, the first few with a text."""
    begin, end = offset_range(picture)
    across = panel.get_xaxis_transform()
    for above in (True, False):
        there, height = at_edge(picture, above), 0.985 if above else 0.015
        panel.plot(
            [offset for offset, _ in there], [height] * len(there), "^" if above else "v", color=FUTURE_COLOUR,
            markersize=8, transform=across, zorder=LAYERS["edge"], clip_on=False,
        )  # fmt: skip
        for offset, time in there:
            panel.annotate(
                arrow_number(picture, offset, time), (offset, height), xycoords=across, xytext=(7, 0),
                textcoords="offset points", va="center", fontsize=8.5, color=FUTURE_COLOUR, zorder=LAYERS["edge"],
            )  # fmt: skip
        notes = [note for note in edge_notes(picture) if is_above(picture, note[1]) == above]
        for row, (offset, _, text) in enumerate(notes, start=1):
            place = 0.02 + NOTE_ROW * row
            right = offset > (begin + end) / 2
            panel.annotate(
                text, (offset, 1 - place if above else place), xycoords=across, xytext=(4 if right else -4, 0),
                textcoords="offset points", ha="right" if right else "left", va="center", fontsize=8.5,
                color=FUTURE_COLOUR, zorder=LAYERS["edge"],
                bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1},
            )  # fmt: skip
