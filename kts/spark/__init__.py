"""Kafka's log directories in Spark: the data source ``kts``, reads by time, and record sets held in a binary column."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kts.spark.frames import damage, read
from kts.spark.functions import decode_in_arrow, decode_udf, from_event_time, to_event_time

if TYPE_CHECKING:
    from kts.spark.tables import sync
else:

    def __getattr__(name: str) -> Any:
        """``sync`` is loaded when it is asked for: it needs pyspark at once."""
        if name != "sync":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from kts.spark.tables import sync

        return sync


__all__ = ["damage", "decode_in_arrow", "decode_udf", "from_event_time", "read", "sync", "to_event_time"]
