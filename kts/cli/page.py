"""Draws plots as one HTML page, with plotly: zoom, texts under the pointer, switches in the legend, light and dark."""

from __future__ import annotations

import gzip
from base64 import b64encode
from collections.abc import Sequence
from html import escape
from importlib import import_module
from operator import itemgetter
from typing import Any, BinaryIO

import numpy as np

from .picture import (
    COLOURS,
    FEW_LATE,
    FUTURE_COLOUR,
    HEADING,
    INDEX_LABEL,
    LATE_COLOUR,
    LAYERS,
    NO_TIMESTAMPS,
    Array,
    Picture,
    arrow_number,
    at_edge,
    edge_notes,
    future_label,
    is_above,
    late_label,
    named_segments,
    offset_range,
    on_calendar,
    segment_label,
    subtitle,
    time_range,
    time_title,
)
from .times import show_time

LIGHT = {"paper": "#ffffff", "ink": "#222222", "faint": "#555555", "grid": "#e4e4e4", "note": "#c4162a"}
DARK = {"paper": "#15181d", "ink": "#dfe3e8", "faint": "#a5adb8", "grid": "#343a42", "note": "#ff7b84"}
MARK_PIXELS = 6  # greater ones would lose the pointer to the batch beneath them
HINT = "Drag to zoom, double-click to zoom out, click on a name in a legend to hide it."
CONFIG = {
    "responsive": True,
    "displaylogo": False,
    "showTips": False,
    "showSendToCloud": False,  # plotly's default from 7 on is a button that uploads the data
    "plotlyServerURL": "",
    "modeBarButtonsToRemove": ["select2d", "lasso2d"],
}
FEW_OFFSETS = 8  # each has a tick
TICK_FORMATS = [  # by the distance of the ticks, in ms or months; what follows a line break is not repeated
    {"dtickrange": [None, 500], "value": "%H:%M:%S.%L\n%Y-%m-%d"},
    {"dtickrange": [1000, 30_000], "value": "%H:%M:%S\n%Y-%m-%d"},
    {"dtickrange": [60_000, 43_200_000], "value": "%H:%M\n%Y-%m-%d"},
    {"dtickrange": [86_400_000, "M1"], "value": "%Y-%m-%d"},
    {"dtickrange": ["M1", "M12"], "value": "%Y-%m"},
    {"dtickrange": ["M12", None], "value": "%Y"},
]
STYLE = """
body { margin: 0 auto; max-width: 1400px; padding: 16px; font: 15px/1.45 system-ui, sans-serif;
  background: var(--paper); color: var(--ink); }
h1 { font-size: 20px; margin: 0; }
h2 { font-size: 17px; margin: 28px 0 0; overflow-wrap: anywhere; }
h1 + p, section > p, ul { margin: 2px 0; padding: 0; list-style: none; font-size: 13px; color: var(--faint); }
ul { color: var(--note); }
.plot { height: 460px; }
@media (max-width: 600px) { .plot { height: 540px; } }
.plot .trace path { stroke-linecap: round; stroke-linejoin: round; }
"""
SCRIPT = """
const packed = Uint8Array.from(atob(PLOTLY), letter => letter.charCodeAt(0));
const unpacked = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
const plotly = document.createElement("script");
plotly.text = await new Response(unpacked).text();
document.head.append(plotly);
const dark = matchMedia("(prefers-color-scheme: dark)");
const template = () => TEMPLATES[dark.matches ? "dark" : "light"];
for (const [id, figure] of Object.entries(FIGURES)) {
  Plotly.newPlot(id, figure.data, { ...figure.layout, template: template() }, CONFIG);
  dark.addEventListener("change", () => Plotly.relayout(id, { template: template() }));
}
"""


def draw_page(pictures: Sequence[Picture], file: BinaryIO) -> None:
    """Draw one page of plots of partitions."""
    figures = {
        f"plot-{number}": figure_of(picture).to_dict() for number, picture in enumerate(pictures) if picture.window
    }
    sections = "".join(section(picture, f"plot-{number}") for number, picture in enumerate(pictures))
    names = escape(", ".join(picture.name for picture in pictures))
    write_page(file, f"{names}: {HEADING.lower()}", f"<h1>{HEADING}</h1>\n<p>{HINT}</p>\n{sections}", figures)


