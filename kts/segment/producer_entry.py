"""What is known of one producer, and whether its next batch goes on where the last one ended."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from kts.errors import InvalidProducerEpochError, InvalidTxnStateError, OutOfOrderSequenceError

KEPT_BATCHES = 5  # as many as a producer may have in flight
GREATEST_SEQUENCE = 2**31 - 1
_HEADER = struct.Struct(">qiibIhiqqqhi")  # up to the base sequence
_OVERHEAD_BYTES = 12
_HEADER_BYTES = 61
TRANSACTIONAL, CONTROL = 16, 32


class Batch(NamedTuple):
    """The fields of a batch header of magic 2 that concern producers."""

    base_offset: int
    last_offset: int
    max_timestamp_ms: int
    producer_id: int
    epoch: int
    base_sequence: int
    attributes: int
    position: int
    end: int

    @property
    def last_sequence(self) -> int:
        """Sequence of its last record; 0 follows 2^31-1."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset - self.base_offset) & GREATEST_SEQUENCE

    def written(self) -> Sent:
        """What is remembered of it."""
        delta = self.last_offset - self.base_offset
        return Sent(self.last_sequence, self.last_offset, delta, self.max_timestamp_ms)


class Sent(NamedTuple):
    """A batch that is in the log, as far as a second one like it is recognized by it."""

    last_sequence: int = -1
    last_offset: int = -1
    offset_delta: int = 0
    timestamp_ms: int = -1

    @property
    def first_sequence(self) -> int:
        """Sequence of its first record."""
        return (self.last_sequence - self.offset_delta) & GREATEST_SEQUENCE

    @property
    def first_offset(self) -> int:
        """Offset of its first record."""
        return self.last_offset - self.offset_delta


_NOTHING = Sent()


@dataclass(slots=True)
class Producer:
    """What is known of one producer.

    Attributes
    ----------
    batches : tuple of Sent
        The last ones of its epoch, at most five, oldest first.
    first_offset : int
        Of its open transaction, -1 for none.
    """

    producer_id: int
    epoch: int = -1
    batches: tuple[Sent, ...] = ()
    timestamp_ms: int = -1
    coordinator_epoch: int = -1
    first_offset: int = -1

    @classmethod
    def of_snapshot(cls, entry: tuple[int, int, int, int, int, int, int, int]) -> Producer:
        """As a ``.snapshot`` tells of it: one without a last offset has no batch, whatever else is written there."""
        number, epoch, sequence, offset, delta, timestamp_ms, coordinator, first = entry
        batches = (Sent(sequence, offset, delta, timestamp_ms),) if offset >= 0 else ()
        return cls(number, epoch, batches, timestamp_ms, coordinator, max(first, -1))

    @property
    def last(self) -> Sent:
        """Its last batch."""
        return self.batches[-1] if self.batches else _NOTHING

    def without_batches(self) -> Producer:
        """A copy that collects what a set adds."""
        return replace(self, batches=())

    def begin(self, epoch: int) -> None:
        """Another epoch has no batches yet."""
        if epoch != self.epoch:
            self.epoch, self.batches = epoch, ()

    def add(self, sent: Sent) -> None:
        """It wrote a batch."""
        self.batches = (*self.batches, sent)[-KEPT_BATCHES:]
        self.timestamp_ms = sent.timestamp_ms

    def behind(self, earlier: Producer) -> None:
        """What was known before comes in front of what this one collected."""
        if earlier.epoch == self.epoch:
            self.batches = (*earlier.batches, *self.batches)[-KEPT_BATCHES:]

    def duplicate_of(self, batch: Batch) -> Sent | None:
        """The batch of the same epoch and sequences that it wrote already; None if there is none."""
        if batch.epoch != self.epoch:
            return None
        wanted = batch.base_sequence, batch.last_sequence
        return next((one for one in self.batches if (one.first_sequence, one.last_sequence) == wanted), None)


def check_epoch(updated: Producer, batch: Batch) -> None:
    """Refuse a batch of an epoch that is over.

    Raises
    ------
    InvalidProducerEpochError
    """
    if batch.epoch < updated.epoch:
        message = f"producer {batch.producer_id}: expected epoch {updated.epoch} or later, found {batch.epoch}"
        raise InvalidProducerEpochError(message, offset=batch.base_offset)


def check_sequence(current: Producer, updated: Producer, batch: Batch) -> None:
    """Refuse a batch that does not follow the producer's last one.

    Parameters
    ----------
    current : Producer
        As the log knows it.
    updated : Producer
        What the batches before this one in the same set make of it.

    Raises
    ------
    OutOfOrderSequenceError

    Notes
    -----
    Source: ProducerAppendInfo.checkSequence (3.9).
    """
    found = batch.base_sequence
    if batch.epoch != updated.epoch:
        if found != 0 and updated.epoch != -1:
            message = f"producer {batch.producer_id}: expected sequence 0 in the new epoch {batch.epoch}, found {found}"
            raise OutOfOrderSequenceError(message, offset=batch.base_offset)
        return
    if updated.batches:
        last = updated.last.last_sequence
    else:
        last = current.last.last_sequence if batch.epoch == current.epoch else -1
    if current.epoch != -1 and found != last + 1 and not (found == 0 and last == GREATEST_SEQUENCE):
        expected = (last + 1) & GREATEST_SEQUENCE
        message = f"producer {batch.producer_id}: expected sequence {expected}, found {found}"
        raise OutOfOrderSequenceError(message, offset=batch.base_offset)


def check_transaction(updated: Producer, batch: Batch) -> None:
    """Refuse a batch outside of the transaction that the producer has open.

    Raises
    ------
    InvalidTxnStateError
    """
    if updated.first_offset >= 0 and not batch.attributes & TRANSACTIONAL:
        message = f"producer {batch.producer_id}: expected a transactional batch, found one without a transaction"
        raise InvalidTxnStateError(message, offset=batch.base_offset)


def batches_of_producers(records: bytes | memoryview) -> Iterator[Batch]:
    """Headers of the whole batches of magic 2 that name a producer."""
    position, end = 0, len(records)
    while end - position >= _HEADER_BYTES:
        base, size, _, magic, _, attributes, delta, _, largest, producer, epoch, sequence = _HEADER.unpack_from(
            records, position
        )
        following = position + _OVERHEAD_BYTES + size
        if size < 0 or following > end:
            return
        if magic == 2 and producer >= 0:
            yield Batch(base, base + delta, largest, producer, epoch, sequence, attributes, position, following)
        position = following
