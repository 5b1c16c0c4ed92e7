"""Draws the report of a study as one HTML page: its tables, and plots of what decides them."""

from __future__ import annotations

from html import escape
from math import log10
from textwrap import wrap
from typing import TYPE_CHECKING, Any, BinaryIO

from kts.study.verdicts import length as show

from . import study_tables
from .page import HINT, write_page
from .picture import COLOURS
from .study_tables import NAMES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .study_tables import StudyTable

HOUR_MS = 3_600_000
LEAST_HOURS = 0.1  # at the left of the logarithmic axis of deletions: one check, and everything earlier
HOURS = {0.1: "6 min or less", 1: "1 h", 6: "6 h", 24: "1 d", 168: "1 week", 1461: "2 months", 8766: "1 year",
         87_660: "10 years"}  # fmt: skip
MARGIN = {"l": 10, "r": 16, "t": 34, "b": 10}
LEGEND = {"orientation": "h", "x": 0, "y": 0, "yref": "container", "yanchor": "bottom"}
WIDTHS = (7, 5, 3.5, 2.2, 1.2)  # of lines, so that each shows where they coincide
DATA = {  # the indexed messages
    "LogAppendTime": "LogAppendTime,<br>in order",
    "CreateTime": "CreateTime,<br>out of order",
    "one in the future": "CreateTime, one far<br>in the future",
}
LABEL_LETTERS = 14  # of a line below a bar
TERMS = "CT is CreateTime, LAT is LogAppendTime; p99 is the 99th percentile."
COLUMNS = (
    "Of each pattern and rule: segments, those of one message, how long a segment is open, how long a message is kept "
    "after its creation and retention.ms, how far apart source and target delete it (all p99), and late messages."
)
INDEX_COLUMNS = (
    "Each search asks for the first message created at or after a time. Bytes read and messages: of the log, from "
    "where reading began. Exact: answers that are that message. Early: messages between the answer and it. Missed: "
    "messages from then on that lie before the answer. Segs: the most segments that were read. The others are averages."
)
STYLE = """
table { border-collapse: collapse; margin: 10px 0; font-size: 13px; }
th, td { text-align: left; padding: 3px 10px; border-bottom: 1px solid var(--grid); vertical-align: top; }
th { color: var(--faint); font-weight: 600; }
td, th { white-space: nowrap; }
td.more { white-space: normal; min-width: 260px; color: var(--faint); }
.right { text-align: right; }
td.no { color: var(--note); font-weight: 600; }
.wide { overflow-x: auto; }
section > p { max-width: 1000px; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 480px), 1fr)); gap: 12px; }
.plots .plot { height: 340px; }
@media (max-width: 600px) { .plots .plot { height: 440px; } }
.plots .broad { grid-column: 1 / -1; }
h3 { font-size: 14px; margin: 12px 0 0; }
"""


