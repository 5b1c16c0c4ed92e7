"""Spark applications in processes of their own, which tests ask, kill, and start again."""

from __future__ import annotations

import json
import os
import random
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from support.processes.dying import DIES_TOO
from support.processes.tree import below
from support.waiting import PATIENCE_S

# Of every session of the tests. A program of another environment gets them as JSON.
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
}
WORKER = b"python", b"pyspark"  # one that plans, reads, or forks those that read
EXECUTOR = (b"CoarseGrainedExecutorBackend",)


def separate(executors: int) -> dict[str, str]:
    """The setting for executors in processes of their own, on two cores."""
    return {"spark.master": f"local-cluster[{executors},{2 // executors},1024]"}


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


class Application:
    """A program that makes a Spark session.

    Parameters
    ----------
    work : path
        Its working directory, which is first on the module path of its driver and executors.
    environ : mapping
        From ``spark_environ`` or ``iceberg_environ``.
    asks : bool
        Whether it answers lines of JSON on stdin with lines on stdout.
    """

    def __init__(
        self, script: Path, work: Path, environ: Mapping[str, str], *arguments: str, asks: bool = False
    ) -> None:
        self.command = [*DIES_TOO, sys.executable, str(script), *arguments]
        self.work, self.said, self.asks = work, work / "said", asks
        home = work / "home"  # executors write into it
        home.mkdir()
        for name in ("bin", "jars"):
            (home / name).symlink_to(Path(environ["SPARK_HOME"], name))
        paths = [str(work), *filter(None, [environ.get("PYTHONPATH")])]
        own = {"PYTHONPATH": os.pathsep.join(paths), "SPARK_HOME": str(home)}
        self.environ = os.environ | environ | own
        self.groups: list[int] = []

    def start(self) -> None:
        with self.said.open("ab") as said:
            self.process = subprocess.Popen(
                self.command,
                env=self.environ,
                cwd=self.work,
                stdin=subprocess.PIPE if self.asks else None,
                stdout=subprocess.PIPE if self.asks else said,
                stderr=said,
                start_new_session=True,
            )
        self.groups.append(self.process.pid)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Started, and whatever is left is killed in the end."""
        self.start()
        try:
            yield
        finally:
            for group in self.groups:
                with suppress(ProcessLookupError):
                    os.killpg(group, signal.SIGKILL)
            self.process.wait()

    def tell(self, **asked: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(asked).encode() + b"\n")
        self.process.stdin.flush()

    def answers_within(self, seconds: float) -> bool:
        return bool(select.select([self.process.stdout], [], [], seconds)[0])

    def answer(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.said.read_text(errors="replace")[-4000:]
        return json.loads(line)

    def ended(self) -> None:
        """Wait until it has ended well."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        assert self.process.wait(PATIENCE_S) == 0, self.said.read_text(errors="replace")[-4000:]

    def kill_driver(self) -> None:
        """The driver alone: its executors have to notice it."""
        for process in [self.process.pid, *started(self.process.pid, b"SparkSubmit")]:
            os.kill(process, signal.SIGKILL)
        self.process.wait()

    def kill_one(self, rng: random.Random, *words: bytes) -> bool:
        """Kill one of the processes with these words in their command, if there are any."""
        found = started(self.process.pid, *words)
        if found:
            os.kill(rng.choice(found), signal.SIGKILL)
        return bool(found)
