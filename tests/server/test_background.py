"""The background tasks of a broker: each at its interval, and none ends by a failure."""

from __future__ import annotations

import time
from pathlib import Path

from support.golden import PATIENCE_S

from kts.broker.broker import Broker
from kts.server.server import ServerThread


def test_a_clock_that_fails_once_ends_no_chore(tmp_path: Path) -> None:
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
            time.sleep(0.05)
        before = calls
        while calls == before and time.monotonic() < until:
            time.sleep(0.05)
        assert failures == 1
        assert calls > before
