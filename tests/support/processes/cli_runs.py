"""Runs of the command line: in this process, and as a process of its own."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result
from support.golden import PATIENCE_S

from kts.cli import main

KTS = [sys.executable, "-m", "kts.cli"]


def run(*arguments: object, code: int = 0) -> Result:
    """One command in this process; its exit code must be ``code``."""
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, f"exit code {result.exit_code}\n{result.stdout}\n{result.stderr}"
    return result


def lines(*arguments: object, code: int = 0) -> list[dict[str, Any]]:
    """The JSON lines that a command prints."""
    return [json.loads(line) for line in run(*arguments, code=code).stdout.splitlines()]


def process(*arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """One command as a process of its own."""
    command = [*KTS, *(str(argument) for argument in arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=PATIENCE_S)


def on_a_terminal(*arguments: object, term: str = "xterm") -> tuple[str, int]:
    """What a command shows when both its outputs are a terminal."""
    master, slave = pty.openpty()
    environment = os.environ | {"COLUMNS": "160", "TERM": term}
    command = [*KTS, *(str(argument) for argument in arguments)]
    with subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=environment) as running:
        os.close(slave)
        shown = b""
        while True:
            try:
                part = os.read(master, 65536)
            except OSError:
                break
            if not part:
                break
            shown += part
        code = running.wait(PATIENCE_S)
    os.close(master)
    return shown.decode("utf-8", "replace"), code
