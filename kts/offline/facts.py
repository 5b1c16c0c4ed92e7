"""Facts of the segments of a partition, each gathered by itself: its faults, and what the other segments need of it."""

from __future__ import annotations

import os
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain

import numpy as np

from kts.behaviour import KAFKA_TIMES, TimeRules
from kts.dataset.partition import PartitionLog, partition_of_segment
from kts.errors import CorruptIndexError, CorruptRecordError, LogStorageError
from kts.offline.findings import Findings, Violation, readable, unreadable
from kts.offline.index_check import IndexCheck, OffsetIndexCheck, TimeIndexCheck, TxnIndex, changed_indexes, lost_end
from kts.offline.log_check import Headers, LogCheck, Progress
from kts.remote import tiers
from kts.segment import checkpoints, names, transactions
from kts.segment.index_checksums import Sealed
from kts.segment.magic_checkpoint import NotedMagics, state_of
from kts.segment.rereading import unless_deleted
from kts.segment.segment import Segment
from kts.store import addresses
from kts.store.protocol import ByteRange, Readable
from kts.store.source import in_order

Epochs = list[tuple[int, int]]  # (epoch, start offset)


@dataclass
class Transactions:
    """The transactions of a segment, whatever is open before it; joined, those of all segments so far.

    Attributes
    ----------
    open : dict of int to int
        First offset by producer id of those that are open at the end.
    ended : list of (Marker, first offset or None)
        The abort markers, and the first marker of each producer, whose transaction may begin in an earlier segment.
    producers : set of int
        Those with a marker.
    found : bool
        Whether there are transactional batches.
    lost : bool
        The log is damaged: nothing is known of what is open at its end.
    """

    open: dict[int, int] = field(default_factory=dict)
    ended: list[tuple[transactions.Marker, int | None]] = field(default_factory=list)
    producers: set[int] = field(default_factory=set)
    found: bool = False
    lost: bool = False

    def end(self, marker: transactions.Marker) -> None:
        """End the producer's transaction."""
        first = self.open.pop(marker.producer_id, None)
        if marker.kind == transactions.ABORT or marker.producer_id not in self.producers:
            self.ended.append((marker, first))
        self.producers.add(marker.producer_id)

    def join(self, later: Transactions) -> list[tuple[transactions.Marker, int | None]]:
        """Add those of the next segment; its abort markers, each with the first offset of its transaction, if known."""
        aborted, met = list[tuple[transactions.Marker, int | None]](), set[int]()
        for marker, first in later.ended:
            if marker.producer_id not in met:
                met.add(marker.producer_id)
                first = self.open.pop(marker.producer_id, first)
            if marker.kind == transactions.ABORT:
                aborted.append((marker, first))
        for producer, first_offset in later.open.items():
            self.open.setdefault(producer, first_offset)
        if later.lost:
            self.open.clear()
        self.found |= later.found
        return aborted


@dataclass
class VerifiedPartition:
    """What a partition, or a part of one, shows besides its segments.

    Attributes
    ----------
    found : Findings
        Faults.
    epochs : list of (epoch, start offset)
        The leader epochs, if they are in order.
    listed : bool
        False if the directory cannot be read: then there are no other facts.
    """

    found: Findings
    epochs: Epochs
    listed: bool = True


@dataclass
class VerifiedSegment:
    """What a segment shows by itself.

    Attributes
    ----------
    found : Findings
        Faults of the log and its indexes.
    changed : list of Violation
        Indexes that changed after ``kts.Log`` closed them.
    whole : bool
        False if reading stopped early: then nothing is compared with the segment.
    damaged : bool
        Something of the log is lost.
    gaps : bool
        Offsets within it are missing, or may be.
    last_offset : int
        What the next segment must follow; -1 if it is not known.
    gone_until : int
        The last offset that a segment could have which was deleted meanwhile; -1 for one that is there.
    txn_index : TxnIndex or None
        To be compared with the transactions.
    is_cut : bool
        Only a part of a copy in tiered storage is read.
    sealed : bool
        It has the size with which ``kts.Log`` closed it.
    hidden : bool
        A copy in tiered storage of which a local segment is read instead.
    """

    segment: Segment
    found: Findings
    changed: list[Violation]
    whole: bool
    damaged: bool
    gaps: bool
    last_offset: int
    gone_until: int
    transactions: Transactions
    txn_index: TxnIndex | None
    is_cut: bool
    sealed: bool
    hidden: bool = False


