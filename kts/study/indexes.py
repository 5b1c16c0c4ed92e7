"""KIP-33's indexes on the same messages: size, cost to build and rebuild, and what a search reads.

Three logs have the same messages: by LogAppendTime, by CreateTime with some disorder, and the latter with one time far
in the future.
"""

from __future__ import annotations

import os
import time
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kts.codec.encode import encode
from kts.config import DAY_MS
from kts.dataset.paths import open_partition
from kts.log.log import Log
from kts.proposals import options
from kts.proposals.bucket_index import BucketIndex, BucketIndexMode
from kts.proposals.comparing import Built, Continuing, OneSegment
from kts.proposals.minute_map import MinuteMap, MinuteMapMode
from kts.proposals.options import OptionLog
from kts.segment import files

from . import logs
from .rules import OPTIONS, TABLE
from .workloads import FUTURE_MS, START_MS

if TYPE_CHECKING:
    from collections.abc import Callable

    from kts.dataset.partition import PartitionLog
    from kts.proposals.answers import Answer, Lookup
    from kts.proposals.modes import Mode

    from .rules import Option
    from .workloads import Settings, Times

NAME = "indexed-0"
TIMES = ("CreateTime", "LogAppendTime")
SPAN_MS = DAY_MS  # of the messages
SEGMENTS = 10
SEARCHES = 50
BATCH = 20  # messages of an append
BATCH_OVERHEAD, RECORD_OVERHEAD = 61, 10  # bytes, about: for the size of segments
DATA = {
    "LogAppendTime": "LogAppendTime, in order",
    "CreateTime": "CreateTime, out of order",
    "one in the future": "CreateTime, one far in the future",
}
SHIPPED, CONTINUING, BUCKETS, MINUTES = OneSegment.name, Continuing.name, BucketIndexMode.name, MinuteMapMode.name


