"""A picture of a partition's timestamps: its boxes, marks, window and words."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
from support.golden import golden, golden_partitions
from support.sets.pictures import DAY, NOW, picture_of, written

import kts
from kts.cli.picture import (
    MAX_BOXES,
    MAX_MARKS,
    edge_notes,
    offset_range,
    segment_label,
    subtitle,
    thinned,
    time_range,
)

ORDERS = golden("demo", "orders")


def test_outliers_are_told_and_do_not_squash_the_rest() -> None:
    picture = picture_of(ORDERS.partition_dir("orders-0"))
    assert picture.window is not None
    assert picture.window[1] - picture.window[0] < 15 * DAY
    assert [time for _, time in picture.clipped] == [2_104_136_421_245, 1_820_726_513_607]
    assert picture.future.count == 2 and picture.batches == 150
    assert edge_notes(picture)[0][2] == "1: 2036-09-04T10:20:21.245Z, batch that ends at 1,378"
    assert [segment.base_offset for segment in picture.segments] == [0, 1138, 1363, 2826]


def test_outliers_of_which_only_some_are_drawn_are_counted_as_arrows(tmp_path: Path) -> None:
    steady, far = [NOW - DAY + i * 1000 for i in range(20_000)], [NOW + 3000 * DAY + i * 1000 for i in range(3000)]
    picture = picture_of(written(tmp_path / "t-0", [*steady, *far]))
    arrows = len(picture.clipped)
    assert picture.future.count == 3000 and 3 < arrows <= MAX_MARKS + 1
    assert subtitle(picture) == f"23,000 batches in 1 segment; far outside: {arrows} arrows at the edge"
    assert edge_notes(picture)[-1][2].endswith(f" (and {arrows - 3} more arrows)")


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
    picture = picture_of(written(tmp_path / "t-0", times))
    late = [max(times[:i]) - time for i, time in enumerate(times) if i and time < max(times[:i])]
    assert (picture.late.count, picture.most_late_ms) == (len(late), max(late))


def test_many_batches_become_few_boxes_that_cover_the_same(tmp_path: Path) -> None:
    count = 30_000
    picture = picture_of(
        written(tmp_path / "t-0", [NOW - 10 * DAY + (i * 7919) % count * 1000 for i in range(count)], magic=1)
    )
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
    picture = picture_of(written(tmp_path / "t-0", [NOW + 1 + i for i in range(50)]))
    assert picture.window is not None and picture.future.count == 50 and picture.clipped == []


def test_the_legend_stays_short() -> None:
    picture = picture_of(ORDERS.partition_dir("orders-0"))
    picture.segments = [picture.segments[0]] * 40
    labels = [segment_label(picture, number) for number in range(40)]
    assert sum(label is not None for label in labels) == 8
    assert labels[7] == "… 33 more segments (colours repeat)"


def test_boxes_of_a_compressed_wrapper_start_behind_the_one_before() -> None:
    legacy = golden("demo", "legacy")
    picture = picture_of(legacy.partition_dir("legacy-0"))
    first, last = np.concatenate([segment.boxes[:2] for segment in picture.segments], axis=1)
    assert first[0] == 0 and last[-1] == 3999 and (first[1:] == last[:-1] + 1).all()


def test_an_outlier_below_is_named_by_the_offset_at_which_its_batch_starts(tmp_path: Path) -> None:
    times = [NOW - DAY + i * 60_000 for i in range(200)]
    picture = picture_of(written(tmp_path / "t-0", [*times[:100], 0, *times[100:]]))
    assert edge_notes(picture) == [(100, 0, "1970-01-01T00:00:00.000Z, batch that starts at 100")]


def test_the_axes_hold_everything_that_is_drawn(tmp_path: Path) -> None:
    """Arrows too: a log that ends with outliers draws them within the axis."""
    times = [NOW - DAY + i * 60_000 for i in range(200)]
    picture = picture_of(written(tmp_path / "t-0", [*times, *[NOW + 900 * DAY] * 50]))
    assert len(picture.clipped) == 50 and picture.clipped[-1][0] == 249
    begin, end = offset_range(picture)
    assert begin < 0 and end > 249
    assert picture.window == (times[0], times[-1])
    (low, high), (_, higher) = time_range(picture), time_range(picture, row=0.05)
    assert low < times[0] and times[-1] < high < higher  # room for arrows, and for notes
