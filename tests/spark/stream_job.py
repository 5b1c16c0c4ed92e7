"""A Spark application with one streaming query from a log directory into a table, which starts the query again when it
fails.

Usage: stream_job.py LOG_DIRECTORY WORK_DIRECTORY SETTINGS. The settings of the session are JSON. With those of a
catalog `lake` the table is Iceberg's, else it is a Parquet directory. When the file WORK_DIRECTORY/finish exists, it
reads what is left, and writes the rows that Spark sees in the table to WORK_DIRECTORY/found.arrow.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pyarrow.feather
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from kts.spark.source import HAS_LIMITS

EACH = 400  # offsets in a micro-batch
TABLE = "lake.db.rows"


def main(logs: Path, work: Path, settings: dict[str, str]) -> None:
    builder = (
        SparkSession.builder.master("local[2,4]")  # a task is tried four times, as on a cluster
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "1g")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.streaming.minBatchesToRetain", "5")
    )
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    finish = work / "finish"
    is_iceberg = "spark.sql.catalog.lake" in settings
    if is_iceberg:
        spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.db")
        spark.sql(f"CREATE TABLE IF NOT EXISTS {TABLE} (partition int, offset bigint, value binary) USING iceberg")

    def start(**trigger: Any) -> Any:
        reader = spark.readStream.format("kts").option("startingOffsets", "earliest").option("failOnDataLoss", "false")
        if HAS_LIMITS:
            reader = reader.option("maxOffsetsPerTrigger", EACH if "processingTime" in trigger else 100 * EACH)
        write = reader.load(str(logs)).select("partition", "offset", "value").writeStream
        write = write.option("checkpointLocation", str(work / "checkpoint")).trigger(**trigger)
        if is_iceberg:
            return write.format("iceberg").toTable(TABLE)
        return write.format("parquet").start(str(work / "rows"))

    ended = False
    while not ended:
        last = finish.exists()
        query = start(availableNow=True) if last else start(processingTime="0 seconds")
        try:
            while not (ended := query.awaitTermination(1)) and finish.exists() == last:
                pass
            query.stop()
        except StreamingQueryException as error:
            print(f"the query failed: {str(error)[-3000:]}", file=sys.stderr, flush=True)
            ended = False
    rows = spark.table(TABLE) if is_iceberg else spark.read.parquet(str(work / "rows"))
    pyarrow.feather.write_feather(rows.toArrow(), str(work / "found.arrow"))
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), json.loads(sys.argv[3]))
