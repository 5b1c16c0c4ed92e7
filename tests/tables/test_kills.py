"""Each record once: a synchronisation that is killed while the log grows and rolls."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from support.golden import scaled
from support.processes.dying import DIES_TOO
from support.tables import data_files, query
from support.waiting import PATIENCE_S

import kts

CONFIG = {"segment.bytes": 20_000, "file.delete.delay.ms": 0}
SCHEMA = (
    '{"type": "object", "properties": {"p": {"type": "integer"}, "o": {"type": "integer"}}, "required": ["p", "o"]}'
)
PAUSE_S = 0.02  # between two appends


class Writer(threading.Thread):
    """Appends records that say where they are, until told to stop."""

    def __init__(self, folder: Path, rng: random.Random) -> None:
        super().__init__()
        self.logs = [kts.Log(folder / f"orders-{partition}", CONFIG) for partition in range(2)]
        self.rng, self.done = rng, threading.Event()

    def run(self) -> None:
        while not self.done.wait(PAUSE_S):
            partition = self.rng.randrange(len(self.logs))
            log = self.logs[partition]
            offsets = range(log.log_end_offset, log.log_end_offset + self.rng.randrange(1, 40))
            values = [json.dumps({"p": partition, "o": offset}).encode() for offset in offsets]
            log.append_rows({"value": [value if self.rng.random() < 0.9 else b"{" + value for value in values]})

    def stop(self) -> list[int]:
        """The ends of the partitions, which stay what they are."""
        self.done.set()
        self.join()
        ends = [log.log_end_offset for log in self.logs]
        for log in self.logs:
            log.close()
        return ends


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


def files_of(work: Path, sink: str, name: str) -> list[str]:
    if sink == "iceberg":
        return data_files(work / "c.sqlite", f"lake.db.{name}")
    return [str(path) for path in (work / name).glob("day=*/*.parquet")]


@pytest.mark.parametrize("sink", ["iceberg", "parquet"])
def test_each_record_arrives_once_though_the_program_is_killed(tmp_path: Path, rng: random.Random, sink: str) -> None:
    # Some seconds: what exactly once means can only be seen from outside, after real kills.
    kills = int(os.environ.get("KTS_KILLS") or scaled(3, 10))
    logs, work = tmp_path / "logs", tmp_path / "work"
    work.mkdir()
    writer = Writer(logs, rng)
    (work / "schema.json").write_text(SCHEMA)
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
    wrong = '"offset" <> value.o OR partition <> value.p'
    assert query(files_of(work, sink, "rows"), f"SELECT count(*) FROM rows WHERE {wrong}") == [(0,)]
    places = 'SELECT partition, "offset" FROM rows ORDER BY ALL'
    added, refused = (query(files_of(work, sink, name), places) for name in ("rows", "rows_rejected"))
    assert len(added) > len(refused) > 0
    assert sorted(added + refused) == [
        (partition, offset) for partition, end in enumerate(ends) for offset in range(end)
    ]
