"""When a new segment is due, and at which offset it starts: pure functions of sizes, times and offsets."""

from __future__ import annotations

from kts.config import LogConfig

LARGEST_RELATIVE = 2**31 - 1  # an index entry keeps an offset as a 32-bit difference to the base offset


def reason(
    size: int,
    incoming: int,
    segment_bytes: int,
    waited_ms: int,
    limit_ms: int,
    indexes_full: bool,
    relative_offset: int,
) -> str | None:
    """Why the active segment has to be rolled before an append; None if it need not be.

    Parameters
    ----------
    size, incoming : int
        Bytes in the active segment, and of the set to append.
    segment_bytes : int
        ``segment.bytes``; exactly as many are still fine.
    waited_ms : int
        See ``LogSegment.time_waited_for_roll``; counts in a segment that is not empty.
    limit_ms : int
        ``LogConfig.max_segment_ms`` less the segment's jitter; exactly as long is still fine.
    indexes_full : bool
        Either index has no room for another entry.
    relative_offset : int
        Last offset of the set less the segment's base offset.

    Notes
    -----
    Source: Log.maybeRoll (0.10.2), LogSegment.shouldRoll (3.9).
    """
    if size > segment_bytes - incoming:
        return "size"
    if size > 0 and waited_ms > limit_ms:
        return "time"
    if indexes_full:
        return "index"
    return "offset" if relative_offset > LARGEST_RELATIVE else None


def jitter_ms(config: LogConfig, random_int32: int) -> int:
    """How much earlier than its limit a segment rolls, from a random number of 32 bits."""
    span = min(config.segment_jitter_ms, config.segment_ms)
    # Java's absolute value of the least number is 0 in Kafka's helper.
    return 0 if span == 0 or random_int32 == -(2**31) else abs(random_int32) % span


def new_base_offset(first_offset: int, last_offset: int, log_end_offset: int) -> int:
    """Base offset of the next segment: the log's end, and for a follower's set behind a gap what must still fit.

    Parameters
    ----------
    first_offset : int
        Of the set to append; -1 where its header cannot tell (a follower's set of magic 0 or 1).
    last_offset : int
        Of that set.
    """
    expected = first_offset if first_offset >= 0 else last_offset - LARGEST_RELATIVE
    return max(expected, log_end_offset)
