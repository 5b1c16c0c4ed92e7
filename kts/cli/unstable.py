"""Open transactions in what commands print: the last stable offset, the producer, and since when."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from .output import note, print_table
from .times import show_time

if TYPE_CHECKING:
    from kts.segment.partition import ReadablePartition

MOST_BYTES = 2**26  # of a log, for a command that reads little else


def unstable_of(log: ReadablePartition, most_bytes: int) -> dict[str, Any]:
    """The fields of ``--json`` about open transactions; null if more of the log must be read than that."""
    from kts.segment.transactions import unstable

    found = unstable(log, most_bytes=most_bytes)
    if found is None:
        return {"lastStableOffset": None, "openTransactions": None}
    opened = [
        {"producerId": one.producer_id, "firstOffset": one.first_offset, "firstTimestamp": one.first_timestamp_ms}
        for one in found.transactions(log)
    ]
    return {"lastStableOffset": max(found.last_stable_offset, log.log_start_offset), "openTransactions": opened}


def print_open_transactions(rows: Iterable[dict[str, Any]]) -> None:
    """A table of the open transactions in rows with ``topic``, ``partition`` and the fields above; nothing if none."""
    cells = [
        (
            f"{row['topic']}-{row['partition']}",
            f"{row['lastStableOffset']:,}",
            one["producerId"],
            f"{one['firstOffset']:,}",
            show_time(one["firstTimestamp"]),
        )
        for row in rows
        for one in row["openTransactions"] or ()
    ]
    if cells:
        print_table(("partition", "last stable", "producer", "open from", "open since"), cells, right=(1, 2, 3))
        note("a read_committed consumer reads up to the last stable offset, until the open transactions end")