Facts = VerifiedPartition | VerifiedSegment


def facts_of(
    log: PartitionLog,
    progress: Progress | None = None,
    *,
    deep: bool = False,
    rules: TimeRules = KAFKA_TIMES,
    compacted: Container[str] = (),
) -> Iterator[Facts]:
    """The facts of a partition, or of a part of one, in order; a store fetches each file ahead.

    Parameters
    ----------
    compacted : container of str
        The paths of partitions whose records need keys; a deep check looks at them.
    """
    try:
        segments = log.listed(skip_damage=True, whole=True).segments
    except (LogStorageError, CorruptRecordError) as error:
        yield VerifiedPartition(Findings.of([unreadable(error, log.path)]), [], listed=False)
        return
    epochs, faults = _leader_epochs(log)
    yield VerifiedPartition(Findings.of([] if log.segments_before else faults), epochs)
    sealed, magics = log.sealed_indexes(), log.noted_magics()
    indexes_of = [_indexes_of(segment) for segment in segments]
    opened = in_order(
        (segment.source, ByteRange(path, 0, None))
        for segment, two in zip(segments, indexes_of, strict=True)
        for path in (*two, segment.path)
    )
    for number, (segment, two) in enumerate(zip(segments, indexes_of, strict=True)):
        indexes = {path: data for path in two if (data := _fetched(next(opened))) is not None}
        file, base = next(opened), segment.base_offset
        following = segments[number + 1].base_offset if number + 1 < len(segments) else log.following_offset
        damage = segment.source.damage_of(segment.path)
        known = list[Violation]()
        if damage is not None:
            known.append(Violation(segment.path, damage.position, None, "compression", damage.message))
        check = _SegmentCheck(log, segment, following, deep, rules, epochs, magics.get(base), log.path in compacted)
        yield check.facts(file, indexes, sealed.get(base), progress, known)
    if log.is_last:
        yield from _hidden_copies(log, epochs, deep, rules)


def facts_of_segment(
    segment: Segment, following: int | None, deep: bool = False, rules: TimeRules = KAFKA_TIMES
) -> VerifiedSegment:
    """The facts of a segment of which nothing else is known; ``following`` is the base offset of the next one."""
    return _SegmentCheck(partition_of_segment(segment), segment, following, deep, rules).facts()


def _hidden_copies(log: PartitionLog, epochs: Epochs, deep: bool, rules: TimeRules) -> Iterator[Facts]:
    """The copies in tiered storage of which local segments are read instead, one by one."""
    try:
        copies = log.hidden_copies()
    except (LogStorageError, CorruptRecordError) as error:
        yield VerifiedPartition(Findings.of([unreadable(error, log.path)]), epochs)
        return
    for segment, following in copies:
        yield replace(facts_of_segment(segment, following, deep, rules), hidden=True)


def _leader_epochs(log: PartitionLog) -> tuple[Epochs, list[Violation]]:
    """The leader epochs, and their faults; without epochs, if they are not in order, nothing is compared with them."""
    path, source = os.path.join(log.path, names.LEADER_EPOCHS), log.source
    try:
        if log.lone or (not log.remote_alone and (not source.exists(path) or source.size_of(path) == 0)):
            return [], []
        epochs = log.leader_epochs if log.remote_alone else checkpoints.read_leader_epochs(path, source)
    except (LogStorageError, CorruptRecordError) as error:
        return [], [unreadable(error, log.path)]
    if epochs is None:
        return [], [Violation(path, None, None, "leader-epoch", checkpoints.fault_of(path, source) or "it is gone")]
    faults = [
        Violation(path, None, b[1], "leader-epoch", f"epoch {b[0]} at offset {b[1]} does not follow {a[0]} at {a[1]}")
        for a, b in zip(epochs, epochs[1:], strict=False)
        if b[0] <= a[0] or b[1] < a[1]
    ]
    return [] if faults else epochs, faults


