"""Producer state of a log: checks whether a producer's next batch follows its last one."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from kts.arguments import INT32_MAX
from kts.codec.columns import decode
from kts.codec.layout import CONTROL, TRANSACTIONAL, Entries, Entry
from kts.errors import (
    CorruptRecordError,
    InvalidProducerEpochError,
    InvalidTxnStateError,
    OutOfOrderSequenceError,
    TransactionCoordinatorFencedError,
)

EXPIRATION_MS = 86_400_000  # producer.id.expiration.ms
KEPT_BATCHES = 5  # as many as a producer may have in flight
_MARKER = struct.Struct(">hi")  # value of a marker: version, coordinator epoch


# --- one producer ---------------------------------------------------------------------------------


class Sent(NamedTuple):
    """A batch in the log: the fields that identify a duplicate of it."""

    last_sequence: int = -1
    last_offset: int = -1
    offset_delta: int = 0
    timestamp_ms: int = -1

    @property
    def first_sequence(self) -> int:
        """Sequence of its first record."""
        return (self.last_sequence - self.offset_delta) & INT32_MAX

    @property
    def first_offset(self) -> int:
        """Offset of its first record."""
        return self.last_offset - self.offset_delta


_NOTHING = Sent()


@dataclass(slots=True)
class ProducerStateEntry:
    """The state of one producer.

    Attributes
    ----------
    batches : tuple of Sent
        The last batches of its epoch, at most five, oldest first.
    first_offset : int
        First offset of its open transaction, -1 for none.
    """

    producer_id: int
    epoch: int = -1
    batches: tuple[Sent, ...] = ()
    timestamp_ms: int = -1
    coordinator_epoch: int = -1
    first_offset: int = -1

    @classmethod
    def of_snapshot(cls, entry: tuple[int, int, int, int, int, int, int, int]) -> ProducerStateEntry:
        """The producer of a ``.snapshot`` entry; without a last offset it has no batch, whatever the other fields."""
        number, epoch, sequence, offset, delta, timestamp_ms, coordinator, first = entry
        batches = (Sent(sequence, offset, delta, timestamp_ms),) if offset >= 0 else ()
        return cls(number, epoch, batches, timestamp_ms, coordinator, max(first, -1))

    @property
    def last(self) -> Sent:
        """Its last batch."""
        return self.batches[-1] if self.batches else _NOTHING

    def without_batches(self) -> ProducerStateEntry:
        """A copy to collect the batches of a set."""
        return ProducerStateEntry(
            self.producer_id, self.epoch, (), self.timestamp_ms, self.coordinator_epoch, self.first_offset
        )

    def begin(self, epoch: int) -> None:
        """Set the epoch; a new epoch has no batches yet."""
        if epoch != self.epoch:
            self.epoch, self.batches = epoch, ()

    def add(self, batch: Entry) -> None:
        """Add a batch that the producer wrote."""
        last, largest = batch.last_offset, batch.max_timestamp
        self.batches = (*self.batches, Sent(last_sequence(batch), last, last - batch.base_offset, largest))[
            -KEPT_BATCHES:
        ]
        self.timestamp_ms = largest

    def behind(self, earlier: ProducerStateEntry) -> None:
        """Put the earlier batches of the same epoch before the collected ones."""
        if earlier.epoch == self.epoch:
            self.batches = (*earlier.batches, *self.batches)[-KEPT_BATCHES:]

    def duplicate_of(self, batch: Entry) -> Sent | None:
        """The earlier batch with the same epoch and sequences; None if there is none."""
        if batch.producer_epoch != self.epoch:
            return None
        first, last = batch.base_sequence, last_sequence(batch)
        return next((one for one in self.batches if one.last_sequence == last and one.first_sequence == first), None)


def check_epoch(updated: ProducerStateEntry, batch: Entry) -> None:
    """Refuse a batch of a fenced epoch.

    Raises
    ------
    InvalidProducerEpochError
    """
    if batch.producer_epoch < updated.epoch:
        message = f"producer {batch.producer_id}: expected epoch {updated.epoch} or later, found {batch.producer_epoch}"
        raise InvalidProducerEpochError(message, offset=batch.base_offset)


def check_sequence(current: ProducerStateEntry, updated: ProducerStateEntry, batch: Entry) -> None:
    """Refuse a batch that does not follow the producer's last one.

    Parameters
    ----------
    current : ProducerStateEntry
        The state in the log.
    updated : ProducerStateEntry
        The state after the preceding batches of the same set.

    Raises
    ------
    OutOfOrderSequenceError

    Notes
    -----
    Source: ProducerAppendInfo.checkSequence (3.9).
    """
    found = batch.base_sequence
    if batch.producer_epoch != updated.epoch:
        if found != 0 and updated.epoch != -1:
            epoch = batch.producer_epoch
            message = f"producer {batch.producer_id}: expected sequence 0 in the new epoch {epoch}, found {found}"
            raise OutOfOrderSequenceError(message, offset=batch.base_offset)
        return
    if updated.batches:
        last = updated.last.last_sequence
    else:
        last = current.last.last_sequence if batch.producer_epoch == current.epoch else -1
    if current.epoch != -1 and found != last + 1 and not (found == 0 and last == INT32_MAX):
        expected = (last + 1) & INT32_MAX
        message = f"producer {batch.producer_id}: expected sequence {expected}, found {found}"
        raise OutOfOrderSequenceError(message, offset=batch.base_offset)


def check_transaction(updated: ProducerStateEntry, batch: Entry) -> None:
    """Refuse a non-transactional batch while the producer has a transaction open.

    Raises
    ------
    InvalidTxnStateError
    """
    if updated.first_offset >= 0 and not batch.attributes & TRANSACTIONAL:
        message = f"producer {batch.producer_id}: expected a transactional batch, found one without a transaction"
        raise InvalidTxnStateError(message, offset=batch.base_offset)


def last_sequence(batch: Entry) -> int:
    """Sequence of the last record of a batch; 0 follows 2^31-1."""
    if batch.base_sequence < 0:
        return -1
    return (batch.base_sequence + batch.last_offset - batch.base_offset) & INT32_MAX


# --- all producers of a log -----------------------------------------------------------------------


class AbortedBatch(NamedTuple):
    """An entry for the transaction index."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class _Completed(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    aborted: bool


