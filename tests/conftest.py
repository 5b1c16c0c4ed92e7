"""Fixtures for all tests: the seed of the random ones, and a writable copy of a golden scenario."""

from __future__ import annotations

import faulthandler
import gc
import os
import random
import secrets
import signal
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.buckets.gateway import s3_gateway
from support.buckets.proxy import Proxy
from support.buckets.s3 import ENVIRONMENT, TestBucket
from support.golden import Golden, data_root, is_full
from support.selection import marks

import kts

# Short runs try the same cases everywhere, so that a change fails by what it changed; full ones try others each time.
SHORT_SEED = 33
# One Spark session, ten seconds of CPU, and one process of each release of Kafka's clients.
TOGETHER = ("tests/spark/", "tests/broker/test_clients_")
APART = (
    "tests/spark/test_cluster.py",
    "tests/spark/test_stream_kills.py",
    "tests/spark/test_table_kills.py",
    "tests/broker/test_clients_spark.py",
)  # which start their own
# What takes a process longest comes first of all: what is left at the end is short, and no process waits for another.
LONGEST = ("tests/spark/", "tests/test_readme.py", "tests/meta/test_bench.py", "tests/test_packaging.py")
LONG = ("java", "scaled", "crash", "slow")
TEARDOWN_S = 300
MEMORY, ROOM_BYTES = "/dev/shm", 4 * 2**30
STDERR = pytest.StashKey[int]()


def pytest_configure(config: pytest.Config) -> None:
    """One seed a run, the same in every worker process. Ctrl-C ends this process and its children, as at a terminal: a
    shell that starts a run with `&` has it ignored, and children inherit that, but no handler."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # Tests start Python hundreds of times: what is compiled is kept, whatever the environment says.
    sys.dont_write_bytecode = False
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ.setdefault("KTS_SEED", str(secrets.randbelow(2**31) if is_full() else SHORT_SEED))
    if _has_room_in_memory():
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", MEMORY)
    config.stash[STDERR] = os.dup(sys.__stderr__.fileno() if sys.__stderr__ is not None else 2)  # not a captured one


def _has_room_in_memory() -> bool:
    """Whether the tests' directories can lie in memory: tests that open logs by the thousand take a third of the time,
    because each fsync returns at once. No test cuts the power: `crashdisk` judges what is synced, and when."""
    if not os.access(MEMORY, os.W_OK):
        return False
    found = os.statvfs(MEMORY)
    return found.f_bavail * found.f_frsize >= ROOM_BYTES and not found.f_flag & os.ST_NOEXEC


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Set the marks of `marks.py`. Files with long tests come first, so that two processes end at the same time."""
    long: set[Path] = set()
    for item in items:
        if isinstance(item, pytest.Function):
            for mark in marks.marks_of(item):
                item.add_marker(mark)
        if any(item.get_closest_marker(mark) for mark in LONG):
            long.add(item.path)

    def rank(item: pytest.Item) -> tuple[int, bool]:
        first = (number for number, start in enumerate(LONGEST) if item.nodeid.startswith(start))
        return next(first, len(LONGEST)), item.path not in long

    items.sort(key=rank)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """No collection of garbage looks at the tests that are found: while they are, that takes two of seven seconds, and
    later 0.1 seconds each."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """`--dist loadfile`, but files run in one process where they share what takes long to start."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file: str = super()._split_scope(nodeid)
            return next((start for start in TOGETHER if file.startswith(start) and file not in APART), file)

    return Scheduling(config, log)


def pytest_exception_interact(node: pytest.Item, report: pytest.TestReport) -> None:
    """pytest-timeout looks away once a test has failed, and what failed may hang when it is taken down: where it does,
    the process says where, and ends. (Each watch is a thread: one for every test takes milliseconds of each.)"""
    if report.when in ("setup", "call"):
        faulthandler.dump_traceback_later(TEARDOWN_S, exit=True, file=node.config.stash[STDERR])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Iterator[None]:
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


def pytest_report_header(config: pytest.Config) -> list[str]:
    return [
        f"KTS_SEED={os.environ['KTS_SEED']} replays the random tests; their length: {'full' if is_full() else 'short'}",
        f"Kafka data: {data_root()}",
        f"kts: {kts.__file__}",
    ]


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """The run's seed; printed, so that a failing test shows it."""
    value = int(os.environ["KTS_SEED"])
    print(f"replay with: KTS_SEED={value} pytest {request.node.nodeid!r}")
    return value


@pytest.fixture
def rng(seed: int) -> random.Random:
    """Random numbers that KTS_SEED replays."""
    return random.Random(seed)


@pytest.fixture(scope="session")
def gateway() -> Iterator[Proxy]:
    """A real S3 server behind a proxy, which every test of a process shares."""
    with s3_gateway() as proxy:
        yield proxy


@pytest.fixture
def bucket(gateway: Proxy, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestBucket]:
    """An empty bucket, which kts and programs of kts reach by their environment."""
    for name, value in (ENVIRONMENT | {"AWS_ENDPOINT_URL": gateway.endpoint}).items():
        monkeypatch.setenv(name, value)
    made = TestBucket(gateway, f"b{secrets.token_hex(8)}")
    gateway.forget()
    yield made
    made.forget()


@pytest.fixture
def writable(tmp_path: Path) -> Callable[[Golden], Golden]:
    """Copies a golden scenario, file times as the broker left them."""
    return lambda scenario: scenario.copy(tmp_path)
