"""The script ``kts``. It stands outside the package, to be there first: imports take a while, and Ctrl-C may come."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress

INTERRUPTED = 130


def end_at_once(number: int, frame: object) -> None:
    """End without a word: nothing has been opened or written yet, or all of it is done."""
    os._exit(INTERRUPTED)


def main() -> None:
    """Run the command line."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not where a shell has it ignored
        signal.signal(signal.SIGINT, end_at_once)
    from kts.cli import main as commands

    try:
        commands(prog_name="kts")
    except SystemExit as end:
        if not isinstance(end.code, int):
            raise
        # All files are closed and all workers have ended. To take the modules apart, as Python would, takes longer than
        # many a command.
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):  # a closed pipe, a full disk: end.code tells of it already
                if stream is not None:
                    stream.flush()
        os._exit(end.code)
