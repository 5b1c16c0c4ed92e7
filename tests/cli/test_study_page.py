"""The study's report as a page: every table and plot is there, and the page makes no request."""

from __future__ import annotations

import io
import json
import re
from html import escape, unescape
from typing import Any

import pytest
from support.sets.studies import small_report

from kts.cli import study_tables
from kts.cli.page import DARK, LIGHT
from kts.cli.study_page import draw_report

pytestmark = pytest.mark.slow


LATE = "Late messages: those with a time before one that the log already has"
TO_FIRST = "Bytes read up to the first message that was wanted (no bar: the search misses messages)"


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    return small_report()


@pytest.fixture(scope="module")
def page(report: dict[str, Any]) -> str:
    file = io.BytesIO()
    draw_report(report, file)
    return file.getvalue().decode()


def figures_of(page: str) -> dict[str, Any]:
    found = re.search(r"^const FIGURES = (.*);$", page, re.MULTILINE)
    assert found
    figures: dict[str, Any] = json.loads(found[1])
    return figures


def test_every_figure_has_its_place_and_both_modes_their_colours(page: str) -> None:
    figures = figures_of(page)
    assert len(figures) == 10 and sorted(re.findall(r'class="plot" id="([\w-]+)"', page)) == sorted(figures)
    assert LIGHT["paper"] in page and DARK["paper"] in page
    assert not re.search(r"<script[^>]+src=|<link[^>]+href=(?!\"data:)", page)


def test_labels_below_bars_leave_room_for_the_bars_on_a_phone(page: str) -> None:
    """At 360 px plotly turns long labels upright, and draws nothing if they take the height of the plot."""
    drawn = [figure for figure in figures_of(page).values() if figure["data"][0]["type"] == "bar"]
    assert len(drawn) == 6
    for figure in drawn:
        assert figure["layout"]["xaxis"]["tickangle"] == 0
        labels = {label for trace in figure["data"] for label in trace["x"]}
        assert max(len(line) for label in labels for line in label.split("<br>")) * len(labels) <= 70
        assert max(label.count("<br>") for label in labels) <= 4


def test_the_plots_hold_the_report_s_figures(page: str, report: dict[str, Any]) -> None:
    titles = dict(zip(re.findall(r"<h3>(.*)</h3>", page), figures_of(page).values(), strict=True))
    bars = {trace["name"]: trace["y"] for trace in titles["Segments per hour and partition"]["data"]}
    for number, found in enumerate(report["patterns"].values()):
        assert bars["CreateTime, earliest"][number] == found["rules"]["earliest-timestamp"]["segmentsPerHour"]
    sizes = {trace["name"]: trace["y"] for trace in titles["Index size"]["data"]}
    assert sizes["bucket-index"] == [found["indexes"]["bucket-index"]["bytes"] for found in report["indexes"].values()]
    late = {trace["name"]: trace["y"] for trace in titles[LATE]["data"]}
    assert late["LogAppendTime"] == [0, 0, 0, 0] and 40 < late["CreateTime"][2] < 60
    to_first = {trace["name"]: dict(zip(trace["x"], trace["y"], strict=True)) for trace in titles[TO_FIRST]["data"]}
    found = report["search"]["option 3"]["LogAppendTime"]["toFirst"]
    assert to_first["created at or after the time"]["3<br>by LAT"] == found["created"]
    assert "4 CreateTime<br>by CT" not in to_first["arrived at or after the time"]  # it misses messages


def test_the_tables_hold_each_cell_and_mark_what_does_not_agree(page: str, report: dict[str, Any]) -> None:
    cells = [cell for name in ("retention", "rolling", "options") for cell in report[name]]
    headings = [unescape(heading) for heading in re.findall(r"<h2>(.*)</h2>", page)]
    tables = [table.title for table in study_tables.of_report(report)]
    assert sorted(headings) == sorted([*tables, "The patterns", "KIP-33's indexes"])
    assert page.count("<td>yes</td>") >= sum(cell["agrees"] is True for cell in cells)
    marked = sum(cell["agrees"] is False for cell in cells)
    missing = [
        way["created"]["missed"] + way["arrived"]["missed"] for one in report["search"].values() for way in ways(one)
    ]
    assert page.count('<td class="no">NO</td>') == marked + sum(count > 0 for count in missing)
    for cell in cells:
        assert escape(study_tables.sentence(cell["why"])) in page
    assert "Both figures are within their tolerance" in unescape(page)


def ways(one: dict[str, Any]) -> list[dict[str, Any]]:
    return [one[time] for time in ("CreateTime", "LogAppendTime") if one[time] is not None]
