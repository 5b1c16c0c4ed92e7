"""A forked child of a process that has logs or a broker: no call waits for a lock that a thread of the parent held."""

from __future__ import annotations

import gc
import inspect
import os
import select
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.golden import PATIENCE_S
from support.sets import log_records
from support.sets.log_records import NOW, batch

import kts
from kts.testing import KtsBroker

pytestmark = pytest.mark.slow

LOCKS = (type(threading.Lock()), type(threading.RLock()))
REFUSED, ANSWERED, FAILED = 0, 1, 2


def is_ours(thing: object) -> bool:
    return type(thing).__module__.split(".")[0] == "kts"


def locks_of(*roots: object) -> list[Any]:
    """Every lock that is reachable from an object through objects of kts, and those of kts's modules."""
    modules = [module for name, module in list(sys.modules.items()) if name.split(".")[0] == "kts"]
    waiting: list[Any] = [*roots, *modules]
    ours = set(map(id, modules))
    seen, found = set[int](), list[Any]()
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, LOCKS):
            found.append(one)
        elif (
            isinstance(one, (dict, list, tuple, set, frozenset))
            or id(one) in ours  # by what it is: arrays compare element by element
            or isinstance(one, threading.Condition)
            or is_ours(one)
        ):
            waiting += gc.get_referents(one)
    return found


@contextmanager
def held_by_a_thread(locks: list[Any]) -> Iterator[None]:
    """All of them held by another thread, as in the middle of its calls."""
    ready, done = threading.Event(), threading.Event()

    def hold() -> None:
        mine = [lock for lock in locks if lock.acquire(blocking=False)]
        ready.set()
        done.wait()
        for lock in mine:
            lock.release()

    thread = threading.Thread(target=hold)
    thread.start()
    ready.wait()
    try:
        yield
    finally:
        done.set()
        thread.join()


def in_child(call: Callable[[], object]) -> tuple[int, str]:
    """How a call ends in a forked child, and what it said; a child that hangs is killed."""
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:  # no more than what must be tried: this is a copy of pytest
        outcome, said = FAILED, ""
        try:
            call()
            outcome = ANSWERED
        except kts.LogClosedError as error:
            outcome, said = REFUSED, str(error)
        except BaseException:
            said = traceback.format_exc()
        finally:
            os.write(tell, said[-2000:].encode())
            os._exit(outcome)
    os.close(tell)
    if not select.select([told], [], [], PATIENCE_S)[0]:
        os.kill(child, signal.SIGKILL)
    said = os.read(told, 4096).decode()
    os.close(told)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status >= 0, "it waits for a thread of its parent"
    return status, said


def public(kind: type) -> list[str]:
    return [name for name, _ in inspect.getmembers(kind) if not name.startswith("_")]


# Arguments of what takes some; the rest is called without, or is a property.
LOG_ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "append": (batch(NOW),),
    "append_as_follower": (batch(NOW),),
    "appends_at_once": (100,),
    "read": (0, 1000),
    "slice": (0, 1000),
    "offset_for_timestamp": (NOW,),
    "truncate_to": (1,),
    "truncate_fully_and_start_at": (5,),
    "reconfigure": ({"retention.ms": 5},),
}
BROKER_ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "alter_topic": ("orders", {"retention.ms": 5}),
    "append": ("orders", batch(NOW)),
    "consume": ("orders",),
    "create_topic": ("more",),
    "delete_topic": ("orders",),
    "log": ("orders",),
    "offsets_for_times": ({("orders", 0): NOW},),
    "partitions": ("orders",),
    "produce": ("orders", b"v"),
    "roll": ("orders",),
    "set_time": (NOW,),
    "advance": (5,),
}


def asked(thing: Any, name: str, arguments: dict[str, tuple[Any, ...]]) -> object:
    """A method called, or a property asked for; what lacks arguments here fails the test."""
    found = getattr(thing, name)
    return found(*arguments.get(name, _needed(found))) if callable(found) else found


