"""Repeats public calls and prints what each left behind, one JSON object a line.

Usage: repeat_calls.py calls <loops> | directories <loops> <log directory>. ``kib`` is anonymous memory, ``blocks`` are
CPython's objects, ``arrow`` is pyarrow's memory in bytes; then open descriptors and threads.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import json
import os
import sys
from pathlib import Path

import pyarrow as pa
from support.sets.public_calls import Call, groups

import kts

RECORDS = 3


def left() -> dict[str, int]:
    """What the process holds now."""
    gc.collect()
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return {
        "kib": int(status["RssAnon"].split()[0]),
        "blocks": sys.getallocatedblocks(),
        "arrow": pa.total_allocated_bytes(),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": int(status["Threads"]),
    }


def loop(runs: list[Call], loops: int) -> int:
    """How many of the calls raised."""
    refused = 0
    for run in itertools.islice(itertools.cycle(runs), loops):
        try:
            run()
        except (kts.KtsError, TypeError, ValueError, FileNotFoundError):
            refused += 1
    return refused


def codec_calls() -> dict[str, list[Call]]:
    """The calls of ``public_calls`` by name, those of all magics and codecs in turns, and those with bad input."""
    found: dict[str, list[Call]] = {}
    for calls in groups(RECORDS).values():
        for name, run in calls.items():
            call, _, input = name.rpartition(": ")[2].partition(", ")
            bad = input not in ("", "preserve_batches")
            found.setdefault(f"{call}, bad input" if bad else call, []).append(run)
    return found


def directory_calls(root: Path) -> dict[str, list[Call]]:
    """What reads files; ``root`` holds the partition t-0 with two segments and, damaged, t-1."""
    sound, damaged = root / "t-0", root / "t-1"

    def with_log(use: str, *arguments: object) -> Call:
        def run() -> None:
            with kts.open(sound) as log:
                getattr(log, use)(*arguments)

        return run

    def segments() -> None:
        with kts.open(sound) as log:
            list(log.segments)

    def dirs() -> None:
        with kts.open(root) as logs:
            logs[("t", 0)].max_timestamp()

    def abandoned() -> None:
        next(iter(kts.scan(sound, batch_bytes=4096)))

    def never_read() -> None:
        kts.scan(sound)

    middle = 1_700_000_000_030
    return {
        "open": [lambda: kts.open(sound).close()],
        "open, not closed": [lambda: kts.open(sound)],
        "open, no such path": [lambda: kts.open(root / "none")],
        "LogDirs": [dirs],
        "PartitionLog.segments": [segments],
        "PartitionLog.offset_for_timestamp": [with_log("offset_for_timestamp", middle)],
        "PartitionLog.explain_offset_for_timestamp": [with_log("explain_offset_for_timestamp", middle)],
        "PartitionLog.max_timestamp": [with_log("max_timestamp")],
        "PartitionLog.batches": [lambda: list(kts.open(sound).batches())],
        "PartitionLog.scan": [lambda: kts.open(sound).scan().read_all()],
        "scan": [lambda: kts.scan(sound).read_all()],
        "scan of a range": [lambda: kts.scan(root, partitions=[0], starting_timestamp=middle).read_all()],
        "scan abandoned": [abandoned],
        "scan never read": [never_read],
        "scan, damaged": [lambda: kts.scan(damaged).read_all()],
        "PartitionLog.max_timestamp, damaged": [lambda: kts.open(damaged).max_timestamp()],
    }


def main() -> None:
    what, loops = sys.argv[1], int(sys.argv[2])
    calls = codec_calls() if what == "calls" else directory_calls(Path(sys.argv[3]))
    warm = loops // (2 if what == "calls" else 4)  # until the allocators hold what they need
    gc.collect()
    gc.freeze()  # what is there by now stays: later collections need not look at it
    for name, runs in calls.items():
        with contextlib.redirect_stderr(None):
            loop(runs, warm)
            before = left()
            refused = loop(runs, loops)
            after = left()
        print(json.dumps({"call": name, "refused": refused} | {key: after[key] - before[key] for key in after}))


if __name__ == "__main__":
    main()
