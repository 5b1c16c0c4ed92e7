"""Spark's own Kafka source, 4.0.0, on `kts serve`: the same rows as `format("kts")` has from the directory."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.clients.client_librdkafka import Confluent
from support.clients.client_places import Place, place
from support.clients.client_records import APPEND, NOON_MS, Record, make
from support.golden import PATIENCE_S, scaled
from support.kafka.jvm import JAVA, maven_class_path, require_spark
from support.spark.applications import SETTINGS
from support.spark.releases import release_environ

SPARK = "4.0.0"  # the newest release whose Kafka source is published is often older than the newest pyspark
PARTITIONS, RECORDS = 3, 2000
OLD_MS = -386_380_800_000  # 1957-10-04
FOLDER = Path(__file__).parent

pytestmark = pytest.mark.skipif(sys.version_info >= (3, 14), reason=f"Spark {SPARK} is for Python up to 3.13")


def options(topic: str, **given: object) -> dict[str, str]:
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in given.items()}
    return {"subscribe": topic, "includeHeaders": "true"} | texts


def reads(now: int, rng: random.Random) -> dict[str, dict[str, str]]:
    """By name; `now` is the time of the newest record."""
    third = (now - NOON_MS) // 3
    start, end = NOON_MS + rng.randrange(third), now - rng.randrange(third)
    by_partition = {"t": {"0": NOON_MS, "1": start, "2": start + 500}}
    until = {"t": {"0": start, "1": end, "2": end + 1}}
    return {
        "everything": options("t", startingOffsets="earliest", endingOffsets="latest"),
        "without headers": {"subscribe": "t"},
        "two topics": {"subscribePattern": "t|appended", "includeHeaders": "true"},
        "between times": options("t", startingTimestamp=start, endingTimestamp=end),
        "from a time": options("t", startingTimestamp=start),
        "to a time": options("t", endingTimestamp=end),
        "by partition": options("t", startingOffsetsByTimestamp=by_partition, endingOffsetsByTimestamp=until),
        "by time and offset": options("t", startingTimestamp=start, endingOffsets={"t": {"0": -1, "1": 1999, "2": -1}}),
        "after all": options("t", startingTimestamp=NOON_MS * 2, startingOffsetsByTimestampStrategy="latest"),
        "refused: after all": options("t", startingTimestamp=NOON_MS * 2),
        "appended": options("appended", startingTimestamp=start, endingTimestamp=NOON_MS * 2),
        "before 1970": {"subscribe": "old", "startingTimestamp": str(OLD_MS + 1)},
        "until 1957": {"subscribe": "old", "endingTimestamp": str(OLD_MS + 1)},
        "stream": options("t", startingOffsetsByTimestamp=by_partition),
    }


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    require_spark()
    with place(tmp_path_factory.mktemp("broker")) as found:
        yield found


@pytest.mark.parametrize("spark", [SPARK][: scaled(0, 1)])  # fetches and starts a Spark of its own
def test_sparks_kafka_source_reads_from_kts_serve_what_kts_reads_from_the_directory(
    spark: str, broker: Place, tmp_path: Path, rng: random.Random
) -> None:
    jars = maven_class_path(JAVA / "clients" / f"spark-{SPARK}.xml")
    client, newest = Confluent(), []
    broker.create("t", PARTITIONS, segment_bytes=50_000)
    broker.create("appended", PARTITIONS, message_timestamp_type=APPEND)
    broker.create("old", allow_negative_timestamps="true")
    client.produce(broker.bootstrap, "old", [Record(b"k", b"v", OLD_MS + i) for i in range(5)])
    for partition in range(PARTITIONS):
        records = make(rng, RECORDS)
        newest.append(max(one.timestamp or 0 for one in records))
        for codec, part in (("none", records[:700]), ("zstd", records[700:])):
            client.produce(broker.bootstrap, "t", part, codec=codec, partition=partition)
        client.produce(broker.bootstrap, "appended", records[:300], codec="lz4", partition=partition)
    asked = reads(min(newest), rng)

    job = [sys.executable, str(FOLDER / "spark_job.py"), broker.bootstrap, str(broker.data), str(tmp_path)]
    environ = os.environ | release_environ(spark)
    done = subprocess.run(
        [*job, json.dumps(SETTINGS | {"spark.master": "local[2]", "spark.jars": jars.replace(":", ",")})],
        input=json.dumps(asked),
        env=environ,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    if done.returncode:
        pytest.fail(f"the Spark job failed:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert answer["version"] == spark
    found = answer["reads"]
    assert found.keys() == asked.keys()
    for name, read in found.items():
        if name.startswith("refused"):
            assert all(read), (name, read)
            continue
        ours, theirs = read.pop("schemas")
        assert ours == theirs, name
        assert read["equal"], (name, read)
        assert (read["rows"][0] == 0) == (name == "after all"), (name, read)
    assert found["everything"]["rows"][0] == PARTITIONS * RECORDS
    assert (found["before 1970"]["rows"][0], found["until 1957"]["rows"][0]) == (4, 1)
