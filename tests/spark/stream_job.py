"""A Spark application with one streaming query from a log directory into a table, which starts the query again when it
fails.

Usage: stream_job.py LOG_DIRECTORY WORK_DIRECTORY SINK SETTINGS. The sink is parquet, kts, or iceberg, whose table lies
in the catalog `lake`; the settings of the session are JSON. When the file WORK_DIRECTORY/finish exists, it reads what
is left, and writes the rows that Spark sees in the sink to WORK_DIRECTORY/found.arrow.
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


def main(logs: Path, work: Path, sink: str, settings: dict[str, str]) -> None:
    builder = SparkSession.builder.config("spark.sql.streaming.minBatchesToRetain", "5")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    finish, rows = work / "finish", str(work / "rows")
    if sink == "iceberg":
        spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.db")
        spark.sql(f"CREATE TABLE IF NOT EXISTS {TABLE} (partition int, offset bigint, value binary) USING iceberg")

    def start(**trigger: Any) -> Any:
        reader = spark.readStream.format("kts").option("startingOffsets", "earliest").option("failOnDataLoss", "false")
        if HAS_LIMITS:
            reader = reader.option("maxOffsetsPerTrigger", EACH if "processingTime" in trigger else 100 * EACH)
        write = reader.load(str(logs)).select("partition", "offset", "value").writeStream
        write = write.option("checkpointLocation", str(work / "checkpoint")).trigger(**trigger)
        if sink == "iceberg":
            return write.format("iceberg").toTable(TABLE)
        if sink == "kts":
            write = write.option("topic", "copies").option("segment.bytes", "50000")
        return write.format(sink).start(rows)

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
    found = spark.table(TABLE) if sink == "iceberg" else spark.read.format(sink).load(rows)
    if sink == "kts":  # the offsets are new, the value says the old one
        found = found.selectExpr("partition", "bigint(split(string(value), '[: ]')[1]) offset", "value")
    pyarrow.feather.write_feather(found.toArrow(), str(work / "found.arrow"))
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], json.loads(sys.argv[4]))
