"""A Spark application that synchronises logs with Iceberg tables.

Usage: sync_job.py SETTINGS. The settings of the session are JSON. For each line of stdin, the arguments of
``kts.spark.sync`` as JSON, it prints what that returned, or raised, and the rows that Spark sees in the table, as JSON.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from pyspark.sql import SparkSession

import kts.spark
from kts.errors import KtsError


def answer(spark: SparkSession, asked: dict[str, Any]) -> dict[str, Any]:
    try:
        done = kts.spark.sync(spark, asked.pop("path"), asked.pop("table"), **asked)
    except (KtsError, ValueError) as error:
        return {"raised": type(error).__name__, "said": str(error)}
    tables = {}
    for one in done.tables:
        rows = spark.sql(f"SELECT partition, `offset` FROM {one.table} ORDER BY 1, 2").collect()
        tables[one.table] = {
            "added": [one.records, one.commits, one.without_day, one.without_timestamp],
            "rows": [[row.partition, row.offset] for row in rows],
        }
    return tables


def main(settings: dict[str, str]) -> None:
    builder = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "1g")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
    )
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    for line in sys.stdin:
        print(json.dumps(answer(spark, json.loads(line))), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
