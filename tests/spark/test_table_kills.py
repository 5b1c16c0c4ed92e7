"""Each record once: ``kts.spark.sync``, whose driver, executors and workers are killed while the log grows."""

from __future__ import annotations

import json
import os
import random
import time
from pathlib import Path

import pytest
from support.golden import scaled
from support.kafka.jvm import require_spark
from support.sets.growing import JSON_SCHEMA, JsonWriter
from support.spark.applications import EXECUTOR, SETTINGS, WORKER, Application, separate
from support.spark.iceberg import iceberg_environ, iceberg_settings
from support.tables import check_each_once, data_files, iceberg_table

from kts.tables import sync

TABLE = "lake.db.rows"
TABLES = TABLE, f"{TABLE}_rejected"
TURNS = [EXECUTOR, None, WORKER]  # what is killed; None is the driver


# Iceberg's Spark is a second environment, which `make test` does not fetch.
@pytest.mark.parametrize("sink", ["iceberg"][: 1 if "KTS_KILLS" in os.environ else scaled(0, 1)])
def test_each_record_arrives_once_though_drivers_executors_and_workers_are_killed(
    tmp_path: Path, rng: random.Random, sink: str
) -> None:
    # A minute of Spark: what exactly once means can only be seen from outside, after real kills.
    require_spark()
    kills = int(os.environ.get("KTS_KILLS") or 3)
    logs, work = tmp_path / "logs", tmp_path / "work"
    work.mkdir()
    (work / "schema.json").write_text(JSON_SCHEMA)
    decoded = {"value_format": "json", "value_schema": str(work / "schema.json")}
    settings = SETTINGS | separate(1) | iceberg_settings(work)
    script = Path(__file__).with_name("sync_job.py")
    spark = Application(script, work, iceberg_environ(), json.dumps(settings), asks=True)
    writer = JsonWriter(logs, rng, {"segment.bytes": 20_000})

    def ask() -> float:
        """Ask for a run; the time of a monotonic clock."""
        spark.tell(path=str(logs), table=TABLE, **decoded)
        return time.monotonic()

    writer.start()
    ends: list[int] = []
    killed, runs, raised = [0] * len(TURNS), 0, 0
    try:
        with spark.running():
            for _ in range(2):  # the first one makes the tables
                begun = ask()
                assert set(spark.answer()) == {*TABLES}
                took = time.monotonic() - begun
            while sum(killed) < kills:
                turn = sum(killed) % len(TURNS)
                words = TURNS[turn]
                ask()
                runs += 1
                if not spark.answers_within(rng.random() * took):
                    if words is None:
                        spark.kill_driver()
                        killed[turn] += 1
                        spark.start()
                        continue
                    killed[turn] += spark.kill_one(rng, *words)
                found = spark.answer()
                if "raised" in found:
                    raised += 1
                    print(found["said"][:500])
            ends = writer.stop()
            ask()
            last = spark.answer()
            assert set(last) == {*TABLES}, last
            spark.ended()
    finally:
        if not ends:
            writer.stop()
    catalog = work / "catalog.sqlite"
    records = check_each_once(*(data_files(catalog, name) for name in TABLES), ends)
    assert [one.records for one in sync(logs, TABLE, catalog=catalog, **decoded).tables] == [0, 0]  # type: ignore[arg-type]
    for name, (added, *_) in zip(TABLES, (last[name]["added"] for name in TABLES), strict=True):
        assert added == 0 or [ref for ref in iceberg_table(catalog, name).refs() if ref != "main"] == []
    drivers, executors, workers = killed[1], killed[0], killed[2]
    print(
        f"kts.spark.sync: {kills} kills ({drivers} of drivers, {executors} of executors, {workers} of workers),"
        f" {runs} runs of which {raised} raised, {records} records"
    )
