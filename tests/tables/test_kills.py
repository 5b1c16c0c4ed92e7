"""Each record once: a synchronisation that is killed while the log grows and rolls."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from support.golden import scaled
from support.processes.sync_runs import Job
from support.sets.growing import JSON_SCHEMA, JsonWriter
from support.tables import check_each_once, data_files, folder_files


@pytest.mark.parametrize("sink", ["iceberg", "parquet"])
def test_each_record_arrives_once_though_the_program_is_killed(tmp_path: Path, rng: random.Random, sink: str) -> None:
    # Some seconds: what exactly once means can only be seen from outside, after real kills.
    kills = int(os.environ.get("KTS_KILLS") or scaled(3, 10))
    logs, work = tmp_path / "logs", tmp_path / "work"
    work.mkdir()
    writer = JsonWriter(logs, rng, {"segment.bytes": 20_000})
    (work / "schema.json").write_text(JSON_SCHEMA)
    decoded = {"value_format": "json", "value_schema": str(work / "schema.json")}
    iceberg = {"table": "lake.db.rows", "catalog": str(work / "c.sqlite")}
    job = Job(logs, work, (iceberg if sink == "iceberg" else {"table": str(work / "rows")}) | decoded)
    writer.start()
    try:
        job.start()
        for _ in range(kills):
            job.kill_after(rng.randrange(1, 4), rng.random() / 4)
            job.start()
    finally:
        ends = writer.stop()
    (work / "finish").touch()
    job.finish()
    names = "rows", "rows_rejected"
    if sink == "iceberg":
        found = [data_files(work / "c.sqlite", f"lake.db.{name}") for name in names]
    else:
        found = [folder_files(work / name) for name in names]
    print(f"kts sync, {sink}: {kills} kills, {check_each_once(*found, ends)} records")
