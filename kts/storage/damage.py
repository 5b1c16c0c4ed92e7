"""Where a log goes on after damage, and header scans that go on there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from kts.columns import scan_batches
from kts.errors import CorruptRecordError
from kts.storage import files
from kts.storage.segment import OVERHEAD_BYTES, SMALLEST_SIZE, Segment

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow as pa

WINDOW_BYTES = 2**20
SMALLEST_ENTRY = OVERHEAD_BYTES + SMALLEST_SIZE
_SPAN = 2**31  # offsets of one segment


def next_sound_entry(segment: Segment, position: int, end: int, expected_offset: int) -> int | None:
    """Where the first sound entry behind damage starts, or None if there is none.

    Parameters
    ----------
    position : int
        Start of the damaged entry.
    end : int
        Where the bytes end.
    expected_offset : int
        No entry below this offset is believed.

    Notes
    -----
    The damaged entry's size is believed if a sound entry, or the end, follows it, and no sound entries inside of it
    lead up to there. Else every byte is tried: an entry is sound when its size fits, its magic is known, its offset
    can follow, and its CRC is right.
    """
    with files.File(segment.path) as file:
        end = min(end, file.size())
        header = file.read(position, OVERHEAD_BYTES)
        if len(header) == OVERHEAD_BYTES:
            size = int.from_bytes(header[8:12], "big", signed=True)
            follower = position + OVERHEAD_BYTES + size
            fits = size >= SMALLEST_SIZE and follower <= end
            if fits and (follower == end or _is_sound(file, follower, end, expected_offset)):
                inside = _chain(file, position + 1, follower, expected_offset)
                return inside if inside is not None else None if follower == end else follower
        for candidate in _sound_entries(file, position + 1, end, expected_offset):
            return candidate
    return None


def _sound_entries(file: files.File, start: int, end: int, expected_offset: int) -> Iterator[int]:
    """Every position between two others where a sound entry starts that ends before the second."""
    while start + SMALLEST_ENTRY <= end:
        data = file.read(start, min(WINDOW_BYTES + SMALLEST_ENTRY, end - start))
        for candidate in _candidates(data, start, end, expected_offset):
            if _is_sound(file, candidate, end, expected_offset):
                yield candidate
        start += WINDOW_BYTES


def _chain(file: files.File, start: int, end: int, expected_offset: int) -> int | None:
    """First of the sound entries that follow each other exactly up to the end. Entries inside a value do not."""
    seen: set[int] = set()
    for first in _sound_entries(file, start, end, expected_offset):
        position = first
        while position < end and position not in seen and _is_sound(file, position, end, expected_offset):
            seen.add(position)
            position += OVERHEAD_BYTES + int.from_bytes(file.read(position + 8, 4), "big")
        if position == end:
            return first
    return None


def _candidates(data: bytes, start: int, end: int, expected_offset: int) -> list[int]:
    """Positions in a window whose offset, size and magic could begin an entry."""
    count = len(data) - SMALLEST_ENTRY + 1
    if count <= 0:
        return []
    raw = np.frombuffer(data, np.uint8)
    likely = np.flatnonzero((raw[16 : 16 + count] <= 2) & (raw[:count] < 128) & (raw[8 : 8 + count] < 128))
    found = []
    for at in likely.tolist():
        offset = int.from_bytes(data[at : at + 8], "big")
        size = int.from_bytes(data[at + 8 : at + 12], "big")
        if (
            size >= SMALLEST_SIZE
            and start + at + OVERHEAD_BYTES + size <= end
            and expected_offset <= offset < expected_offset + _SPAN
        ):
            found.append(start + at)
    return found


def _is_sound(file: files.File, position: int, end: int, expected_offset: int) -> bool:
    header = file.read(position, OVERHEAD_BYTES)
    size = int.from_bytes(header[8:12], "big", signed=True)
    if len(header) < OVERHEAD_BYTES or size < SMALLEST_SIZE or position + OVERHEAD_BYTES + size > end:
        return False
    try:
        found = scan_batches(file.read(position, OVERHEAD_BYTES + size))
    except CorruptRecordError:
        return False
    if found.num_rows != 1 or not found.column("crcOk")[0].as_py():
        return False
    return bool(expected_offset <= found.column("lastOffset")[0].as_py() < expected_offset + _SPAN)


def header_scan(
    segment: Segment, start: int, expected_offset: int, skip_damage: bool, first_bytes: int | None = None
) -> Iterator[tuple[pa.RecordBatch, npt.NDArray[np.bool_]]]:
    """Header scans from a position, each with a mask of the batches whose CRC is wrong.

    With ``skip_damage`` it goes on behind bytes that are no batch, else it raises there.
    """
    while True:
        try:
            for batch in segment.batches(start, None, first_bytes):
                if batch.num_rows:
                    start = int(batch.column("position")[-1].as_py() + batch.column("sizeInBytes")[-1].as_py())
                    expected_offset = max(expected_offset, batch.column("lastOffset")[-1].as_py() + 1)
                damaged = ~np.asarray(batch.column("crcOk").to_numpy(zero_copy_only=False), bool)
                yield batch, damaged
            return
        except CorruptRecordError as error:
            if not skip_damage:
                raise
            behind = next_sound_entry(segment, error.position or start, segment.size_bytes, expected_offset)
            if behind is None:
                return
            start = behind
