"""Runs of the command line whose reader leaves."""

from __future__ import annotations

import fcntl
import os

from support.processes.cli_forks import forks

SMALL_PIPE = 4096


def outcome(arguments: list[str], read: int, which: str, *, unbuffered: bool = False) -> tuple[int, str]:
    """The exit code of one run whose `which` is closed behind the first `read` bytes, and what its other pipe held."""
    leaving, closed = os.pipe()
    staying, open_end = os.pipe()
    if hasattr(fcntl, "F_SETPIPE_SZ"):  # of 64 KiB else, as everywhere
        fcntl.fcntl(closed, fcntl.F_SETPIPE_SZ, SMALL_PIPE)
    if not read:
        os.close(leaving)
    ends = [closed, open_end] if which == "stdout" else [open_end, closed]
    with open(os.devnull, "rb") as nothing:
        run = forks(unbuffered)
        run.start(arguments, [nothing.fileno(), *ends])
    os.close(closed)
    os.close(open_end)
    left = read
    while left and (data := os.read(leaving, left)):
        left -= len(data)
    if read:
        os.close(leaving)
    with os.fdopen(staying, "rb") as pipe:
        said = pipe.read()
    return run.exit_code(), said.decode(errors="replace")