def draw_report(report: dict[str, Any], file: BinaryIO) -> None:
    """Draw the report of ``kts.study.run``."""
    figures: dict[str, Any] = {}

    def plot(
        title: str, data: list[dict[str, Any]], x: dict[str, Any], y: dict[str, Any], *, broad: bool = False
    ) -> str:
        name = f"plot-{len(figures)}"
        upright = {"tickangle": 0, "tickfont": {"size": 10}} if broad else {}  # else they take all room of a phone
        axes = {"xaxis": {"automargin": True, **upright, **x}, "yaxis": {"automargin": True, **y}}
        figures[name] = {"data": data, "layout": {"margin": MARGIN, "legend": LEGEND, **axes}}
        place = ' class="broad"' if broad else ""
        return f'<div{place}><h3>{escape(title)}</h3><div class="plot" id="{name}"></div></div>\n'

    body = [
        f"<h1>KIP-32's tables, measured</h1>\n<p>{escape(described(report))} {TERMS} {HINT}</p>\n",
        *([section(study_tables.findings(report))] if report["findings"] else []),
        section(study_tables.retention(report), deletion_plots(report, plot)),
        *map(section, study_tables.rolling(report)),
        plots(segment_plots(report, plot)),
        *map(section, study_tables.options(report)),
        section(study_tables.mirror_maker(report)),
        f"<section><h2>The patterns</h2>\n<p>{escape(COLUMNS)}</p></section>\n",
        *map(section, study_tables.of_patterns(report)),
        f"<section><h2>KIP-33's indexes</h2>\n<p>{escape(INDEX_COLUMNS)}</p></section>\n",
        *map(section, study_tables.indexes(report)),
        plots(index_plots(report, plot)),
        *map(section, study_tables.search(report)),
        plots(search_plots(report, plot)),
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


def section(table: StudyTable, drawn: Iterable[str] = ()) -> str:
    """A table with its heading, notes and plots."""
    headers = (*table.headers, *(column[0] for column in table.more))
    rows = [[*row, *(column[number + 1] for column in table.more)] for number, row in enumerate(table.rows)]
    head = "".join(f"<th{kind(column, '', table)}>{escape(name)}</th>" for column, name in enumerate(headers))
    lines = "".join(f"<tr>{''.join(cells(row, table))}</tr>\n" for row in rows)
    shown = f'<div class="wide"><table><tr>{head}</tr>\n{lines}</table></div>\n' if rows else ""
    notes = "".join(f"<p>{escape(text)}</p>\n" for text in table.notes)
    return f"<section>\n<h2>{escape(table.title)}</h2>\n{shown}{notes}{plots(drawn)}</section>\n"


def cells(row: list[str], table: StudyTable) -> Iterable[str]:
    """The cells of a row."""
    for column, text in enumerate(row):
        yield f"<td{kind(column, text, table)}>{escape(text)}</td>"


def kind(column: int, text: str, table: StudyTable) -> str:
    """The class of a cell: one that says NO stands out, and only the last of ``more`` is a sentence."""
    if text == "NO":
        return ' class="no"'
    if table.more and column == len(table.headers) + len(table.more) - 1:
        return ' class="more"'
    return ' class="right"' if column in table.right else ""


def plots(drawn: Iterable[str]) -> str:
    """Plots beside each other where there is room."""
    found = "".join(drawn)
    return f'<div class="plots">\n{found}</div>\n' if found else ""


def bars(name: str, x: list[str], y: list[float], colour: str, form: str) -> dict[str, Any]:
    """Bars with their figures above them."""
    return {
        "type": "bar", "name": name, "x": x, "y": y, "marker": {"color": colour}, "texttemplate": f"%{{y:{form}}}",
        "textposition": "outside", "textfont": {"size": 10}, "textangle": 0, "cliponaxis": False,
    }  # fmt: skip


def segment_plots(report: dict[str, Any], plot: Any) -> Iterable[str]:
    """Segments per hour, and late messages."""
    patterns = report["patterns"]
    x = [f"{pattern}:<br>{'<br>'.join(wrap(found['what'], LABEL_LETTERS))}" for pattern, found in patterns.items()]
    yield plot(
        "Segments per hour and partition",
        [
            bars(name, x, [found["rules"][rule]["segmentsPerHour"] for found in patterns.values()], colour, ".3f")
            for (rule, name), colour in zip(NAMES.items(), COLOURS, strict=False)
        ],
        {}, {"title": {"text": "segments per hour"}}, broad=True,
    )  # fmt: skip
    late = {"LogAppendTime": "LogAppendTime", "CreateTime": "CreateTime"}  # the rules differ by time alone
    yield plot(
        "Late messages: those with a time before one that the log already has",
        [
            bars(
                name, x,
                [100 * found["rules"][rule]["lateMessages"] / found["rules"][rule]["messages"]
                 for found in patterns.values()],
                colour, ".2f",
            )
            for (rule, name), colour in zip(late.items(), COLOURS, strict=False)
        ],
        {}, {"title": {"text": "% of messages"}, "range": [0, 108]}, broad=True,
    )  # fmt: skip


def deletion_plots(report: dict[str, Any], plot: Any) -> Iterable[str]:
    """For each pattern, which part of the messages is deleted how long after ``retention.ms`` from their creation."""
    for pattern, found in report["patterns"].items():
        traces: list[dict[str, Any]] = []
        most = LEAST_HOURS
        for rule, colour in zip(NAMES, COLOURS, strict=False):
            curve = found["rules"][rule]["deletedAfterCreationCurveMs"]
            hours = [max(ms / HOUR_MS, LEAST_HOURS) for ms in curve]
            most = max(most, *hours)
            traces.append(
                {
                    "type": "scatter",
                    "mode": "lines",
                    "name": NAMES[rule],
                    "x": hours,
                    "y": [2 * place for place in range(len(curve))],
                    "customdata": [show(ms) for ms in curve],
                    "hovertemplate": "%{y} % within %{customdata}",
                    "line": {"color": colour, "width": WIDTHS[len(traces)]},
                }
            )
        x = {
            "type": "log", "title": {"text": "after creation + retention.ms"}, "tickvals": list(HOURS),
            "ticktext": list(HOURS.values()), "range": [log10(LEAST_HOURS * 0.8), log10(most * 1.6)],
        }  # fmt: skip
        y = {"title": {"text": "% of messages deleted"}, "range": [-2, 103]}
        yield plot(f"Time to deletion, {pattern}: {found['what']}", traces, x, y)


def index_plots(report: dict[str, Any], plot: Any) -> Iterable[str]:
    """Size of each index, what a search reads, and how early it begins."""
    indexes = report["indexes"]
    names = list(next(iter(indexes.values()))["indexes"])
    figures: list[tuple[str, str, str, Callable[[dict[str, Any]], float]]] = [
        ("Index size", "bytes", ",", lambda one: one["bytes"]),
        ("Bytes of the log that a search reads, on average", "bytes", ",", lambda one: one["bytesRead"]),
        (
            "Messages between the answer and the first one created at the time, on average", "messages", ",.1f",
            lambda one: one["created"]["early"],
        ),
    ]  # fmt: skip
    for title, unit, form, figure in figures:
        drawn = [
            bars(name, [DATA[data] for data in indexes],
                 [figure(found["indexes"][name]) for found in indexes.values()], colour, form)
            for name, colour in zip(names, COLOURS, strict=False)
        ]  # fmt: skip
        yield plot(title, drawn, {}, {"title": {"text": unit}}, broad=True)


def short_name(option: str) -> str:
    """``4 LAT`` of ``option 4 LogAppendTime``: eight of them stand side by side on a phone."""
    return option.removeprefix("option ").replace("CreateTime", "CT").replace("LogAppendTime", "LAT")


def search_plots(report: dict[str, Any], plot: Any) -> Iterable[str]:
    """What is read up to the first message that was wanted, by option and time; a cross where messages are missed."""
    ways = {
        f"{short_name(option)}<br>by {short}": one[time]
        for option, one in report["search"].items()
        for time, short in (("CreateTime", "CT"), ("LogAppendTime", "LAT"))
        if one[time] is not None
    }
    drawn = []
    for question, colour in zip(("created", "arrived"), COLOURS, strict=False):
        sure = {name: way["toFirst"][question] for name, way in ways.items() if way[question]["missed"] == 0}
        drawn.append(bars(f"{question} at or after the time", list(sure), list(sure.values()), colour, ",.3s"))
    yield plot(
        "Bytes read up to the first message that was wanted (no bar: the search misses messages)", drawn,
        {"categoryorder": "array", "categoryarray": list(ways)},
        {"title": {"text": "bytes, logarithmic"}, "type": "log", "dtick": 1}, broad=True,
    )  # fmt: skip
