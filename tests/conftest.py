"""Fixtures for all tests: the seed of the random ones, and a writable copy of a golden scenario."""

from __future__ import annotations

import os
import random
import secrets
from collections.abc import Callable
from pathlib import Path

import pytest
from support import Golden, data_root

import kts


def pytest_configure(config: pytest.Config) -> None:
    """One seed a run, the same in every worker process."""
    os.environ.setdefault("KTS_SEED", str(secrets.randbelow(2**31)))


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
