"""Each record once: streaming queries into Parquet, Iceberg and kts, whose driver, executors and workers are killed
while the log grows, rolls and is retained."""

from __future__ import annotations

import json
import os
import random
import re
import threading
import time
from pathlib import Path

import pyarrow.feather
import pytest
from support.golden import scaled
from support.kafka.jvm import spark_environ
from support.sets.growing import Writer
from support.spark.applications import EXECUTOR, SETTINGS, WORKER, Application, separate
from support.spark.iceberg import iceberg_environ, iceberg_settings
from support.waiting import wait_until

import kts
from kts.offline.verify import verify

CONFIG = {"segment.bytes": 20_000, "retention.bytes": 1_000_000, "file.delete.delay.ms": 0}
# In each Python process that Spark starts. What they write to stderr goes through the driver: it gets lost when that is
# killed, and what two of them say at once is mixed.
TELLS = """\
import os, warnings

def tell(message, *_, **__):
    with open({told!r}, "a") as told:
        told.write(str(message).replace("\\n", " ") + "\\n")

warnings.showwarning = tell
"""
TOLD = re.compile(r"offsets (\d+) to (\d+) \(not included\) of orders-(\d+) (?:were deleted|went missing)")


class RetainingWriter(Writer):
    """Also checkpoints, rolls, and deletes old segments."""

    def __init__(self, folder: Path, rng: random.Random) -> None:
        super().__init__(folder, rng, CONFIG)
        self.retains = threading.Event()

    def append(self, log: kts.Log, offsets: range) -> None:
        super().append(log, offsets)
        log.checkpoint()
        if self.retains.is_set() and self.rng.random() < 0.1:
            log.delete_old_segments()


class Job(Application):
    """The streaming query, started again whenever it is killed."""

    def __init__(self, logs: Path, work: Path, sink: str, executors: int) -> None:
        settings = SETTINGS | separate(executors) | (iceberg_settings(work) if sink == "iceberg" else {})
        environ = iceberg_environ() if sink == "iceberg" else spark_environ()
        script = Path(__file__).with_name("stream_job.py")
        super().__init__(script, work, environ, str(logs), str(work), sink, json.dumps(settings))
        self.told = work / "told"
        (work / "sitecustomize.py").write_text(TELLS.format(told=str(self.told)), encoding="utf-8")
        self.told.touch()

    def committed(self) -> int:
        """The last micro-batch of the checkpoint; -1 if there is none."""
        commits = self.work / "checkpoint" / "commits"
        return max((int(path.name) for path in commits.glob("*") if path.name.isdigit()), default=-1)

    def wait_for(self, batches: int) -> None:
        """Until the query has committed so many more micro-batches."""
        target = self.committed() + batches

        def there() -> bool:
            assert self.process.poll() is None, self.said.read_text(errors="replace")[-4000:]
            return self.committed() >= target

        wait_until("the query", there)


SINKS = ["parquet", "iceberg", "kts"]  # Iceberg's Spark is a second environment, which `make test` does not fetch


@pytest.mark.parametrize("sink", SINKS[: 3 if "KTS_KILLS" in os.environ else scaled(1, 2)])
def test_each_record_arrives_once_though_drivers_executors_and_workers_are_killed(
    tmp_path: Path, rng: random.Random, sink: str
) -> None:
    # Half a minute of Spark: what exactly once means can only be seen from outside, after real kills.
    kills = int(os.environ.get("KTS_KILLS") or scaled(3, 10))
    executors = 1 if kills <= 10 else 2
    logs, work = tmp_path / "logs", tmp_path / "work"
    work.mkdir()
    writer, job = RetainingWriter(logs, rng), Job(logs, work, sink, executors)
    writer.start()
    ends: list[int] = []
    try:
        with job.running():
            for number in range(kills):
                job.wait_for(rng.randrange(1, 5))
                writer.retains.set()  # what was deleted before the first commit, no query has missed
                time.sleep(rng.random() / 2)
                if number % 3 != 1:
                    job.kill_one(rng, *(WORKER if number % 3 else EXECUTOR))
                    continue
                job.kill_driver()
                if len(writer.logs) == 2:
                    writer.add_partition()
                    first = writer.logs[0]
                    first.advance_log_start_offset(first.log_end_offset)  # whatever is not read yet is gone
                job.start()
            job.wait_for(2)
            ends = writer.stop()
            (work / "finish").touch()
            job.ended()
    finally:
        if not ends:
            writer.stop()

    found = pyarrow.feather.read_table(str(work / "found.arrow"))
    rows = list(zip(*(found[name].to_pylist() for name in ("partition", "offset", "value")), strict=True))
    assert all(value.split() == [b"%d:%d" % (partition, offset)] for partition, offset, value in rows)
    arrived = {(partition, offset) for partition, offset, _ in rows}
    assert len(arrived) == len(rows)
    if sink == "kts":
        assert rows == sorted(rows) and list(verify(work / "rows", deep=True)) == []
    lines = job.told.read_text(encoding="utf-8").splitlines()
    told = {
        (int(partition), offset)
        for first, end, partition in TOLD.findall("\n".join(lines))
        for offset in range(int(first), int(end))
    }
    missing = {(partition, offset) for partition, end in enumerate(ends) for offset in range(end)} - arrived
    untold = sorted(missing - told)
    assert not untold, (len(untold), untold[:3], untold[-3:], ends, lines[-50:])
    assert len(ends) == 3 and arrived <= {
        (partition, offset) for partition, end in enumerate(ends) for offset in range(end)
    }
    batches = job.committed() + 1
    print(f"{sink}: {kills} kills, {batches} micro-batches, {len(rows)} records, {len(missing)} retained and told")
