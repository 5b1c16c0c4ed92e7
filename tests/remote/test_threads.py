"""Calls in threads: in order, bounded in number, and waited for no longer than a limit."""

from __future__ import annotations

import errno
import threading
from itertools import count

import pytest
from support.golden import PATIENCE_S
from support.waiting import wait_until

from kts.remote.threads import SLOWEST_BYTES, Limit, Threads


def test_calls_run_in_order_in_no_more_threads_than_told() -> None:
    threads, go, begun = Threads("kts-two", 2), threading.Event(), list[int]()

    def work(number: int) -> int:
        begun.append(number)
        go.wait(PATIENCE_S)
        if number == 5:
            raise ValueError("of the call")
        return number

    calls = [threads.submit(work, number) for number in range(10)]
    assert calls[9].cancel()
    wait_until("two calls have begun", lambda: len(begun) == 2)
    go.set()
    assert [call.result(PATIENCE_S) for call in calls[:5]] == [0, 1, 2, 3, 4]
    with pytest.raises(ValueError, match="of the call"):
        calls[5].result(PATIENCE_S)
    assert calls[8].result(PATIENCE_S) == 8
    assert sorted(begun) == list(range(9)) and set(begun[:2]) == {0, 1}
    mine = [one for one in threading.enumerate() if one.name == "kts-two"]
    assert len(mine) == 2 and all(one.daemon for one in mine)


def test_a_call_that_takes_too_long_is_left_and_others_go_on() -> None:
    threads, limit, go = Threads("kts-test"), Limit(0.05), threading.Event()
    hung = [threads.submit(go.wait, PATIENCE_S) for _ in range(3)]
    for call in hung:
        with pytest.raises(TimeoutError, match=r"no answer within 0.05 s \(storage option time_limit\)") as raised:
            limit.wait(call)
        assert raised.value.errno == errno.ETIMEDOUT
    assert Limit(PATIENCE_S).wait(threads.submit(int, "7")) == 7
    go.set()
    assert all(call.result(PATIENCE_S) for call in hung)


def test_the_limit_grows_with_what_is_sent_and_a_calls_own_error_is_its_own() -> None:
    threads, go, asked = Threads("kts-test"), threading.Event(), count()

    def sent() -> int:
        if not next(asked):
            return 0
        go.set()
        return int(PATIENCE_S) * SLOWEST_BYTES

    assert Limit(0.2).wait(threads.submit(go.wait, PATIENCE_S), sent)

    def fails() -> None:
        raise TimeoutError(errno.ETIMEDOUT, "of the library")

    with pytest.raises(TimeoutError, match="of the library"):
        Limit(PATIENCE_S).wait(threads.submit(fails))
