"""One Spark session that reads a topic as a stream to `noop` by turns: from the broker, and from its log directory.

Runs in an environment of its own. Arguments: the broker's address, the topic, the broker's log directory and process,
rounds, offsets a trigger, jars. Prints one line of JSON: of each source the records of a query, CPU and clock seconds a
round, and of each round the records and the seconds of each micro-batch.
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


def read(source: DataFrame, checkpoint: str, found: list[tuple[int, float]]) -> None:
    """Read all of it; `found` gets the rows and the seconds of each micro-batch."""
    write = source.writeStream.format("noop").option("checkpointLocation", checkpoint)
    query = write.trigger(availableNow=True).start()
    query.awaitTermination()
    progress = [each for each in query.recentProgress if each["numInputRows"]]
    found += [(each["numInputRows"], each["durationMs"]["triggerExecution"] / 1000) for each in progress]


def main(address: str, topic: str, directory: str, broker: int, rounds: int, offsets: int, jars: str) -> None:
    spark = session(2, jars)
    options = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": str(offsets)}
    kafka = spark.readStream.format("kafka").option("kafka.bootstrap.servers", address)
    sources = {
        "Spark's Kafka source": kafka.options(**options).load(),
        "kts": spark.readStream.format("kts").options(**options).load(directory),
    }
    found: dict[str, Any] = {
        name: {"version": spark.version, "columns": source.columns, "records": 0, "rounds": [], "batches": []}
        for name, source in sources.items()
    }
    for number in range(WARM_UP + rounds):
        for name, source in sources.items():
            with tempfile.TemporaryDirectory() as checkpoint:
                batches: list[tuple[int, float]] = []
                taken = cpu_and_clock(partial(read, source, checkpoint, batches), [broker])
            found[name]["records"] = sum(rows for rows, _ in batches)
            if number >= WARM_UP:
                found[name]["rounds"].append(taken)
                found[name]["batches"].append(batches)
    spark.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:4], *map(int, sys.argv[4:7]), sys.argv[7])
