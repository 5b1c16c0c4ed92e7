"""Down-conversion: fetched records for clients that do not know their magic."""

from __future__ import annotations

import struct
import time
from typing import NamedTuple

import numpy as np

from kts.behaviour import DEFAULT, Behaviour
from kts.codec.columns import decode
from kts.codec.convert import convert
from kts.codec.layout import Entries
from kts.errors import KtsError

CHUNK_BYTES = 128 * 1024
# Offset -1 and a size beyond the response: clients treat it as a cut entry.
PSEUDO_ENTRY = struct.pack(">qi", -1, 61)


class DownConverted(NamedTuple):
    """The records for a client; ``messages`` is 0 if nothing was converted."""

    records: bytes
    messages: int = 0
    bytes_in: int = 0
    cpu_ns: int = 0


def newest_magic(version: int) -> int:
    """The newest magic that clients of a Fetch version know."""
    return 0 if version <= 1 else 1 if version <= 3 else 2


class _WholeEntries:
    """Ends, magics and record counts of the whole entries up to the first damaged header."""

    def __init__(self, data: bytes) -> None:
        entries = Entries(data, until_damage=True)
        self.error = entries.error
        self.magics = entries.column("magic")
        self.counts = entries.column("count")
        self.starts = entries.column("position")
        self.ends = self.starts + entries.column("size")

    def end_within(self, start: int, size: int) -> int:
        """The end of the last entry that fits into ``size`` bytes from ``start`` on, but at least of the first one."""
        first = int(np.searchsorted(self.ends, start, side="right"))
        last = int(np.searchsorted(self.ends, start + size, side="right")) - 1
        return int(self.ends[max(first, last)])


def needs_conversion(data: bytes, magic: int) -> bool:
    """Whether an entry has a newer magic. The data decides, not the topic's current setting."""
    return bool((_WholeEntries(data).magics > magic).any())


def down_convert(data: bytes, magic: int, fetch_offset: int, behaviour: Behaviour = DEFAULT) -> DownConverted:
    """Convert records for a client of an older magic. Offsets stay, and timestamps if the magic has them.

    Parameters
    ----------
    data : bytes
        Bytes of the log, from the entry that contains ``fetch_offset`` on. The last entry may be cut.
    magic : int
        0 or 1. Entries with at most this magic stay as they are.
    fetch_offset : int
        Converted uncompressed batches lose the records below it.
    behaviour : Behaviour
        Of the log. What has magic 2 is converted entry by entry in any case; times that are none are refused.

    Returns
    -------
    DownConverted
        At most as many bytes as ``data``, but at least the first entry. If nothing can be sent (control batches), a
        pseudo entry that clients treat as cut. A single cut entry stays as it is, so that the client asks for more.

    Raises
    ------
    KtsError
        The first entry cannot be converted: 76 for zstd, 2 for damage, -1 for negative timestamps. An error in a later
        entry ends the answer before it, and the client gets the error when it fetches from there.

    Notes
    -----
    Source: AbstractRecords.toMessageFormat (0.10.2), LazyDownConversionRecords, RecordsUtil.downConvert (3.9).
    """
    headers = _WholeEntries(data)
    if headers.error is not None and not len(headers.ends):
        raise headers.error
    if not (headers.magics > magic).any():
        return DownConverted(data)
    begun = time.thread_time_ns()
    negative = behaviour.times.before_1970
    if behaviour.converts_by_entry or (headers.magics > behaviour.greatest_magic).any():
        records, taken = _in_pieces(data, headers, magic, fetch_offset, negative)
    else:
        taken = int(headers.ends[-1])
        whole = memoryview(data)[:taken]
        records = convert(
            whole, magic, generation=behaviour.release, down_only=True, allow_negative_timestamps=negative
        )
    messages = _messages(data, headers, magic, taken)
    return DownConverted(records, messages, taken, time.thread_time_ns() - begun)


def _in_pieces(data: bytes, headers: _WholeEntries, magic: int, fetch_offset: int, negative: bool) -> tuple[bytes, int]:
    """Converted entries up to the size of the data, and the number of source bytes."""
    whole, out = memoryview(data), bytearray()
    taken, end, limit = 0, int(headers.ends[-1]), 0
    while taken < end and not (out and len(out) >= limit):
        stop = headers.end_within(taken, CHUNK_BYTES if out else 0)
        try:
            piece = convert(
                whole[taken:stop],
                magic,
                generation=DEFAULT.release,
                down_only=True,
                first_offset=fetch_offset,
                allow_negative_timestamps=negative,
            )
        except KtsError:
            if not out:
                raise
            break
        if not out:
            limit = max(len(data), len(piece))
        out += piece
        taken = stop
    return bytes(out[:limit]) or PSEUDO_ENTRY, taken


def _messages(data: bytes, headers: _WholeEntries, magic: int, taken: int) -> int:
    """The number of records in the converted entries of the first ``taken`` bytes."""
    those = (headers.magics > magic) & (headers.ends <= taken)
    known = headers.counts >= 0
    counted = int(headers.counts[those & known].sum())
    for at in np.flatnonzero(those & ~known).tolist():
        wrapper = memoryview(data)[int(headers.starts[at]) : int(headers.ends[at])]
        counted += decode(wrapper, ["offset"], verify_crc=False).num_rows
    return counted
