"""A readers-writer lock: who waits for whom."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.golden import PATIENCE_S

from kts.log.readers_writer_lock import ReadersWriterLock


def test_a_writer_waits_for_readers_and_goes_before_later_ones() -> None:
    readers, order = ReadersWriterLock(), list[str]()
    inside, leave = threading.Event(), threading.Event()

    def first() -> None:
        with readers:
            inside.set()
            assert leave.wait(PATIENCE_S)
            order.append("first reader")

    def alone() -> None:
        with readers.excluded():
            order.append("alone")

    def later() -> None:
        with readers:
            order.append("later reader")

    with ThreadPoolExecutor(3) as pool:
        one = pool.submit(first)
        assert inside.wait(PATIENCE_S)
        two = pool.submit(alone)
        while not readers._waiting:
            pass
        three = pool.submit(later)
        leave.set()
        for future in (one, two, three):
            future.result(timeout=PATIENCE_S)
    assert order == ["first reader", "alone", "later reader"]
    with readers.excluded(), readers.excluded():
        pass
    with pytest.raises(KeyError), readers.excluded():
        raise KeyError("while alone")
    with readers:
        pass