class Update(NamedTuple):
    """The changes of a set of batches, to apply once it is written.

    Attributes
    ----------
    producers : dict of int to ProducerStateEntry
        With only the batches of the set.
    started : list of (int, int)
        First offset and producer id of the transactions that begin.
    """

    producers: dict[int, ProducerStateEntry]
    started: list[tuple[int, int]]
    completed: list[_Completed]


class Producers:
    """The state of all producers of a log up to an offset.

    Attributes
    ----------
    known : dict of int to ProducerStateEntry
        By producer id, in the order of their arrival.
    open_transactions : dict of int to int
        First offset -> producer id.
    unreplicated : dict of int to int
        First offset -> last offset of completed transactions that end at or above the high watermark.
    end_offset : int
        The state includes all batches below this offset.
    expiration_ms : int
        ``producer.id.expiration.ms``.

    Notes
    -----
    Source: ProducerStateManager, ProducerAppendInfo, ProducerStateEntry (3.9).
    """

    def __init__(self, expiration_ms: int = EXPIRATION_MS) -> None:
        self.expiration_ms = expiration_ms
        self.known: dict[int, ProducerStateEntry] = {}
        self.open_transactions: dict[int, int] = {}
        self.unreplicated: dict[int, int] = {}
        self.end_offset = 0
        self._buckets = 16

    def prepare(
        self, records: bytes | memoryview, origin: str = "replication", entries: Iterable[Entry] | None = None
    ) -> Update | Sent | None:
        """The changes that a set of batches makes, without applying them; None if no batch has a producer id.

        Parameters
        ----------
        records : buffer
            Batches with their final offsets.
        origin : str
            "client": check epochs and sequences; "coordinator": check epochs; "replication": check nothing, because
            the leader did.
        entries : iterable of Entry, optional
            The entries to process; None is all of them.

        Returns
        -------
        Sent
            If a client's set repeats one of the producer's last five batches: the earlier batch.

        Raises
        ------
        CorruptRecordError
            A transaction marker cannot be read.
        OutOfOrderSequenceError, InvalidProducerEpochError, InvalidTxnStateError, TransactionCoordinatorFencedError
        """
        found: Update | None = None
        for batch in Entries(records, until_damage=True) if entries is None else entries:
            number = batch.producer_id
            if number < 0:
                continue
            if found is None:
                found = Update({}, [], [])
            current = self.known.get(number) or ProducerStateEntry(number)
            if origin == "client" and (duplicate := current.duplicate_of(batch)) is not None:
                return duplicate
            updated = found.producers.get(number)
            if updated is None:
                updated = found.producers[number] = current.without_batches()
            if batch.attributes & CONTROL:
                marker = marker_of(records[batch.position : batch.end])
                if marker is not None:
                    _end_transaction(found, updated, batch, marker, origin)
                continue
            if origin != "replication":
                check_epoch(updated, batch)
            if origin == "client":
                check_sequence(current, updated, batch)
            updated.begin(batch.producer_epoch)
            updated.add(batch)
            if origin != "replication":
                check_transaction(updated, batch)
            if batch.attributes & TRANSACTIONAL and updated.first_offset < 0:
                updated.first_offset = batch.base_offset
                found.started.append((batch.base_offset, number))
        return found

    def apply(self, update: Update) -> list[AbortedBatch]:
        """Apply an update; returns the aborted transactions for the segment's transaction index."""
        for number, producer in update.producers.items():
            if number not in self.known and 4 * (len(self.known) + 1) > 3 * self._buckets:
                self._buckets *= 2
            if number in self.known:
                producer.behind(self.known[number])
            self.known[number] = producer
        self.open_transactions.update(update.started)
        aborted = []
        for done in update.completed:
            others = (first for first, other in self.open_transactions.items() if other != done.producer_id)
            stable = min(others, default=done.last_offset + 1)
            if done.aborted:
                aborted.append(AbortedBatch(done.producer_id, done.first_offset, done.last_offset, stable))
            self.open_transactions.pop(done.first_offset, None)
            self.unreplicated[done.first_offset] = done.last_offset
        return aborted

    def follow(self, records: bytes | memoryview) -> list[AbortedBatch]:
        """Apply batches one by one, as recovery does; returns the entries for the transaction index."""
        aborted: list[AbortedBatch] = []
        for entry in Entries(records, until_damage=True):
            update = self.prepare(records, entries=(entry,))
            if isinstance(update, Update):
                aborted += self.apply(update)
        return aborted

    def replicated_to(self, high_watermark: int) -> None:
        """Forget completed transactions below the high watermark."""
        if self.unreplicated:
            self.unreplicated = {a: z for a, z in self.unreplicated.items() if z >= high_watermark}

    @property
    def first_unstable_offset(self) -> int | None:
        """First offset of the earliest transaction that is open or ends at or above the high watermark."""
        return min((*self.open_transactions, *self.unreplicated), default=None)

    def clear(self) -> None:
        """Forget all producers; the table keeps its size, as Java's does."""
        self.known.clear()
        self.open_transactions.clear()
        self.unreplicated.clear()

    def add(self, producer: ProducerStateEntry) -> None:
        """Add a producer from a snapshot."""
        started = [(producer.first_offset, producer.producer_id)] if producer.first_offset >= 0 else []
        self.apply(Update({producer.producer_id: producer}, started, []))

    def expired(self, producer: ProducerStateEntry, now_ms: int) -> bool:
        """Whether a producer has expired: it has no open transaction and wrote nothing for ``expiration_ms``."""
        return producer.first_offset < 0 and now_ms - producer.timestamp_ms >= self.expiration_ms

    def remove_expired(self, now_ms: int) -> int:
        """Remove expired producers; returns how many."""
        gone = [number for number, producer in self.known.items() if self.expired(producer, now_ms)]
        for number in gone:
            del self.known[number]
        return len(gone)

    def in_table_order(self) -> list[ProducerStateEntry]:
        """The producers in the order of Java's HashMap, in which a broker writes them."""
        mask = self._buckets - 1

        def bucket(producer: ProducerStateEntry) -> int:
            hashed = (producer.producer_id ^ (producer.producer_id >> 32)) & 0xFFFFFFFF
            return (hashed ^ (hashed >> 16)) & mask

        return sorted(self.known.values(), key=bucket)


