"""A warm process that forks writers, for tests that kill them: ``python live_nursery.py``, one job a line.

A line of standard input is the directory, the seed and the last number used. The writer's process id, what it does and
at last ``dead`` come out, a line each; every line is written at once, so that a kill leaves no half of one.
"""

from __future__ import annotations

import os
import random
import sys
import traceback

from support.processes import live_writer
from support.processes.live_writer import NOW_MS


def say(word: str, *values: int) -> None:
    os.write(1, f"{word} {' '.join(map(str, values))}\n".encode())


def write_until_killed(path: str, seed: str, number: int) -> None:
    """The body of a forked process: it does not end by itself."""
    try:
        log = live_writer.open_log(path, NOW_MS + number)
        say("opened", log.log_start_offset, log.log_end_offset)
        live_writer.work(log, random.Random(seed), say, number, 10**9)
    except BaseException:
        say("failed " + traceback.format_exc().replace("\n", " | ")[-3000:])
    os._exit(1)


def main() -> None:
    for line in sys.stdin:
        path, seed, number = line.rstrip("\n").split("\t")
        child = os.fork()
        if child == 0:
            write_until_killed(path, seed, int(number))
        say("pid", child)
        os.waitpid(child, 0)
        say("dead")


if __name__ == "__main__":
    main()
