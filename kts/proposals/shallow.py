"""The shallow entries of appended bytes: first offset, last offset and timestamp of each.

The proposals are older than record batches. As KIP-32 says for followers, the timestamp of a wrapper message, which is
the greatest one inside, counts for all of it. Here the same holds for a record batch: no index decompresses anything.
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
    """Every whole entry of the bytes, from headers alone.

    Parameters
    ----------
    first_offset : int
        Of the first entry. The header of a wrapper message does not state its first offset: it is taken to be the one
        after the previous entry, since no record lies between them.
    allow_negative : bool
        Decode entries whose header has no timestamp: a client may have written -1 for times before 1970 (KIP-228).
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
    """Which numbers are timestamps: all but -1 if negative ones are allowed (KIP-228), else those from 0 on."""
    return timestamps != NO_TIMESTAMP if allow_negative else timestamps >= 0


def floored(timestamps: npt.NDArray[np.int64], step_ms: int) -> npt.NDArray[np.int64]:
    """Round each timestamp down to a multiple of the step; to the smallest 64-bit integer if that does not fit."""
    smallest = -((2**63) // step_ms) * step_ms
    return np.where(timestamps < smallest, INT64_MIN, np.maximum(timestamps, smallest) // step_ms * step_ms)