def write_page(file: BinaryIO, title: str, body: str, figures: dict[str, Any], style: str = "") -> None:
    """Write a page that needs no other file and makes no request. Its copy of plotly is compressed.

    Parameters
    ----------
    body : str
        HTML with an element for each figure, by its id.
    figures : dict
        Plotly's figures as dictionaries, by id.
    style : str
        CSS beside that of all pages; the colours are variables.
    """
    packed = b64encode(gzip.compress(import_module("plotly.offline").get_plotlyjs().encode(), mtime=0)).decode()
    templates = {"light": template(LIGHT), "dark": template(DARK)}
    data = {"FIGURES": figures, "TEMPLATES": templates, "CONFIG": CONFIG, "PLOTLY": packed}
    constants = "".join(f"const {name} = {as_script(value)};\n" for name, value in data.items())
    page = f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<title>{title}</title>
<style>
:root {{ {variables(LIGHT)} }}
@media (prefers-color-scheme: dark) {{ :root {{ {variables(DARK)} }} }}{STYLE}{style}</style>
</head>
<body>
{body}<script type="module">
{constants}{SCRIPT}</script>
</body>
</html>
"""
    file.write(page.encode("utf-8"))


def variables(colours: dict[str, str]) -> str:
    """Colours as CSS variables."""
    return " ".join(f"--{name}: {colour};" for name, colour in colours.items())


def as_script(value: Any) -> str:
    """A value as JavaScript inside of a page: no text in it ends the script."""
    text: str = import_module("plotly.io.json").to_json_plotly(value)
    return text.replace("<", "\\u003c")


def section(picture: Picture, name: str) -> str:
    """The words above a partition's plot, and its place."""
    notes = "".join(
        f"<li>{'▲' if is_above(picture, time) else '▼'} {text}</li>\n" for _, time, text in edge_notes(picture)
    )
    plot = f'<div class="plot" id="{name}"></div>' if picture.window else f"<p>{NO_TIMESTAMPS}</p>"
    return f"""<section>
<h2>{escape(picture.name)}</h2>
<p>{subtitle(picture)}</p>
<ul>
{notes}</ul>
{plot}
</section>
"""


def template(colours: dict[str, str]) -> dict[str, Any]:
    """The colours of a plot's surroundings; what has no colour of its own is drawn in ink."""
    faint, ticks = colours["faint"], {"ticks": "outside", "ticklen": 4, "tickcolor": colours["faint"]}
    axis = {"gridcolor": colours["grid"], "linecolor": faint, "showline": True, "zeroline": False, **ticks}
    return {
        "layout": {
            "paper_bgcolor": colours["paper"],
            "plot_bgcolor": colours["paper"],
            "font": {"color": colours["ink"], "family": "system-ui, sans-serif"},
            "xaxis": axis,
            "yaxis": axis,
            "modebar": {"bgcolor": colours["paper"], "color": colours["faint"], "activecolor": colours["ink"]},
            "legend": {"bgcolor": colours["paper"]},
        },
        "data": {"scatter": [{"marker": {"color": colours["ink"]}, "line": {"color": colours["faint"]}}]},
    }


def figure_of(picture: Picture) -> Any:
    """The figure of one partition."""
    objects = import_module("plotly.graph_objects")  # no type hints of its own
    dates = on_calendar(picture)
    traces: list[tuple[int, dict[str, Any]]] = []

    def add(layer: str, label: str | None, offsets: Array, times: Array, hover: str, **style: Any) -> None:
        """Draw points or lines; with an empty array, their line in the legend alone."""
        drawn: dict[str, Any] = {"x": [None], "y": [None]}
        if len(offsets):
            drawn = {"x": offsets, "y": times.astype("datetime64[ms]") if dates else times.astype(float)}
        if not dates:
            drawn["customdata"] = [show_time(time) for time in times.tolist()]
        time = "%{y|%Y-%m-%dT%H:%M:%S.%L}Z" if dates else "%{customdata}"
        drawn["hovertemplate"] = f"offset %{{x:,.0f}}<br>{time}<extra>{hover}</extra>"
        drawn |= {"name": label, "showlegend": label is not None, "legendrank": len(traces) + 1}
        traces.append((LAYERS[layer], drawn | style))

    draw_segments(picture, add)
    draw_marks(picture, add)
    figure = objects.Figure(layout={"template": objects.layout.Template()})
    for _, trace in sorted(traces, key=itemgetter(0)):
        figure.add_scatter(**trace)
    draw_edges(figure, picture)
    begin, end = offset_range(picture)
    times = np.array(time_range(picture))
    figure.update_layout(
        margin={"l": 10, "r": 16, "t": 34, "b": 10},
        hovermode="closest",
        showlegend=True,
        legend={"orientation": "h", "x": 0, "y": 0, "yref": "container", "yanchor": "bottom"},
        xaxis={
            "title": {"text": "offset"},
            "automargin": True,
            "tickformat": ",.1~f",
            "range": [begin, end],
            "dtick": 1 if end - begin < FEW_OFFSETS else None,
        },
        yaxis={
            "title": {"text": time_title(picture), "standoff": 14},
            "automargin": True,
            "range": (times.astype("datetime64[ms]") if dates else times.astype(float)).tolist(),
            **({"type": "date", "tickformatstops": TICK_FORMATS} if dates else {"tickformat": ",d"}),
        },
        # The whole height, wherever one zooms to.
        yaxis2={"overlaying": "y", "range": [0, 1], "fixedrange": True, "visible": False},
    )
    return figure


