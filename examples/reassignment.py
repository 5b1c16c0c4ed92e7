"""KIP-33's reason for a time index: a replica that is made today must not keep everything for another week.

A topic gets a segment a day and keeps seven days. On day 10 a new replica copies it, over the wire. With timestamps it
deletes each segment on the day on which the old replica does; without them, as up to Kafka 0.9, only the file's time is
left to go by, and that is the day of the copy. `python examples/reassignment.py` prints both, day by day.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

import kts
from kts.replica.client import Client
from kts.replica.fetcher import Fetcher
from kts.replica.follower import Follower
from kts.testing import KtsBroker

DAY_MS = 86_400_000
START_MS = 1_788_220_800_000  # 2026-09-01
MOVED, KEPT, LAST = 10, 7, 18  # days
FORMATS = {"timed": "3.9", "untimed": "0.9.0"}
SETTINGS = {"retention.ms": KEPT * DAY_MS, "file.delete.delay.ms": 0}


class Held(NamedTuple):
    """What a replica holds of a topic at the end of a day."""

    segments: int
    size_bytes: int


class Day(NamedTuple):
    number: int
    old: dict[str, Held]
    new: dict[str, Held]


def noon(day: int) -> int:
    return START_MS + (day - 1) * DAY_MS + DAY_MS // 2


def records(day: int, magic: int) -> bytes:
    """A hundred records in the course of a day."""
    times = [-1 if magic == 0 else noon(day) - 50_000 + 1000 * each for each in range(100)]
    return kts.encode(
        {"timestamp": pa.array(times), "value": pa.array([b"x" * 1000] * 100)}, magic=magic, batch_bytes=1 << 20
    )


def written_on(day: int, *paths: Path) -> None:
    """The days of this story pass quicker than those of the file system."""
    for path in paths:
        os.utime(path, ns=(noon(day) * 10**6, noon(day) * 10**6))


def held(log: kts.Log) -> Held:
    return Held(sum(segment.size > 0 for segment in log.segments), log.size_bytes)


def tell(folder: Path) -> list[Day]:
    """Days ``MOVED`` to ``LAST``: the replicas after each day's retention."""
    days = []
    with ExitStack() as stack:
        old = stack.enter_context(KtsBroker(folder / "old", time=noon(1)))
        for topic, version in FORMATS.items():
            old.create_topic(topic, 1, SETTINGS | {"message.format.version": version})
        new: dict[str, kts.Log] = {}
        for day in range(1, LAST + 1):
            old.set_time(noon(day))
            if day <= MOVED:
                for topic in FORMATS:
                    if day > 1:
                        old.roll(topic)
                    old.append(topic, records(day, 2 if topic == "timed" else 0))
                    written_on(day, max((folder / "old" / f"{topic}-0").glob("*.log")))
            if day == MOVED:
                client = stack.enter_context(Client(old.bootstrap_servers))
                for topic, version in FORMATS.items():
                    settings = SETTINGS | {"message.format.version": version}
                    path = folder / "new" / f"{topic}-0"
                    log = kts.Log(path, settings, generation="3.9", clock=old.clock)
                    new[topic] = stack.enter_context(log)
                Fetcher(client, [Follower(log, client) for log in new.values()], retention=False).catch_up()
                for topic in FORMATS:
                    written_on(day, *(folder / "new" / f"{topic}-0").glob("*.log"))
            old.advance(60_000)
            old.run_retention()
            for log in new.values():
                log.delete_old_segments()
            if day >= MOVED:
                days.append(
                    Day(day, {topic: held(old.log(topic)) for topic in FORMATS}, {t: held(new[t]) for t in new})
                )
    return days


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        days = tell(Path(folder))
    print("segments (bytes) of seven days' retention; the new replica was copied on day 10\n")
    print("     by timestamps               by file times, as in 0.9")
    print("day  old replica   new replica   old replica   new replica")
    for day in days:
        cells = [
            f"{held.segments:2} ({held.size_bytes:7,})"
            for topic in FORMATS
            for held in (day.old[topic], day.new[topic])
        ]
        print(f"{day.number:3}  " + "  ".join(cells))


if __name__ == "__main__":
    main()
