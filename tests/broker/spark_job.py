"""A Spark session that reads a topic by Spark's own Kafka source from a broker and by `kts` from its log directory.

Arguments: the broker's address, its log directory, a folder for what a stream leaves, the session's settings as JSON.
Standard input: one JSON object, name to the options of a read. Prints one line of JSON: of each read what the two
sources gave.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def rows(table: DataFrame) -> list[tuple[Any, ...]]:
    def plain(value: Any) -> Any:
        if isinstance(value, list):  # headers
            return [(one["key"], plain(one["value"])) for one in value]
        return bytes(value) if isinstance(value, bytearray) else value

    found = [tuple(plain(value) for value in row) for row in table.collect()]
    return sorted(found, key=lambda row: row[2:5])  # topic, partition, offset


def compare(ours: DataFrame, theirs: DataFrame) -> dict[str, Any]:
    mine, kafkas = rows(ours), rows(theirs)
    differ = next((pair for pair in zip(mine, kafkas, strict=False) if pair[0] != pair[1]), None)
    return {
        "rows": [len(mine), len(kafkas)],
        "schemas": [ours.schema.jsonValue(), theirs.schema.jsonValue()],
        "first that differs": None if differ is None else repr(differ),
        "equal": mine == kafkas,
    }


def main(address: str, directory: str, folder: str, settings: str) -> None:
    spark = SparkSession.builder.config(map=json.loads(settings)).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")  # failures are looked at where they are expected

    def ours(options: dict[str, str]) -> DataFrame:
        return spark.read.format("kts").options(strictTimeRange="false", **options).load(directory)

    def batch(options: dict[str, str]) -> DataFrame:
        return spark.read.format("kafka").option("kafka.bootstrap.servers", address).options(**options).load()

    def stream(options: dict[str, str], into: Path) -> DataFrame:
        read = spark.readStream.format("kafka").option("kafka.bootstrap.servers", address).options(**options)
        read = read.option("maxOffsetsPerTrigger", "2500")  # so that there is more than one batch
        write = read.load().writeStream.format("parquet").option("checkpointLocation", str(into / "checkpoint"))
        write.trigger(availableNow=True).start(str(into / "rows")).awaitTermination()
        return spark.read.parquet(str(into / "rows"))

    found = {}
    for name, options in json.load(sys.stdin).items():
        if name.startswith("refused"):
            found[name] = [refusal(ours, options), refusal(batch, options)]
        elif name.startswith("stream"):
            found[name] = compare(ours(options), stream(options, Path(folder, name)))
        else:
            found[name] = compare(ours(options), batch(options))
    spark.stop()
    print(json.dumps({"version": spark.version, "reads": found}))


def refusal(read: Any, options: dict[str, str]) -> str:
    try:
        rows(read(options))
    except PySparkException as refused:
        return str(refused)
    return ""


if __name__ == "__main__":
    main(*sys.argv[1:])
