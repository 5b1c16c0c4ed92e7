"""What `migration.py` plays with: clients of two generations, a follower, the price of conversions, and the checks."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import kts
from kts.broker.metrics import Conversions
from kts.broker.wire.messages import ApiKey
from kts.replica.client import Connection

if TYPE_CHECKING:
    from kts.testing import KtsBroker

COUNT, SET = 1000, 50  # messages that a producer sends in a step, and how many of them in a request
FETCH_BYTES = 1 << 16
COLUMNS = (("offset", "int64"), ("value", "binary"), ("timestamp", "int64"), ("magic", "int8"))
Row = tuple[int, bytes, int]  # offset, value, timestamp


class MigrationError(Exception):
    """A step did not do what the KIP or Kafka promises."""


class Client:
    """A producer and consumer of one generation; keeps count of what it sent, and all that it saw.

    Parameters
    ----------
    version : int
        Of Produce and Fetch.
    magic : int
        The newest it knows.
    """

    def __init__(self, name: str, version: int, magic: int) -> None:
        self.name, self.version, self.magic = name, version, magic
        self.sent: Counter[str] = Counter()
        self.seen: dict[str, list[Row]] = {}

    def produce(self, broker: KtsBroker, topic: str, now_ms: int) -> None:
        """Send a step's messages in gzip wrappers; their times are up to a second old."""
        with Connection(broker.host, broker.port, client_id=self.name) as connection:
            for _ in range(COUNT // SET):
                numbers = range(self.sent[topic], self.sent[topic] + SET)
                values = [message(self.name, number) for number in numbers]
                columns = {"value": values, "timestamp": [now_ms - 1000 + number % 1000 for number in numbers]}
                records = kts.encode(columns, magic=self.magic, compression="gzip")
                data = {"name": topic, "partition_data": [{"index": 0, "records": records}]}
                body = {"acks": 1, "timeout_ms": 1000, "topic_data": [data]}
                [answer] = connection.ask(ApiKey.PRODUCE, self.version, body)["responses"]
                [done] = answer["partition_responses"]
                if done["error_code"]:
                    raise MigrationError(f"{self.name}: {topic} refuses it with error {done['error_code']}")
                self.sent[topic] += SET

    def consume(self, broker: KtsBroker, topic: str) -> tuple[str, int]:
        """Read on to the end; which magics came, and how many bytes."""
        seen = self.seen.setdefault(topic, [])
        came: set[int] = set()
        size = 0
        with Connection(broker.host, broker.port, client_id=self.name) as connection:
            while records := fetch(connection, self.version, topic, len(seen)):
                batch = kts.decode(records, columns=[name for name, _ in COLUMNS])
                rows = zip(*(batch[name].cast(kind).to_pylist() for name, kind in COLUMNS), strict=True)
                new = [row for row in rows if row[0] >= len(seen)]  # a wrapper may begin before
                if not new:
                    raise MigrationError(f"{self.name}: expected messages from {len(seen)} on, found none whole")
                seen += [row[:3] for row in new]
                came.update(row[3] for row in new)
                size += len(records)
        if max(came, default=0) > self.magic:
            raise MigrationError(f"{self.name}: expected magic {self.magic} at most, found {named(came)}")
        return named(came), size


def message(name: str, number: int) -> bytes:
    """What a client sends, by its number."""
    return f"{name} {number} {'x' * (number % 97)}".encode()


def fetch(connection: Connection, version: int, topic: str, offset: int) -> bytes:
    """What one Fetch gives from an offset on."""
    partition = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": FETCH_BYTES}
    body = {"max_wait_ms": 0, "min_bytes": 0, "topics": [{"topic": topic, "partitions": [partition]}]}
    [found] = connection.ask(ApiKey.FETCH, version, body)["responses"][0]["partitions"]
    if found["error_code"]:
        raise MigrationError(f"Fetch {version} of {topic} from {offset} on: found error {found['error_code']}")
    return bytes(found["records"] or b"")


def replicate(leader: KtsBroker, topic: str, path: Path, version: int) -> tuple[str, int]:
    """What a follower does: fetch from its own end and append what comes, as it comes; which magics, how many bytes."""
    came: set[int] = set()
    size = 0
    settings = {"message.format.version": "0.9.0" if version == 1 else "0.10.0"}
    with kts.Log(path, settings) as log, Connection(leader.host, leader.port) as connection:
        while records := fetch(connection, version, topic, log.log_end_offset):
            log.append_as_follower(records)
            came.update(kts.decode(records, columns=["magic"])["magic"].to_pylist())
            size += len(records)
    return named(came), size


# --- what is measured -----------------------------------------------------------------------------


class Sent(NamedTuple):
    """Bytes of records that brokers sent: from the file by sendfile, read from it, and converted."""

    by_sendfile: int = 0
    read: int = 0
    converted: int = 0

    def __add__(self, other: tuple[int, ...]) -> Sent:
        return Sent(*map(sum, zip(self, other, strict=True)))

    def __str__(self) -> str:
        return ", ".join(f"{count / 1024:.0f} KiB {how.replace('_', ' ')}" for how, count in self._asdict().items())


class Cost:
    """What a broker converted meanwhile, by its own meters, and what it sent by sendfile; a context manager."""

    def __init__(self, meter: str, broker: KtsBroker, topic: str) -> None:
        self._ask = lambda: broker.broker.metrics.conversions(meter, topic)
        self.spent, self.share = Conversions(), 0.0
        self.by_sendfile = 0

    def __enter__(self) -> Cost:
        self._before, self._start_ns = self._ask(), others_ns()
        self._sendfile, os.sendfile = os.sendfile, self._counted
        return self

    def _counted(self, out: int, file: int, offset: int, count: int) -> int:
        """Send, and count; before it is sent, since the client may have it before the call returns."""
        sent = 0
        self.by_sendfile += count
        try:
            sent = self._sendfile(out, file, offset, count)
        finally:
            self.by_sendfile += sent - count
        return sent

    def sent(self, received: int) -> Sent:
        """How the bytes that a fetcher received were sent."""
        return Sent(self.by_sendfile, received - self.by_sendfile - self.spent.bytes_out, self.spent.bytes_out)

    def __exit__(self, *_: object) -> None:
        os.sendfile = self._sendfile
        whole = others_ns() - self._start_ns
        self.spent = Conversions(*(now - then for now, then in zip(self._ask(), self._before, strict=True)))
        self.share = self.spent.cpu_ns / whole if whole else 0.0

    def __str__(self) -> str:
        cost = self.spent
        if not cost.messages:
            return "nothing converted"
        sizes = f"{cost.bytes_in / 1024:3.0f} -> {cost.bytes_out / 1024:3.0f} KiB"
        return f"{cost.messages} converted, {sizes}, {cost.cpu_ns / 1e6:4.1f} ms: {self.share:3.0%} of the broker's CPU"


def others_ns() -> int:
    """CPU time of all threads but this one: the broker's."""
    return time.process_time_ns() - time.thread_time_ns()


def named(magics: Iterable[int]) -> str:
    """ "v0 + v1"."""
    return " + ".join(f"v{magic}" for magic in sorted(magics)) or "nothing"


def magics_of(path: Path | str, start: int) -> str:
    """What lies on disk from an offset on."""
    table = kts.scan(path, starting_offsets=start, columns=["magic"]).read_all()
    return named(set(table["magic"].to_pylist()))


# --- what is checked ------------------------------------------------------------------------------


def check_reader(seen: list[Row], sent: Mapping[str, int]) -> str:
    """Offsets without a gap, each producer's messages all there and in order; how many have a time."""
    if [offset for offset, _, _ in seen] != list(range(sum(sent.values()))):
        raise MigrationError(f"expected offsets 0 to {sum(sent.values()) - 1}, found {len(seen)} that are not those")
    for name, count in sent.items():
        mine = [value for _, value, _ in seen if value.startswith(f"{name} ".encode())]
        wanted = [message(name, number) for number in range(count)]
        if mine != wanted:
            raise MigrationError(f"expected {count} messages of {name} in order, found {len(mine)} others")
    times = Counter("without" if timestamp == -1 else "with" for _, _, timestamp in seen)
    return ", ".join(f"{count} {what}" for what, count in sorted(times.items()))


def check_copy(leader: Path, copy: Path, sent: Mapping[str, int]) -> str:
    """A copy has what its leader has: the same bytes, or the same messages in the format it can take."""
    table = kts.scan(copy, columns=["offset", "value", "timestamp"]).read_all()
    rows = zip(*(table[name].cast(kind).to_pylist() for name, kind in COLUMNS[:3]), strict=True)
    times = check_reader(list(rows), sent)
    same = log_bytes(leader) == log_bytes(copy)
    return f"{'the same bytes as the leader' if same else 'the same messages'} in {magics_of(copy, 0)}; times: {times}"


def log_bytes(path: Path) -> bytes:
    """All segments of a partition."""
    return b"".join(file.read_bytes() for file in sorted(path.glob("*.log")))
