"""Runs of the command line: in this process, as a process, and on a terminal."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result
from support.processes.cli_forks import forks

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
    """One command as a process: a fork of one that has imported all of it."""
    command = [str(argument) for argument in arguments]
    with open(os.devnull, "rb") as nothing, tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        run = forks()
        run.start(command, [nothing.fileno(), stdout.fileno(), stderr.fileno()], cwd)
        code = run.exit_code()
        said = [os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0).decode() for file in (stdout, stderr)]
    return subprocess.CompletedProcess(command, code, *said)


def on_a_terminal(*arguments: object, term: str = "xterm", columns: int = 160) -> tuple[str, int]:
    """What a command shows when both its outputs are a terminal."""
    master, slave = pty.openpty()
    run = forks()
    run.start([str(argument) for argument in arguments], [slave] * 3, COLUMNS=str(columns), TERM=term)
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
    os.close(master)
    return shown.decode("utf-8", "replace"), run.exit_code()
