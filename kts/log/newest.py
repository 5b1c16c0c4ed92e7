"""What the newest release of Kafka would refuse by its defaults, of what a log accepts."""

from __future__ import annotations

from kts.behaviour import NEWEST, RULES
from kts.codec.layout import Entries
from kts.codec.validate import Validated

REFUSED_BY_NEWEST = "refused by the newest release"  # what a log tells once


def refused_by_newest(buf: bytes | bytearray | memoryview, done: Validated, now_ms: int) -> str | None:
    """What the newest release would refuse in a set that a leader accepted; None if nothing.

    Parameters
    ----------
    buf : buffer
        As a producer sent it.
    done : Validated
        What is written of it.
    now_ms : int
        The log's clock; under LogAppendTime, the time of the append.

    Notes
    -----
    Sets of an older message format are rewritten, so that only rewritten ones are looked at.
    """
    ahead, most = done.max_timestamp_ms - now_ms, NEWEST.message_timestamp_after_max_ms
    if ahead > most:
        found = f"a CreateTime {ahead} ms ahead of the clock"
        return _told(found, f"message.timestamp.after.max.ms is {most} there", "message_timestamp_after_max_ms")
    if done.size_maybe_changed and (magic := int(Entries(buf, until_damage=True).column("magic").min())) < (
        NEWEST.least_magic
    ):
        found = f"a set of message format {magic}"
        return _told(found, "message.format.version is gone, and producers send format 2", "least_magic")
    return None


def _told(found: str, why: str, rule: str) -> str:
    newest = NEWEST.release
    told = f"accepted {found}, which Kafka {newest} refuses by default: {why} ({RULES[rule].source})"
    return f'{told}; to choose, name a release, as release="{newest}", or set the limit'
