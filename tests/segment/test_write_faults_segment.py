"""One segment when calls fail: a failed append leaves nothing, and done again it writes what it would have written."""

from __future__ import annotations

import errno
import gc
import os
import random
import shutil
from collections.abc import Callable, Iterator

import pytest
from support.disk.crashdisk import read_tree
from support.disk.faultfs import INTERRUPTED_CLOSES, READING, WRITING, Fault, FaultyOs
from support.disk.scripted_lives import KINDS, START_MS, Kind, in_place_of_os, quick_directory, shallow
from support.golden import scaled

import kts
from kts.errors import LogClosedError, LogStorageError
from kts.segment.log_segment import LogSegment

SETTINGS = {"segment.index.bytes": 120, "index.interval.bytes": 500}
WRITES = frozenset({"pwrite"})


def sets(kind: Kind, rng: random.Random) -> list[bytes]:
    stored, end = [], 0
    for number in range(9):
        count = 1 + number % 3
        table = {
            "timestamp": [START_MS + rng.randrange(100) + 20 * number for _ in range(count)],
            "value": [rng.randbytes(rng.randrange(20, 700)) for _ in range(count)],
        }
        stored.append(kts.encode(table, magic=kind.magic, base_offset=end, compression=kind.codecs[number % 4]))
        end += count
    return stored


STEP = scaled(4, 1)  # of the calls that fail


class Work:
    """Appends sets to a new segment, flushes and closes it; each call is made again when it fails and may be."""

    def __init__(self, folder: str, kind: Kind, stored: list[bytes], fault: Fault | None) -> None:
        self.folder, self.kind, self.stored = folder, kind, stored
        self.system = FaultyOs(folder, fault)
        self.errors: list[int | None] = []
        self.end = 0
        self.segment: LogSegment | None = None

    def run(self) -> bool:
        """True if all was done; False if the segment failed for good, and said so."""
        with in_place_of_os(self.system):
            try:
                self.make()
            except LogStorageError as error:
                self.errors.append(error.errno)
                for name in os.listdir(self.folder):  # as a roll does with what it finds
                    self.system.unlink(os.path.join(self.folder, name))
                self.make()
            assert self.segment is not None
            done = all(self.again(lambda data=data: self.append(data)) for data in self.stored)
            done = done and self.again(self.segment.flush) and self.again(self.segment.close)
            self.segment.rest()
        return done

    def make(self) -> None:
        settings = SETTINGS | {"message.format.version": self.kind.format}
        config = kts.LogConfig.of(settings, generation=self.kind.generation)
        self.segment = LogSegment(self.folder, 0, config, now_ms=START_MS)

    def again(self, call: Callable[[], None]) -> bool:
        assert self.segment is not None
        for _ in range(4):
            try:
                call()
            except LogStorageError as error:
                self.errors.append(error.errno)
            else:
                return True
            if self.segment.failed is not None:
                with pytest.raises(LogClosedError, match="failed before"):
                    self.append(self.stored[-1])
                return False
        raise AssertionError(f"fails without end, after {self.errors}")

    def append(self, data: bytes) -> None:
        assert self.segment is not None
        entries = shallow(data, self.end)
        best = max(entries, key=lambda entry: entry.max_timestamp_ms)
        self.segment.append(data, self.end, entries[-1].last_offset, best.max_timestamp_ms, best.last_offset)
        self.end = entries[-1].last_offset + 1


def faults(calls: list[str], rng: random.Random) -> Iterator[Fault]:
    for which in (WRITING, READING):
        for at in range(rng.randint(1, STEP), sum(name in which for name in calls) + 1, STEP):
            for number in (errno.EIO, errno.ENOSPC):
                yield Fault(at, which, number)
    yield INTERRUPTED_CLOSES
    for at in range(1, calls.count("pwrite") + 1):
        yield Fault(at, WRITES, short=True)
        yield Fault(at, WRITES, errno.ENOSPC, short=True)
    made = next(number for number, name in enumerate(calls) if name == "pwrite")
    for at in range(sum(name in WRITING for name in calls[:made]) + 1, sum(name in WRITING for name in calls)):
        for count in (2, 3):  # what mends the first failure fails, too
            yield Fault(at, WRITING, errno.EIO, times=count)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.generation)
def test_a_failed_append_leaves_nothing_and_done_again_writes_the_same(kind: Kind, rng: random.Random) -> None:
    stored = sets(kind, rng)
    with quick_directory() as folder:
        where = os.path.join(folder, "t-0")

        def work(fault: Fault | None) -> Work:
            shutil.rmtree(where, ignore_errors=True)
            os.mkdir(where)
            return Work(where, kind, stored, fault)

        flawless = work(None)
        assert flawless.run() and flawless.system.unrecorded() == []
        expected = read_tree(where)
        assert len(expected) == 3 and all(expected.values())
        failed = retried = 0
        gc.collect()
        gc.freeze()  # what is there by now stays: later collections need not look at it
        for fault in faults(list(flawless.system.calls), rng):
            one = work(fault)
            done = one.run()
            if not done:  # what it failed of holds on to the file
                with in_place_of_os(one.system):
                    one.segment = None
                    gc.collect()
            assert one.system.open_files() == [], fault
            assert set(one.errors) <= {fault.errno}, fault
            assert not one.errors or fault.errno not in (None, errno.EINTR), f"{fault}: the disk is sound"
            retried, failed = retried + bool(one.errors and done), failed + (not done)
            if done:
                assert read_tree(where) == expected, f"{fault} at {one.system.failed}"
                continue
            # What lies there now, a recovery makes whole: some of the sets, nothing else.
            log = LogSegment(where, 0, SETTINGS | {"message.format.version": kind.format}, now_ms=START_MS)
            log.recover()
            log.close()
            kept = read_tree(where)["00000000000000000000.log"]
            assert kept in [b"".join(stored[:count]) for count in range(len(stored) + 1)], fault
        assert retried > 20 / STEP and failed > 5 / STEP
