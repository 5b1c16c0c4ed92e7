"""Does the log confirm an index entry? No answer uses an unconfirmed one.

An index says where reading may begin. A position is right if an entry of the log begins there and only lower offsets
precede it (offset index), or only earlier times (time index). A position that is too early only costs time. Offsets in
the log must increase, as they do where ``kts verify`` finds no fault.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kts.codec.columns import valid_bytes
from kts.codec.layout import HEADER_BYTES, Entries, read_header
from kts.errors import CorruptRecordError
from kts.model import NO_TIMESTAMP
from kts.segment.entries import FIRST_READ_BYTES, Slices, decoded
from kts.store.protocol import Readable


class SoundEntry(NamedTuple):
    """An entry of the log with a correct CRC, and where it begins."""

    position: int
    size: int
    first_offset: int


def confirmed_place(file: Readable, size: int, offset: int, position: int, before: int = 0) -> SoundEntry | None:
    """The log entry that an offset-index entry points to; None unless the log confirms it.

    Parameters
    ----------
    file : File
        The log.
    size : int
        Its published bytes.
    offset, position : int
        The entry.
    before : int
        The position of the previous index entry, 0 for the first: entry sizes must lead from there exactly to this
        position, so that bytes inside a value are never taken for a batch.

    Notes
    -----
    No entry before the place reaches the offset. Depending on version, brokers indexed an entry by its last, first or
    first inner offset, or the first batch of a set by the last offset of the set.
    """
    if not 0 <= before <= position < size:
        return None
    data, at = b"", position - before
    if at <= FIRST_READ_BYTES:  # the usual distance between index entries: one read is enough
        data = file.read(before, min(at + FIRST_READ_BYTES, size - before))
        if not _leads_to(data, at):
            return None
        data = data[at:]
    elif not is_border(file, position, before):
        return None
    found = entry_at(file, size, position, data)
    return found if found is not None and found.first_offset <= offset else None


def _leads_to(data: bytes, end: int) -> bool:
    """True if whole entries end exactly there."""
    try:
        return end == 0 or valid_bytes(memoryview(data)[:end]) == end
    except CorruptRecordError:
        return False


def is_border(file: Readable, position: int, before: int) -> bool:
    """True if the sizes of the entries lead from one border exactly to a position."""
    want = HEADER_BYTES
    while before < position:
        data = file.read(before, min(want, position - before))
        try:
            whole = valid_bytes(data)
        except CorruptRecordError:
            return False
        if not whole:  # larger than what was read
            whole = _size_of(data)
            if not whole:
                return False
            want = HEADER_BYTES if whole > FIRST_READ_BYTES else FIRST_READ_BYTES
        before += whole
    return before == position


def entry_at(file: Readable, size: int, position: int, data: bytes = b"") -> SoundEntry | None:
    """The entry at a position; None unless it ends within ``size`` and its CRC is correct.

    Parameters
    ----------
    data : bytes
        Bytes already read from there.
    """
    data = data or file.read(position, min(FIRST_READ_BYTES, size - position))
    count = _size_of(data)
    if not count or position + count > size:
        return None
    if count > len(data):
        data += file.read(position + len(data), count - len(data))
    found = Entries(memoryview(data)[:count], verify_crc=True, until_damage=True)
    if len(found) != 1 or not found.all_sound:
        return None
    entry = found[0]
    first = entry.base_offset
    if first < 0 and entry.codec:  # the header of a wrapper message has only its last offset
        try:
            offsets, _ = decoded(data[:count])
        except CorruptRecordError:
            return None
        first = int(offsets[0]) if len(offsets) else entry.last_offset
    return SoundEntry(position, count, first)


def confirmed_time(
    file: Readable,
    size: int,
    timestamp_ms: int,
    offset: int,
    start: int,
    *,
    first_bytes: int = FIRST_READ_BYTES,
    to_end: bool = False,
) -> int | None:
    """Where to start reading for the timestamp of a time-index entry or a later one; None unless the log confirms it.

    Parameters
    ----------
    file, size
        The log and its published bytes.
    timestamp_ms, offset : int
        The entry.
    start : int
        A confirmed place at or before the batch with the previous time-index entry's offset; 0 for the first entry.
    first_bytes : int
        How many bytes to read first.
    to_end : bool
        Confirm as well that nothing up to the log's end is later.

    Notes
    -----
    From ``start`` to the batch with the offset nothing is later, and that batch has the timestamp itself. Batches that
    the cleaner emptied may or may not count. In magic 0 and 1 another entry of the same set may have the timestamp.
    0.10.2 also indexed timestamps of messages it converted to magic 0, and append times it did not store in the
    messages: these are later than the log's own, so they hide no record. Where times before 1970 count, a header may
    show -1 for them.
    """
    reached: int | None = None
    held = False
    for batches in Slices(file, start, size, first_bytes):
        lasts, times = batches.column("last_offset"), batches.column("max_timestamp")
        count = len(batches)
        if not held and not to_end and lasts[-1] >= offset:
            count = int((lasts >= offset).argmax()) + 1
        if not batches.all_sound and not batches.column("crc_ok")[:count].all():
            return None
        later = (times[:count] > timestamp_ms) & (times[:count] != NO_TIMESTAMP)
        if later.any() and (later & (batches.column("count")[:count] != 0)).any():
            return None
        if reached is None and times.max() >= timestamp_ms:
            row = int((times >= timestamp_ms).argmax())
            reached = int(batches.column("position")[row]) if row < count else None
        if not held and lasts[-1] >= offset:
            held, holder = True, int((lasts >= offset).argmax())
            if batches.column("magic")[holder] == 2:
                hidden = timestamp_ms < NO_TIMESTAMP and times[holder] == NO_TIMESTAMP
                if batches.column("base_offset")[holder] > offset or (times[holder] != timestamp_ms and not hidden):
                    return None
            if reached is None:
                reached = int(batches.column("position")[holder])
        if held and not to_end:
            break
    return reached if held else None


def backwards(number: int) -> Iterator[int]:
    """The numbers of index entries to ask for, down from one in steps that double, until the log confirms one."""
    step = 1
    while number >= 0:
        yield number
        number, step = number - step, 2 * step


def _size_of(data: bytes) -> int:
    """Size of the entry that starts with these bytes; 0 if they cannot start one."""
    try:
        entry = read_header(data)
    except CorruptRecordError:
        return 0
    return 0 if entry is None else entry.size
