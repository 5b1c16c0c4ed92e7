"""What start-up gives a log, and how its segments are opened."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from kts.config import LogConfig
from kts.log import rolling
from kts.log.epochs import LeaderEpochs
from kts.segment.log_segment import LogSegment
from kts.segment.recovery import Recovered
from kts.segment.snapshots import Snapshots


@dataclass
class Loaded:
    """A partition as start-up leaves it.

    Attributes
    ----------
    recovered : list of Recovered
        All that was cut, removed, set aside or rebuilt.
    doomed : list of callables
        Remove files that were renamed ``.deleted``.
    """

    segments: list[LogSegment] = field(default_factory=list)
    end_offset: int = 0
    log_start_offset: int = 0
    recovery_point: int = 0
    epochs: LeaderEpochs | None = None
    snapshots: Snapshots | None = None
    recovered: list[Recovered] = field(default_factory=list)
    doomed: list[Callable[[], None]] = field(default_factory=list)


def open_segment(path: str, base_offset: int, config: LogConfig, shipped: bool, now_ms: int) -> LogSegment:
    """A segment of a partition directory, a new one where it has no files."""
    jitter = rolling.jitter_ms(config, random.getrandbits(32) - 2**31) if config.segment_jitter_ms else 0
    return LogSegment(path, base_offset, config, shipped=shipped, now_ms=now_ms, jitter_ms=jitter)
