"""Readers of a log that another thread or process writes, and what they may see of it.

What is promised to a reader of the log object itself: whole sets as they were appended, once they are published.

What is promised to a reader in another process: whole batches, with offsets that rise. Around a truncation it may give
records that are truncated while it reads, as they were, and then what follows the last one it gave. Around retention
it leaves out, with a warning, what is deleted before it comes there. It never sees damage.
"""

from __future__ import annotations

import multiprocessing
import random
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
from support.golden import PATIENCE_S
from support.processes import live_writer
from support.processes.live_writer import NOW_MS, content

import kts

Row = tuple[int, int, bytes]  # offset, timestamp, value


class Shared:
    """Numbers that the writer sets and all readers see."""

    NAMES = ("number", "end", "truncations", "truncated", "retentions", "retained", "rounds", "stop")

    def __init__(self, make: Callable[[], Any]) -> None:
        self.numbers = {name: make() for name in self.NAMES}

    def __getattr__(self, name: str) -> int:
        if name == "numbers" or name.startswith("__"):
            raise AttributeError(name)
        return int(self.numbers[name].value)

    def say(self, word: str, *values: int) -> None:
        """What ``live_writer.work`` says."""
        if word == "append":
            self.numbers["number"].value = values[2]
        elif word == "appended":
            self.numbers["end"].value = values[0] + values[1]
        elif word in ("truncate", "retain"):
            self.numbers["truncations" if word == "truncate" else "retentions"].value += 1
            if word == "truncate":
                self.numbers["end"].value = values[0]
        elif word in ("truncated", "retained"):
            self.numbers[word].value += 1


@dataclass
class Watch:
    """Whether the writer truncated or retained while something was read."""

    shared: Shared
    end: int = 0
    begun: tuple[int, int] = (0, 0)
    quiet: tuple[bool, bool] = (True, True)

    def before(self) -> None:
        shared = self.shared
        self.begun = shared.truncations, shared.retentions
        self.quiet = shared.truncated == self.begun[0], shared.retained == self.begun[1]
        self.end = shared.end
        if (shared.truncations, shared.retentions) != self.begun:
            self.quiet = False, False

    def after(self) -> tuple[bool, bool]:
        """(no truncation, no retention) since ``before``."""
        now = self.shared.truncations, self.shared.retentions
        return self.quiet[0] and now[0] == self.begun[0], self.quiet[1] and now[1] == self.begun[1]


def check(rows: list[Row], watch: Watch, whole_log: bool) -> None:
    """What any reader may have seen since ``watch.before()``.

    Raises
    ------
    AssertionError
        A record that nobody appended, records out of order, half of a batch; in quiet times also a gap, a batch that
        was not published, or one that was and is not there.
    """
    highest = watch.shared.number
    no_truncation, no_retention = watch.after()
    contents = [content(value) for _, _, value in rows]
    for (offset, timestamp, _), one in zip(rows, contents, strict=True):
        assert one.offset == offset and timestamp == NOW_MS + one.number and 0 < one.number <= highest
        assert 0 <= one.index < one.count
    offsets = [offset for offset, _, _ in rows]
    assert offsets == sorted(set(offsets)), "offsets do not rise"
    if not no_truncation:
        return
    for a, b in zip(contents, contents[1:], strict=False):
        same = a.number == b.number and b.index == a.index + 1
        assert same or (a.index + 1 == a.count and b.index == 0 and a.number < b.number), ("half a batch", a, b)
        assert b.offset == a.offset + 1 or not no_retention, "a gap"
    if contents:
        assert contents[0].index == 0 and contents[-1].index + 1 == contents[-1].count, "half a batch"
    if whole_log and watch.end:
        assert offsets and offsets[-1] >= watch.end - 1, ("published, and not seen", offsets[-1:], watch.end)


# --- readers in other processes -------------------------------------------------------------------


def scan_rows(path: Path, **options: Any) -> list[Row]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # segments that were deleted or truncated meanwhile
        warnings.filterwarnings("error", ".*(damaged|not in order).*")
        table = kts.scan(path, columns=["offset", "timestamp", "value"], **options).read_all()
    columns = [table.column(0), table.column(1).cast(pa.int64()), table.column(2)]
    return list(zip(*(column.to_pylist() for column in columns), strict=True))


def by_scan(path: Path, watch: Watch, rng: random.Random) -> None:
    batch_bytes = rng.choice((1, 2000, 1 << 20))
    watch.before()
    check(scan_rows(path, batch_bytes=batch_bytes), watch, True)
    first = max(watch.end - rng.randrange(1, 100), 0)
    watch.before()
    rows = scan_rows(path, starting_offsets=first, batch_bytes=batch_bytes)
    assert not rows or rows[0][0] >= first
    while rows and content(rows[0][2]).index:  # a range may begin within a batch
        rows.pop(0)
    check(rows, watch, False)


def by_time(path: Path, watch: Watch, rng: random.Random) -> None:
    log = kts.open(path)
    assert isinstance(log, kts.PartitionLog)
    watch.before()
    target = NOW_MS + max(watch.shared.number - rng.randrange(60), 1)
    found, end, largest = log.offset_for_timestamp(target), log.log_end_offset, log.max_timestamp()
    quiet = all(watch.after())
    assert found is None or found.timestamp_ms >= target
    assert largest is None or largest.timestamp_ms <= NOW_MS + watch.shared.number
    assert end >= watch.end or not quiet
    if found is not None and largest is not None and quiet:
        assert largest.timestamp_ms >= found.timestamp_ms
    if found is not None:
        watch.before()
        rows = scan_rows(path, starting_offsets=found.offset)
        if quiet and all(watch.after()):
            assert rows[0][:2] == (found.offset, found.timestamp_ms)