def _needed(method: Callable[..., Any]) -> tuple[Any, ...]:
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = [one for one in inspect.signature(method).parameters.values() if one.kind in kinds]
    return tuple(5 for one in needed if one.default is inspect.Parameter.empty)  # an offset, in most


CHANGES = "append append_as_follower delete_old_segments flush roll truncate_to truncate_fully_and_start_at reconfigure"


def test_no_call_of_a_log_waits_for_the_parent_and_none_changes_it(tmp_path: Path) -> None:
    with log_records.opened(tmp_path, segment_bytes=300) as log:
        for number in range(5):
            log.append(batch(NOW + number))
        before = {path.name: path.read_bytes() for path in (tmp_path / "t-0").iterdir()}
        held = locks_of(log)
        assert len(held) > 4
        with held_by_a_thread(held):
            outcomes = {name: in_child(lambda name=name: asked(log, name, LOG_ARGUMENTS)) for name in public(kts.Log)}
        failed = {name: said for name, (outcome, said) in outcomes.items() if outcome == FAILED}
        assert not failed, failed
        assert set(CHANGES.split()) <= set(outcomes)
        for name in CHANGES.split():
            assert outcomes[name][0] == REFUSED and f"process {os.getpid()} has open" in outcomes[name][1], name
        assert outcomes["read"][0] == REFUSED and outcomes["close"][0] == outcomes["log_end_offset"][0] == ANSWERED
        assert {path.name: path.read_bytes() for path in (tmp_path / "t-0").iterdir()} == before
        assert log.append(batch(NOW)).first_offset == 5
    with log_records.opened(tmp_path) as again:
        assert again.clean_start and log_records.offsets(again) == list(range(6))


def test_no_call_of_a_broker_waits_for_the_parent_and_none_changes_it() -> None:
    """Two seconds: every public name of the broker in a child of its own."""
    with KtsBroker(time=NOW) as broker:
        broker.create_topic("orders", partitions=1)
        broker.produce("orders", b"v")
        log = broker.log("orders")
        with held_by_a_thread(locks_of(broker)):
            names = public(KtsBroker)
            outcomes = {name: in_child(lambda name=name: asked(broker, name, BROKER_ARGUMENTS)) for name in names}
            log_said = in_child(lambda: log.append(batch(NOW)))
        failed = {name: said for name, (outcome, said) in outcomes.items() if outcome == FAILED}
        assert not failed, failed
        harmless = {"advance", "bootstrap_servers", "close", "host", "port", "set_time", "stop"}
        assert {name for name, (outcome, _) in outcomes.items() if outcome == ANSWERED} <= harmless
        assert "of which this is a fork" in outcomes["produce"][1] and log_said[0] == REFUSED
        assert broker.produce("orders", b"w").offset == 1
        assert [record.value for record in broker.consume("orders")] == [b"v", b"w"]
        assert Path(broker.directory).exists()


def test_a_child_makes_logs_of_its_own_while_a_thread_of_the_parent_opens_one(tmp_path: Path) -> None:
    """The module's own locks: they are held while a log is opened."""

    def another() -> None:
        with log_records.opened(tmp_path / "other") as log:
            log.append(batch(NOW))

    with log_records.opened(tmp_path / "mine"), held_by_a_thread(locks_of()):
        assert in_child(another) == (ANSWERED, "")


ENDING = """
import atexit, os, sys
from kts.testing import KtsBroker

with KtsBroker() as broker:
    if (child := os.fork()) == 0:
        broker.close() if sys.argv[1] == "close" else atexit._run_exitfuncs()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert os.path.exists(broker.directory)
    assert broker.produce("orders", b"v").offset == 0
assert not os.path.exists(broker.directory)
"""


@pytest.mark.parametrize("ends", ["exit", "close"])
def test_a_child_that_ends_leaves_the_brokers_directory(ends: str) -> None:
    """Half a second: in a process of its own, as a copy of pytest that ends takes its fixtures' directories along."""
    subprocess.run([sys.executable, "-c", ENDING, ends], check=True, timeout=PATIENCE_S)