def _indexes_of(segment: Segment) -> list[str]:
    """The indexes that a bucket fetches ahead; tiered storage has other rules for what is missing."""
    if segment.remote or segment.source.is_here:
        return []
    return [path for path in (segment.offset_index_path, segment.time_index_path) if path is not None]


def _fetched(file: Readable | None) -> bytes | None:
    """A whole file; None for one that its reader opens, and, to be told there, for one that cannot be read."""
    with suppress(LogStorageError):
        return None if file is None else file.read(0, file.size())
    return None


class _SegmentCheck:
    """The check of one segment, and what it found so far."""

    def __init__(
        self,
        log: PartitionLog,
        segment: Segment,
        following: int | None,
        deep: bool,
        rules: TimeRules,
        epochs: Epochs | None = None,
        noted: NotedMagics | None = None,
        keyed: bool = False,
    ) -> None:
        self.partition = log
        self.segment = segment
        self.following = following
        self.deep = deep
        self.rules = rules
        self.epochs = epochs or []
        self.noted = noted
        self.keyed = keyed
        self.transactions = Transactions()
        self.txn_index: TxnIndex | None = None
        self.whole = self.gaps = self.is_cut = False
        self.last_offset = -1

    def facts(
        self,
        file: Readable | None = None,
        indexes: Mapping[str, bytes] | None = None,
        sealed: Sealed | None = None,
        progress: Progress | None = None,
        known: Sequence[Violation] = (),
    ) -> VerifiedSegment:
        """Check the segment.

        Parameters
        ----------
        file, indexes
            Its log, and its indexes by path, as far as a store fetched them.
        known : sequence of Violation
            Faults that come before the others.
        """
        segment, following, changed = self.segment, self.following, list[Violation]()
        found = Findings.of(chain(known, readable(self.log_and_indexes(file, indexes or {}, progress), segment.path)))
        is_sealed = sealed is not None and _has_size(segment, sealed.log_bytes)
        if self.whole and sealed is not None and is_sealed:
            changed += readable(self.changed_indexes(sealed), segment.path)
        is_gone = following is not None and not segment.source.exists(segment.path)
        return VerifiedSegment(
            segment=segment,
            found=found,
            changed=changed,
            whole=self.whole,
            damaged=self.transactions.lost,
            gaps=self.gaps,
            last_offset=self.last_offset,
            gone_until=following - 1 if following is not None and is_gone else -1,
            transactions=self.transactions,
            txn_index=self.txn_index,
            is_cut=self.is_cut,
            sealed=is_sealed,
        )

    def log_and_indexes(
        self, file: Readable | None, fetched: Mapping[str, bytes], progress: Progress | None
    ) -> Iterator[Violation]:
        """The faults of the log and both indexes; the transactions and their index are noted."""
        segment, following = self.segment, self.following
        with unless_deleted(segment.path, segment.source):
            if segment.remote:
                for fault in tiers.faults(segment):
                    yield Violation(fault.path, None, None, fault.kind, fault.message)
            log = LogCheck(segment, following, self.deep, self.rules, file, self.keyed)
            txn_path = segment.txn_index_path
            self.is_cut = segment.remote and tiers.is_cut(segment.path)  # its indexes are of the whole segment
            indexes: list[IndexCheck] = []
            with suppress(CorruptIndexError):  # an object of tiered storage: its faults have it
                if not self.is_cut and (path := segment.offset_index_path) is not None:
                    indexes.append(OffsetIndexCheck(log, path, fetched.get(path)))
                if not self.is_cut and (path := segment.time_index_path) is not None:
                    indexes.append(TimeIndexCheck(log, path, fetched.get(path)))
            try:
                for found in log.walk(progress):
                    if isinstance(found, Violation):
                        yield found
                        continue
                    for index in indexes:
                        yield from index.slice(found)
                    yield from self.epochs_of_batches(found)
                    yield from self.magics_of_batches(found)
                    self.note_transactions(found)
            finally:
                self.transactions.lost = log.damaged
            yield from self.stated_time(log)
            # Both indexes of an active segment are preallocated while the broker runs and after it was killed.
            parent = os.path.dirname(addresses.absolute(self.partition.path))
            in_use = following is None and bool(indexes) and all(index.preallocated for index in indexes)
            zero_tail_allowed = in_use and not self.partition.source.exists(os.path.join(parent, names.CLEAN_SHUTDOWN))
            for index in indexes:
                yield from index.end(zero_tail_allowed)
            if self.is_cut:
                yield from lost_end(segment, following)
            else:
                yield from self.read_txn_index(txn_path, log.damaged)
            # Wrapper messages do not show their gaps.
            self.gaps = log.gaps or log.wrappers or (log.batches == 0 and following is not None)
            self.last_offset = max(log.last_offset, segment.base_offset - 1)
            self.whole = True

    def epochs_of_batches(self, headers: Headers) -> Iterator[Violation]:
        """Batches whose leader epoch is not that of the checkpoint."""
        if not self.epochs:
            return
        starts = np.array([start for _, start in self.epochs], np.int64)
        numbers = np.array([epoch for epoch, _ in self.epochs], np.int64)
        place = np.searchsorted(starts, headers.first, "right") - 1
        wrong = headers.sound & (headers.leader_epoch >= 0) & (place >= 0)
        wrong &= numbers[np.maximum(place, 0)] != headers.leader_epoch
        for i in np.flatnonzero(wrong).tolist():
            message = f"the batch has leader epoch {headers.leader_epoch[i]}, the checkpoint says {numbers[place[i]]}"
            yield self.of_batch(headers, i, "leader-epoch", message)

    def magics_of_batches(self, headers: Headers) -> Iterator[Violation]:
        """Entries that are newer than ``kts.Log`` noted: a fetch of an old client would send them as they are."""
        if self.noted is None or self.noted.log != state_of(self.segment.path, self.segment.source):
            return
        starts, magics = np.array(self.noted.runs).T
        known = magics[np.searchsorted(starts, headers.position, "right") - 1]
        for i in np.flatnonzero(headers.sound & (headers.magic > known)).tolist():
            message = f"magic {headers.magic[i]}, but kts.Log noted {known[i]} when it closed this file"
            yield self.of_batch(headers, i, "magic", message)

    def of_batch(self, headers: Headers, i: int, kind: str, message: str) -> Violation:
        """A fault of a batch."""
        return Violation(self.segment.path, int(headers.position[i]), int(headers.first[i]), kind, message)

    def note_transactions(self, headers: Headers) -> None:
        """Note which transactions begin and end in a slice."""
        ours = np.flatnonzero(headers.transactional & headers.sound)
        self.transactions.found |= bool(ours.size)
        for i in ours.tolist():
            producer = int(headers.producer_id[i])
            if not headers.control[i]:
                self.transactions.open.setdefault(producer, int(headers.first[i]))
                continue
            with suppress(CorruptRecordError):
                for marker in transactions.marker_at(
                    self.segment, int(headers.position[i]), int(headers.size[i]), producer
                ):
                    self.transactions.end(marker)

    def stated_time(self, log: LogCheck) -> Iterator[Violation]:
        """A copy in tiered storage with another greatest timestamp than is stated of it."""
        stated = tiers.stated_max_ms(self.segment) if self.segment.remote else None
        if stated is not None and not log.damaged and log.max_timestamp >= 0 and log.max_timestamp != stated:
            message = f"the greatest timestamp is {log.max_timestamp}, but its copy is stated to have {stated}"
            yield Violation(self.segment.path, None, None, "copy", message)

    def read_txn_index(self, path: str | None, damaged: bool) -> Iterator[Violation]:
        """Note what the transaction index lists, unless the log is damaged; its faults."""
        try:
            found = TxnIndex.of(self.segment, path)
        except CorruptIndexError as error:
            yield Violation(path or self.segment.path, error.position, None, "txn-index", error.message)
        else:
            self.txn_index = None if damaged else found

    def changed_indexes(self, sealed: Sealed) -> Iterator[Violation]:
        """The indexes that changed since ``kts.Log`` closed them, although the log did not."""
        with unless_deleted(self.segment.path, self.segment.source):
            yield from changed_indexes(self.segment, sealed)


def _has_size(segment: Segment, size: int) -> bool:
    with suppress(LogStorageError):
        return segment.size_bytes == size
    return False
