"""KIP-33's indexes, and KIP-32's options, on the same messages: size, cost to build and rebuild, what a search reads.

Three logs have the same messages: by LogAppendTime, by CreateTime with some disorder, and the latter with one time far
in the future. All are searched for the same times. Each answer is judged by two questions: is it the first message that
was created at or after the time, and is it the first that arrived then?
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kts.codec.encode import encode
from kts.codec.layout import HEADER_BYTES
from kts.config import DAY_MS, LogConfig
from kts.dataset.paths import open_partition
from kts.log.log import Log
from kts.proposals import options
from kts.proposals.answers import ENTRY_BYTES
from kts.proposals.bucket_index import BucketIndex, BucketIndexMode
from kts.proposals.comparing import Built, Continuing, OneSegment
from kts.proposals.minute_map import MinuteMap, MinuteMapMode
from kts.proposals.options import OptionLog
from kts.segment.rebuild import IndexConfig, rebuild
from kts.store.source import files

from . import logs
from .rules import OPTIONS, TABLE
from .workloads import FUTURE_MS, START_MS

if TYPE_CHECKING:
    from kts.dataset.partition import PartitionLog
    from kts.proposals.answers import Answer, Lookup
    from kts.proposals.modes import Mode
    from kts.proposals.options.segment import OptionSegment

    from .rules import ProposedOption
    from .workloads import Settings, Times

NAME = "indexed-0"
TIMES = ("CreateTime", "LogAppendTime")
SPAN_MS = DAY_MS  # of the messages
SEGMENTS = 10
SEARCHES = 50
BATCH = 20  # messages of an append
RECORD_OVERHEAD = 10  # bytes, about: for the size of segments
MESSAGE_OVERHEAD = 34  # of an uncompressed message of magic 1
DATA = {
    "LogAppendTime": "LogAppendTime, in order",
    "CreateTime": "CreateTime, out of order",
    "one in the future": "CreateTime, one far in the future",
}
SHIPPED, CONTINUING, BUCKETS, MINUTES = OneSegment.name, Continuing.name, BucketIndexMode.name, MinuteMapMode.name


class Messages(NamedTuple):
    """The messages of one log in the order of arrival, so many in each append."""

    create_ms: Times
    arrival_ms: Times
    batch: int

    def stored(self, data: str) -> Times:
        """The time that the log has of each; a batch has the time of its append."""
        if data == "LogAppendTime":
            return np.repeat(self.arrival_ms[self.batch - 1 :: self.batch], self.batch)
        if data == "CreateTime":
            return self.create_ms
        times = self.create_ms.copy()
        times[len(times) // 10] += FUTURE_MS
        return times

    @property
    def truths(self) -> dict[str, Times]:
        """By question: the time of each message that decides."""
        return {"created": self.create_ms, "arrived": self.stored("LogAppendTime")}


def messages(settings: Settings, batch: int = BATCH) -> Messages:
    """Messages at equal distances, each up to ``disorder_ms`` old."""
    rng = np.random.default_rng([settings.seed, settings.index_messages])
    count = max(settings.index_messages // batch, 1) * batch
    arrival = START_MS + np.arange(count) * SPAN_MS // count
    return Messages(arrival - rng.integers(0, settings.disorder_ms, count), arrival, batch)


def written(
    directory: str, data: str, all_of: Messages, settings: Settings, modes: tuple[Mode, ...] = (), magic: int = 2
) -> Log:
    """A log of the messages, open. Of magic 1 they are alone, of magic 2 in batches."""
    clock = logs.StudyClock()
    append_time = data == "LogAppendTime"
    count = len(all_of.create_ms)
    config = {
        "message.timestamp.type": "LogAppendTime" if append_time else "CreateTime",
        "message.format.version": "0.10.2" if magic == 1 else "3.0",
        **sized(all_of, settings, magic),
    }
    clock.now_ms = START_MS
    log = Log(os.path.join(directory, NAME), config, clock=clock, proposals=modes)
    times = all_of.create_ms if append_time else all_of.stored(data)
    values = [bytes(settings.value_bytes)] * all_of.batch
    for first in range(0, count, all_of.batch):
        clock.now_ms = int(all_of.arrival_ms[first + all_of.batch - 1])
        log.append(encode({"timestamp": times[first : first + all_of.batch], "value": values}, magic=magic))
    return log


def sized(all_of: Messages, settings: Settings, magic: int) -> dict[str, int]:
    """The settings for about ``SEGMENTS`` segments, which stay."""
    count = len(all_of.create_ms)
    if magic == 1:
        size = count * (MESSAGE_OVERHEAD + settings.value_bytes)
    else:
        size = count * (RECORD_OVERHEAD + settings.value_bytes) + count // all_of.batch * HEADER_BYTES
    most = max(size // SEGMENTS, 4096 + all_of.batch * settings.value_bytes)
    return {"segment.bytes": most, "segment.ms": 20 * 365 * DAY_MS, "retention.ms": -1}


# --- the indexes ----------------------------------------------------------------------------------


def quiet(amount: int) -> None:
    """Tell nobody of progress."""


def compare(settings: Settings, advance: Callable[[int], None] = quiet) -> dict[str, Any]:
    """Write the three logs, build each index, and search; ``advance`` is called with 1 for each log.

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
            size = sum(segment.size_bytes for segment in log.segments)
            found[data] = {"what": what, "logBytes": size, "segments": len(log.segments), "indexes": {}}
            again = rebuilt_time_index(log)
            for name, build in INDEXES.items():
                before = time.process_time()
                way = build(log, settings)
                took = round((time.process_time() - before) * 1000, 1)
                index = way.index_size(log)
                cost = {"bytesRead": size, "cpuMs": took} if name in (BUCKETS, MINUTES) else again
                found[data]["indexes"][name] = {
                    "entries": index.entries,
                    "bytes": index.memory_bytes,
                    "rebuildBytesRead": cost["bytesRead"],
                    "rebuildCpuMs": cost["cpuMs"],
                    **searched(partial(way.search, log), targets, all_of.stored(data), all_of, BATCH),
                }
        advance(1)
    for name, lost in read_after_loss(all_of, settings, advance).items():
        found["CreateTime"]["indexes"][name] |= lost
    return found


