"""Fixtures for all tests: the seed of the random ones, and a writable copy of a golden scenario."""

from __future__ import annotations

import faulthandler
import os
import random
import secrets
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support import Golden, data_root

import kts

TEARDOWN_S = 300
STDERR = pytest.StashKey[int]()


def pytest_configure(config: pytest.Config) -> None:
    """One seed a run, the same in every worker process."""
    os.environ.setdefault("KTS_SEED", str(secrets.randbelow(2**31)))
    config.stash[STDERR] = os.dup(sys.__stderr__.fileno() if sys.__stderr__ is not None else 2)  # not a captured one


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """pytest-timeout looks away once a test has failed, and what failed may hang when it is taken down: where it does,
    the process says where, and ends."""
    faulthandler.dump_traceback_later(TEARDOWN_S, exit=True, file=item.config.stash[STDERR])
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


def pytest_report_header(config: pytest.Config) -> list[str]:
    return [
        f"KTS_SEED={os.environ['KTS_SEED']} replays the random tests",
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


@pytest.fixture
def writable(tmp_path: Path) -> Callable[[Golden], Golden]:
    """Copies a golden scenario, file times as the broker left them."""
    return lambda scenario: scenario.copy(tmp_path)
