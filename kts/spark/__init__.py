"""Kafka's log directories in Spark: the data source ``kts``, and functions for record sets held in a binary column."""

from __future__ import annotations

from kts.spark.functions import decode_in_arrow, decode_udf

__all__ = ["decode_in_arrow", "decode_udf"]
