"""Programs that answer one command after the other: each process of the tests starts one, and asks it in every test."""

from __future__ import annotations

import atexit
import contextlib
import json
import subprocess
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from support.processes.dying import DIES_TOO

CLOSE_S = 60.0


class AskedProcess(subprocess.Popen[bytes]):
    """A process that reads its commands from its input, and ends with that."""

    def close(self) -> None:
        """End its input; kill it if that does not end it."""
        if self.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self.stdin.close()
        try:
            self.wait(CLOSE_S)
        except subprocess.TimeoutExpired:
            self.kill()
            self.wait()
        if self.stdout is not None:
            self.stdout.close()


class JsonLoop(ABC):
    """A program whose lines are JSON objects: a command in, an answer out. It ends with this process."""

    def __init__(self) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        self._process: AskedProcess | None = None
        atexit.register(self._close)

    @abstractmethod
    def start(self, **pipes: Any) -> AskedProcess:
        """Start it with these pipes."""

    def ask(self, do: str, **asked: object) -> dict[str, Any]:
        """Its answer to one command, with `error` where it failed."""
        if self._process is None:
            self._process = self.start(stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors)
        process = self._process
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("the program has no pipes")
        line = b""
        try:
            with contextlib.suppress(BrokenPipeError):  # then it says nothing either
                process.stdin.write(json.dumps({"do": do} | asked).encode() + b"\n")
                process.stdin.flush()
            line = process.stdout.readline()
        finally:
            if not line:  # it ended, or the test did; what it may still say is no answer to the next command
                process.kill()
                self._close()
        answer: dict[str, Any] = json.loads(line) if line else {"error": f"it ended: {self.said()}"}
        return answer

    def said(self) -> str:
        """The end of what it has logged."""
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace")[-3000:]

    def _close(self) -> None:
        if self._process is not None:
            self._process.close()
            self._process = None


class CommandLoop(JsonLoop):
    """A command of this machine."""

    def __init__(self, command: Sequence[str | Path]) -> None:
        super().__init__()
        self._command = command

    def start(self, **pipes: Any) -> AskedProcess:
        return AskedProcess([*DIES_TOO, *self._command], **pipes)