def outlines(boxes: Array) -> tuple[Any, Array]:
    """Offsets and times of boxes as closed lines, with a gap after each."""
    first, last, low, high = boxes
    gap = np.full(len(first), np.nan)
    # Rounded, the offsets are the batch's own.
    offsets = np.stack([first - 0.4, first - 0.4, last + 0.4, last + 0.4, first - 0.4, gap], 1)
    return offsets.ravel(), np.stack([low, high, high, low, low, low], 1).ravel()


def draw_segments(picture: Picture, add: Any) -> None:
    """Draw the batches. Segments without a line of their own in the legend share a trace for each colour."""
    named = named_segments(picture)
    traces: dict[int, list[Array]] = {}
    for number, segment in enumerate(picture.segments):
        place = min(number, named + (number - named) % len(COLOURS))
        traces.setdefault(place, []).append(segment.boxes)
    for place, boxes in traces.items():
        label, colour = segment_label(picture, place), COLOURS[place % len(COLOURS)]
        add(
            "batch", label, *outlines(np.concatenate(boxes, axis=1)), label if label and place < named else "batch",
            mode="lines", fill="toself", fillcolor=colour, line={"color": colour, "width": 2, "simplify": False},
            hoveron="points", legendgroup=label if place < named else "rest",
        )  # fmt: skip


def draw_marks(picture: Picture, add: Any) -> None:
    """Draw index entries, and batches out of order or in the future."""
    offsets = np.concatenate([segment.index_offsets for segment in picture.segments])
    times = np.concatenate([segment.index_times for segment in picture.segments])
    if len(offsets):
        diamond = {"symbol": "diamond-open", "size": MARK_PIXELS}
        add("index", INDEX_LABEL, offsets, times, INDEX_LABEL, mode="markers", marker=diamond)
    if picture.late.count:
        late = picture.late
        layer = "late" if late.count <= FEW_LATE else "many late"
        cross = {"symbol": "x-thin", "size": MARK_PIXELS, "line": {"color": LATE_COLOUR, "width": 2}}
        add(layer, late_label(picture), late.offsets, late.times, "out of order", mode="markers", marker=cross)
    if picture.future.count:
        ahead = picture.future
        arrow = {"symbol": "triangle-up", "size": 11, "color": FUTURE_COLOUR}
        add("future", future_label(picture), ahead.offsets, ahead.times, "in the future", mode="markers", marker=arrow)


def draw_edges(figure: Any, picture: Picture) -> None:
    """Draw the begins of segments as lines, and arrows at the edges for outliers."""
    begins = np.array([segment.base_offset - 0.5 for segment in picture.segments[1:]])
    whole = {"yaxis": "y2", "showlegend": False}
    figure.add_scatter(
        x=np.stack([begins, begins, np.full(len(begins), np.nan)], 1).ravel(), y=[0, 1, None] * len(begins),
        mode="lines", line={"width": 0.7, "dash": "4px,4px"}, opacity=0.6, hoverinfo="skip", **whole,
    )  # fmt: skip
    for above in (True, False):
        there = at_edge(picture, above)
        figure.add_scatter(
            x=[offset for offset, _ in there], y=[0.985 if above else 0.015] * len(there),
            mode="markers+text", text=[arrow_number(picture, *one) for one in there], textposition="middle right",
            textfont={"color": FUTURE_COLOUR},
            marker={"symbol": "triangle-up" if above else "triangle-down", "size": 12, "color": FUTURE_COLOUR},
            customdata=[show_time(time) for _, time in there], cliponaxis=False,
            hovertemplate="offset %{x:,.0f}<br>%{customdata}<extra>far outside</extra>", **whole,
        )  # fmt: skip
