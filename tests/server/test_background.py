"""The background tasks of a broker: each at its interval, and none ends by a failure."""

from __future__ import annotations

import asyncio
import logging
import time
from pathlib import Path

import pytest
from support.golden import PATIENCE_S
from support.waiting import wait_until

import kts
from kts.broker.broker import Broker
from kts.server import background
from kts.server.background import Chore
from kts.server.server import ServerThread


def test_a_chore_is_done_when_it_is_due_and_again_an_interval_later() -> None:
    done: list[float] = []

    async def story() -> None:
        now = asyncio.get_running_loop().time()
        chore = Chore("counting", 60_000, lambda: done.append(now), now)
        for later, count in ((0, 0), (59, 0), (60, 1), (60, 1)):
            await chore.do_when_due(now + later)
            assert len(done) == count
        await chore.do_when_due(asyncio.get_running_loop().time() + 60)
        assert len(done) == 2

    asyncio.run(story())


@pytest.mark.parametrize(
    ("error", "traceback"), [(kts.LogStorageError("the disk is full"), False), (ValueError("a fault of ours"), True)]
)
def test_a_chore_that_fails_says_so_and_tries_again(
    error: Exception, traceback: bool, caplog: pytest.LogCaptureFixture
) -> None:
    tried: list[int] = []

    def fail() -> None:
        tried.append(1)
        raise error

    async def story() -> None:
        chore = Chore("flushing", 0, fail, 0.0)
        for _ in range(2):
            await chore.do_when_due(asyncio.get_running_loop().time())

    with caplog.at_level(logging.ERROR, "kts.broker"):
        asyncio.run(story())
    assert len(tried) == len(caplog.records) == 2
    for record in caplog.records:
        assert record.getMessage().startswith("flushing failed")
        assert (record.exc_info is not None) == traceback


@pytest.mark.slow
def test_high_watermarks_are_checkpointed_while_a_broker_runs(tmp_path: Path) -> None:
    # Readers of the directory, such as a Spark stream, go no further than that.
    with Broker(tmp_path, {"replica.high.watermark.checkpoint.interval.ms": 20}) as broker, ServerThread(broker):
        log = broker.topics.create("orders").partitions[0].log
        for end in (3, 5):
            log.append_rows({"value": [b"x"] * (end - log.log_end_offset)})
            wait_until("a checkpoint", lambda end=end: kts.open_partition(log.path).high_watermark == end)  # type: ignore[misc]


def test_a_clock_that_fails_once_ends_no_chore(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "TICK_S", 0.02)
    calls = failures = 0
    fails = False

    def clock() -> int:
        nonlocal calls, failures, fails
        calls += 1
        if fails:
            fails = False
            failures += 1
            raise RuntimeError("no time")
        return 10**12

    config = {"log.flush.scheduler.interval.ms": 1}
    with Broker(tmp_path / "data", config, clock=clock) as broker, ServerThread(broker):
        fails = True
        until = time.monotonic() + PATIENCE_S
        while not failures and time.monotonic() < until:
            time.sleep(0.01)
        before = calls
        while calls == before and time.monotonic() < until:
            time.sleep(0.01)
        assert failures == 1
        assert calls > before


@pytest.mark.slow
def test_a_broker_cleans_compacted_topics_at_its_interval_if_it_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "TICK_S", 0.02)
    for enabled in (True, False):
        config = {"log.cleaner.backoff.ms": 1, "log.cleaner.enable": enabled, "log.cleanup.policy": "compact"}
        with Broker(tmp_path / f"{enabled}", config) as broker, ServerThread(broker):
            log = broker.topics.create("state").partitions[0].log
            log.append_rows({"key": [b"a", b"a"], "value": [b"1", b"2"]})
            log.roll()
            if enabled:
                wait_until("a pass", lambda log=log: log.scan().read_all().num_rows == 1)  # type: ignore[misc]
            else:
                time.sleep(0.3)
                assert log.scan().read_all().num_rows == 2
