"""One Spark session that reads a topic to `noop` by turns: from the broker, from its log directory, and as ready-made
Arrow batches.

Runs in an environment of its own. Arguments: the broker's address, the topic, the broker's log directory and process,
records, cores, rounds, jars. Prints one line of JSON: of each source the records, and CPU and clock seconds a round.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from bench.ready_made import ready_made_source, write_ready_made
from bench.spark_session import cpu_and_clock, session

WARM_UP = 2  # rounds that do not count: the JVM is still compiling


def main(
    address: str, topic: str, directory: str, broker: int, records: int, cores: int, rounds: int, jars: str
) -> None:
    spark = session(cores, jars)
    spark.dataSource.register(ready_made_source())
    with tempfile.TemporaryDirectory() as folder:
        batch = Path(folder, "batch.arrow")
        repeats = write_ready_made(Path(directory, f"{topic}-0"), batch, records)
        kafka = spark.read.format("kafka").option("kafka.bootstrap.servers", address).option("subscribe", topic)
        ready = spark.read.format("ready_made").option("path", str(batch)).option("repeats", repeats)
        sources = {
            "Spark's Kafka source": kafka.option("startingOffsets", "earliest")
            .option("endingOffsets", "latest")
            .load(),
            "kts": spark.read.format("kts").option("subscribe", topic).load(directory),
            "ready-made batches": ready.load(),
        }
        found = {
            name: {"version": spark.version, "columns": source.columns, "records": source.count(), "rounds": []}
            for name, source in sources.items()
        }
        for number in range(WARM_UP + rounds):
            for name, source in sources.items():
                write = source.write.format("noop").mode("overwrite")
                taken = cpu_and_clock(write.save, [broker])
                if number >= WARM_UP:
                    found[name]["rounds"].append(taken)
        spark.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:4], *map(int, sys.argv[4:8]), sys.argv[8])
