"""``kts plot``: files of each format, and wrong use."""

from __future__ import annotations

import json
import re
import struct
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pyarrow as pa
import pytest
from support.golden import golden, golden_partitions, scaled
from support.processes.cli_runs import lines, run

import kts

pytestmark = pytest.mark.slow

ORDERS = golden("demo", "orders")
NOW = 1_795_000_000_000  # 2026-11-18
KINDS = ("png", "svg", "pdf", "html")
EVERY = scaled(len(KINDS), 1)  # a short run draws each partition in one of the formats


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_partition_can_be_drawn(kind: str, tmp_path: Path) -> None:
    shapes = {scenario.name.split("-")[0]: (scenario, name) for scenario, name in golden_partitions()}
    for scenario, name in list(shapes.values())[KINDS.index(kind) % EVERY :: EVERY]:
        output = tmp_path / f"{name}.{kind}"
        (row,) = lines("plot", scenario.partition_dir(name), "-o", output, "--now", str(NOW), "--json")
        assert f"{row['topic']}-{row['partition']}" == name and row["output"] == str(output)
        data = output.read_bytes()
        if kind == "png":
            width, height = struct.unpack(">II", data[16:24])
            assert data.startswith(b"\x89PNG") and width > 1000 and height > 500
        elif kind == "pdf":
            assert data.startswith(b"%PDF-") and data.rstrip().endswith(b"%%EOF")
        elif kind == "svg":
            assert ElementTree.fromstring(data).tag.endswith("svg")
        else:
            page = data.decode("utf-8")
            assert '<html lang="en">' in page[:50] and "Plotly.newPlot" in page
            assert not re.search(r"<script[^>]+src=|<link[^>]+href=(?!\"data:)", page)


def test_the_page_holds_what_the_picture_holds(tmp_path: Path) -> None:
    assert run("plot", ORDERS.log_dir, "-o", tmp_path / "x.html", "--now", str(NOW)).stderr == ""
    page = (tmp_path / "x.html").read_text()
    for words in (
        "segment 1,138",
        "time index entry",
        "in the future: 2 batches",
        "2036-09-04T10:20:21.245Z",
        "orders-2",
    ):
        assert words in page or json.dumps(words)[1:-1] in page, words


def test_times_that_no_calendar_has_are_drawn_as_numbers(tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    folder.mkdir()
    times = pa.array([2**62 + i * 10**15 for i in range(20)])
    (folder / f"{0:020d}.log").write_bytes(kts.encode({"timestamp": times, "value": [b"v"] * 20}, batch_bytes=1))
    run("plot", folder, "-o", tmp_path / "x.png")
    run("plot", folder, "-o", tmp_path / "x.html")
    assert "timestamp (ms since 1970)" in (tmp_path / "x.html").read_text()
    assert "looks like nanoseconds" in run("plot", folder, "-o", tmp_path / "x.png", "--now", 2**62, code=2).stderr


def test_wrong_names_and_too_many_partitions_are_wrong_use(tmp_path: Path) -> None:
    assert ".png, .svg, .pdf or .html" in run("plot", ORDERS.log_dir, "-o", tmp_path / "x.jpg", code=2).stderr
    for number in range(13):
        folder = tmp_path / f"t-{number}"
        folder.mkdir()
        (folder / f"{0:020d}.log").touch()
    assert "13 partitions are too many" in run("plot", tmp_path, "-o", tmp_path / "x.png", code=2).stderr


@pytest.mark.parametrize(("kind", "library"), [("png", "matplotlib.figure"), ("html", "plotly.graph_objects")])
def test_a_library_that_is_not_installed_is_named_with_how_to_get_it(
    kind: str, library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)  # what an import of it then says
    said = run("plot", ORDERS.log_dir, "-o", tmp_path / f"x.{kind}", code=2).stderr
    assert f"drawing {kind} needs {library}, which is not installed: pip install 'kafka-timestamps[plot]'" in said
    assert list(tmp_path.iterdir()) == []
