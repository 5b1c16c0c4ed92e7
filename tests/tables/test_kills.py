"""Each record once: a synchronisation that is killed while the log grows and rolls."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from support.golden import scaled
from support.processes.dying import DIES_TOO
from support.sets.growing import JSON_SCHEMA, JsonWriter
from support.tables import check_each_once, data_files, folder_files
from support.waiting import PATIENCE_S


class Job:
    """The program, started again whenever it is killed."""

    def __init__(self, logs: Path, work: Path, asked: dict[str, Any]) -> None:
        script = Path(__file__).with_name("sync_job.py")
        self.command = [*DIES_TOO, sys.executable, str(script), str(logs), str(work), json.dumps(asked)]
        self.said = work / "said"

    def start(self) -> None:
        with self.said.open("ab") as said:
            self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=said)

    def kill_after(self, commits: int, pause_s: float) -> None:
        """Kill it some time after it has committed so often."""
        assert self.process.stdout is not None
        for _ in range(commits):
            assert self.process.stdout.readline() == b"commit\n", self.said.read_text()[-3000:]
        time.sleep(pause_s)
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def finish(self) -> None:
        self.process.communicate(timeout=PATIENCE_S)
        assert self.process.returncode == 0, self.said.read_text()[-3000:]


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
