"""Pictures: what they are made of, and that each format is written."""

from __future__ import annotations

import json
import random
import re
import struct
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from support.golden import golden, golden_partitions, scaled
from support.processes.cli_runs import lines, run

import kts
from kts.cli.picture import MAX_BOXES, MAX_MARKS, Picture, edge_notes, gather, segment_label, thinned

pytestmark = pytest.mark.slow

ORDERS = golden("demo", "orders")
NOW = 1_795_000_000_000  # 2026-11-18
DAY = 86_400_000
# Of the partitions that are drawn. PNG and SVG are drawn by the same lines.
EVERY = {"png": 1, "svg": scaled(6, 1), "html": scaled(3, 1)}


def picture_of(path: Path, now: int = NOW) -> Picture:
    log = kts.open(path)
    assert isinstance(log, kts.PartitionLog)
    return gather(log, now, lambda amount: None)


def written(tmp_path: Path, times: list[int], **how: object) -> Path:
    folder = tmp_path / "t-0"
    folder.mkdir()
    data = kts.encode({"timestamp": pa.array(times), "value": pa.nulls(len(times), pa.binary())}, batch_bytes=1, **how)
    (folder / f"{0:020d}.log").write_bytes(data)
    return folder


def test_outliers_are_told_and_do_not_squash_the_rest() -> None:
    picture = picture_of(ORDERS.partition_dir("orders-0"))
    assert picture.window is not None
    assert picture.window[1] - picture.window[0] < 15 * DAY
    assert [time for _, time in picture.clipped] == [2_104_136_421_245, 1_820_726_513_607]
    assert picture.future.count == 2 and picture.batches == 150
    assert edge_notes(picture)[0][2] == "2036-09-04T10:20:21.245Z, batch that ends at 1,378"
    assert [segment.base_offset for segment in picture.segments] == [0, 1138, 1363, 2826]


def test_boxes_hold_exactly_what_headers_say() -> None:
    for scenario, name in golden_partitions():
        picture = picture_of(scenario.partition_dir(name), now=2**63 - 1)
        headers = [kts.scan_batches(log.read_bytes()) for log in scenario.logs(name)]
        assert picture.batches == sum(batch.num_rows for batch in headers)
        greatest = [ms for batch in headers for ms in batch["maxTimestamp"].cast("int64").to_pylist()]
        timed = [ms for ms in greatest if ms != -1]
        assert picture.without_time == len(greatest) - len(timed)
        tops = [int(ms) for segment in picture.segments for ms in segment.boxes[3]]
        outside = {time for _, time in picture.clipped}
        assert {*tops, *outside} >= set(timed), f"{scenario} {name}"
        assert (picture.window is None) == (not timed)


def test_late_batches_are_counted_against_the_greatest_time_before(tmp_path: Path, rng: random.Random) -> None:
    times = [NOW - 10 * DAY + i * 60_000 + rng.randrange(-90_000, 90_000) for i in range(500)]
    picture = picture_of(written(tmp_path, times))
    late = [max(times[:i]) - time for i, time in enumerate(times) if i and time < max(times[:i])]
    assert (picture.late.count, picture.most_late_ms) == (len(late), max(late))


def test_many_batches_become_few_boxes_that_cover_the_same(tmp_path: Path) -> None:
    count = 30_000
    picture = picture_of(written(tmp_path, [NOW - 10 * DAY + (i * 7919) % count * 1000 for i in range(count)], magic=1))
    boxes = picture.segments[0].boxes
    assert boxes.shape[1] <= MAX_BOXES and len(picture.late.offsets) <= MAX_MARKS + 1
    assert (picture.batches, picture.late.count > 1000) == (count, True)
    gaps = np.diff(picture.late.offsets)
    assert gaps.max() < 20 * count / MAX_MARKS  # thinned evenly
    assert (boxes[0].min(), boxes[1].max()) == (0, count - 1)
    assert (boxes[2].min(), boxes[3].max()) == (NOW - 10 * DAY, NOW - 10 * DAY + (count - 1) * 1000)
    assert (boxes[0][1:] == boxes[1][:-1] + 1).all()
    assert 5 <= thinned(boxes, 10).shape[1] <= 10


def test_when_everything_lies_in_the_future_it_is_the_picture(tmp_path: Path) -> None:
    picture = picture_of(written(tmp_path, [NOW + 1 + i for i in range(50)]))
    assert picture.window is not None and picture.future.count == 50 and picture.clipped == []


def test_times_that_no_calendar_has_are_drawn_as_numbers(tmp_path: Path) -> None:
    folder = written(tmp_path, [2**62 + i * 10**15 for i in range(20)])
    run("plot", folder, "-o", tmp_path / "x.png")
    run("plot", folder, "-o", tmp_path / "x.html")
    assert "timestamp (ms since 1970)" in (tmp_path / "x.html").read_text()
    assert "looks like nanoseconds" in run("plot", folder, "-o", tmp_path / "x.png", "--now", 2**62, code=2).stderr


def test_the_legend_stays_short() -> None:
    picture = picture_of(ORDERS.partition_dir("orders-0"))
    picture.segments = [picture.segments[0]] * 40
    labels = [segment_label(picture, number) for number in range(40)]
    assert sum(label is not None for label in labels) == 8
    assert labels[7] == "… 33 more segments (colours repeat)"


@pytest.mark.parametrize("kind", ["png", "svg", "html"])
def test_every_kind_of_partition_can_be_drawn(kind: str, tmp_path: Path) -> None:
    shapes = {scenario.name.split("-")[0]: (scenario, name) for scenario, name in golden_partitions()}
    for scenario, name in list(shapes.values())[:: EVERY[kind]]:
        output = tmp_path / f"{name}.{kind}"
        (row,) = lines("plot", scenario.partition_dir(name), "-o", output, "--now", str(NOW), "--json")
        assert row["partition"] == name and row["output"] == str(output)
        data = output.read_bytes()
        if kind == "png":
            width, height = struct.unpack(">II", data[16:24])
            assert data.startswith(b"\x89PNG") and width > 1000 and height > 500
        elif kind == "svg":
            assert ElementTree.fromstring(data).tag.endswith("svg")
        else:
            page = data.decode("utf-8")
            assert "<html>" in page[:50] and "Plotly.newPlot" in page
            assert not re.search(r"<script[^>]+src=|<link[^>]+href=", page)


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


def test_wrong_names_and_too_many_partitions_are_wrong_use(tmp_path: Path) -> None:
    assert ".png, .svg or .html" in run("plot", ORDERS.log_dir, "-o", tmp_path / "x.jpg", code=2).stderr
    for number in range(13):
        folder = tmp_path / f"t-{number}"
        folder.mkdir()
        (folder / f"{0:020d}.log").touch()
    assert "13 partitions are too many" in run("plot", tmp_path, "-o", tmp_path / "x.png", code=2).stderr


def test_boxes_of_a_compressed_wrapper_start_behind_the_one_before() -> None:
    legacy = golden("demo", "legacy")
    picture = picture_of(legacy.partition_dir("legacy-0"))
    first, last = np.concatenate([segment.boxes[:2] for segment in picture.segments], axis=1)
    assert first[0] == 0 and last[-1] == 3999 and (first[1:] == last[:-1] + 1).all()
