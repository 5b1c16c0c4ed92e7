"""Each record once: streaming queries into Parquet, Iceberg and kts, whose driver, executors and workers are killed
while the log grows, rolls and is retained."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow.feather
import pytest
from support.golden import scaled
from support.kafka.jvm import spark_environ
from support.processes.dying import DIES_TOO
from support.processes.tree import below
from support.spark.iceberg import iceberg_environ, iceberg_settings
from support.waiting import wait_until

import kts
from kts.offline.verify import verify

CONFIG = {"segment.bytes": 20_000, "retention.bytes": 1_000_000, "file.delete.delay.ms": 0}
PAUSE_S = 0.03  # between two appends
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


class Writer(threading.Thread):
    """Appends records that say where they are, rolls, and deletes old segments, until told to stop."""

    def __init__(self, folder: Path, rng: random.Random) -> None:
        super().__init__()
        self.logs = [kts.Log(folder / f"orders-{partition}", CONFIG) for partition in range(2)]
        self.folder, self.rng = folder, rng
        self.done, self.retains = threading.Event(), threading.Event()

    def run(self) -> None:
        while not self.done.wait(PAUSE_S):
            partition = self.rng.randrange(len(self.logs))
            log = self.logs[partition]
            offsets = range(log.log_end_offset, log.log_end_offset + self.rng.randrange(1, 40))
            log.append_rows({"value": [b"%d:%d" % (partition, offset) + b" " * 70 for offset in offsets]})
            log.checkpoint()
            if self.retains.is_set() and self.rng.random() < 0.1:
                log.delete_old_segments()

    def add_partition(self) -> None:
        self.logs.append(kts.Log(self.folder / f"orders-{len(self.logs)}", CONFIG))

    def stop(self) -> list[int]:
        """The ends of the partitions, which stay what they are."""
        if self.is_alive():
            self.done.set()
            self.join()
        ends = [log.log_end_offset for log in self.logs]
        for log in self.logs:
            log.close()
        return ends


def started(driver: int, *words: bytes) -> list[int]:
    """The processes that a driver has started, directly or not, whose command has these words."""
    found = []
    for process in below(driver):
        try:
            command = Path(f"/proc/{process}/cmdline").read_bytes()
        except OSError:  # it has ended
            continue
        if all(word in command for word in words):
            found.append(process)
    return found


class Job:
    """The Spark application, started again whenever it is killed."""

    def __init__(self, logs: Path, work: Path, sink: str, executors: int) -> None:
        self.work = work
        script = Path(__file__).with_name("stream_job.py")
        settings = iceberg_settings(work) if sink == "iceberg" else {}
        settings["spark.master"] = f"local-cluster[{executors},{2 // executors},1024]"  # processes of their own
        self.command = [*DIES_TOO, sys.executable, str(script), str(logs), str(work), sink, json.dumps(settings)]
        self.said, self.told = work / "said", work / "told"
        (work / "sitecustomize.py").write_text(TELLS.format(told=str(self.told)), encoding="utf-8")
        environ = os.environ | (iceberg_environ() if sink == "iceberg" else spark_environ())
        paths = [str(work), *filter(None, [environ.get("PYTHONPATH")])]
        home = work / "home"  # executors write into it
        home.mkdir()
        for name in ("bin", "jars"):
            (home / name).symlink_to(Path(environ["SPARK_HOME"], name))
        self.environ = environ | {"PYTHONPATH": os.pathsep.join(paths), "SPARK_HOME": str(home)}
        self.told.touch()
        self.groups: list[int] = []

    def start(self) -> None:
        with self.said.open("ab") as said:
            self.process = subprocess.Popen(
                self.command, env=self.environ, cwd=self.work, stdout=said, stderr=said, start_new_session=True
            )
        self.groups.append(self.process.pid)

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

    def kill_driver(self) -> None:
        """The driver alone: its executors have to notice it."""
        for process in [self.process.pid, *started(self.process.pid, b"SparkSubmit")]:
            os.kill(process, signal.SIGKILL)
        self.process.wait()

    def kill_one(self, rng: random.Random, *words: bytes) -> None:
        if found := started(self.process.pid, *words):
            os.kill(rng.choice(found), signal.SIGKILL)

    def end(self) -> None:
        """Kill whatever is left."""
        for group in self.groups:
            with suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)
        self.process.wait()


@contextmanager
def running(job: Job) -> Iterator[None]:
    job.start()
    try:
        yield
    finally:
        job.end()


WORKER = b"python", b"pyspark"  # one that plans, reads, or forks those that read
EXECUTOR = (b"CoarseGrainedExecutorBackend",)


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
    writer, job = Writer(logs, rng), Job(logs, work, sink, executors)
    writer.start()
    ends: list[int] = []
    try:
        with running(job):
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
            assert job.process.wait() == 0, job.said.read_text(errors="replace")[-4000:]
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