WAYS_OF_PROCESSES: dict[str, Callable[[Path, Watch, random.Random], None]] = {"scan": by_scan, "time": by_time}


def read_until_stopped(way: str, path: Path, shared: Shared, seed: str, failures: Any, rounds: Any) -> None:
    """The body of a reading process."""
    watch, rng = Watch(shared), random.Random(seed)
    try:
        while not (shared.end or shared.stop):
            time.sleep(0.001)
        while not shared.stop:
            WAYS_OF_PROCESSES[way](path, watch, rng)
            rounds.put(1)
    except BaseException:
        failures.put(f"{way} {seed}: {traceback.format_exc()}")
        raise


def write_and_stop(path: Path, shared: Shared, seed: str, operations: int, least: int, failures: Any) -> None:
    """The body of a writing process; it writes so much, and more until there were so many rounds of reading."""
    try:
        with live_writer.open_log(path) as log:
            number, rng = 0, random.Random(seed)
            while operations and not shared.stop:
                number = live_writer.work(log, rng, shared.say, number, operations)
                operations = 20 * (shared.rounds < least)
    except BaseException:
        failures.put(f"writer {seed}: {traceback.format_exc()}")
        raise
    finally:
        shared.numbers["stop"].value = 1


def run_processes(path: Path, seed: int, operations: int, readers: list[str]) -> tuple[int, list[str]]:
    """One writer and some readers as processes; how often they read, and what went wrong."""
    context = multiprocessing.get_context("spawn")
    shared, failures, rounds = Shared(lambda: context.Value("q", 0, lock=False)), context.Queue(), context.Queue()
    started = [
        context.Process(target=read_until_stopped, args=(way, path, shared, f"{seed} {i}", failures, rounds))
        for i, way in enumerate(readers)
    ]
    writer = path, shared, f"{seed}", operations, len(readers), failures
    started.append(context.Process(target=write_and_stop, args=writer))
    for process in started:
        process.start()
    count, said = 0, list[str]()
    while any(process.is_alive() for process in started) or not (failures.empty() and rounds.empty()):
        while not rounds.empty():
            count += rounds.get()
            shared.numbers["rounds"].value = count
        while not failures.empty():
            said.append(failures.get())
            shared.numbers["stop"].value = 1
        for process in started:
            process.join(0.05)
    return count, said


# --- readers in threads ---------------------------------------------------------------------------


def by_fetch(log: kts.Log, watch: Watch, rng: random.Random) -> None:
    """Read from the first offset, or near the end, up to the end, as a consumer does."""
    watch.before()
    offset = rng.choice((log.log_start_offset, max(log.log_end_offset - rng.randrange(50), log.log_start_offset)))
    first, rows = offset, list[Row]()
    try:
        while True:
            up_to = rng.choice(("log_end", "high_watermark"))
            fetched = log.read(offset, rng.choice((1, 500, 5000)), min_one_message=True, up_to=up_to)
            if not fetched.records:
                break
            table = kts.decode(fetched.records, ["offset", "timestamp", "value"])
            columns = [table.column(0), table.column(1).cast(pa.int64()), table.column(2)]
            found: list[Row] = list(zip(*(column.to_pylist() for column in columns), strict=True))
            # The batch that holds the offset comes whole; after a truncation it may be another one.
            rows += [row for row in found if row[0] >= offset or not rows]
            offset = found[-1][0] + 1
    except kts.OffsetOutOfRangeError:
        assert not all(watch.after()), "out of range, and nothing was truncated or deleted"
        return
    rows = [row for row in rows if row[0] >= first]
    assert rows or first >= watch.end or not watch.after()[0], "published, and not seen"
    while rows and content(rows[0][2]).index:  # it began within a set
        rows.pop(0)
    check(rows, watch, bool(rows))


def by_log_time(log: kts.Log, watch: Watch, rng: random.Random) -> None:
    """Search by timestamp; what is found was there."""
    watch.before()
    target = NOW_MS + max(watch.shared.number - rng.randrange(60), 1)
    found, largest = log.offset_for_timestamp(target), log.max_timestamp()
    highest = NOW_MS + watch.shared.number
    assert found is None or target <= found.timestamp_ms <= highest
    assert largest is None or largest.timestamp_ms <= highest
    if all(watch.after()) and found is not None:
        assert largest is not None and found.timestamp_ms <= largest.timestamp_ms


def run_threads(path: Path, seed: int, operations: int, readers: int) -> tuple[int, list[str]]:
    """One writer of sets of several batches and some readers in threads; how often they read, what went wrong."""
    shared, rounds, said = Shared(lambda: SimpleNamespace(value=0)), [0] * readers, list[str]()

    def read(number: int, log: kts.Log) -> None:
        watch, rng = Watch(shared), random.Random(f"{seed} {number}")
        try:
            while not shared.stop:
                (by_log_time if number % 3 == 2 else by_fetch)(log, watch, rng)
                rounds[number] += 1
        except BaseException:
            said.append(f"reader {number}: {traceback.format_exc()}")
            shared.numbers["stop"].value = 1

    with live_writer.open_log(path) as log:
        number = live_writer.work(log, random.Random(f"{seed}"), shared.say, 0, 50, follower=True)
        threads = [threading.Thread(target=read, args=(i, log)) for i in range(readers)]
        for thread in threads:
            thread.start()
        done, rng = 0, random.Random(f"{seed} writer")
        while not shared.stop and (done < operations or min(rounds) < 5):
            number = live_writer.work(log, rng, shared.say, number, 20, follower=True)
            done += 20
        shared.numbers["stop"].value = 1
        for thread in threads:
            thread.join(PATIENCE_S)
        if any(thread.is_alive() for thread in threads):
            said.append("a reader does not end")
    return sum(rounds), said
