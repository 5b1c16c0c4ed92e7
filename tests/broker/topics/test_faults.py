"""Every operation of the disk fails once, under topics that are made, changed and deleted: what was said to be done is
done after the next start, and all is served again."""

from __future__ import annotations

import errno
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.disk.faultfs import READING, WRITING, Fault, FaultyOs
from support.disk.scripted_lives import in_place_of_os, quick_directory
from support.golden import scaled

import kts
from kts.broker.topics import Topics

EVERY = scaled(3, 1)  # operation fails in a life of its own


@pytest.fixture
def quick() -> Iterator[Path]:
    with quick_directory() as path:
        yield Path(path)


def batch() -> bytes:
    return kts.encode({"timestamp": [1], "key": [b"k"], "value": [b"v"]})


class Life:
    """A script of changes, and what of it was said to be done."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.topics: dict[str, tuple[int, str]] = {}  # partitions, retention.ms
        self.unsure: set[str] = set()
        self.written = 0
        self.refused = 0

    def run(self) -> None:
        try:
            topics = Topics(self.folder, clock=lambda: 10**12)
        except kts.KtsError:
            self.refused += 1
            return
        self.step("a", lambda: topics.create("a", 2, {"retention.ms": "5"}), (2, "5"))
        self.write(topics)
        self.step("b", lambda: topics.create("b", 1, {"retention.ms": "6"}), (1, "6"))
        self.step("a", lambda: topics.alter("a", {"retention.ms": "-1"}), (2, "-1"))
        self.step("a", lambda: topics.add_partitions("a", 3), (3, "-1"))
        self.write(topics)
        self.step("b", lambda: topics.delete("b"), None)
        self.step("c", lambda: topics.create("c", 1, {"retention.ms": "7"}), (1, "7"))
        for do in (topics.run_retention, topics.checkpoint, topics.flush_due, topics.close):
            try:
                do()
            except kts.KtsError:
                self.refused += 1

    def step(self, name: str, do: Callable[[], object], after: tuple[int, str] | None) -> None:
        if name in self.unsure:
            return
        try:
            do()
        except kts.KtsError:
            self.refused += 1
            self.unsure.add(name)
            return
        if after is None:
            self.topics.pop(name, None)
        else:
            self.topics[name] = after

    def write(self, topics: Topics) -> None:
        topic = topics.get("a")
        if topic is not None and "a" not in self.unsure:
            try:
                topic.partitions[1].append(batch())
            except kts.KtsError:
                self.refused += 1
            else:
                self.written += 1

    def check(self) -> None:
        """A start on a disk that works again."""
        with Topics(self.folder, clock=lambda: 10**12) as topics:
            for name in {*topics.names(), *self.topics}:
                if name in self.unsure:
                    continue
                topic = topics.get(name)
                assert topic is not None, name
                assert (len(topic.partitions), topic.configs["retention.ms"]) == self.topics[name]
            for partition in topics.partitions():
                assert (
                    partition.log.log_end_offset
                    >= (self.written if partition.topic == "a" else 0) * partition.index % 2
                )
                assert partition.append(batch()).entries == 1
            if "a" in self.topics:
                assert topics.get("a").partitions[1].log.log_end_offset == self.written + 1  # type: ignore[union-attr]
            for name in ("d", *({"b", "c"} - set(topics.names()))):
                assert topics.create(name).partitions[0].append(batch()).first_offset == 0
        with Topics(self.folder) as topics:
            assert not any(partition.is_offline for partition in topics.partitions())


def test_nothing_that_was_done_is_lost_whichever_operation_fails(quick: Path, rng: random.Random) -> None:
    whole = FaultyOs(str(quick))
    with in_place_of_os(whole):
        Life(quick).run()
    calls = {which: sum(name in which for name in whole.calls) for which in (WRITING, READING)}
    assert calls[WRITING] > 60
    shutil.rmtree(quick)
    lives = refused = 0
    for which, number, step in ((WRITING, errno.EIO, 1), (WRITING, errno.ENOSPC, 4), (READING, errno.EIO, 10)):
        for at in range(rng.randint(1, step * EVERY), calls[which] + 1, step * EVERY):
            quick.mkdir()
            life = Life(quick)
            with in_place_of_os(FaultyOs(str(quick), Fault(at, which, number))):
                life.run()
            life.check()
            lives, refused = lives + 1, refused + life.refused
            shutil.rmtree(quick)
    assert lives > 30 and refused > lives // 2
