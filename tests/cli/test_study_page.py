"""The study's report as a page: every table and plot is there, and the page makes no request."""

from __future__ import annotations

import io
import json
import re
from html import unescape
from typing import Any

import pytest
from support.sets.studies import small_report

from kts.cli.page import DARK, LIGHT
from kts.cli.study_page import draw_report

pytestmark = pytest.mark.slow


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
    assert len(figures) == 9 and sorted(re.findall(r'class="plot" id="([\w-]+)"', page)) == sorted(figures)
    assert LIGHT["paper"] in page and DARK["paper"] in page
    assert not re.search(r"<script[^>]+src=|<link[^>]+href=(?!\"data:)", page)


def test_the_plots_hold_the_report_s_figures(page: str, report: dict[str, Any]) -> None:
    titles = dict(zip(re.findall(r"<h3>(.*)</h3>", page), figures_of(page).values(), strict=True))
    bars = {trace["name"]: trace["y"] for trace in titles["Segments per hour and partition"]["data"]}
    for number, found in enumerate(report["patterns"].values()):
        assert bars["CreateTime, earliest"][number] == found["rules"]["earliest-timestamp"]["segmentsPerHour"]
    sizes = {trace["name"]: trace["y"] for trace in titles["Index size, bytes"]["data"]}
    assert sizes["bucket-index"] == [found["indexes"]["bucket-index"]["bytes"] for found in report["indexes"].values()]
    late = {trace["name"]: trace["y"] for trace in titles["Late messages"]["data"]}
    assert late["LogAppendTime"] == [0, 0, 0, 0] and 40 < late["CreateTime, Kafka's"][2] < 60


def test_the_tables_hold_each_cell_and_mark_what_does_not_agree(page: str, report: dict[str, Any]) -> None:
    cells = [cell for name in ("retention", "rolling", "options") for cell in report[name]]
    assert page.count("<tr><th>") == 5 + len(report["patterns"]) + len(report["indexes"])
    assert page.count("<td>yes</td>") == sum(cell["agrees"] for cell in cells)
    assert page.count('<td class="no">NO</td>') == sum(not cell["agrees"] for cell in cells)
    assert "pattern 2: the paper says LAT, measured is CT or LAT." in unescape(page)
