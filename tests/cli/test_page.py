"""Plots as an HTML page: it says what the image says, makes no request, and knows light and dark."""

from __future__ import annotations

import gzip
import io
import json
import re
from base64 import b64decode
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from support.golden import golden
from support.sets.pictures import legend_of, picture_of, stretching

from kts.cli.page import CONFIG, draw_page, figure_of
from kts.cli.picture import Picture, at_edge, edge_notes, subtitle, time_title

pytestmark = pytest.mark.slow

ORDERS = golden("demo", "orders")


@pytest.fixture(scope="module")
def shapes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Picture]:
    return stretching(tmp_path_factory.mktemp("shapes"))


def page_of(pictures: list[Picture]) -> str:
    file = io.BytesIO()
    draw_page(pictures, file)
    return file.getvalue().decode()


def without_library(page: str) -> str:
    """The page without its packed copy of plotly, which is checked."""
    from plotly.offline import get_plotlyjs

    assert gzip.decompress(b64decode(constant(page, "PLOTLY"))).decode() == get_plotlyjs()
    return re.sub(r"^const PLOTLY = .*$", "", page, flags=re.MULTILINE)


def constant(page: str, name: str) -> Any:
    """A value of the page's script."""
    found = re.search(rf"^const {name} = (.*);$", page, re.MULTILINE)
    assert found
    return json.loads(found[1])


def test_the_legend_has_the_lines_of_the_image_also_for_what_lies_at_the_edge(shapes: dict[str, Picture]) -> None:
    shapes = shapes | {"orders": picture_of(ORDERS.partition_dir("orders-0"))}
    for title, picture in shapes.items():
        if picture.window:
            traces = [trace for trace in figure_of(picture).to_dict()["data"] if trace["showlegend"]]
            traces.sort(key=lambda trace: trace["legendrank"])
            assert [trace["name"] for trace in traces] == legend_of(picture), title
            assert all(len(trace["x"]) for trace in traces), title  # plotly's legend leaves out what has no point


def test_every_outlier_is_an_arrow_at_its_edge(shapes: dict[str, Picture]) -> None:
    picture = shapes["far outside everywhere"]
    traces = figure_of(picture).to_dict()["data"][-2:]
    assert [list(trace["x"]) for trace in traces] == [
        [offset for offset, _ in at_edge(picture, above)] for above in (True, False)
    ]
    assert [set(trace["y"]) for trace in traces] == [{0.985}, {0.015}] and traces[0]["yaxis"] == "y2"
    assert picture.clipped == sorted(at_edge(picture, True) + at_edge(picture, False))


def test_axes_and_legend_make_room_for_each_other(shapes: dict[str, Picture]) -> None:
    """All other words are outside of the plots, in the page, where nothing can lie on anything else."""
    for picture in shapes.values():
        if picture.window:
            layout = figure_of(picture).to_dict()["layout"]
            assert layout["xaxis"]["automargin"] and layout["yaxis"]["automargin"]
            assert (layout["legend"]["yref"], layout["legend"]["y"]) == ("container", 0)
            assert layout["yaxis"]["title"]["text"] == time_title(picture)
            assert "annotations" not in layout and "title" not in layout


def test_times_are_texts_because_a_browser_shifts_numbers_to_its_own_zone(shapes: dict[str, Picture]) -> None:
    figure = figure_of(shapes["one batch"])
    assert str(figure.data[0].y[0]) == "2026-11-18T11:06:40.000"
    assert figure.layout.yaxis.type == "date" and "%{y|%Y-%m-%dT%H:%M:%S.%L}Z" in figure.data[0].hovertemplate
    figure = figure_of(shapes["no calendar"])
    assert figure.data[0].customdata[0] == "4611686018427387904 ms" and "%{customdata}" in figure.data[0].hovertemplate


def test_a_page_says_everything_and_makes_no_request(shapes: dict[str, Picture]) -> None:
    page = without_library(page_of(list(shapes.values())))
    words = unescape(page)
    for picture in shapes.values():
        assert f"<h2>{picture.name}</h2>" in words and subtitle(picture) in words
        assert all(text in words for _, _, text in edge_notes(picture))
    assert not re.search(r"https?://|@import|url\(|\bsrc=|href=(?!\"data:)", page)
    assert constant(page, "CONFIG") == CONFIG and not CONFIG["showSendToCloud"] and not CONFIG["plotlyServerURL"]
    assert page.count('class="plot"') == len(constant(page, "FIGURES")) == len(shapes) - 1  # one has no timestamps


def test_light_and_dark_are_whole(shapes: dict[str, Picture]) -> None:
    page = without_library(page_of([shapes["one batch"]]))
    templates = constant(page, "TEMPLATES")
    assert "prefers-color-scheme: dark" in page
    for colour in ("paper_bgcolor", "font", "xaxis", "yaxis", "modebar"):
        assert templates["light"]["layout"][colour] != templates["dark"]["layout"][colour]
    for template in templates.values():
        assert template["layout"]["paper_bgcolor"] in page.split("</style>")[0]


def test_a_name_cannot_write_into_the_page(tmp_path: Path, shapes: dict[str, Picture]) -> None:
    picture = shapes["one batch"]
    picture.name, before = "</script><b>&", picture.name
    try:
        page = without_library(page_of([picture]))
    finally:
        picture.name = before
    assert "<b>" not in page and page.count("</script>") == 1
    assert "<h2>&lt;/script&gt;&lt;b&gt;&amp;</h2>" in page


def test_all_but_the_library_is_small() -> None:
    pictures = [picture_of(ORDERS.partition_dir(f"orders-{number}")) for number in range(3)]
    assert len(without_library(page_of(pictures))) < 150_000
