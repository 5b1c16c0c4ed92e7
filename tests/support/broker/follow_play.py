"""A real broker whose topics `kts follow` copies, and its story: compaction, deletions, a history that changes."""

from __future__ import annotations

import base64
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.kafka.brokers import Broker, Client
from support.processes.cli_runs import lines
from support.waiting import wait_until

import kts
from kts.broker.wire.messages import ApiKey
from kts.replica.client import Client as Wire
from kts.segment.checkpoints import read_checkpoint

T = 1_700_000_000_000
PLAIN = {"enable.idempotence": "false"}
SMALL = {"segment.bytes": 8000, "index.interval.bytes": 200}
QUICK = {"log.cleaner.backoff.ms": 100}  # instead of 15 s
CODECS = ("none", "gzip", "snappy", "lz4")


def text(rng: random.Random, size: int) -> str:
    return base64.b64encode(rng.randbytes(size)).decode()


def records(rng: random.Random, most: int = 8, keys: int = 1 << 30) -> list[dict[str, Any]]:
    """A set of records whose times go back and forth."""
    return [
        {
            "timestamp": T + rng.randrange(10**7),
            "key": base64.b64encode(str(rng.randrange(keys)).encode()).decode(),
            "value": text(rng, rng.randrange(200)),
        }
        for _ in range(rng.randint(1, most))
    ]


class Leader:
    """A real broker and what is done with its topics."""

    def __init__(self, broker: Broker, client: Client, rng: random.Random, folder: Path) -> None:
        self.broker = broker
        self.client = client
        self.rng = rng
        self.copies, self.fresh = folder / "copies", folder / "fresh"
        self.legacy = broker.version.startswith("0.")
        with broker.properties.open("a", encoding="utf-8") as file:
            file.writelines(f"{key}={value}\n" for key, value in QUICK.items())

    def create(self, **topics: dict[str, Any]) -> None:
        own = "internal.segment.bytes" if self.broker.version.startswith("4.") else "segment.bytes"
        named = {
            name.replace("_", "-"): {own if key == "segment.bytes" else key: value for key, value in configs.items()}
            for name, configs in topics.items()
        }
        self.client.ask("create", topics=named)

    def produce(
        self, topic: str, sets: int, *, keys: int = 1 << 30, ends: str = "", keep: str = "", **settings: Any
    ) -> int:
        """That many record sets; the count of the records. The last transaction ends as the last word says."""
        groups = [records(self.rng, keys=keys) for _ in range(sets)]
        asked: dict[str, Any] = {"topic": topic, "settings": settings or PLAIN, "groups": groups}
        if ends:
            *words, last = ends.split()
            asked["ends"] = [self.rng.choice(words) for _ in groups[1:]] + [last]
        if keep:
            asked["keep"] = keep
        sent = self.client.ask("produce", **asked)["sends"]
        assert all("offset" in each for each in sent)
        return len(sent)

    def follow(self, topic: str, into: Path | None = None) -> dict[str, Any]:
        """`kts follow --once`; what it says of the only partition."""
        settings = [f"--config={key}={value}" for key, value in SMALL.items()] if self.legacy else []
        command = [
            "follow",
            "--bootstrap-server",
            self.broker.bootstrap,
            "--topic",
            topic,
            "--once",
            "--json",
            *settings,
        ]
        (said,) = lines(*command, into or self.copies)
        return said

    def copy(self, topic: str) -> Path:
        return self.copies / f"{topic}-0"

    def delete_records(self, topic: str, offset: int) -> None:
        with Wire(self.broker.bootstrap) as wire:
            broker = wire.any_broker()
            partitions = [{"partition_index": 0, "offset": offset}]
            body = {"topics": [{"name": topic, "partitions": partitions}], "timeout_ms": 10_000}
            answer = broker.ask(ApiKey.DELETE_RECORDS, broker.version(ApiKey.DELETE_RECORDS), body)
            assert answer["topics"][0]["partitions"][0]["error_code"] == 0

    def cleaned_to(self, topic: str) -> int:
        """The offset up to which the cleaner went through the topic."""
        found = read_checkpoint(str(self.broker.data / "cleaner-offset-checkpoint")) or {}
        return found.get((topic, 0), 0)

    def active_base(self, topic: str) -> int:
        return max(int(path.stem) for path in self.broker.partition(topic).glob("*.log"))

    def log(self, topic: str) -> kts.Log:
        """kts at a stopped broker's partition."""
        generation = "0.10.2" if self.legacy else "3.9"
        return kts.Log(self.broker.partition(topic), SMALL | {"retention.ms": -1}, generation=generation)


