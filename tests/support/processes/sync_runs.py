"""A program that synchronises a table, to be killed."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from support.processes.dying import DIES_TOO
from support.waiting import PATIENCE_S


class Job:
    """The program, started again whenever it is killed."""

    def __init__(self, logs: Path, work: Path, asked: dict[str, Any]) -> None:
        script = Path(__file__).parents[2] / "tables/sync_job.py"
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
