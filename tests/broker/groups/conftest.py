"""Coordinators for the tests of groups."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.broker.group_play import (
    REBALANCE_MS,
    SESSION_MS,
    Clock,
    Restartable,
    Story,
    Tell,
    advance,
    make,
    open_topics,
    play,
)

from kts.broker.groups.group import State


@pytest.fixture
def tell(tmp_path: Path) -> Iterator[Tell]:
    """Plays a story with a coordinator, whose memory is free again when all groups are deleted."""
    clock = Clock()
    topics = open_topics(tmp_path / "data", clock)

    def play_story(story: Story, **settings: Any) -> None:
        coordinator = make(topics, clock, **settings)

        async def whole() -> None:
            await story(coordinator)
            for _ in range(8):
                await advance(SESSION_MS + REBALANCE_MS)
            for group in coordinator.groups():
                assert group.state is State.EMPTY, f"{group.group_id} has members that were never heard of again"
                assert not coordinator.delete_group(group.group_id)
            assert coordinator.registry.usage.bytes == 0

        play(whole())

    yield play_story
    topics.close()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Restartable]:
    found = Restartable(tmp_path / "data")
    yield found
    found.topics.close()
