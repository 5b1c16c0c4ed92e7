"""Appended bytes as their shallow entries: first offset, last offset and timestamp of each.

The proposals know plain messages and wrappers. As KIP-32 has it for followers, a wrapper's timestamp, the greatest one
inside, stands for all of it, and so does a record batch's: nothing is decompressed for an index.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kts.arguments import INT64_MIN
from kts.codec.columns import decode, scan_batches
from kts.model import NO_TIMESTAMP
from kts.segment.segment import int64

if TYPE_CHECKING:
    import numpy.typing as npt


class Shallow(NamedTuple):
    """Shallow entries in the order of the log; a timestamp is the greatest of the entry's records, -1 for none."""

    first_offsets: npt.NDArray[np.int64]
    last_offsets: npt.NDArray[np.int64]
    timestamps: npt.NDArray[np.int64]


def shallow_entries(records: bytes | memoryview, first_offset: int, *, allow_negative: bool = False) -> Shallow:
    """Every whole entry of some bytes, from headers alone.

    Parameters
    ----------
    first_offset : int
        Of the first entry. A header does not say it for a compressed wrapper message, whose first offset is taken to
        be the one behind its neighbour: no record lies between.
    allow_negative : bool
        Look into entries whose header has no timestamp: a client's -1 may hide earlier times (KIP-228).
    """
    found = scan_batches(records)
    last = int64(found, "lastOffset")
    first = np.concatenate([[first_offset], last[:-1] + 1]) if len(last) else last
    known = np.asarray(found.column("baseOffset").is_valid())
    times = int64(found, "maxTimestamp")
    if allow_negative:
        places = int64(found, "position")
        for row in np.flatnonzero(times == NO_TIMESTAMP).tolist():
            entry = records[places[row] : places[row] + int(found["sizeInBytes"][row].as_py())]
            inside = record_timestamps(entry)
            times = times.copy() if not times.flags.writeable else times
            times[row] = max(inside[inside != NO_TIMESTAMP].tolist(), default=NO_TIMESTAMP)
    return Shallow(np.where(known, int64(found, "baseOffset"), first), last, times)


def record_timestamps(records: bytes | memoryview) -> npt.NDArray[np.int64]:
    """The timestamp of each record, as readers see it."""
    return int64(decode(records, ["timestamp"], verify_crc=False), "timestamp")


def with_a_time(timestamps: npt.NDArray[np.int64], allow_negative: bool) -> npt.NDArray[np.bool_]:
    """Which numbers are times: all but -1 if negative times are allowed (KIP-228), else those from 0 on."""
    return timestamps != NO_TIMESTAMP if allow_negative else timestamps >= 0


def floored(timestamps: npt.NDArray[np.int64], step_ms: int) -> npt.NDArray[np.int64]:
    """Round each time down to a multiple of the step. The smallest 64-bit number stands for what does not fit."""
    smallest = -((2**63) // step_ms) * step_ms
    return np.where(timestamps < smallest, INT64_MIN, np.maximum(timestamps, smallest) // step_ms * step_ms)
