"""Brokers whose handlers are asked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.broker.asking import Asking
from support.broker.broker_asking import Asked
from support.broker.group_play import Clock

from kts.broker.broker import Broker


@pytest.fixture
def asking(tmp_path: Path) -> Iterator[Asking]:
    """A broker with two topics of two partitions."""
    with Asking(Broker(tmp_path / "data")) as found:
        for name in ("a", "b"):
            found.broker.topics.create(name, 2)
        yield found


@pytest.fixture
def old(tmp_path: Path) -> Iterator[Asking]:
    """A broker of the 0.10.2 protocol."""
    settings = {"inter.broker.protocol.version": "0.10.2"}
    with Asking(Broker(tmp_path / "old", settings, clock=lambda: 1_500_000_000_000)) as found:
        yield found


@pytest.fixture
def ask(tmp_path: Path) -> Iterator[Asked]:
    """A broker without topics, for requests that change some."""
    with Broker(tmp_path, {"log.retention.hours": 5}) as broker:
        yield Asked(broker)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """A broker with two topics, whose clock the story of a group moves."""
    config = {"node.id": 5, "group.initial.rebalance.delay.ms": 0}
    with Broker(tmp_path / "data", config, clock=Clock()) as found:
        found.topics.create("t", 2, {})
        found.topics.create("u", 1, {})
        yield found
