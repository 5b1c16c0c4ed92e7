"""A Spark application that synchronises logs with tables.

Usage: sync_job.py SETTINGS. The settings of the session are JSON. For each line of stdin, the arguments of
``kts.spark.sync`` as JSON, it prints what that returned or raised as JSON; with ``"show": true`` among them, also the
rows that Spark sees in the tables. ``{"rows_of": TABLE}`` asks for these alone.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from pyspark.sql import SparkSession

import kts.spark


def answer(spark: SparkSession, asked: dict[str, Any]) -> dict[str, Any]:
    if "rows_of" in asked:
        return {"rows": rows_of(spark, asked["rows_of"])}
    show = asked.pop("show", False)
    try:
        done = kts.spark.sync(spark, asked.pop("path"), asked.pop("table"), **asked)
    except Exception as error:  # noqa: BLE001 - of the JVM, too, when an executor is killed again and again
        return {"raised": type(error).__name__, "said": str(error)}
    tables = {}
    for one in done.tables:
        tables[one.table] = {"added": [one.records, one.commits, one.without_day, one.without_timestamp]}
        if show:
            tables[one.table]["rows"] = rows_of(spark, one.table)
    return tables


def rows_of(spark: SparkSession, name: str) -> list[list[int]]:
    table = ".".join(f"`{part}`" for part in name.split("."))
    rows = spark.sql(f"SELECT partition, `offset` FROM {table} ORDER BY 1, 2").collect()
    return [[row.partition, row.offset] for row in rows]


def main(settings: dict[str, str]) -> None:
    builder = SparkSession.builder
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    for line in sys.stdin:
        print(json.dumps(answer(spark, json.loads(line))), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
