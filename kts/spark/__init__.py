"""Kafka's log directories in Spark: the data source ``kts``, reads by time, and record sets held in a binary column."""

from __future__ import annotations

from kts.spark.frames import damage, read
from kts.spark.functions import decode_in_arrow, decode_udf

__all__ = ["damage", "decode_in_arrow", "decode_udf", "read"]
