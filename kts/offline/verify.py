"""Checks that a segment, a partition or a log directory is as Kafka writes it: a fold over the facts of segments."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

from kts.behaviour import KAFKA_TIMES, TimeRules
from kts.dataset.options import Path
from kts.dataset.partition import LogDirs, PartitionLog, partition_of_segment
from kts.dataset.paths import open_path
from kts.dataset.placement import states_beside
from kts.errors import CorruptIndexError
from kts.offline.cluster_check import compacted, strays, verify_topic_ids
from kts.offline.facts import Facts, Transactions, VerifiedPartition, VerifiedSegment, facts_of, facts_of_segment
from kts.offline.findings import Listing, Violation, readable
from kts.offline.log_check import Progress
from kts.offline.small_files import verify_checkpoints, verify_groups, verify_names, verify_small_files
from kts.remote import tiers
from kts.segment.rereading import unless_deleted, warn
from kts.segment.segment import Segment
from kts.store import addresses
from kts.store.source import source_of


def verify(
    path: Path,
    *,
    deep: bool = False,
    progress: Progress | None = None,
    allow_negative_timestamps: bool = False,
    minus_one_is_a_time: bool = False,
) -> Iterator[Violation]:
    """Yield every fault under a path; nothing if all files are sound.

    Parameters
    ----------
    path : path
        A segment file, a partition directory or a log directory.
    deep : bool
        Also decode every record, and compare counts, lengths, inner CRCs, offsets and times with the headers.
    progress : callable, optional
        Called with the number of ``.log`` bytes that were just read.
    allow_negative_timestamps : bool
        Timestamps before 1970 count and may be in time indexes, as with ``allow.negative.timestamps``.
    minus_one_is_a_time : bool
        They count, and -1 is one of them, as with ``message.timestamp.missing=-1``.

    Returns
    -------
    iterator of Violation
        At most 20 of a kind in a file, then one with the number of the others.

    Notes
    -----
    It checks CRCs, sizes, the order of offsets, both indexes against the log, leader epochs, aborted transactions,
    producer snapshots, checkpoint files, and missing and surplus files. Files with names that are not Kafka's are
    ignored, and so are ``.deleted``, ``.cleaned`` and ``.swap`` files.

    Where the metadata log of a KRaft cluster lies beside the partitions (see ``kts.cluster``), the ids of topics must
    be those that it has, and ``deep`` finds records without a key in topics that it compacts. A partition that is not
    the cluster's, or was moved away, is told with a ``KtsWarning``.
    """
    opened, rules = open_path(path), TimeRules.of(allow_negative_timestamps, minus_one_is_a_time)
    logs = list(opened.values()) if isinstance(opened, LogDirs) else [opened]
    states = states_beside(logs)
    for log, why in strays(logs, states):
        warn(f"{log.path} is {why}", log.path)
    yield from readable(verify_topic_ids(logs, states))
    if isinstance(opened, LogDirs):
        directory = addresses.plain(os.fspath(path))
        yield from readable(verify_checkpoints(directory, source_of(directory)))
        yield from readable(verify_groups(logs))
    with_keys = compacted(logs, states) if deep else frozenset()
    for log in logs:
        yield from folded(log, facts_of(log, progress, deep=deep, rules=rules, compacted=with_keys))


def verify_partition(
    log: PartitionLog, deep: bool = False, progress: Progress | None = None, rules: TimeRules = KAFKA_TIMES
) -> Iterator[Violation]:
    """Yield every fault in an open partition; see ``verify``."""
    return folded(log, facts_of(log, progress, deep=deep, rules=rules))


def folded(log: PartitionLog, facts: Iterable[Facts]) -> Iterator[Violation]:
    """Yield every fault in an open partition, from its facts, or those of all its parts, in order."""
    return _Fold(log).run(facts)


def verify_segment(segment: Segment, following: int | None) -> Iterator[Violation]:
    """Yield every fault in a segment and its indexes that it shows by itself; see ``verify``.

    Parameters
    ----------
    following : int or None
        The base offset of the next segment; None if this is the last one.
    """
    return _Fold(partition_of_segment(segment)).run([facts_of_segment(segment, following)])


def apart(log: PartitionLog) -> Sequence[PartitionLog]:
    """The partition; or each of its segments, where these are files given by name: they are checked one by one."""
    if not log.lone:
        return [log]
    return [partition_of_segment(segment) for segment in log.segments]


class _Fold:
    """What the segments of a partition so far say together."""

    def __init__(self, log: PartitionLog) -> None:
        self.log = log
        self.listing = Listing()
        self.borders = _Borders(log.lone)
        self.segments: list[Segment] = []
        self.epochs: Sequence[tuple[int, int]] = []
        self.listed = self.sealed = False

    def run(self, facts: Iterable[Facts]) -> Iterator[Violation]:
        """The faults of the facts, those that they show together, and those of the small files."""
        for fact in facts:
            yield from self.listing.join(fact.found)
            if isinstance(fact, VerifiedPartition):
                self.listed, self.epochs = fact.listed, fact.epochs
                continue
            borders = self.borders
            if fact.hidden:
                borders = _Borders(lone=True)
            else:
                self.segments.append(fact.segment)
                self.sealed = fact.sealed
            yield from self.listing.take(readable(borders.cross(fact), fact.segment.path))
            borders.last_offset = max(borders.last_offset, fact.gone_until)
        if self.listed:
            yield from self.listing.take(self.whole())
        yield from self.listing.rest()

    def whole(self) -> Iterator[Violation]:
        """What only the whole partition shows, after its segments."""
        log, end = self.log, self.borders.last_offset + 1
        yield from self.borders.missing()
        for fault in log.tier_faults():
            yield Violation(fault.path, None, None, fault.kind, fault.message)
        if log.late_start:
            yield Violation(log.path, None, log.log_start_offset, "gap", log.late_start)
        if not log.lone:
            yield from readable(verify_small_files(log, self.epochs, end))
            yield from readable(verify_names(log, self.segments, end, self.sealed))


class _Borders:
    """What goes on from one segment to the next.

    Parameters
    ----------
    lone : bool
        The segments are files given by name, and others may be missing.
    """

    def __init__(self, lone: bool) -> None:
        self.lone = lone
        self.first_offset: int | None = None  # of the first segment
        self.last_offset = -1
        self.gaps = self.damaged = False
        self.seams: list[tuple[str, int, int]] = []  # segment, first missing offset, base offset
        self.transactions = Transactions()

    def cross(self, facts: VerifiedSegment) -> Iterator[Violation]:
        """Add the next segment; the faults that it shows together with those before it."""
        segment = facts.segment
        if self.first_offset is None:
            self.first_offset = segment.base_offset
        aborted = self.transactions.join(facts.transactions)
        self.damaged |= facts.damaged  # what it held is not known, and nothing after it is compared with that
        self.gaps |= facts.damaged
        if not facts.whole:
            return
        if facts.txn_index is not None:
            yield from facts.txn_index.compared(aborted)
        if segment.remote and self.transactions.found and not (facts.is_cut or self.damaged or self.lone):
            yield from self.open_after(segment)
        if 0 <= self.last_offset < segment.base_offset - 1 and not facts.damaged:
            self.seams.append((segment.path, self.last_offset + 1, segment.base_offset))
        self.gaps |= facts.gaps
        self.last_offset = max(self.last_offset, facts.last_offset)
        yield from facts.changed

    def open_after(self, segment: Segment) -> Iterator[Violation]:
        """Compare the transactions open after a copy with its producer snapshot, as far back as the log goes."""
        with unless_deleted(segment.path, segment.source), suppress(CorruptIndexError):  # its objects' faults have it
            place, stated = tiers.open_after(segment)
            stated = {producer: first for producer, first in stated.items() if first >= (self.first_offset or 0)}
            if stated != self.transactions.open:
                message = f"expected the open transactions {self.transactions.open} after the copy, found {stated}"
                yield Violation(place, None, None, "snapshot", message)

    def missing(self) -> Iterator[Violation]:
        """Segments that are missing: only the cleaner leaves gaps, and it leaves them within segments, too."""
        for path, first, base in self.seams if not self.gaps else []:
            message = f"offsets {first} to {base - 1} are missing before this segment"
            yield Violation(path, 0, first, "gap", message)
