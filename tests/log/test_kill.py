"""kill -9 of a live writer, 24 or 300 times: all that it acknowledged is there, and the log goes on."""

from __future__ import annotations

import os
import random
import select
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.golden import PATIENCE_S, scaled
from support.processes import live_nursery, live_writer
from support.processes.cli_runs import run
from support.processes.live_writer import NOW_MS, content

import kts

PARTS, CYCLES = 3, scaled(8, 100)

Numbers = dict[int, int]  # offset -> the append that brought it


class Ledger:
    """What a writer said it did, and so what may and what must be in its log."""

    def __init__(self) -> None:
        self.must: Numbers = {}
        self.may: dict[int, set[int]] = {}
        self.number = self.start = self.flushed = self.appends = 0
        self.retaining = self.opened = False

    def hear(self, line: str) -> None:
        word, *values = line.split()
        assert word != "failed", line
        offsets = range(int(values[0]), int(values[0]) + int(values[1])) if word.startswith("append") else range(0)
        if word == "append":
            self.number = int(values[2])
            for offset in offsets:
                self.may.setdefault(offset, set()).add(self.number)
        elif word == "appended":
            self.appends += 1
            for offset in offsets:
                self.must[offset], self.may[offset] = self.number, {self.number}
        elif word == "truncate":
            self.must = {offset: number for offset, number in self.must.items() if offset < int(values[0])}
        elif word == "truncated":
            self.may = {offset: numbers for offset, numbers in self.may.items() if offset < int(values[0])}
        elif word == "flushed":
            self.flushed = int(values[0])
        elif word == "opened":
            self.opened = True
        elif word in ("retain", "retained"):
            self.retaining, self.start = word == "retain", int(values[0])

    def settle(self, found: Numbers, start: int) -> None:
        """Compare with what is in the log, from which on the next writer goes."""
        assert start == self.start or self.retaining and start > self.start
        missing = {o: n for o, n in self.must.items() if o >= start and found.get(o) != n}
        assert missing == {}, "acknowledged, and not there"
        foreign = {o: n for o, n in found.items() if n not in self.may.get(o, set())}
        assert foreign == {}, "there, and never appended"
        assert sorted(found) == list(range(start, start + len(found))), "a hole"
        self.must, self.may = dict(found), {offset: {number} for offset, number in found.items()}
        self.start, self.retaining, self.opened = start, False, False


def numbers_in(log: kts.Log) -> Numbers:
    """All records of a log by offset; each must say of itself where it belongs."""
    found: Numbers = {}
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        rows = kts.decode(log.read(offset, 1 << 20).records, ["offset", "value"])
        for at, value in zip(rows.column(0).to_pylist(), rows.column(1).to_pylist(), strict=True):
            one = content(value)
            assert one.offset == at and at not in found
            found[at] = one.number
        offset = rows.column(0)[-1].as_py() + 1
    return found


def snapshot(directory: Path) -> dict[str, bytes]:
    """All files below a directory."""
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


Killing = Callable[[Path, str, int, Ledger], None]


@contextmanager
def nursery() -> Iterator[Killing]:
    """A function that starts a writer, kills it once it said so many words, and hears all that it said."""
    process = subprocess.Popen(
        [sys.executable, live_nursery.__file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(kts.__file__).parent.parent), *sys.path])},
    )
    assert process.stdin is not None and process.stdout is not None
    pipe, buffered, waiting = process.stdout.fileno(), b"", deque[str]()

    def lines(until: float) -> Iterator[str]:
        nonlocal buffered
        while (left := until - time.monotonic()) > 0:
            while waiting:
                yield waiting.popleft()
            if select.select([pipe], [], [], left)[0]:
                data = os.read(pipe, 1 << 16)
                assert data, "the nursery died"
                *whole, buffered = (buffered + data).split(b"\n")
                waiting.extend(line.decode() for line in whole)

    def kill(path: Path, seed: str, words: int, ledger: Ledger) -> None:
        assert process.stdin is not None
        process.stdin.write(f"{path}\t{seed}\t{ledger.number}\n".encode())
        process.stdin.flush()
        pid, left = 0, words
        for line in lines(time.monotonic() + PATIENCE_S):
            if line.startswith("pid"):
                pid = int(line.split()[1])
            else:
                ledger.hear(line)
                left -= 1
            if pid and left <= 0:
                break
        if words == 0:
            time.sleep(random.Random(seed).random() / 50)  # it opens the log and recovers it
        os.kill(pid, signal.SIGKILL)
        for line in lines(time.monotonic() + PATIENCE_S):
            if line.split()[0] == "dead":
                return
            ledger.hear(line)
        raise AssertionError("the writer does not die")

    try:
        yield kill
    finally:
        process.stdin.close()
        process.wait(PATIENCE_S)


def check_reopened(path: Path, ledger: Ledger) -> None:
    """What is left is what was acknowledged, sound, and the same when it is opened again."""
    with live_writer.open_log(path, NOW_MS + ledger.number) as log:
        assert not (log.clean_start and ledger.opened)
        ledger.settle(numbers_in(log), log.log_start_offset)
        assert log.log_end_offset == log.log_start_offset + len(ledger.must)
    assert run("verify", path.parent).stdout.startswith("OK")
    before = snapshot(path.parent)
    with live_writer.open_log(path, NOW_MS + ledger.number) as log:
        assert (log.clean_start, log.recovered) == (True, [])
        assert numbers_in(log) == ledger.must
    assert snapshot(path.parent) == before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="writers are forked")
@pytest.mark.parametrize("part", range(PARTS))
def test_a_killed_writer_loses_nothing_that_it_acknowledged(part: int, tmp_path: Path, seed: int) -> None:
    rng, ledger, path = random.Random(f"{seed} {part}"), Ledger(), tmp_path / "t-0"
    with nursery() as kill:
        for cycle in range(CYCLES):
            words = rng.choice((0, 1, rng.randrange(10), rng.randrange(80)))
            try:
                kill(path, f"{seed} {part} {cycle}", words, ledger)
                check_reopened(path, ledger)
            except BaseException as error:
                error.add_note(f"cycle {cycle}, killed after {words} words, in {path}")
                raise
    print(f"{CYCLES} kills, {ledger.appends} appends acknowledged, {ledger.number} in all; starts at {ledger.start}")
    assert ledger.appends > scaled(1, CYCLES) and ledger.start >= scaled(0, 1)
