"""Where the clients' tests run: `kts serve` in a process of its own, and real brokers as the control."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from support.golden import PATIENCE_S
from support.kafka.brokers import STEADY, Broker
from support.processes.dying import DIES_TOO

FOREVER = {"retention.ms": "-1"}
NEWEST_SEGMENT_BYTES = "internal_segment_bytes"  # Kafka 4's name for sizes below 1 MiB


class Place:
    """A broker that runs, its log directory, its admin, and the setting that gives its topics small segments."""

    def __init__(self, name: str, bootstrap: str, data: Path, segment_bytes: str = "segment_bytes") -> None:
        from confluent_kafka.admin import AdminClient

        self.name, self.bootstrap, self.data, self.segment_bytes = name, bootstrap, data, segment_bytes
        self._admin: Any = AdminClient({"bootstrap.servers": bootstrap})

    @property
    def is_kts(self) -> bool:
        return self.name == "kts serve"

    def create(self, topic: str, partitions: int = 1, **configs: object) -> str:
        """A topic; of its settings `_` stands for the dot."""
        from confluent_kafka.admin import NewTopic

        config = FOREVER | {key.replace("_", "."): str(value) for key, value in configs.items()}
        for done in self._admin.create_topics([NewTopic(topic, partitions, 1, config=config)]).values():
            done.result(PATIENCE_S)
        return topic

    def delete_records(self, topic: str, before: int) -> None:
        """From partition 0 those before an offset."""
        from confluent_kafka import TopicPartition

        for done in self._admin.delete_records([TopicPartition(topic, 0, before)]).values():
            done.result(PATIENCE_S)


@contextlib.contextmanager
def real_broker(folder: Path, settings: Mapping[str, object] | None = None, version: str = "3.9.2") -> Iterator[Place]:
    """Apache Kafka 3.9.2 or 4.3.1."""
    folder.mkdir(parents=True, exist_ok=True)
    own = {"group.initial.rebalance.delay.ms": 0, "group.min.session.timeout.ms": 1000}
    with Broker(version, folder, STEADY | own | dict(settings or {})) as broker:
        broker.start()
        yield Place(f"Kafka {version}", broker.bootstrap, broker.data)


@contextlib.contextmanager
def old_broker(folder: Path) -> Iterator[Place]:
    """Apache Kafka 0.10.2.2, whose topics may have message.format.version 0.9.0 and 0.10.2."""
    folder.mkdir(parents=True, exist_ok=True)
    with Broker("0.10.2.2", folder, STEADY) as broker:
        broker.start()
        yield Place("Kafka 0.10.2.2", broker.bootstrap, broker.data)


@contextlib.contextmanager
def kts_serve(folder: Path, settings: Mapping[str, object] | None = None) -> Iterator[Place]:
    """`kts serve` as a user starts it; what it says on stderr is in `serve.log`."""
    data, log = folder / "data", folder / "serve.log"
    data.mkdir(parents=True)
    given = ["--config", "auto.create.topics.enable=false"]
    given += [word for key, value in (settings or {}).items() for word in ("--config", f"{key}={value}")]
    serve = [sys.executable, "-m", "kts.cli", "serve", str(data), "--listen", "127.0.0.1:0", *given]
    with log.open("wb") as said, subprocess.Popen([*DIES_TOO, *serve], stdout=subprocess.PIPE, stderr=said) as process:
        try:
            address = process.stdout.readline().decode().strip() if process.stdout else ""
            if not address:
                raise RuntimeError(f"kts serve does not start: {log.read_text(encoding='utf-8')}")
            yield Place("kts serve", address, data)
            process.terminate()
            if process.wait(PATIENCE_S):
                raise RuntimeError(f"kts serve ended with {process.returncode}: {log.read_text(encoding='utf-8')}")
        finally:
            process.kill()
    if "Traceback" in (said_all := log.read_text(encoding="utf-8")):
        raise RuntimeError(f"kts serve had an error of its own: {said_all[-3000:]}")


@contextlib.contextmanager
def newest_place(folder: Path) -> Iterator[Place]:
    """`kts serve --release 4.3`; or Apache Kafka 4.3.1: KTS_CLIENTS_AT=kafka."""
    real = os.environ.get("KTS_CLIENTS_AT") == "kafka"
    with newest_broker(folder) if real else kts_serve(folder, {"release": "4.3"}) as found:
        found.segment_bytes = NEWEST_SEGMENT_BYTES
        yield found


@contextlib.contextmanager
def newest_broker(folder: Path) -> Iterator[Place]:
    """Apache Kafka 4.3.1."""
    with real_broker(folder, version="4.3.1") as found:
        found.segment_bytes = NEWEST_SEGMENT_BYTES
        yield found


@contextlib.contextmanager
def place(folder: Path) -> Iterator[Place]:
    """`kts serve`; or, to see what Kafka does, the real broker: KTS_CLIENTS_AT=kafka."""
    at = real_broker if os.environ.get("KTS_CLIENTS_AT") == "kafka" else kts_serve
    with at(folder) as found:
        yield found
