"""The search that goes on into later segments until it finds something, as KIP-33 says, for built indexes.

A start says where to begin, not what to leave out: an entry's offset may be the last of equal times.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from kts.codec.columns import decode
from kts.model import NO_TIMESTAMP, TimestampOffset
from kts.proposals.answers import Answer, Start
from kts.segment import files
from kts.segment.damage import header_scan
from kts.segment.segment import Segment, int64

if TYPE_CHECKING:
    from kts.dataset.partition import PartitionLog

FIRST_BYTES = 2**13  # doubled from slice to slice: most searches end within an index interval


def find(log: PartitionLog, starts: Iterable[Start], target_ms: int, *, none_is_a_time: bool = True) -> Answer:
    """The first record at or after a time, reading from each start to the end of its segment.

    Parameters
    ----------
    starts : iterable of Start
        Rising; segments without one are left out.
    none_is_a_time : bool
        Compare -1 as a number, as Kafka does; else a record without a timestamp is never found.

    Notes
    -----
    A segment that is gone meanwhile is left out. Records before the log start offset do not count.
    """
    segments = {segment.base_offset: segment for segment in log.segments}
    log_start = log.log_start_offset
    before, answer = list(segments), Answer(None)
    for start in starts:
        segment = segments.get(start.base_offset)
        if segment is None:
            continue
        skipped = before.index(start.base_offset)
        del before[: skipped + 1]
        answer = answer._replace(
            start=answer.start or start,
            segments_skipped=answer.segments_skipped + skipped,
            segments_read=answer.segments_read + 1,
        )
        answer = _read(segment, max(start.offset, log_start), target_ms, log_start, answer, none_is_a_time)
        if answer.found is not None:
            return answer
    return answer._replace(segments_skipped=answer.segments_skipped + len(before))


def _read(
    segment: Segment, offset: int, target_ms: int, log_start: int, answer: Answer, none_is_a_time: bool
) -> Answer:
    """One segment, from the entry that holds an offset."""
    position = segment.start_position(offset)
    batches, records = answer.batches_read, answer.records_read
    end = position
    with files.File(segment.path) as file:
        for batch, _ in header_scan(segment, position, log_start, False, FIRST_BYTES):
            positions, sizes = int64(batch, "position"), int64(batch, "sizeInBytes")
            # Below 0 headers do not say what is in a batch: -1 may stand for earlier times, and be left out of others.
            maxima = int64(batch, "maxTimestamp")
            likely = (maxima >= target_ms) | (target_ms < 0) | (not none_is_a_time and maxima < 0)
            likely &= int64(batch, "lastOffset") >= log_start
            for i in np.flatnonzero(likely).tolist():
                data = file.read(int(positions[i]), int(sizes[i]))
                read = decode(data, ["offset", "timestamp"])
                offsets, timestamps = int64(read, "offset"), int64(read, "timestamp")
                records += len(offsets)
                hit = (timestamps >= target_ms) & (offsets >= log_start)
                if not none_is_a_time:
                    hit &= timestamps != NO_TIMESTAMP
                if hit.any():
                    first = int(hit.argmax())
                    end = int(positions[i] + sizes[i])
                    return answer._replace(
                        found=TimestampOffset(int(timestamps[first]), int(offsets[first])),
                        bytes_read=answer.bytes_read + end - position,
                        batches_read=batches + i + 1,
                        records_read=records,
                    )
            if len(positions):
                end = int(positions[-1] + sizes[-1])
                batches += len(positions)
    return answer._replace(bytes_read=answer.bytes_read + end - position, batches_read=batches, records_read=records)
