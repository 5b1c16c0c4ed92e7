"""A producer and a consumer of logs of options 1, 2 and 3, whose records have the times that each option exposes.

::

    option  ProducerRecord  ConsumerRecord
    1       CreateTime      CreateTime, LogAppendTime
    2                       LogAppendTime
    3       CreateTime      CreateTime; LogAppendTime stays inside of the brokers
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from kts.errors import InvalidRequestError, UnsupportedForMessageFormatError
from kts.model import EARLIEST, LATEST
from kts.proposals.options.messages import checked, decode, encode
from kts.proposals.options.wire import CONSUMER, FETCH, LIST_OFFSETS, PRODUCE, OptionConnection, ask_partition
from kts.times import wall_clock

FETCH_BYTES = 1 << 20  # max.partition.fetch.bytes
ACKS = -1


class ProducerRecord(NamedTuple):
    """A record to send.

    Attributes
    ----------
    create_time_ms : int, optional
        None means now, by the producer's clock. A mirror maker gives that of the record it copies.
    """

    value: bytes | None
    key: bytes | None = None
    create_time_ms: int | None = None


class RecordMetadata(NamedTuple):
    """Where a record was appended, and the LogAppendTime that the leader gave it; None in option 3, which hides it."""

    topic: str
    partition: int
    offset: int
    log_append_time_ms: int | None


class ConsumerRecord(NamedTuple):
    """A record as consumers get it.

    Attributes
    ----------
    create_time_ms : int or None
        None in option 2; -1 if nobody set it.
    log_append_time_ms : int or None
        None in option 3.
    """

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    create_time_ms: int | None
    log_append_time_ms: int | None


class Producer:
    """Sends records to the leader of a partition.

    Parameters
    ----------
    connection : OptionConnection
        To the leader's broker.
    option : int
        1, 2 or 3: that of the topic.
    compression : str
        none, gzip, snappy or lz4.
    clock : callable, optional
        The CreateTime of records without one, in ms since the epoch; None is the wall clock.
    """

    def __init__(
        self,
        connection: OptionConnection,
        *,
        option: int,
        compression: str = "none",
        clock: Callable[[], int] | None = None,
    ) -> None:
        self.option = checked(option)
        self._connection = connection
        self._compression = compression
        self._clock = wall_clock if clock is None else clock

    def send(self, topic: str, records: Iterable[ProducerRecord], partition: int = 0) -> list[RecordMetadata]:
        """Send records as one set, and wait until the leader has appended it.

        Raises
        ------
        UnsupportedForMessageFormatError
            A record has a CreateTime, and option 2 none.
        KtsError
            The leader cannot be reached, or refuses the set.
        """
        sent = list(records)
        if not sent:
            return []
        rows: dict[str, list[bytes | None] | list[int]] = {
            "key": [record.key for record in sent],
            "value": [record.value for record in sent],
        }
        if self.option == 2:
            if any(record.create_time_ms is not None for record in sent):
                raise UnsupportedForMessageFormatError(
                    "create_time_ms: messages of option 2 have no CreateTime; put it into the value"
                )
        else:
            now = self._clock()
            rows["createTimestamp"] = [now if one.create_time_ms is None else one.create_time_ms for one in sent]
        data = encode(rows, option=self.option, compression=self._compression)
        done = ask_partition(self._connection, PRODUCE, topic, partition, {"records": data}, acks=ACKS)
        append_ms = None if self.option == 3 else done["log_append_time_ms"]
        first = done["base_offset"]
        return [RecordMetadata(topic, partition, first + number, append_ms) for number in range(len(sent))]


class Consumer:
    """Reads records of a partition from its leader.

    Parameters
    ----------
    connection : OptionConnection
        To the leader's broker.
    """

    def __init__(self, connection: OptionConnection) -> None:
        self._connection = connection

    def fetch(
        self, topic: str, offset: int, partition: int = 0, *, max_bytes: int = FETCH_BYTES
    ) -> list[ConsumerRecord]:
        """The next records from an offset on; none at the end.

        Parameters
        ----------
        max_bytes : int
            Of records in one fetch; a single message may exceed it.

        Raises
        ------
        KtsError
            The leader cannot be reached, or does not have the offset.
        """
        one = {"fetch_offset": offset, "partition_max_bytes": max_bytes}
        limits = {"replica_id": CONSUMER, "max_bytes": max_bytes}
        answer = ask_partition(self._connection, FETCH, topic, partition, one, **limits)
        if answer["time_index"]:
            raise InvalidRequestError(f"time_index: expected none for a consumer, found {len(answer['time_index'])}")
        if not len(answer["records"]):
            return []
        found = decode(answer["records"])
        times = (found[name].cast("int64").to_pylist() for name in ("createTimestamp", "logAppendTimestamp"))
        columns = (found[name].to_pylist() for name in ("offset", "key", "value"))
        records = (ConsumerRecord(topic, partition, *row) for row in zip(*columns, *times, strict=True))
        return [record for record in records if record.offset >= offset]

    def records(self, topic: str, partition: int = 0) -> Iterator[ConsumerRecord]:
        """All records from the log start offset to the end as it is when they are reached."""
        at = self.beginning_offset(topic, partition)
        while found := self.fetch(topic, at, partition):
            yield from found
            at = found[-1].offset + 1

    def beginning_offset(self, topic: str, partition: int = 0) -> int:
        """The log start offset."""
        return self._listed(topic, partition, EARLIEST)[0]

    def end_offset(self, topic: str, partition: int = 0) -> int:
        """The log end offset."""
        return self._listed(topic, partition, LATEST)[0]

    def offset_for_time(self, topic: str, time_ms: int, partition: int = 0) -> int | None:
        """The offset of the first record whose LogAppendTime is a time or later; None if there is none.

        Notes
        -----
        Option 3 knows LogAppendTime by the minute: the answer may be a record of the time's own minute that is earlier.
        """
        offset, _ = self._listed(topic, partition, max(time_ms, 0))
        return None if offset < 0 else offset

    def _listed(self, topic: str, partition: int, time_ms: int) -> tuple[int, int]:
        one = {"timestamp": time_ms}
        found = ask_partition(self._connection, LIST_OFFSETS, topic, partition, one)
        return found["offset"], found["timestamp"]
