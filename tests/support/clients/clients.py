"""Real Kafka clients behind one face, so that one set of tests asks all of them the same."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Self

from support.clients.client_records import Record, Row, Sent
from support.golden import PATIENCE_S
from support.waiting import wait_until


class Members(AbstractContextManager["Members"], ABC):
    """Consumers of one group that poll in the background, each with partitions when this is made."""

    @abstractmethod
    def gather(self, count: int) -> list[list[Row]]:
        """Wait for so many records in all, let every member commit and leave, and give what each has got."""


class Client(ABC):
    """One client library of one release.

    `codecs` are all that it can write. The other attributes say what its interface has.
    """

    name: str
    codecs: tuple[str, ...]
    sends_times = True  # a time can be given to a record
    sends_headers = True
    null_headers = True  # a header's value may be null
    takes_lines = False  # records are lines of text
    sees_times = True
    sees_headers = True
    tells = True  # offset and time of what was sent
    tells_times = True
    tells_first_time = False  # of all records of a batch the time of its first
    searches = True  # offsets_for_times
    idempotent = True

    @abstractmethod
    def produce(
        self,
        bootstrap: str,
        topic: str,
        records: Sequence[Record],
        *,
        codec: str = "none",
        partition: int = 0,
        idempotent: bool = False,
    ) -> list[Sent]:
        """Send all, with acks=all and with retries, and wait for every answer; any refusal is an exception."""

    @abstractmethod
    def consume(self, bootstrap: str, topic: str, partition: int = 0) -> list[Row]:
        """From the first offset to the end."""

    @abstractmethod
    def ends(self, bootstrap: str, topic: str, partition: int = 0) -> tuple[int, int]:
        """First offset and end offset."""

    @abstractmethod
    def times(self, bootstrap: str, topic: str, targets: Sequence[int]) -> list[tuple[int, int | None] | None]:
        """`offsets_for_times` of partition 0: (offset, timestamp), or None where nothing is found."""

    @abstractmethod
    def join(self, bootstrap: str, topic: str, group: str, *, members: int, partitions: int) -> Members:
        """A group that reads the topic from its beginning, or from what was committed."""

    @abstractmethod
    def committed(self, bootstrap: str, topic: str, group: str, partitions: int) -> list[int | None]:
        """By partition what the group has committed."""

    def begin_transaction(self, bootstrap: str) -> None:
        """What it says when a transaction is begun is an exception."""
        raise ValueError(f"{self.name} has no transactions")

    def seen(self, row: Row, magic: int = 2) -> Row:
        """What is left of a row, stored with that magic, where this client's consumer shows less than the newest."""
        if not self.sees_times:
            row = row._replace(timestamp=None, timestamp_type=None)
        return row if self.sees_headers else row._replace(headers=None)

    def sent(self, record: Record) -> Record:
        """What is left of a record where this client's producer can say less than the newest."""
        if not self.sends_times:
            record = record._replace(timestamp=None)
        if not self.null_headers:
            record = record._replace(headers=tuple((name, data or b"") for name, data in record.headers))
        return record if self.sends_headers else record._replace(headers=())


class Consumer(ABC):
    """A consumer that subscribes, for `ThreadedMembers`, which sets `formed` when every member has its partitions."""

    formed = False

    @abstractmethod
    def poll(self) -> list[Row]:
        """What has come in the last tenth of a second."""

    @abstractmethod
    def assigned(self) -> int:
        """How many partitions it has."""

    @abstractmethod
    def commit(self) -> None:
        """Where it is."""

    @abstractmethod
    def close(self) -> None:
        """Leave the group."""


class ThreadedMembers(Members):
    """A thread for each member, which makes its consumer there."""

    def __init__(self, make: Callable[[], Consumer], members: int, partitions: int) -> None:
        self._over = threading.Event()
        self._rows: list[list[Row]] = [[] for _ in range(members)]
        self._assigned = [0] * members
        self._consumers: list[Consumer] = []
        self._failed: list[BaseException] = []
        self._make = make
        self._committed = threading.Barrier(members)  # who leaves earlier moves the others' partitions about
        self._threads = [threading.Thread(target=self._run, args=(one,), daemon=True) for one in range(members)]
        for thread in self._threads:
            thread.start()
        self._wait(lambda: all(self._assigned) and sum(self._assigned) == partitions, "every member has partitions")
        for consumer in self._consumers:
            consumer.formed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(PATIENCE_S)

    def _run(self, number: int) -> None:
        try:
            consumer = self._make()
            self._consumers.append(consumer)
            try:
                while not self._over.is_set():
                    self._rows[number] += consumer.poll()
                    self._assigned[number] = consumer.assigned()
                consumer.commit()
                self._committed.wait(PATIENCE_S)
            finally:
                consumer.close()
        except Exception as failed:
            self._failed.append(failed)
            self._committed.abort()

    def _wait(self, holds: Callable[[], bool], what: str) -> None:
        wait_until(what, lambda: bool(self._failed) or holds())
        if self._failed:
            raise RuntimeError("a member of the group failed") from self._failed[0]

    def gather(self, count: int) -> list[list[Row]]:
        self._wait(lambda: sum(map(len, self._rows)) >= count, f"the members have {count} records")
        self.__exit__()
        self._wait(lambda: True, "nothing failed")
        return self._rows
