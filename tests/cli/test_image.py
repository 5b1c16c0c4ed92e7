"""Plots as PNG, SVG and PDF: nothing lies on anything else, and the same plot gives the same bytes."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import TESTS
from support.golden import golden
from support.processes.cli_runs import run
from support.sets.pictures import legend_of, picture_of, stretching

from kts.cli.image import draw_image, figure_of
from kts.cli.picture import Picture, edge_notes, subtitle, time_title

pytestmark = pytest.mark.slow

ORDERS = golden("demo", "orders")
FRONT_PAGE = TESTS.parent / "docs" / "orders.svg"


def words_of(figure: Any) -> list[tuple[str, Any]]:
    """The texts of a figure and the places they take, in pixels."""
    figure.draw_without_rendering()
    texts = []
    for panel in figure.axes:
        texts += [panel.title, panel._left_title, *panel.texts, panel.xaxis.label, panel.yaxis.label]
        texts += panel.get_legend().get_texts() if panel.get_legend() else []
        for axis in (panel.xaxis, panel.yaxis):
            low, high = axis.get_view_interval()
            texts += [tick.label1 for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]
    return [(text.get_text(), text.get_window_extent()) for text in texts if text.get_text()]


def overlapping(words: list[tuple[str, Any]]) -> list[tuple[str, str]]:
    """Pairs of texts that lie on each other."""
    x0, y0, x1, y1 = np.array([at.padded(-1).extents for _, at in words]).T
    over = (x0[:, None] < x1) & (x0 < x1[:, None]) & (y0[:, None] < y1) & (y0 < y1[:, None])
    return [(words[a][0], words[b][0]) for a, b in np.argwhere(np.triu(over, 1)).tolist()]


@pytest.fixture(scope="module")
def shapes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Picture]:
    return stretching(tmp_path_factory.mktemp("shapes"))


def test_no_text_lies_on_another_or_outside_and_none_is_missing(shapes: dict[str, Picture]) -> None:
    orders = [picture_of(ORDERS.partition_dir(f"orders-{number}")) for number in range(3)]
    drawn = [*orders, *shapes.values()]
    figure = figure_of(drawn)
    words = words_of(figure)
    assert overlapping(words) == []
    width, height = figure.bbox.width, figure.bbox.height
    assert [text for text, at in words if at.x0 < 0 or at.x1 > width or at.y0 < 0 or at.y1 > height] == []
    said = [text for text, _ in words]
    for picture in drawn:
        expected = [picture.name, subtitle(picture), "offset"]
        if picture.window:
            notes = [text for _, _, text in edge_notes(picture)]
            expected += [*legend_of(picture), *notes, time_title(picture)]
        for text in expected:
            said.remove(text)  # once for each panel


def test_overlapping_texts_are_seen(shapes: dict[str, Picture]) -> None:
    figure = figure_of([shapes["one batch"]])
    figure.axes[0].annotate("on the title", (0, 1), (5, 25), xycoords="axes fraction", textcoords="offset points")
    assert overlapping(words_of(figure)) == [("t-0", "on the title")]


@pytest.mark.parametrize("kind", ["png", "svg", "pdf"])
def test_the_same_plot_gives_the_same_bytes(kind: str, shapes: dict[str, Picture]) -> None:
    first, again = io.BytesIO(), io.BytesIO()
    draw_image([shapes["one batch"]], first, kind)
    draw_image([shapes["one batch"]], again, kind)
    assert first.getvalue() == again.getvalue()


def test_the_picture_of_the_front_page_is_small_and_says_what_the_command_draws(tmp_path: Path) -> None:
    kept = FRONT_PAGE.read_text(encoding="utf-8")
    assert len(kept) < 150_000
    run("plot", ORDERS.partition_dir("orders-0"), "--now", "2026-09-20", "-o", tmp_path / "x.svg")
    drawn = (tmp_path / "x.svg").read_text(encoding="utf-8")
    texts = re.compile(r"<!-- (.+?) -->")  # matplotlib names each text that it draws as outlines
    assert texts.findall(kept) == texts.findall(drawn) and "in the future: 2 batches" in texts.findall(kept)
