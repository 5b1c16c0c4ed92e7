"""One Spark session that reads a topic as a stream to `noop` by turns: from the broker, and from its log directory.

Runs in an environment of its own. Arguments: the broker's address, the topic, the broker's log directory and process,
rounds, jars. Prints one line of JSON: of each source the records of a query, and CPU and clock seconds a round.
"""

from __future__ import annotations

import json
import sys
import tempfile
from functools import partial
from typing import TYPE_CHECKING, Any

from bench.spark_session import cpu_and_clock, session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

WARM_UP = 2  # rounds that do not count: the JVM is still compiling


def read(source: DataFrame, checkpoint: str, rows: list[int]) -> None:
    """Read all of it; `rows` gets the rows of each micro-batch."""
    write = source.writeStream.format("noop").option("checkpointLocation", checkpoint)
    query = write.trigger(availableNow=True).start()
    query.awaitTermination()
    rows += [each["numInputRows"] for each in query.recentProgress if each["numInputRows"]]


def main(address: str, topic: str, directory: str, broker: int, rounds: int, jars: str) -> None:
    spark = session(2, jars)
    kafka = spark.readStream.format("kafka").option("kafka.bootstrap.servers", address)
    sources = {
        "Spark's Kafka source": kafka.option("subscribe", topic).option("startingOffsets", "earliest").load(),
        "kts": spark.readStream.format("kts")
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load(directory),
    }
    found: dict[str, Any] = {
        name: {"version": spark.version, "columns": source.columns, "records": 0, "rounds": []}
        for name, source in sources.items()
    }
    for number in range(WARM_UP + rounds):
        for name, source in sources.items():
            with tempfile.TemporaryDirectory() as checkpoint:
                rows: list[int] = []
                taken = cpu_and_clock(partial(read, source, checkpoint, rows), [broker])
            [found[name]["records"]] = rows
            if number >= WARM_UP:
                found[name]["rounds"].append(taken)
    spark.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:4], int(sys.argv[4]), int(sys.argv[5]), sys.argv[6])
