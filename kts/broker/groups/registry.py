"""The groups of a broker by id, their settings, timers and memory limit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

from kts.arguments import INT32_MAX
from kts.broker.groups.group import Group, Usage
from kts.broker.settings.broker import BrokerConfig
from kts.errors import KtsError

MAX_BYTES = 256 * 2**20  # of all groups, members and offsets together
MAX_MEMBER_BYTES = 64 * 2**20


class GroupSettings(NamedTuple):
    """Kafka's ``group.*`` and ``offsets.*`` settings; times in ms."""

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    max_size: int = INT32_MAX
    initial_rebalance_delay_ms: int = 0
    max_metadata_size: int = 4096
    retention_ms: int = 7 * 24 * 3_600_000
    retention_check_interval_ms: int = 600_000
    num_partitions: int = 1
    segment_bytes: int = 100 * 2**20
    load_buffer_size: int = 5 * 2**20
    ends_emptied_groups: bool = True
    refuses_unknown_groups: bool = False
    max_bytes: int = MAX_BYTES
    max_member_bytes: int = MAX_MEMBER_BYTES

    @classmethod
    def of(cls, config: BrokerConfig) -> GroupSettings:
        """The settings of a broker."""
        return cls(
            config.group_min_session_timeout_ms,
            config.group_max_session_timeout_ms,
            config.group_max_size,
            config.group_initial_rebalance_delay_ms,
            config.offset_metadata_max_bytes,
            config.offsets_retention_ms,
            config.offsets_retention_check_interval_ms,
            config.offsets_topic_num_partitions,
            config.offsets_topic_segment_bytes,
            config.offsets_load_buffer_size,
            config.behaviour.ends_emptied_groups,
            config.behaviour.refuses_unknown_groups,
        )


class Registry:
    """The groups by id.

    Parameters
    ----------
    clock : callable
        Returns ms since the epoch, for what is written. Timers run by the event loop's clock.
    """

    def __init__(self, settings: GroupSettings, clock: Callable[[], int]) -> None:
        self.settings = settings
        self.clock = clock
        self.usage = Usage()
        self.max_bytes = settings.max_bytes
        self.groups: dict[str, Group] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    def bind(self) -> bool:
        """Use the running event loop for timers; returns whether it is a new one.

        Raises
        ------
        KtsError
            Another event loop uses the groups and is still running.
        """
        loop = asyncio.get_running_loop()
        if loop is self._loop:
            return False
        if self._loop is not None and self._loop.is_running():
            raise KtsError("expected one event loop for all group requests, found a second one while the first runs")
        self._loop = loop
        return True

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop() if self._loop is None else self._loop

    def after(self, delay_ms: float, call: Callable[..., None], *arguments: Any) -> asyncio.TimerHandle:
        """Schedule a call by the event loop's clock."""
        return self.loop.call_later(max(delay_ms, 0) / 1000, call, *arguments)

    def has_room_for(self, size: int) -> bool:
        """Whether ``size`` more bytes fit into the limit."""
        return self.usage.bytes + size <= self.max_bytes

    def has_room_for_member(self, size: int) -> bool:
        """Whether ``size`` more bytes of members fit into the limits."""
        return self.has_room_for(size) and self.usage.member_bytes + size <= self.settings.max_member_bytes

    def create(self, group_id: str) -> Group:
        """Create an empty group, in place of one with the same id."""
        self.remove(group_id)
        group = self.groups[group_id] = Group(group_id, self.clock(), self.usage)
        return group

    def remove(self, group_id: str) -> None:
        """Remove a group, if it exists."""
        group = self.groups.pop(group_id, None)
        if group is not None:
            group.forget()

    def close(self) -> None:
        """Cancel all timers."""
        for group in self.groups.values():
            group.stop_timers()
