"""One Spark session that reads a topic to `noop` in two ways, by turns: from the broker, and from its log directory.

Runs in an environment of its own. Arguments: bootstrap address, topic, its partitions' directory, cores, rounds, jars.
Prints one line of JSON: for each source the records, and CPU and clock seconds of every round.
"""

from __future__ import annotations

import json
import sys

from bench.spark_session import cpu_and_clock, session


def main(address: str, topic: str, directory: str, cores: str, rounds: str, jars: str) -> None:
    spark = session(int(cores), jars)
    kafka = spark.read.format("kafka").option("kafka.bootstrap.servers", address).option("subscribe", topic)
    sources = {
        "Spark's Kafka source": kafka.option("startingOffsets", "earliest").option("endingOffsets", "latest").load(),
        "kts": spark.read.format("kts").option("subscribe", topic).load(directory),
    }
    found = {
        name: {"version": spark.version, "columns": source.columns, "records": source.count(), "rounds": []}
        for name, source in sources.items()
    }
    for number in range(1 + int(rounds)):
        for name, source in sources.items():
            taken = cpu_and_clock(lambda source=source: source.write.format("noop").mode("overwrite").save())
            if number:  # the first is for warming up
                found[name]["rounds"].append(taken)
    spark.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