class Messages(NamedTuple):
    """The messages of one log in the order of arrival."""

    create_ms: Times
    arrival_ms: Times

    def stored(self, data: str) -> Times:
        """The time that the log has of each; a batch has the time of its append."""
        if data == "LogAppendTime":
            return np.repeat(self.arrival_ms[BATCH - 1 :: BATCH], BATCH)
        if data == "CreateTime":
            return self.create_ms
        times = self.create_ms.copy()
        times[len(times) // 10] += FUTURE_MS
        return times


def messages(settings: Settings) -> Messages:
    """Messages at equal distances, each up to ``disorder_ms`` old."""
    rng = np.random.default_rng([settings.seed, settings.index_messages])
    count = max(settings.index_messages // BATCH, 1) * BATCH
    arrival = START_MS + np.arange(count) * SPAN_MS // count
    return Messages(arrival - rng.integers(0, settings.disorder_ms, count), arrival)


def written(directory: str, data: str, all_of: Messages, settings: Settings, modes: tuple[Mode, ...] = ()) -> Log:
    """A log of the messages, open."""
    clock = logs.Clock()
    append_time = data == "LogAppendTime"
    count = len(all_of.create_ms)
    config = {
        "message.timestamp.type": "LogAppendTime" if append_time else "CreateTime",
        "segment.bytes": segment_bytes(count, settings),
        "segment.ms": 20 * 365 * DAY_MS,
        "retention.ms": -1,
    }
    clock.now_ms = START_MS
    log = Log(os.path.join(directory, NAME), config, clock=clock, proposals=modes)
    times = all_of.create_ms if append_time else all_of.stored(data)
    values = [bytes(settings.value_bytes)] * BATCH
    for first in range(0, count, BATCH):
        clock.now_ms = int(all_of.arrival_ms[first + BATCH - 1])
        log.append(encode({"timestamp": times[first : first + BATCH], "value": values}))
    return log


def compare(settings: Settings) -> dict[str, Any]:
    """Write the three logs, build each index, and search.

    Returns
    -------
    dict
        By data, then by index. Only what ends with ``CpuMs`` depends on the machine.
    """
    all_of = messages(settings)
    targets = targets_of(all_of, settings)
    found: dict[str, Any] = {}
    for data, what in DATA.items():
        with logs.scratch() as directory:
            written(directory, data, all_of, settings).close()
            log = open_partition(os.path.join(directory, NAME))
            ways: dict[str, Callable[[PartitionLog], Lookup]] = {
                SHIPPED: lambda log: OneSegment(),
                CONTINUING: lambda log: Continuing(),
                BUCKETS: lambda log: Built(log, BucketIndex(settings.interval_ms), BUCKETS),
                MINUTES: lambda log: Built(log, MinuteMap(), MINUTES),
            }
            size = sum(segment.size_bytes for segment in log.segments)
            found[data] = {"what": what, "logBytes": size, "segments": len(log.segments), "indexes": {}}
            for name, build in ways.items():
                before = time.process_time()
                way = build(log)
                took = round((time.process_time() - before) * 1000, 1)
                index = way.index_size(log)
                found[data]["indexes"][name] = {
                    "entries": index.entries,
                    "bytes": index.memory_bytes,
                    "buildCpuMs": took if name in (BUCKETS, MINUTES) else None,
                    **searched(partial(way.search, log), targets, all_of.stored(data), all_of.create_ms),
                }
    for name, count in read_after_loss(all_of, settings).items():
        found["CreateTime"]["indexes"][name]["segmentsReadAfterLoss"] = count
    return found


def searched(search: Callable[[int], Answer], targets: list[int], stored: Times, created: Times) -> dict[str, Any]:
    """Search for each target, and count what was read.

    ``right`` counts the answers that are the first message at or after the target by the time that the log has.
    ``before`` are the messages between where the index let reading begin and the answer, ``tooEarly`` those between the
    answer and the first message that was created at or after the target, and ``missed`` the messages that were created
    at or after the target and lie before the answer.
    """
    started = time.process_time()
    answers = [search(target) for target in targets]
    took = time.process_time() - started
    right, before, early, missed = 0, [], [], 0
    for answer, target in zip(answers, targets, strict=True):
        offset = len(stored) if answer.found is None else answer.found.offset
        right += offset == first_at(stored, target)
        before.append(distance(answer))
        early.append(max(first_at(created, target) - offset, 0))
        missed += int((created[:offset] >= target).sum())
    return {
        "searches": len(targets),
        "right": right,
        "bytesRead": round(float(np.mean([answer.bytes_read for answer in answers]))),
        "mostBytesRead": max(answer.bytes_read for answer in answers),
        "before": round(float(np.mean(before)), 1),
        "mostBefore": max(before),
        "tooEarly": round(float(np.mean(early)), 1),
        "missed": missed,
        "segmentsRead": max(answer.segments_read for answer in answers),
        "searchCpuMs": round(took * 1000 / len(targets), 3),
    }


def by_option(settings: Settings) -> dict[str, Any]:
    """The same searches in a log of each option, by each time that it can be searched by; null where it cannot.

    Returns
    -------
    dict
        For each option ``CreateTime``, ``LogAppendTime``, and the bytes of its messages and of its indexes by time.
    """
    all_of = messages(settings)
    found: dict[str, Any] = {}
    for name in TABLE:
        option = OPTIONS[name]
        times = tuple(
            one for one, seen in zip(TIMES, (option.create_time, option.rule.append_time), strict=True) if seen
        )
        with logs.scratch() as directory:
            if option.number == 4:
                written(directory, times[0], all_of, settings).close()
                log = open_partition(os.path.join(directory, NAME))
                way = OneSegment()
                size = sum(segment.size_bytes for segment in log.segments)
                sizes = {"logBytes": size, "indexBytes": way.index_size(log).memory_bytes}
                ways = {times[0]: partial(way.search, log)}
            else:
                rejected = written_by(directory, option, all_of, settings)
                sizes = {"logBytes": rejected.size_bytes, "indexBytes": rejected.index_bytes}
                ways = {one: partial(rejected.search, by=one) for one in times}
            found[name] = sizes | {
                one: searched(ways[one], targets_of(all_of, settings), all_of.stored(one), all_of.create_ms)
                if one in ways
                else None
                for one in TIMES
            }
            if option.number != 4:
                rejected.abandon()
    return found


def written_by(directory: str, option: Option, all_of: Messages, settings: Settings) -> OptionLog:
    """The messages in a log of option 1, 2 or 3, open."""
    clock = logs.Clock()
    clock.now_ms = START_MS
    count = len(all_of.create_ms)
    config = {"segment.bytes": segment_bytes(count, settings), "segment.ms": 20 * 365 * DAY_MS, "retention.ms": -1}
    log = OptionLog(os.path.join(directory, NAME), option=option.number, config=config, clock=clock)
    values = [bytes(settings.value_bytes)] * BATCH
    for first in range(0, count, BATCH):
        clock.now_ms = int(all_of.arrival_ms[first + BATCH - 1])
        times = {} if option.number == 2 else {"createTimestamp": all_of.create_ms[first : first + BATCH]}
        log.append(options.encode({**times, "value": values}, option=option.number))
    return log


def targets_of(all_of: Messages, settings: Settings) -> list[int]:
    """The times that are searched."""
    rng = np.random.default_rng([settings.seed, SEARCHES])
    found: list[int] = rng.integers(START_MS, int(all_of.arrival_ms[-1]), SEARCHES).tolist()
    return found


def segment_bytes(count: int, settings: Settings) -> int:
    """``segment.bytes`` for about ``SEGMENTS`` segments."""
    size = count * (RECORD_OVERHEAD + settings.value_bytes) + count // BATCH * BATCH_OVERHEAD
    return max(size // SEGMENTS, 4096 + BATCH * settings.value_bytes)


def first_at(times: Times, target: int) -> int:
    """The offset of the first message at or after a time; the end if there is none."""
    found = times >= target
    return int(found.argmax()) if found.any() else len(times)


def distance(answer: Answer) -> int:
    """Messages between where reading began and the answer."""
    if answer.found is None or answer.start is None:
        return 0
    return max(answer.found.offset - answer.start.offset, 0)


def read_after_loss(all_of: Messages, settings: Settings) -> dict[str, int]:
    """How many closed segments are read again when the second segment's index is lost."""
    found = {}
    for name, mode in ((SHIPPED, None), (BUCKETS, BucketIndexMode), (MINUTES, MinuteMapMode)):
        modes: tuple[BucketIndexMode | MinuteMapMode, ...] = () if mode is None else (mode(),)
        with logs.scratch() as directory:
            with written(directory, "CreateTime", all_of, settings, modes) as log:
                path, base = log.path, log.segments[1].base_offset
            suffix = modes[0].suffix if modes else ".timeindex"
            files.remove(f"{path}/{base:020d}{suffix}")
            with Log(path, {"retention.ms": -1}, proposals=modes) as log:
                found[name] = len(modes[0].rebuilt) if modes else len({one.path for one in log.recovered})
    return found
