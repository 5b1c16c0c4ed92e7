"""Work in threads: a caller that is cancelled still waits, because its buffer is in use."""

from __future__ import annotations

import asyncio
import threading

import pytest
from support.golden import PATIENCE_S

from kts.broker.threads import InFlight, in_thread


def test_a_result_and_an_error_come_back() -> None:
    def divide(a: int, b: int) -> int:
        return a // b

    async def both() -> int:
        with pytest.raises(ZeroDivisionError):
            await in_thread(divide, 1, 0)
        return await in_thread(divide, 6, b=3)

    assert asyncio.run(both()) == 2


@pytest.mark.parametrize("fails", [False, True])
def test_a_cancelled_caller_waits_for_the_end(fails: bool) -> None:
    begun, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        assert go_on.wait(PATIENCE_S)
        ended.set()
        if fails:
            raise ValueError("too late to tell")

    async def cancelled() -> bool:
        task = asyncio.create_task(in_thread(work))
        await asyncio.to_thread(begun.wait, 30)
        for _ in range(3):
            task.cancel()
            await asyncio.sleep(0.01)
        assert not task.done()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        return ended.is_set()

    assert asyncio.run(cancelled())


def test_what_is_in_threads_is_counted() -> None:
    busy, thing = InFlight(), object()
    with busy.one(thing):
        with busy.one(thing):
            assert thing in busy
        assert thing in busy
        assert object() not in busy
    assert thing not in busy
