"""Pictures as one HTML page that needs nothing else, drawn by plotly: zoom, hover, switch things off."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any, BinaryIO

import numpy as np

from .picture import (
    COLOURS,
    FUTURE_COLOUR,
    INDEX_COLOUR,
    LATE_COLOUR,
    YEAR_1_MS,
    YEAR_9999_MS,
    Array,
    Picture,
    edge_notes,
    future_label,
    late_label,
    subtitle,
)
from .times import show_time

go = import_module("plotly.graph_objects")  # no type hints of its own
make_subplots = import_module("plotly.subplots").make_subplots

PANEL_PIXELS = 480
HOVER = "offset %{x:,}<br>%{customdata}"


def draw(pictures: Sequence[Picture], file: BinaryIO) -> None:
    """One panel a partition, below each other, as a page of HTML."""
    titles = [f"<b>{picture.name}</b>  <span style='font-size:12px'>{subtitle(picture)}</span>" for picture in pictures]
    gap = 0.12 / len(pictures)
    figure = make_subplots(rows=len(pictures), cols=1, subplot_titles=titles, vertical_spacing=gap)
    for number, picture in enumerate(pictures, start=1):
        draw_panel(figure, picture, number)
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


def draw_panel(figure: Any, picture: Picture, number: int) -> None:
    """One partition: a line a batch in its segment's colour, then the marks."""
    group = {"legendgroup": str(number), "legendgrouptitle_text": picture.name}
    if picture.window is None:
        figure.update_yaxes(title_text="no timestamps", row=number, col=1)
        return
    calendar = picture.window[0] >= YEAR_1_MS and picture.window[1] <= YEAR_9999_MS
    figure.update_yaxes(title_text="timestamp (UTC)" if calendar else "timestamp (ms since 1970)", row=number, col=1)

    def add(name: str, offsets: Array, times: Array, **style: Any) -> None:
        heights = times.astype("datetime64[ms]") if calendar else times
        shown = [show_time(time) for time in times.tolist()]
        trace = go.Scatter(x=offsets, y=heights, customdata=shown, name=name, hovertemplate=HOVER, **style, **group)
        figure.add_trace(trace, row=number, col=1)

    for place, segment in enumerate(picture.segments):
        colour = COLOURS[place % len(COLOURS)]
        first, last, low, high = segment.boxes
        # Two points a batch; the connecting line leaves no gap between neighbours, as the log has none.
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
