"""Pictures of partitions to draw: a broker's, and shapes that stretch a plot."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

import kts
from kts.cli.picture import INDEX_LABEL, Picture, future_label, gather, late_label, segment_label

NOW = 1_795_000_000_000  # 2026-11-18
DAY = 86_400_000
BEGIN = NOW - 10 * DAY


def picture_of(path: Path, now: int = NOW) -> Picture:
    log = kts.open(path)
    assert isinstance(log, kts.PartitionLog)
    return gather(log, now, lambda amount: None)


def written(folder: Path, times: Sequence[int], *, segments: int = 1, **how: object) -> Path:
    """A partition with one batch for each time."""
    folder.mkdir(parents=True)
    size = -(-len(times) // segments)
    for first in range(0, len(times), size):
        part = pa.array(times[first : first + size])
        columns = {"timestamp": part, "value": pa.nulls(len(part), pa.binary())}
        data = kts.encode(columns, batch_bytes=1, base_offset=first, **how)
        (folder / f"{first:020d}.log").write_bytes(data)
    return folder


def stretching(folder: Path) -> dict[str, Picture]:
    """Pictures by what is special in them."""
    steady = [BEGIN + i * 60_000 for i in range(120)]
    centuries = [i * 250_000_000_000_000 // 100 for i in range(100)]
    shapes: dict[str, tuple[str, list[int], int]] = {
        "far in the future": ("t-0", [*steady, NOW + 4000 * DAY], 1),
        "far outside above": ("t-0", [*steady[:60], NOW - DAY, *steady[60:]], 1),
        "far outside below": ("t-0", [*steady[:60], 0, 5000, *steady[60:]], 1),
        "far outside everywhere": ("t-0", [0, *steady[:60], 2**62, 5000, *steady[60:], NOW + DAY, 2**61], 3),
        "out of order, many": ("t-0", [time - 50_000_000 * (i % 2) for i, time in enumerate(steady)], 1),
        "all in the future": ("t-0", [time + 20 * DAY for time in steady], 2),
        "many segments": ("t-0", steady, 12),
        "a long name": (f"{'long-topic-name.' * 15}-0", [0, *steady], 9),
        "one batch": ("t-0", [NOW], 1),
        "no calendar": ("t-0", [2**62 + i * 10**15 for i in range(20)], 2),
        "the whole calendar": ("t-0", centuries, 1),
        "no timestamps": ("t-0", [-1] * 5, 1),
    }
    return {
        title: picture_of(
            written(folder / title / name, times, segments=segments), max(times) if times is centuries else NOW
        )
        for title, (name, times, segments) in shapes.items()
    }


def legend_of(picture: Picture) -> list[str]:
    """The lines of a picture's legend."""
    labels = [segment_label(picture, number) for number in range(len(picture.segments))]
    lines = [label for label in labels if label]
    lines += [INDEX_LABEL] * any(len(segment.index_offsets) for segment in picture.segments)
    lines += [late_label(picture)] * bool(picture.late.count)
    return lines + [future_label(picture)] * bool(picture.future.count)
