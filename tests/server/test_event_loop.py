"""The event loop of a server: its clock, its threads, and the errors that nobody caught."""

from __future__ import annotations

import asyncio
import errno
import logging
import threading
import time
from typing import Any

import pytest

from kts.server import event_loop
from kts.server.event_loop import THREADS, Loop, run_until
from kts.store import descriptors


@pytest.fixture
def short_stops(monkeypatch: pytest.MonkeyPatch) -> float:
    """Pauses of this length count as stops of the process."""
    monkeypatch.setattr(event_loop, "STOOD_STILL_S", 0.05)
    return 0.05


@pytest.mark.slow
def test_the_clock_stands_still_while_the_process_does(short_stops: float) -> None:
    async def story() -> tuple[float, float]:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(0)
        before, began = loop.time(), time.monotonic()
        for _ in range(4):
            time.sleep(2 * short_stops)  # as SIGSTOP and SIGCONT would
            await asyncio.sleep(0)
        return loop.time() - before, time.monotonic() - began

    with asyncio.Runner(loop_factory=Loop) as runner:
        by_loop, by_clock = runner.run(story())
    assert by_clock >= 8 * short_stops
    assert by_loop < by_clock / 2


def test_work_and_waits_that_are_no_stops_take_their_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_loop, "STOOD_STILL_S", 60.0)  # however busy the machine is

    async def story() -> float:
        loop = asyncio.get_running_loop()
        before = loop.time()
        await asyncio.sleep(0.05)
        time.sleep(0.05)
        await asyncio.sleep(0)
        return loop.time() - before

    with asyncio.Runner(loop_factory=Loop) as runner:
        assert runner.run(story()) >= 0.1


def test_a_server_has_a_bounded_number_of_threads_of_its_own() -> None:
    names: set[str] = set()
    together = threading.Barrier(THREADS)

    def work() -> None:
        together.wait()
        names.add(threading.current_thread().name)

    async def main() -> None:
        await asyncio.gather(*(asyncio.to_thread(work) for _ in range(2 * THREADS)))

    run_until(main())
    assert len(names) == THREADS
    assert all(name.startswith("kts-broker") for name in names)


def test_a_lack_of_descriptors_is_told_as_such_and_any_other_error_as_it_is(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[int] = []
    monkeypatch.setattr(descriptors, "tell_no_descriptor", lambda: told.append(1))

    async def main() -> None:
        loop = asyncio.get_running_loop()
        context: dict[str, Any] = {"message": "socket.accept() out of system resource"}
        loop.call_exception_handler(context | {"exception": OSError(errno.EMFILE, "Too many open files")})
        loop.call_exception_handler({"message": "unforeseen", "exception": ValueError("a fault of ours")})

    with caplog.at_level(logging.ERROR):
        run_until(main())
    assert told == [1]
    assert [record.getMessage().splitlines()[0] for record in caplog.records] == ["unforeseen"]
