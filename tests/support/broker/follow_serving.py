"""A leader of kts for followers: restarted, with another history, behind a proxy; and copies that follow it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
from support.broker.follow_play import files, log_bytes
from support.broker.wire_proxy import Proxy

import kts
from kts.broker.broker import Broker
from kts.replica.client import Client
from kts.replica.fetcher import Fetcher
from kts.replica.follower import Follower, topic_id_text
from kts.server.server import ServerThread

SMALL = {"segment.bytes": "4000", "index.interval.bytes": "200", "retention.ms": "-1"}
QUIET = {"log.retention.check.interval.ms": 2**63 - 1, "auto.create.topics.enable": "false"}
T = 1_700_000_000_000


class KtsLeader:
    """A broker of kts in this process, behind a proxy whose address stays when the broker is started again."""

    def __init__(self, folder: Path, clock: Callable[[], int] | None = None, **settings: Any) -> None:
        self.folder = folder
        self.clock = clock
        self.proxy = Proxy("127.0.0.1:1")
        self.settings = QUIET | settings | {"advertised.listeners": f"PLAINTEXT://{self.proxy.address}"}
        self.start()

    def start(self) -> None:
        self.broker = Broker(self.folder, self.settings, clock=self.clock)
        self.thread = ServerThread(self.broker, "127.0.0.1", 0)
        self.proxy.target = self.thread.start()

    def stop(self) -> None:
        self.proxy.cut()
        self.thread.stop()
        self.broker.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self.proxy.__exit__()

    @property
    def address(self) -> str:
        return self.proxy.address

    def create(self, topic: str, partitions: int = 1, **configs: str) -> None:
        own = {name.replace("_", "."): value for name, value in configs.items()}
        self.broker.topics.create(topic, partitions, SMALL | own)

    def log(self, topic: str, partition: int = 0) -> kts.Log:
        found = self.broker.topics.get(topic)
        assert found is not None
        return found.partitions[partition].log

    def append(self, topic: str, data: bytes, partition: int = 0) -> None:
        found = self.broker.topics.get(topic)
        assert found is not None
        found.partitions[partition].append(data)

    def produce(self, topic: str, rng: random.Random, sets: int, *, magic: int = 2, partition: int = 0) -> None:
        """That many sets, some of them compressed."""
        for _ in range(sets):
            codec = rng.choice(["none", "gzip", "snappy", "lz4", *(["zstd"] if magic == 2 else [])])
            self.append(topic, record_set(rng, magic, codec), partition)

    def files(self, topic: str, partition: int = 0) -> dict[str, bytes]:
        return files(self.folder / f"{topic}-{partition}")


def record_set(rng: random.Random, magic: int = 2, codec: str = "none", records: int | None = None) -> bytes:
    """A set as a producer sends it, with times that go back and forth."""
    count = rng.randint(1, 8) if records is None else records
    times = [-1 if magic == 0 else T + rng.randrange(10**7) for _ in range(count)]
    columns = {
        "timestamp": pa.array(times, pa.int64()),
        "key": pa.array([b"%d" % rng.randrange(100) for _ in range(count)]),
        "value": pa.array([rng.randbytes(rng.randrange(200)) for _ in range(count)]),
    }
    return kts.encode(columns, magic=magic, compression=codec)


@dataclass
class Ticking:
    """A monotonic clock that only waiting moves."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@dataclass
class Copy:
    """A follower of the only topic's partitions that this process runs, and what it told."""

    log: kts.Log
    follower: Follower
    fetcher: Fetcher
    client: Client
    ticking: Ticking
    said: list[str] = field(default_factory=list)

    @property
    def bytes(self) -> bytes:
        return log_bytes(files(Path(self.log.path)))


@contextmanager
def copying(
    address: str,
    folder: Path,
    topic: str,
    *,
    max_wait_ms: int = 10,
    settings: dict[str, Any] | None = None,
    **named: Any,
) -> Iterator[Copy]:
    """Partition 0 of a topic, followed into `folder`."""
    said: list[str] = []
    ticking = Ticking()
    client_named = {name: named.pop(name) for name in ("timeout_s", "max_frame_bytes") if name in named}
    log_named = {name: named.pop(name) for name in ("clock", "topic_id") if name in named}
    max_bytes = named.pop("max_bytes", 3000)
    with (
        Client(address, **client_named) as client,
        kts.Log(folder / f"{topic}-0", SMALL | (settings or {}), **log_named) as log,
    ):
        follower = Follower(log, client, max_bytes=max_bytes, tell=said.append)
        more = {"monotonic": ticking, "sleep": ticking.sleep, "tell": said.append} | named
        yield Copy(log, follower, Fetcher(client, [follower], max_wait_ms=max_wait_ms, **more), client, ticking, said)


def known_topic_id(leader: KtsLeader, topic: str) -> str | None:
    found = leader.broker.topics.get(topic)
    return None if found is None else topic_id_text(found.topic_id)
