"""Producer state of a log at an offset: from its snapshots, and from the batches of its segments behind them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kts.errors import CorruptRecordError
from kts.segment.log_segment import LogSegment
from kts.segment.shallow import Slices
from kts.segment.snapshots import Snapshots


def rebuild_producers(
    state: Snapshots,
    segments: Sequence[LogSegment],
    log_start_offset: int,
    end_offset: int,
    now_ms: int,
    *,
    magic: int,
    clean: bool = False,
    bases: Sequence[int] | None = None,
    count: int | None = None,
) -> None:
    """Producer state at an offset, from the newest snapshot and the batches behind it; see ``Snapshots.rebuild``.

    Parameters
    ----------
    bases : sequence of int, optional
        The base offsets of the segments, where the caller has them: who asks for each of many segments.
    """

    def read(number: int, first: int, end: int) -> Iterator[memoryview]:
        return _entries(segments[number], first, end)

    if bases is None:
        bases = [segment.base_offset for segment in segments]
    state.rebuild(bases, log_start_offset, end_offset, now_ms, read, magic=magic, clean=clean, count=count)


def _entries(segment: LogSegment, first_offset: int, end_offset: int) -> Iterator[memoryview]:
    """The whole entries of a segment that lie in a range of offsets."""
    try:
        first = segment.translate_offset(first_offset)
    except CorruptRecordError:  # behind the damage nothing is known of producers
        return
    if first is None:
        return
    for batches in Slices(segment.log_file(), first.position, segment.size):
        inside = int((batches.column("lastOffset") < end_offset).sum())
        sound = batches.column("crcOk")[:inside]
        stop = not sound.all()
        inside = int(sound.argmin()) if stop else inside
        if inside:
            last = batches.entry(inside - 1)
            ends = batches.positions()[inside - 1] - batches.start + len(last)
            yield batches.data[: int(ends)]
        if stop:
            return