INDEXES: dict[str, Callable[[PartitionLog, Settings], Lookup]] = {
    SHIPPED: lambda log, settings: OneSegment(),
    CONTINUING: lambda log, settings: Continuing(),
    BUCKETS: lambda log, settings: Built(log, BucketIndex(settings.interval_ms), BUCKETS),
    MINUTES: lambda log, settings: Built(log, MinuteMap(), MINUTES),
}


MODES: dict[str, type[BucketIndexMode | MinuteMapMode] | None] = {
    SHIPPED: None,
    BUCKETS: BucketIndexMode,
    MINUTES: MinuteMapMode,
}
LOGS = len(DATA) + len(MODES) + len(TABLE)  # how far ``compare`` and ``by_option`` advance


def rebuilt_time_index(log: PartitionLog) -> dict[str, Any]:
    """What it costs to rebuild the shipped time index, with the offset index, from the log."""
    read, before = 0, time.process_time()
    for segment in log.segments:
        with files.open_file(segment.path) as file:
            read += rebuild(file, segment.size_bytes, segment.base_offset, IndexConfig()).valid_bytes
    return {"bytesRead": read, "cpuMs": round((time.process_time() - before) * 1000, 1)}


def read_after_loss(
    all_of: Messages, settings: Settings, advance: Callable[[int], None] = quiet
) -> dict[str, dict[str, int]]:
    """Which part of the log is read again when the second segment's index is lost."""
    found = {}
    for name, mode in MODES.items():
        modes: tuple[BucketIndexMode | MinuteMapMode, ...] = () if mode is None else (mode(),)
        with logs.scratch() as directory:
            with written(directory, "CreateTime", all_of, settings, modes) as log:
                path, base = log.path, log.segments[1].base_offset
            suffix = modes[0].suffix if modes else ".timeindex"
            files.remove(f"{path}/{base:020d}{suffix}")
            with Log(path, {"retention.ms": -1}, proposals=modes) as log:
                again = modes[0].rebuilt if modes else [segment_base(one.path) for one in log.recovered]
                sizes = [files.size_of(one.path) for one in log.segments if one.base_offset in again]
            found[name] = {"segmentsReadAfterLoss": len(sizes), "bytesReadAfterLoss": sum(sizes)}
        advance(1)
    found[CONTINUING] = found[SHIPPED]  # the same index
    return found


def segment_base(path: str) -> int:
    """The base offset in the name of a segment's file."""
    return int(os.path.basename(path).split(".")[0])


# --- searches -------------------------------------------------------------------------------------


def targets_of(all_of: Messages, settings: Settings) -> list[int]:
    """The times that are searched."""
    rng = np.random.default_rng([settings.seed, SEARCHES])
    found: list[int] = rng.integers(START_MS, int(all_of.arrival_ms[-1]), SEARCHES).tolist()
    return found


def searched(
    search: Callable[[int], Answer], targets: list[int], stored: Times, all_of: Messages, batch: int
) -> dict[str, Any]:
    """Search for each target, count what was read, and judge the answers.

    Parameters
    ----------
    stored : array
        The time of each message that is searched. ``right`` counts the answers that are the first message at or after
        the target by it.
    batch : int
        Messages of an entry of the log. ``messages`` are those in the entries from where reading began up to the one
        with the answer.
    """
    started = time.process_time()
    answers = [search(target) for target in targets]
    took = time.process_time() - started
    offsets = [len(stored) if answer.found is None else answer.found.offset for answer in answers]
    firsts = [first_at(stored, target) for target in targets]
    read = [answer.bytes_read for answer in answers]
    passed = [answer.batches_read * batch for answer in answers]
    return {
        "searches": len(targets),
        "right": sum(offset == first for offset, first in zip(offsets, firsts, strict=True)),
        "bytesRead": round(float(np.mean(read))),
        "mostBytesRead": max(read),
        "messages": round(float(np.mean(passed)), 1),
        "mostMessages": max(passed),
        "segmentsRead": max(answer.segments_read for answer in answers),
        **{question: judged(offsets, targets, times) for question, times in all_of.truths.items()},
        "searchCpuMs": round(took * 1000 / len(targets), 3),
    }


