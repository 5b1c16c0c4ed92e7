"""Replicas of a partition of KIP-32's options: each a directory, a clock, and a broker on a socket of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from kts.broker import wire
from kts.log.log import Deleted
from kts.proposals.options import (
    PRIVATE_VERSIONS,
    Consumer,
    OptionFollower,
    OptionLeader,
    OptionLog,
    Producer,
    ProducerRecord,
)
from kts.replica.client import Connection
from kts.testing import KtsBroker

TOPIC = "orders"
LAYOUTS = wire.private_layouts(PRIVATE_VERSIONS)
SUFFIX = ".appendtimes"


class Clock:
    """Stands where it is put."""

    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        return self.now_ms


class Replica:
    """A replica that leads or follows. Its broker and its socket stay, whatever it does."""

    private_versions = PRIVATE_VERSIONS

    def __init__(self, folder: Path, name: str, option: int, settings: dict[str, Any], clock: Clock) -> None:
        self.name, self.option, self.settings, self.clock = name, option, settings, clock
        self.path = folder / name / f"{TOPIC}-0"
        self.leader: OptionLeader | None = None
        self.follower: OptionFollower | None = None
        self.broker = KtsBroker(extensions=[self])
        self.open()

    def __repr__(self) -> str:
        return self.name

    def answer(self, api_key: int, body: dict[str, Any]) -> dict[str, Any] | None:
        """As the leader, or as one that is none."""
        return (self.leader or OptionLeader([])).answer(api_key, body)

    def run_retention(self) -> list[tuple[str, int, Deleted]]:
        """As the leader, in its log."""
        return [] if self.leader is None else self.leader.run_retention()

    def connect(self) -> Connection:
        return Connection(self.broker.host, self.broker.port, private=LAYOUTS)

    # --- life -------------------------------------------------------------------------------------

    def open(self) -> None:
        self.log = OptionLog(self.path, option=self.option, config=self.settings, clock=self.clock)

    def lead(self, epoch: int | None = None) -> None:
        self.follower = None
        self.leader = OptionLeader([self.log], leader_epoch=epoch)

    def follow(self, leader: Replica) -> OptionFollower:
        self.leader = None
        self.follower = OptionFollower(self.log, leader.connect())
        return self.follower

    def restart(self) -> None:
        """A clean one; it neither leads nor follows then."""
        self._end()
        self.log.close()
        self.open()

    def kill(self) -> None:
        """As if the process was killed: nothing is flushed or closed."""
        self._end()
        self.log.abandon()

    def _end(self) -> None:
        if self.follower is not None:
            self.follower._connection.close()  # type: ignore[attr-defined]
        self.leader = self.follower = None

    # --- what it has ------------------------------------------------------------------------------

    def files(self, suffix: str) -> dict[str, bytes]:
        """The files of a kind, byte for byte; none that is empty: an index is made with its first entry."""
        found = {path.name: path.read_bytes() for path in sorted(self.path.glob(f"*{suffix}"))}
        return {name: data for name, data in found.items() if data}

    def produce(self, count: int = 1, create_time_ms: int | None = None, compression: str = "none") -> None:
        """Send records to it over its socket, as one set."""
        with self.connect() as connection:
            producer = Producer(connection, option=self.option, compression=compression, clock=self.clock)
            times = None if self.option == 2 else create_time_ms
            producer.send(TOPIC, [ProducerRecord(b"%d" % number, b"k", times) for number in range(count)])

    def values(self) -> list[bytes | None]:
        with self.connect() as connection:
            return [record.value for record in Consumer(connection).records(TOPIC)]


@contextmanager
def replicas(
    folder: Path, count: int = 3, *, option: int = 3, start_ms: int, **settings: Any
) -> Iterator[list[Replica]]:
    """Some replicas with one clock, none of which leads yet."""
    clock = Clock(start_ms)
    dotted = {name.replace("_", "."): value for name, value in settings.items()}
    with ExitStack() as stack:
        found = []
        for name in "ABCDE"[:count]:
            replica = Replica(folder, name, option, dotted, clock)
            stack.callback(replica.kill)
            stack.enter_context(replica.broker)
            found.append(replica)
        yield found


def follow(leader: Replica, others: Sequence[Replica], epoch: int | None = None) -> None:
    """One leads and the others follow it until they have what it has."""
    leader.lead(epoch)
    for other in others:
        other.follow(leader).catch_up()


def catch_up(others: Sequence[Replica]) -> None:
    for other in others:
        assert other.follower is not None
        other.follower.catch_up()


def agree(found: Sequence[Replica]) -> None:
    """Their messages and indexes are equal byte for byte; one that differs says that it waits for the leader."""
    first, *others = [replica for replica in found if not replica.log.waits_for_leader]
    for other in others:
        assert bases(other) == bases(first), (first, other)
        assert other.files(".log") == first.files(".log"), (first, other)
        assert other.files(SUFFIX) == first.files(SUFFIX), (first, other)
        assert other.log.log_end_offset == first.log.log_end_offset
        assert other.log.index_entries() == first.log.index_entries()


def bases(replica: Replica) -> list[int]:
    """Where its segments begin."""
    return [segment.base_offset for segment in replica.log.segments if segment.size]