def _end_transaction(
    found: Update, updated: ProducerStateEntry, batch: Entry, marker: tuple[int, int, int], origin: str
) -> None:
    kind, coordinator, timestamp_ms = marker
    if origin != "replication":
        check_epoch(updated, batch)
        if coordinator < updated.coordinator_epoch:
            message = f"producer {batch.producer_id}: expected coordinator epoch {updated.coordinator_epoch} or later"
            raise TransactionCoordinatorFencedError(f"{message}, found {coordinator}", offset=batch.base_offset)
    if updated.first_offset >= 0:
        found.completed.append(_Completed(batch.producer_id, updated.first_offset, batch.base_offset, kind == 0))
    updated.begin(batch.producer_epoch)
    updated.timestamp_ms, updated.coordinator_epoch, updated.first_offset = timestamp_ms, coordinator, -1


def marker_of(batch: bytes | memoryview) -> tuple[int, int, int] | None:
    """Kind (0 abort, 1 commit), coordinator epoch and timestamp of a control batch; None for an empty batch."""
    records = decode(batch, ["key", "value", "createTimestamp"], verify_crc=False)
    if records.num_rows == 0:
        return None
    import pyarrow as pa

    key, value = records.column(0)[0].as_py(), records.column(1)[0].as_py()
    if key is None or len(key) < 4 or key[2:4] not in (b"\0\0", b"\0\1") or value is None or len(value) < _MARKER.size:
        raise CorruptRecordError("expected a transaction marker with key and value, found another control record")
    _, coordinator = _MARKER.unpack_from(value)
    return key[3], coordinator, records.column(2).cast(pa.int64())[0].as_py()
