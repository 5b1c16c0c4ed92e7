"""A warm process that forks ``kts`` commands, for tests that kill them: ``python follow_nursery.py``, one job a line.

A line of standard input is the command's arguments as JSON. Its process id and at last ``dead`` and how it ended come
out, a line each; what the command prints goes to the file that is named first.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support.golden import PATIENCE_S


class Nursery:
    """Starts commands, a few ms each."""

    def __init__(self, process: subprocess.Popen[str], folder: Path) -> None:
        self._process = process
        self.out = folder / "out.txt"

    def start(self, *arguments: object) -> int:
        """The process id of a command."""
        assert self._process.stdin is not None and self._process.stdout is not None
        print(json.dumps([str(self.out), *map(str, arguments)]), file=self._process.stdin, flush=True)
        word, pid = self._process.stdout.readline().split()
        assert word == "pid"
        return int(pid)

    def ended(self) -> int:
        """The exit code of the one that was started last, once it has ended; negative for a signal."""
        assert self._process.stdout is not None
        word, code = self._process.stdout.readline().split()
        assert word == "dead"
        return int(code)

    def said(self) -> str:
        return self.out.read_text(encoding="utf-8")


@contextmanager
def nursery(folder: Path) -> Iterator[Nursery]:
    """Everything that it started ends with it."""
    import kts

    path = os.pathsep.join([str(Path(kts.__file__).parent.parent), *sys.path])
    process = subprocess.Popen(
        [sys.executable, __file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        yield Nursery(process, folder)
    finally:
        process.stdin.close()
        try:
            process.wait(PATIENCE_S)
        finally:
            process.kill()
            process.stdout.close()


def dies_with_its_parent() -> None:
    import ctypes

    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG


def run(out: str, arguments: list[str]) -> None:
    """The body of a forked process."""
    from kts.cli import main

    code: Any = 1
    try:
        dies_with_its_parent()
        fd = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(fd, 1)
        os.dup2(fd, 2)
        main(arguments)
    except SystemExit as stop:
        code = stop.code
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 1)


def serve() -> None:
    import kts.cli.follow
    import kts.log.log  # noqa: F401

    for line in sys.stdin:
        out, *arguments = json.loads(line)
        child = os.fork()
        if child == 0:
            run(out, arguments)
        print("pid", child, flush=True)
        print("dead", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    serve()
