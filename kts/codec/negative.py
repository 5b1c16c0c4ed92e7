"""Times before 1970 (KIP-228) in sets whose headers say nothing of them."""

from __future__ import annotations

import numpy as np

from kts.codec.columns import decode, scan_batches
from kts.model import NO_TIMESTAMP


def greatest_time(records: bytes | memoryview) -> tuple[int, int]:
    """The greatest time of a set and the shallow offset of the entry that has it first; (-1, -1) if there is none.

    Notes
    -----
    A producer's header has -1 where all records are from before 1970, so such entries are looked into.
    """
    found = scan_batches(records)
    times = np.array(found["maxTimestamp"].cast("int64"))
    starts, sizes = np.asarray(found["position"]), np.asarray(found["sizeInBytes"])
    for row in np.flatnonzero(times == NO_TIMESTAMP).tolist():
        entry = records[starts[row] : starts[row] + sizes[row]]
        inside = np.asarray(decode(entry, ["timestamp"], verify_crc=False)["timestamp"].cast("int64"))
        inside = inside[inside != NO_TIMESTAMP]
        times[row] = inside.max() if len(inside) else NO_TIMESTAMP
    timed = np.flatnonzero(times != NO_TIMESTAMP)
    if not len(timed):
        return NO_TIMESTAMP, NO_TIMESTAMP
    first = timed[times[timed].argmax()]
    return int(times[first]), int(found["lastOffset"][first.item()].as_py())
