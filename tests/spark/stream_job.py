"""A Spark application with one streaming query from a log directory into Parquet, which starts the query again when it
fails.

Usage: stream_job.py LOG_DIRECTORY WORK_DIRECTORY. When the file WORK_DIRECTORY/finish exists, it reads what is left,
and writes the rows that Spark sees in the Parquet directory to WORK_DIRECTORY/found.arrow.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pyarrow.feather
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

EACH = 400  # offsets in a micro-batch


def main(logs: Path, work: Path) -> None:
    spark = (
        SparkSession.builder.master("local[2,4]")  # a task is tried four times, as on a cluster
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "1g")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.streaming.minBatchesToRetain", "5")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    finish = work / "finish"

    def start(**trigger: Any) -> Any:
        table = (
            spark.readStream.format("kts")
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", EACH if "processingTime" in trigger else 100 * EACH)
            .option("failOnDataLoss", "false")
            .load(str(logs))
        )
        write = table.select("partition", "offset", "value").writeStream.format("parquet")
        write = write.option("checkpointLocation", str(work / "checkpoint")).trigger(**trigger)
        return write.start(str(work / "rows"))

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
    pyarrow.feather.write_feather(spark.read.parquet(str(work / "rows")).toArrow(), str(work / "found.arrow"))
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
