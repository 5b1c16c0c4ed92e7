"""Rules that KIPs proposed and Kafka does not have today, for comparison with Kafka's own.

- ``wall-clock``: roll by the age of the segment (KIP-33, "currently"; shipped in 0.10.0).
- ``largest-timestamp``: roll by the age of the largest timestamp ever seen (KIP-32 changes 7.3, KIP-33).
- ``earliest-timestamp``: roll by the age of the segment's earliest timestamp (KIP-32 option 4, KIP-33's removed text).
- ``bucket-index``: KIP-33's earlier ``.time.index``, one entry for each bucket of ``time.index.interval.ms``.
- ``minute-map``: KIP-33's rejected map of minutes for each segment, with its persistent copy.
- ``monotonic-append-time``: LogAppendTime that never decreases (KIP-32 option 1).
- ``comparing.Continuing``: KIP-33's search, which continues into later segments; needs no mode.

A log follows those that its setting ``proposals`` names, or its argument. ``comparing.lookups`` returns all ways to
find a record by timestamp, with one interface.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kts.arguments import INT64_MAX
from kts.config import Extension, LogConfig, parse_integer, parse_names
from kts.dataset.partition import PartitionLog
from kts.log import policies
from kts.proposals.append_time import MonotonicAppendTime
from kts.proposals.bucket_index import BucketIndexMode
from kts.proposals.index import IndexMode
from kts.proposals.minute_map import MinuteMapMode
from kts.proposals.modes import Mode, Proposals
from kts.proposals.rolling import EarliestTimestamp, LargestTimestamp, WallClock

INTERVAL = "time.index.interval.ms"
MODES: dict[str, Callable[[LogConfig], Mode]] = {
    "wall-clock": lambda config: WallClock(),
    "largest-timestamp": lambda config: LargestTimestamp(allow_negative=config.allow_negative_timestamps),
    "earliest-timestamp": lambda config: EarliestTimestamp(allow_negative=config.allow_negative_timestamps),
    "bucket-index": lambda config: BucketIndexMode(
        config.of_extension(INTERVAL), allow_negative=config.allow_negative_timestamps
    ),
    "minute-map": lambda config: MinuteMapMode(allow_negative=config.allow_negative_timestamps),
    "monotonic-append-time": lambda config: MonotonicAppendTime(),
}
ROLLS_BY = {  # a log follows one of them at most
    "wall-clock": policies.CREATION,
    "largest-timestamp": policies.CLOCK,
    "earliest-timestamp": policies.CLOCK,
}


def read_index(name: str, log: PartitionLog, config: LogConfig) -> IndexMode:
    """The index of a proposal for a log that somebody else may write: from its files where they are valid."""
    mode = MODES[name](config)
    if not isinstance(mode, IndexMode):
        raise ValueError(f"expected {BucketIndexMode.name} or {MinuteMapMode.name}, found {name!r}")
    mode.read(log)
    return mode


def made(wanted: Sequence[str | Mode], log: PartitionLog, config: LogConfig) -> Proposals:
    """The proposals that a log follows.

    Parameters
    ----------
    wanted : sequence of str or Mode
        Names of ``MODES``, or modes with settings of their own, as ``BucketIndexMode(interval_ms=1000)``.
    config : LogConfig
        The settings of the log.

    Raises
    ------
    ValueError
        An unknown name, a mode twice, or two modes that decide when to roll.
    """
    if isinstance(wanted, str):
        raise TypeError(f"proposals: expected a sequence of names, found the string {wanted!r}")
    modes = []
    for one in wanted:
        if isinstance(one, str) and one not in MODES:
            raise ValueError(f"proposals: {one!r} is unknown; there are {', '.join(MODES)}")
        if not isinstance(one, str) and not hasattr(one, "name"):
            raise TypeError(f"proposals: expected names or modes, found {one!r}")
        modes.append(MODES[one](config) if isinstance(one, str) else one)
    return Proposals(log, modes, allow_negative=config.allow_negative_timestamps)


# --- the settings that they add to a topic's (kts/__init__.py registers them) -----------------------


def _names(key: str, value: Any) -> str:
    names = parse_names(key, value)
    if any(one not in MODES for one in names) or len(set(names)) < len(names):
        raise ValueError(f"{key}: expected some of {', '.join(MODES)}, each once, found {value!r}")
    if len(ROLLS_BY.keys() & names) > 1:
        raise ValueError(f"{key}: expected one of {', '.join(ROLLS_BY)} at most, found {value!r}")
    return ",".join(names)


def _listener(value: str | Sequence[str | Mode], log: PartitionLog, config: LogConfig) -> Proposals:
    return made(value.split(",") if isinstance(value, str) else value, log, config)


def _rolls_by(names: str) -> str | None:
    return next((ROLLS_BY[name] for name in names.split(",") if name in ROLLS_BY), None)


EXTENSION = {
    "proposals": Extension(_names, _listener, _rolls_by),
    INTERVAL: Extension(lambda key, value: parse_integer(key, value, 1, INT64_MAX)),
}
