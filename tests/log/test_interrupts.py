"""Ctrl-C in the middle of what changes a log: it is whole or it closes, and no offset is ever given twice."""

from __future__ import annotations

import contextlib
import itertools
import linecache
import os
import random
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from support.disk.faultfs import READING, WRITING
from support.disk.scripted_lives import in_place_of_os
from support.golden import PATIENCE_S, scaled
from support.sets.log_records import NOW, Clock, batch, offsets, opened

import kts
from kts.offline.verify import verify

pytestmark = pytest.mark.slow

PACKAGE = os.path.dirname(kts.__file__)
OPERATIONS: dict[str, tuple[Callable[[kts.Log], Any], int]] = {  # and every how many lines
    "append": (lambda log: log.append(batch(NOW + 50)), scaled(5, 1)),
    "append that rolls": (lambda log: [log.append(batch(NOW + 50, value=b"v" * 300)) for _ in range(2)], scaled(31, 9)),
    "rows of three segments": (lambda log: log.append_rows({"value": [b"v" * 150] * 6}), scaled(97, 9)),
    "roll": (lambda log: log.roll(), scaled(31, 9)),
    "retention": (lambda log: log.delete_old_segments(), scaled(31, 9)),
    "truncation": (lambda log: log.truncate_to(7), scaled(31, 9)),
    "flush": (lambda log: log.flush(), scaled(11, 5)),
    "close": (lambda log: log.close(), scaled(17, 5)),
}


class Interrupt:
    """Raises KeyboardInterrupt at the n-th line that the package executes.

    Lines with ``with`` and ``try`` are left out: there a tracer stands between a lock and its release, or where Python
    looks up no handler, as no signal does.
    """

    def __init__(self, number: int) -> None:
        self.left = number
        self.place = ""

    def __call__(self, frame: FrameType, event: str, _: object) -> Interrupt | None:
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        line = linecache.getline(frame.f_code.co_filename, frame.f_lineno).lstrip()
        self.left -= event == "line" and not line.startswith(("with ", "try:"))
        if self.left == 0 and not self.place:
            self.place = f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"
            sys.settrace(None)
            raise KeyboardInterrupt
        return self


def interrupted(log: kts.Log, operation: Callable[[kts.Log], Any], number: int) -> str:
    """Where it was interrupted; empty if it has fewer lines."""
    interrupt = Interrupt(number)
    sys.settrace(interrupt)
    try:
        operation(log)
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(None)
    return interrupt.place


def go_on(log: kts.Log, folder: Path, least: int, place: str) -> None:
    """Append, close, and look at what is there."""
    with contextlib.suppress(kts.LogClosedError):
        log.append(batch(NOW + 60))
        log.close()
    with opened(folder) as again:
        found = offsets(again)
    assert found == list(range(found[0], found[-1] + 1)), place
    assert found[-1] >= least, place
    assert not list(verify(str(folder / "t-0"), deep=True)), place


def in_another_thread(work: Callable[[], None], place: str) -> None:
    """For which no lock may be left with this one."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(PATIENCE_S)
    assert not thread.is_alive(), f"after an interruption at {place} a lock is still held"
    if failed:
        raise failed[0]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("name", OPERATIONS)
def test_an_interruption_anywhere_gives_no_offset_twice_and_loses_nothing(
    name: str, tmp_path: Path, rng: random.Random
) -> None:
    operation, step = OPERATIONS[name]
    number, place = rng.randint(1, step), "anywhere"
    while place:
        folder = tmp_path / str(number)
        folder.mkdir()
        log = opened(folder, segment_bytes=400, retention_bytes=800, index_interval_bytes=1)
        for i in range(11):
            log.append(batch(NOW + i))
        place = interrupted(log, operation, number)
        if name == "rows of three segments":  # all of them or none
            with contextlib.nullcontext(log) if not log.closed else opened(folder) as now:
                assert now.log_end_offset in (11, 17), place
        least = 6 if name == "truncation" else 10
        in_another_thread(partial(go_on, log, folder, least, place), place)
        number += step
    assert number > 5 * step


class InterruptingOs:
    """The module ``os``; Ctrl-C arrives when its n-th call has done its work."""

    def __init__(self, number: int) -> None:
        self.left = number

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        if name not in READING | WRITING:
            return real

        def call(*arguments: Any, **named: Any) -> Any:
            done = real(*arguments, **named)
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt
            return done

        return call


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_roll_that_is_interrupted_leaves_no_file_that_a_truncation_would_make_a_hole(tmp_path: Path) -> None:
    """Ctrl-C after each call to the operating system, one by one."""
    still_open = 0
    for number in itertools.count(1):
        folder = tmp_path / str(number)
        folder.mkdir()
        log = opened(folder, segment_bytes=10_000)
        for _ in range(3):
            log.append(batch(NOW))
        with in_place_of_os(InterruptingOs(number)):
            try:
                log.roll()
            except KeyboardInterrupt:
                pass
            else:
                break
        if not log.closed:
            still_open += 1
            log.truncate_to(1)
            assert log.append(batch(NOW)).first_offset == 1
            log.close()
            assert not list(verify(str(folder / "t-0"), deep=True))
    log.close()
    assert still_open >= 3


def test_a_clock_that_raises_closes_no_log_in_the_middle_of_an_append(tmp_path: Path) -> None:
    clock = Clock()
    log = opened(tmp_path, clock=clock)
    log.append(batch(NOW))
    clock.now = "broken"  # type: ignore[assignment]
    with pytest.raises(TypeError, match="clock: expected an int"):
        log.append(batch(NOW))
    clock.now = NOW
    assert log.append(batch(NOW)).first_offset == 1
    log.close()


def test_a_clock_that_raises_at_the_end_gives_the_lock_back(tmp_path: Path) -> None:
    clock = Clock()
    log = opened(tmp_path, clock=clock)
    log.append(batch(NOW))
    clock.now = None  # type: ignore[assignment]
    with pytest.raises(TypeError, match="clock: expected an int"):
        log.close()
    assert log.closed
    with pytest.raises(kts.LogClosedError, match="clock: expected an int"):
        log.append(batch(NOW))
    with opened(tmp_path) as again:
        assert not again.clean_start and offsets(again) == [0]
