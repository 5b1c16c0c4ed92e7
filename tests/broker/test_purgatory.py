"""Long polls: a watch is told of every change, from whatever thread, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.golden import PATIENCE_S

import kts
from kts.broker.purgatory import Watch
from kts.broker.topics import Topics
from kts.broker.topics.partition import Partition

ONE = kts.encode({"timestamp": [1], "value": [b"v"]})


@pytest.fixture
def partitions(tmp_path: Path) -> Iterator[list[Partition]]:
    with Topics(tmp_path) as topics:
        yield list(topics.create("t", 2).partitions.values())


def test_each_change_of_any_partition_ends_one_wait_from_whatever_thread(partitions: list[Partition]) -> None:
    async def story() -> None:
        with Watch(partitions) as watch:
            for change in (
                lambda: partitions[1].append(ONE),
                partitions[0].changed,
                lambda: partitions[1].reconfigure(partitions[1].config),
                lambda: partitions[0].close("deleted"),
            ):
                waiting = asyncio.ensure_future(watch.wait(PATIENCE_S))
                await asyncio.sleep(0)
                change()
                assert await waiting
                waiting = asyncio.ensure_future(watch.wait(PATIENCE_S))
                thread = threading.Thread(target=partitions[1].changed)
                thread.start()
                assert await waiting
                thread.join()
            assert not await watch.wait(0)

    asyncio.run(story())


def test_what_changes_between_two_waits_is_not_lost(partitions: list[Partition]) -> None:
    async def story() -> None:
        with Watch(partitions) as watch:
            for _ in range(3):
                partitions[0].changed()
            assert await watch.wait(0.0)
            assert not await watch.wait(-1)  # once for all three

    asyncio.run(story())


def test_a_watch_that_ended_is_told_of_nothing(partitions: list[Partition]) -> None:
    async def story() -> Watch:
        with pytest.raises(KeyError), Watch(partitions) as watch:
            assert all(one.on_change for one in partitions)
            raise KeyError
        assert not any(one.on_change for one in partitions)
        return watch

    watch = asyncio.run(story())
    watch._note()  # as a partition does that was about to: the loop has ended