def judged(offsets: list[int], targets: list[int], times: Times) -> dict[str, Any]:
    """Answers to one question.

    ``exact`` counts those that are the first message at or after the target. ``early`` are the messages between the
    answer and that one, which a consumer reads in vain, and ``missed`` those at or after the target that lie before the
    answer, which it never reads; both on average.
    """
    firsts = [first_at(times, target) for target in targets]
    pairs = list(zip(offsets, targets, strict=True))
    return {
        "exact": sum(offset == first for offset, first in zip(offsets, firsts, strict=True)),
        "early": round(float(np.mean([max(first - one, 0) for one, first in zip(offsets, firsts, strict=True)])), 1),
        "missed": round(float(np.mean([(times[:offset] >= target).sum() for offset, target in pairs])), 1),
    }


def first_at(times: Times, target: int) -> int:
    """The offset of the first message at or after a time; the end if there is none."""
    found = times >= target
    return int(found.argmax()) if found.any() else len(times)


# --- the options ----------------------------------------------------------------------------------


def by_option(settings: Settings, advance: Callable[[int], None] = quiet) -> dict[str, Any]:
    """The same searches in a log of each option, by each time that it can be searched by; null where it cannot.

    ``advance`` is called with 1 for each log.

    Returns
    -------
    dict
        For each option ``CreateTime``, ``LogAppendTime``, and the bytes of its messages and of its indexes by time. All
        have uncompressed messages: those of option 4 are of magic 1, as KIP-32's. ``toFirst`` has, by question, the
        bytes that are read for the answer and from the answer up to the first message that was wanted.
    """
    all_of = messages(settings, set_messages(settings))
    targets = targets_of(all_of, settings)
    found: dict[str, Any] = {}
    for name in TABLE:
        option = OPTIONS[name]
        times = tuple(
            one for one, seen in zip(TIMES, (option.create_time, option.rule.append_time), strict=True) if seen
        )
        with logs.scratch() as directory:
            if option.number == 4:
                written(directory, times[0], all_of, settings, magic=1).close()
                log = open_partition(os.path.join(directory, NAME))
                way = OneSegment()
                size = sum(segment.size_bytes for segment in log.segments)
                sizes = {"logBytes": size, "indexBytes": way.index_size(log).memory_bytes}
                ways = {times[0]: partial(way.search, log)}
            else:
                rejected = written_by(directory, option, all_of, settings)
                sizes = {"logBytes": rejected.size_bytes, "indexBytes": sum(map(time_index_bytes, rejected.segments))}
                ways = {one: partial(rejected.search, by=one) for one in times}
            found[name] = sizes | dict.fromkeys(TIMES)
            for one, search in ways.items():
                answers = searched(search, targets, all_of.stored(one), all_of, 1)
                each = sizes["logBytes"] / len(all_of.create_ms)
                to_first = {
                    question: round(answers["bytesRead"] + answers[question]["early"] * each)
                    for question in all_of.truths
                }
                found[name][one] = answers | {"toFirst": to_first}
            if option.number != 4:
                rejected.abandon()
        advance(1)
    return found


def time_index_bytes(segment: OptionSegment) -> int:
    """The entries of a segment's index by LogAppendTime."""
    if segment.append_times is not None:
        return len(segment.append_times) * ENTRY_BYTES
    return 0 if segment.time_index is None else segment.time_index.size_bytes


def set_messages(settings: Settings) -> int:
    """Messages of an append that fills an index interval. Brokers add one entry an append: so indexes are as dense."""
    return LogConfig().index_interval_bytes // (MESSAGE_OVERHEAD + settings.value_bytes) + 1


def written_by(directory: str, option: ProposedOption, all_of: Messages, settings: Settings) -> OptionLog:
    """The messages in a log of option 1, 2 or 3, open."""
    clock = logs.StudyClock()
    clock.now_ms = START_MS
    count = len(all_of.create_ms)
    config = sized(all_of, settings, 1)
    log = OptionLog(os.path.join(directory, NAME), option=option.number, config=config, clock=clock)
    values = [bytes(settings.value_bytes)] * all_of.batch
    for first in range(0, count, all_of.batch):
        clock.now_ms = int(all_of.arrival_ms[first + all_of.batch - 1])
        times = {} if option.number == 2 else {"createTimestamp": all_of.create_ms[first : first + all_of.batch]}
        log.append(options.encode({**times, "value": values}, option=option.number))
    return log
