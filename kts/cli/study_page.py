"""Draws the report of a study as one HTML page: its tables, and plots of what decides them."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any, BinaryIO

from . import study_tables
from .page import HINT, write_page
from .picture import COLOURS
from .study_tables import NAMES, show

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .study_tables import Table

HOUR_MS = 3_600_000
LEAST_HOURS = 0.1  # at the left of the logarithmic axis of deletions: one check, and everything earlier
MARGIN = {"l": 10, "r": 16, "t": 34, "b": 10}
LEGEND = {"orientation": "h", "x": 0, "y": 0, "yref": "container", "yanchor": "bottom"}
WIDTHS = (7, 5, 3.5, 2.2, 1.2)  # of lines, so that each shows where they coincide
STYLE = """
table { border-collapse: collapse; margin: 10px 0; font-size: 13px; }
th, td { text-align: left; padding: 3px 10px; border-bottom: 1px solid var(--grid); vertical-align: top; }
th { color: var(--faint); font-weight: 600; }
td.no { color: var(--note); font-weight: 600; }
.wide { overflow-x: auto; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 480px), 1fr)); gap: 12px; }
.plots .plot { height: 340px; }
h3 { font-size: 14px; margin: 12px 0 0; }
"""


def draw_report(report: dict[str, Any], file: BinaryIO) -> None:
    """Draw the report of ``kts.study.run``."""
    figures: dict[str, Any] = {}

    def plot(title: str, data: list[dict[str, Any]], x: dict[str, Any], y: dict[str, Any]) -> str:
        name = f"plot-{len(figures)}"
        axes = {"xaxis": {"automargin": True, **x}, "yaxis": {"automargin": True, **y}}
        figures[name] = {"data": data, "layout": {"margin": MARGIN, "legend": LEGEND, **axes}}
        return f'<div><h3>{escape(title)}</h3><div class="plot" id="{name}"></div></div>\n'

    body = [
        f"<h1>KIP-32's tables, measured</h1>\n<p>{escape(described(report))} {HINT}</p>\n",
        section(study_tables.retention(report), deletion_plots(report, plot)),
        section(study_tables.rolling(report), segment_plots(report, plot)),
        section(study_tables.options(report)),
        section(study_tables.mirror_maker(report)),
        *map(section, study_tables.of_patterns(report)),
        *map(section, study_tables.indexes(report)),
        section(study_tables.search(report)),
        plots(index_plots(report, plot)),
    ]
    write_page(file, "KIP-32's tables, measured", "".join(body), figures, STYLE)


def described(report: dict[str, Any]) -> str:
    """What was played, in a sentence."""
    settings = report["settings"]
    return (
        f"{settings['partitions']:,} partitions of each pattern, {settings['messages_per_hour']} messages an hour for "
        f"{show(settings['duration_ms'])}; segment.ms {show(settings['roll_ms'])}, retention.ms "
        f"{show(settings['retention_ms'])}. {study_tables.compared(report['sample'])}."
    )


def section(table: Table, drawn: Iterable[str] = ()) -> str:
    """A table with its heading, notes and plots."""
    head = "".join(f"<th>{escape(header)}</th>" for header in table.headers)
    lines = "".join(f"<tr>{''.join(map(table_cell, row))}</tr>\n" for row in table.rows)
    notes = "".join(f"<p>{escape(text)}</p>\n" for text in table.notes)
    return (
        f'<section>\n<h2>{escape(table.title)}</h2>\n<div class="wide"><table><tr>{head}</tr>\n{lines}</table></div>\n'
        f"{notes}{plots(drawn)}</section>\n"
    )


def plots(drawn: Iterable[str]) -> str:
    """Plots beside each other where there is room."""
    return f'<div class="plots">\n{"".join(drawn)}</div>\n'


def table_cell(text: str) -> str:
    """A cell; one that says NO stands out."""
    mark = ' class="no"' if text == "NO" else ""
    return f"<td{mark}>{escape(text)}</td>"


def by_rule(report: dict[str, Any], key: str) -> list[dict[str, Any]]:
    """A bar for each pattern and rule."""
    patterns = report["patterns"]
    return [
        {
            "type": "bar",
            "name": NAMES[rule],
            "x": list(patterns),
            "y": [found["rules"][rule][key] for found in patterns.values()],
            "marker": {"color": colour},
        }
        for rule, colour in zip(NAMES, COLOURS, strict=False)
    ]


def segment_plots(report: dict[str, Any], plot: Any) -> Iterable[str]:
    """Segments per hour, and late messages."""
    yield plot(
        "Segments per hour and partition", by_rule(report, "segmentsPerHour"), {},
        {"type": "log", "title": {"text": "segments per hour"}},
    )  # fmt: skip
    late = by_rule(report, "lateMessages")[:2]  # the rules differ by time alone
    for trace in late:
        trace["y"] = [
            100 * count / found["rules"]["CreateTime"]["messages"]
            for count, found in zip(trace["y"], report["patterns"].values(), strict=True)
        ]
    yield plot("Late messages", late, {}, {"title": {"text": "% of messages"}, "range": [0, 100]})


def deletion_plots(report: dict[str, Any], plot: Any) -> Iterable[str]:
    """For each pattern, which part of the messages is deleted how long after ``retention.ms`` from their creation."""
    for pattern, found in report["patterns"].items():
        traces: list[dict[str, Any]] = []
        for rule, colour in zip(NAMES, COLOURS, strict=False):
            curve = found["rules"][rule]["deletedAfterCreationCurveMs"]
            traces.append(
                {
                    "type": "scatter",
                    "mode": "lines",
                    "name": NAMES[rule],
                    "x": [max(ms / HOUR_MS, LEAST_HOURS) for ms in curve],
                    "y": [2 * place for place in range(len(curve))],
                    "customdata": [show(ms) for ms in curve],
                    "hovertemplate": "%{y} % within %{customdata}",
                    "line": {"color": colour, "width": WIDTHS[len(traces)]},
                }
            )
        yield plot(
            f"Time to deletion, {pattern}: {found['what']}", traces,
            {"type": "log", "title": {"text": "hours after creation + retention.ms"}},
            {"title": {"text": "% of messages deleted"}, "range": [0, 101]},
        )  # fmt: skip


def index_plots(report: dict[str, Any], plot: Any) -> Iterable[str]:
    """Size of each index, what a search reads, and how early it begins."""
    indexes = report["indexes"]
    names = list(next(iter(indexes.values()))["indexes"])
    for key, title, kind in (
        ("bytes", "Index size, bytes", "linear"),
        ("bytesRead", "Bytes of the log that a search reads", "linear"),
        ("tooEarly", "Messages between the answer and the first one of the time", "log"),
    ):
        bars = [
            {
                "type": "bar",
                "name": name,
                "x": [found["what"] for found in indexes.values()],
                "y": [found["indexes"][name][key] for found in indexes.values()],
                "marker": {"color": colour},
            }
            for name, colour in zip(names, COLOURS, strict=False)
        ]
        yield plot(title, bars, {}, {"type": kind})
