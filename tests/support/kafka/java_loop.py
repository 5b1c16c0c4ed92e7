"""Java programs that answer one command after the other: each process of the tests starts one, and asks it in every
test. Half of the work of a short life is to load and to compile classes."""

from __future__ import annotations

import atexit
import contextlib
import json
import subprocess
import tempfile
from collections.abc import Sequence
from typing import Any

from support.kafka.jvm import JavaProcess, Jvm


class JavaLoop:
    """A program whose lines are JSON objects: a command in, an answer out. It ends with this process.

    Parameters
    ----------
    jvm : Java with the program
    main : its class
    arguments : its own
    options : Java's
    """

    def __init__(self, jvm: Jvm, main: str, *arguments: object, options: Sequence[str] = ()) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": self._errors}
        self._start = lambda: JavaProcess(jvm, main, *arguments, options=options, **pipes)
        self._process: JavaProcess | None = None
        atexit.register(self._close)

    def ask(self, do: str, **asked: object) -> dict[str, Any]:
        """Its answer to one command, with `error` where it failed."""
        process = self._process = self._process or self._start()
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
