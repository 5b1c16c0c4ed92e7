"""Runs of the command line whose reader leaves: each a fork of one process that has imported all of it, to be quick.

As a program: cases as JSON on stdin, `[[arguments, bytes read before the pipe is closed, which pipe], ...]`; on stdout
one line a case: `[exit code, stderr]`, for `which` "stderr" what came on stdout instead.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path

import kts_command
from kts.cli.app import COMMANDS, cli

SMALL_PIPE = 4096
Case = tuple[list[str], int, str]


def outcomes(cases: list[Case], **environment: str) -> list[tuple[int, str]]:
    """What `main` says of the cases, asked as a process of its own, whose stdout Python buffers as it does a user's."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = subprocess.run(
        [sys.executable, __file__],
        input=json.dumps(cases),
        capture_output=True,
        text=True,
        env=env | {"PYTHONPATH": str(Path(kts_command.__file__).parent)} | environment,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [(code, said) for code, said in map(json.loads, done.stdout.splitlines())]


def outcome(arguments: list[str], read: int, which: str) -> tuple[int, str]:
    """The exit code of one run whose `which` is closed behind the first `read` bytes, and what its other pipe held."""
    leaving, closed = os.pipe()
    staying, open_end = os.pipe()
    if hasattr(fcntl, "F_SETPIPE_SZ"):  # of 64 KiB else, as everywhere
        fcntl.fcntl(closed, fcntl.F_SETPIPE_SZ, SMALL_PIPE)
    if not read:
        os.close(leaving)
    child = os.fork()
    if not child:
        os.dup2(closed, 1 if which == "stdout" else 2)
        os.dup2(open_end, 2 if which == "stdout" else 1)
        os.closerange(3, 64)
        sys.argv = ["kts", *arguments]
        kts_command.main()
        os._exit(99)  # never: it has ended the process
    os.close(closed)
    os.close(open_end)
    left = read
    while left and (data := os.read(leaving, left)):
        left -= len(data)
    if read:
        os.close(leaving)
    with os.fdopen(staying, "rb") as pipe:
        said = pipe.read()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), said.decode(errors="replace")


if __name__ == "__main__":
    for name in COMMANDS:
        cli.get_command(None, name)  # type: ignore[arg-type]
    asked = json.load(sys.stdin)
    for case in asked:
        found = outcome(*case)
        sys.stdout.write(json.dumps(found) + "\n")
        sys.stdout.flush()
