"""KIP-32's mirror maker case in detail: what each cluster stores, and what a consumer can compute from what it sees.

An application creates a message at T0. The first cluster receives it at T1, the mirror maker copies it, the second
cluster receives it at T2, and a consumer there reads it at T3.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kts.config import DAY_MS

from . import logs, rules
from .workloads import START_MS

if TYPE_CHECKING:
    from .rules import ProposedOption
    from .workloads import Settings, Times

MESSAGES = 100
EVERY_MS = 60_000  # between two messages


class Journey(NamedTuple):
    """The true times of the messages, in the order of creation."""

    t0: Times
    t1: Times
    t2: Times
    t3: Times


class Seen(NamedTuple):
    """The times of messages as a consumer sees them; None if its option hides or lacks them."""

    create_ms: Times | None
    append_ms: Times | None
    indexed_ms: int | None = None  # the broker's own, of the first message


def journey(settings: Settings) -> Journey:
    """Messages a minute apart: the small latency, then the mirror maker's, then the consumer's."""
    rng = np.random.default_rng([settings.seed, MESSAGES])
    hops = [np.full(MESSAGES, START_MS, np.int64) + np.arange(MESSAGES) * EVERY_MS]
    for mean in (settings.latency_ms, settings.large_latency_ms, settings.latency_ms):
        # In order: no message overtakes another on its way.
        hops.append(np.maximum.accumulate(hops[-1] + mean // 2 + rng.integers(0, mean + 1, MESSAGES)))
    return Journey(*hops)


def cluster(directory: str, option: ProposedOption, create_ms: Times, arrival_ms: Times, settings: Settings) -> Seen:
    """What a consumer reads from a real log of one cluster."""
    clock = logs.StudyClock()
    clock.now_ms = int(arrival_ms[0])
    log = logs.opened(os.path.join(directory, "mirrored-0"), option, settings, clock)
    try:
        for create, now in zip(create_ms.tolist(), arrival_ms.tolist(), strict=True):
            clock.now_ms = now
            log.append(create)
        return Seen(*log.seen(), log.indexed_ms())
    finally:
        log.close()


def copied(seen: Seen) -> Times:
    """The CreateTime that a mirror maker sends: the time of the message that it read, whichever it is."""
    times = seen.append_ms if seen.create_ms is None else seen.create_ms
    if times is None:
        raise ValueError("a message without a time")
    return times


def compare(settings: Settings) -> dict[str, Any]:
    """Send the messages through two clusters under each option.

    Returns
    -------
    dict
        For each option the times of the first message in both clusters, whether CreateTime was kept and LogAppendTime
        overridden, and what a consumer computes; null where it cannot.
    """
    true = journey(settings)
    settings = replace(settings, roll_ms=366 * DAY_MS, retention_ms=366 * DAY_MS)  # one segment, which stays
    options = {}
    for name in rules.TABLE:
        option = rules.OPTIONS[name]
        with logs.scratch() as one, logs.scratch() as two:
            first = cluster(one, option, true.t0, true.t1, settings)
            second = cluster(two, option, copied(first), true.t2, settings)
        options[name] = {
            "source": times_of(first),
            "target": times_of(second),
            "createTimeKept": None if second.create_ms is None else bool((second.create_ms == true.t0).all()),
            "logAppendTimeOverridden": None if second.append_ms is None else bool((second.append_ms == true.t2).all()),
            "indexedLogAppendTime": second.indexed_ms,
            **computed(second, true),
        }
    return {"true": {name: int(times[0]) for name, times in true._asdict().items()}, "options": options}


def times_of(seen: Seen) -> dict[str, int | None]:
    """The times of the first message."""
    create, append = (None if times is None else int(times[0]) for times in seen[:2])
    return {"createTime": create, "logAppendTime": append}


def computed(seen: Seen, true: Journey) -> dict[str, Any]:
    """End-to-end latency (T3 - T0), lag (T3 - T2) and the latency to the broker (T2 - T0), as a consumer computes them.

    Each is a median, beside the true one and the greatest error.
    """
    create, append = seen[:2]
    known = {
        "endToEndMs": (None if create is None else true.t3 - create, true.t3 - true.t0),
        "lagMs": (None if append is None else true.t3 - append, true.t3 - true.t2),
        "latencyMs": (None if create is None or append is None else append - create, true.t2 - true.t0),
    }
    found: dict[str, Any] = {}
    for name, (value, truth) in known.items():
        found[name] = None if value is None else int(np.median(value))
        found[f"{name[:-2]}ErrorMs"] = None if value is None else int(np.abs(value - truth).max())
        found[f"{name[:-2]}TrueMs"] = int(np.median(truth))
    return found
