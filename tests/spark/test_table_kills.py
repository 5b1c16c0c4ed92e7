"""Each record once: ``kts.spark.sync``, whose driver, executors and workers are killed while the log grows."""

from __future__ import annotations

import json
import os
import random
import time
from pathlib import Path
from typing import Any

import pytest
from support.golden import scaled
from support.kafka.jvm import spark_environ
from support.sets.growing import JSON_SCHEMA, PAUSE_S, JsonWriter
from support.spark.applications import EXECUTOR, SETTINGS, WORKER, Application, separate
from support.spark.iceberg import iceberg_environ, iceberg_settings
from support.tables import check_each_once, data_files, folder_files, iceberg_table

from kts.tables import sync

TURNS = [WORKER, EXECUTOR, None]  # what is killed; None is the driver
SINKS = ["parquet", "iceberg"]  # Iceberg's Spark is a second environment, which `make test` does not fetch


@pytest.mark.parametrize("sink", SINKS[: 2 if "KTS_KILLS" in os.environ else scaled(1, 2)])
def test_each_record_arrives_once_though_drivers_executors_and_workers_are_killed(
    tmp_path: Path, rng: random.Random, sink: str
) -> None:
    # Half a minute of Spark: what exactly once means can only be seen from outside, after real kills.
    kills = int(os.environ.get("KTS_KILLS") or scaled(3, 10))
    logs, work, iceberg = tmp_path / "logs", tmp_path / "work", sink == "iceberg"
    table = "lake.db.rows" if iceberg else str(work / "rows")
    names = table, f"{table}_rejected"
    work.mkdir()
    (work / "schema.json").write_text(JSON_SCHEMA)
    decoded = {"value_format": "json", "value_schema": str(work / "schema.json")}
    settings = SETTINGS | separate(1) | (iceberg_settings(work) if iceberg else {})
    environ = iceberg_environ() if iceberg else spark_environ()
    script = Path(__file__).with_name("sync_job.py")
    spark = Application(script, work, environ, json.dumps(settings), asks=True)
    writer = JsonWriter(logs, rng, {"segment.bytes": 20_000})

    def ask() -> float:
        """Ask for a run once there is something to add; the time of a monotonic clock."""
        time.sleep(4 * PAUSE_S)
        spark.tell(path=str(logs), table=table, **decoded)
        return time.monotonic()

    writer.start()
    ends: list[int] = []
    last: dict[str, Any] = {}
    killed, runs, raised = [0] * len(TURNS), 0, 0
    try:
        with spark.running():
            begun = ask()
            assert set(spark.answer()) == {*names}
            took = time.monotonic() - begun  # by the last run that added records and was not killed
            while sum(killed) < kills:
                turn = sum(killed) % len(TURNS)
                words = TURNS[turn]
                begun = ask()
                runs += 1
                answered = spark.answers_within(rng.random() * took)
                if not answered:
                    if words is None:
                        spark.kill_driver()
                        killed[turn] += 1
                        if sum(killed) == kills:  # `kts sync` adds the rest
                            break
                        spark.start()
                        continue
                    killed[turn] += spark.kill_one(rng, *words)
                found = spark.answer()
                if "raised" in found:
                    raised += 1
                    print(found["said"][:500])
                elif answered and found[table]["added"][0]:
                    took = time.monotonic() - begun
            ends = writer.stop()
            if spark.process.poll() is None:
                ask()
                last = spark.answer()
                assert set(last) == {*names}, last
                spark.ended()
    finally:
        if not ends:
            writer.stop()
    catalog = work / "catalog.sqlite" if iceberg else None
    more = sync(logs, table, catalog=catalog, **decoded)  # type: ignore[arg-type]
    assert not last or [one.records for one in more.tables] == [0, 0]
    files = [data_files(catalog, name) if catalog else folder_files(Path(name)) for name in names]
    records = check_each_once(*files, ends)
    for name in names:
        if catalog is None:
            assert sorted(path.name for path in Path(name, "_kts").iterdir()) == ["ledger.json", "lock"]
        else:
            left = [ref for ref in iceberg_table(catalog, name).refs() if ref != "main"]
            assert left == [] or not last or last[name]["added"][0] == 0
    workers, executors, drivers = killed
    print(
        f"kts.spark.sync, {sink}: {kills} kills ({drivers} of drivers, {executors} of executors, {workers} of workers),"
        f" {runs} runs of which {raised} raised, {records} records"
    )
