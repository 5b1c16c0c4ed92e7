"""One Spark session that writes the same rows by turns: as kts, as uncompressed Parquet, through Spark's Kafka sink.

Runs in an environment of its own. Arguments: the broker's address, the topic to read, the topic to write, the broker's
log directory and process, rounds, jars. Prints one line of JSON: the version, the rows, and of each sink CPU and clock
seconds a round.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import kts
from bench.spark_session import cpu_and_clock, session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

WARM_UP = 2  # rounds that do not count: the JVM is still compiling


def sinks(rows: DataFrame, address: str, topic: str) -> dict[str, Callable[[str], None]]:
    """By name, what writes all rows; kts and Parquet into a directory."""
    kafka = rows.write.format("kafka").option("kafka.bootstrap.servers", address).option("topic", topic)
    parquet = rows.write.option("compression", "uncompressed")
    return {
        "kts": lambda path: rows.write.format("kts").option("topic", topic).mode("append").save(path),
        "uncompressed Parquet": lambda path: parquet.parquet(f"{path}/rows"),
        "Spark's Kafka sink": lambda _: kafka.save(),
    }


def main(address: str, source: str, topic: str, directory: str, broker: int, rounds: int, jars: str) -> None:
    spark = session(2, jars)
    read = spark.read.format("kts").option("subscribe", source).load(directory)
    rows = read.select("key", "value", "timestamp", "partition").cache()
    count = rows.count()
    found: dict[str, Any] = {}
    for number in range(WARM_UP + rounds):
        for name, write in sinks(rows, address, topic).items():
            with tempfile.TemporaryDirectory() as path:
                taken = cpu_and_clock(lambda write=write, path=path: write(path), [broker])
                if name == "kts":
                    with kts.open_log_dirs(path) as logs:
                        written = sum(log.log_end_offset for log in logs.values())
                    if written != count:
                        raise ValueError(f"expected {count} records in the log directory, found {written}")
            if number >= WARM_UP:
                found.setdefault(name, []).append(taken)
    print(json.dumps({"version": spark.version, "records": count, "rounds": found}))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:5], int(sys.argv[5]), int(sys.argv[6]), sys.argv[7])