@dataclass
class Told:
    """What `kts follow` said, by topic, and what is known of the leader's records."""

    first: dict[str, dict[str, Any]] = field(default_factory=dict)
    later: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    theirs: dict[str, dict[str, bytes]] = field(default_factory=dict)  # the leader's files by topic, as it closed them
    cut_at: int = -1
    fresh: dict[str, Any] = field(default_factory=dict)


def tell(leader: Leader) -> Told:
    """Everything that happens to a leader; at the end it is stopped, and the copies are closed."""
    told = Told()
    compacted = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0.01, "segment.bytes": 3000}
    append_time = {**SMALL, "message.timestamp.type": "LogAppendTime"}
    leader.broker.start()
    leader.create(plain=SMALL, append_time=append_time, compacted={**SMALL, **compacted}, growing=SMALL, other=SMALL)
    for codec in (*CODECS, *(() if leader.legacy else ("zstd",))):
        leader.produce("plain", 12, **PLAIN | {"compression.type": codec})
        leader.produce("compacted", 20, keys=20, **PLAIN | {"compression.type": codec})
    leader.produce("append-time", 20, **PLAIN | {"compression.type": "lz4"})
    leader.produce("growing", 10)
    leader.produce("other", 30)
    topics = ["plain", "append-time", "growing", "other"]
    if not leader.legacy:
        leader.create(transactions=SMALL, deleted=SMALL, idempotent=SMALL)
        transactional = {"transactional.id": "t", "transaction.timeout.ms": "600000"}
        leader.produce("transactions", 30, ends="commit abort open", keep="one", **transactional)
        leader.produce("idempotent", 20, keep="two", **{"compression.type": "zstd"})
        leader.produce("deleted", 100)  # half of which is more than a segment, whatever chance makes of it
        topics += ["transactions", "idempotent", "deleted"]
    for topic in topics:
        told.first[topic] = leader.follow(topic)
    told.later["growing"] = []
    for _ in range(3):
        leader.produce("growing", 10)
        told.later["growing"].append(leader.follow("growing"))
    if not leader.legacy:
        leader.produce("deleted", 5)
        leader.delete_records("deleted", told.first["deleted"]["logEndOffset"] // 2)
        told.later["deleted"] = [leader.follow("deleted")]
        told.fresh = leader.follow("deleted", into=leader.fresh)
    wait_until("the cleaner is done", lambda: leader.cleaned_to("compacted") == leader.active_base("compacted"))
    told.first["compacted"] = leader.follow("compacted")
    leader.broker.stop()
    told.theirs = {topic: files(leader.broker.partition(topic)) for topic in told.first}
    with leader.log("other") as log:
        told.cut_at = log.log_end_offset // 2
        log.truncate_to(told.cut_at)
    leader.broker.start()
    leader.produce("other", 40)
    told.later["other"] = [leader.follow("other"), leader.follow("other")]
    leader.broker.stop()
    told.theirs["other"] = files(leader.broker.partition("other"))
    return told


def files(directory: Path) -> dict[str, bytes]:
    """A partition's files by name."""
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir())}


def logs(of: dict[str, bytes]) -> dict[str, bytes]:
    """Those that hold records."""
    return {name: data for name, data in of.items() if name.endswith(".log")}


def log_bytes(of: dict[str, bytes]) -> bytes:
    """All records as they lie."""
    return b"".join(logs(of).values())
