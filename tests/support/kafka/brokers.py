"""Real Kafka brokers and clients as processes that a test starts, asks, stops and kills, on ports that are free then.

`Broker.start` leaves a log of its own behind each time; `Broker.said` are its lines. Every process dies with the test.
"""

from __future__ import annotations

import contextlib
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Self

import pytest
from support.golden import PATIENCE_S
from support.kafka.java_loop import JavaLoop
from support.kafka.jvm import JAVA, JavaProcess, Jvm, one_at_a_time

FOLDER = JAVA / "brokers"
CLIENT = "3.9.2"  # whose clients talk to every broker from 0.10.1 on
OPTIONS = ["-Xmx512m", "-Dlog4j1.compatibility=true"]
READY = re.compile(r"kafka\.server\.KafkaServer: .* started$|Kafka Server started|binding to port", re.MULTILINE)
LOGGING = """\
log4j.rootLogger=INFO, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%p %c: %m%n
"""
# What is for every broker: it deletes nothing by itself.
SETTINGS = {
    "log.retention.ms": -1,
    "log.retention.check.interval.ms": 3_600_000,
    "offsets.topic.num.partitions": 1,
    "offsets.topic.replication.factor": 1,
    "log.cleaner.dedupe.buffer.size": 4_194_304,
    "num.io.threads": 2,
    "num.network.threads": 2,
    "auto.create.topics.enable": "false",
}
# For a broker that is never killed: a machine that is busy for some seconds does not take its leaderships from it.
STEADY = {"broker.session.timeout.ms": 60_000, "zookeeper.session.timeout.ms": 10_000}
KRAFT = {
    "broker.session.timeout.ms": 2000,  # until then a broker that stopped is taken for one that runs
    "broker.heartbeat.interval.ms": 300,
    "transaction.state.log.num.partitions": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
}


@cache
def jvm(version: str) -> Jvm:
    """Java with a broker's jars."""
    return Jvm(FOLDER / f"broker-{version}.xml")


@cache
def formatted(version: str) -> Path:
    """A log directory as `kafka-storage format` leaves it, for copies."""
    java = jvm(version)
    whole = java.folder / "formatted"
    with one_at_a_time():
        if not whole.exists():
            with tempfile.TemporaryDirectory(dir=java.folder) as folder:
                settings = {
                    "process.roles": "broker,controller",
                    "node.id": 1,
                    "controller.listener.names": "CONTROLLER",
                }
                settings |= {"listeners": "PLAINTEXT://:1,CONTROLLER://:2", "controller.quorum.voters": "1@localhost:2"}
                given = write_properties(Path(folder, "server.properties"), {"log.dirs": f"{folder}/data", **settings})
                java.run("kafka.tools.StorageTool", "format", "-t", "AAAAAAAAQACAAAAAAAAAAA", "-c", given)
                Path(folder, "data").rename(whole)
    return whole


def free_ports(count: int) -> list[int]:
    """Ports of this machine that nobody listens on, below those that systems give to clients: a client that waits for
    a stopped broker to come back could else be given the broker's own."""
    found: list[int] = []
    with contextlib.ExitStack() as stack:
        for port in random.SystemRandom().sample(range(20_000, 32_000), 1000):
            each = stack.enter_context(socket.socket())
            with contextlib.suppress(OSError):
                each.bind(("127.0.0.1", port))
                found.append(port)
            if len(found) == count:
                return found
    raise RuntimeError(f"of {count} ports only {len(found)} are free")


def write_properties(path: Path, settings: Mapping[str, object]) -> Path:
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()), encoding="utf-8")
    return path


class Server:
    """A server in Java whose output goes to `log`; it ends with this process, whatever ends that."""

    def __init__(self, version: str, log: Path, main: str, properties: Path) -> None:
        self.log = log
        logging = log.with_name("log4j.properties")
        logging.write_text(LOGGING, encoding="utf-8")
        options = [*OPTIONS, f"-Dlog4j.configuration=file:{logging}"]
        with log.open("wb") as out:
            self.process = JavaProcess(
                jvm(version), main, properties, options=options, cwd=log.parent, stdout=out, stderr=subprocess.STDOUT
            )

    def text(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    def wait_until_ready(self) -> None:
        until = time.monotonic() + PATIENCE_S
        while not READY.search(self.text()):
            if self.process.poll() is not None or time.monotonic() > until:
                ended = self.process.poll()
                self.kill()
                pytest.fail(f"{self.log} never says that it is ready (ended with {ended}):\n{self.text()[-6000:]}")
            time.sleep(0.02)

    def stop(self) -> None:
        """SIGTERM, and wait: a broker closes its logs then."""
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.kill()
            pytest.fail(f"{self.log} does not stop:\n{self.text()[-6000:]}")

    def kill(self) -> None:
        """SIGKILL, and wait."""
        self.process.kill()
        self.process.wait()


class Broker:
    """One broker, with its own ZooKeeper or as its own controller, that keeps its data in `data` over starts.

    Parameters
    ----------
    version : a name of tests/java/brokers/broker-VERSION.xml
    folder : where everything lies that it writes
    settings : more of the broker's own, or others
    """

    def __init__(self, version: str, folder: Path, settings: Mapping[str, object] | None = None) -> None:
        self.version = version
        self.folder = folder
        self.data = folder / "data"
        self.starts = 0
        self.process: Server | None = None
        self.zookeeper: Server | None = None
        self.has_zookeeper = version.startswith("0.")
        port, other = free_ports(2)
        self.bootstrap = f"127.0.0.1:{port}"
        made = {"listeners": f"PLAINTEXT://{self.bootstrap}", "log.dirs": self.data, **SETTINGS}
        if self.has_zookeeper:
            zookeeper = {"dataDir": folder / "zookeeper", "clientPort": other, "clientPortAddress": "127.0.0.1"}
            # A killed broker's name is free again when its session is over.
            zookeeper |= {"maxClientCnxns": 0, "tickTime": 500}
            made |= {"broker.id": 0, "zookeeper.connect": f"127.0.0.1:{other}"}
            made |= {"zookeeper.session.timeout.ms": 2500}
            write_properties(folder / "zookeeper.properties", zookeeper)
        else:
            voter = f"127.0.0.1:{other}"
            made["listeners"] += f",CONTROLLER://{voter}"
            made |= {"process.roles": "broker,controller", "node.id": 1, "controller.listener.names": "CONTROLLER"}
            made |= {"controller.quorum.voters": f"1@{voter}", **KRAFT}
            made |= {"advertised.listeners": f"PLAINTEXT://{self.bootstrap}"}
        self.properties = write_properties(folder / "server.properties", made | dict(settings or {}))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in (self.process, self.zookeeper):
            if process is not None:
                process.kill()

    def start(self) -> None:
        """Start it, and wait until it serves clients."""
        if self.has_zookeeper and self.zookeeper is None:
            main = "org.apache.zookeeper.server.ZooKeeperServerMain"
            log = self.folder / "zookeeper.log"
            self.zookeeper = Server(self.version, log, main, self.folder / "zookeeper.properties")
            self.zookeeper.wait_until_ready()
        if not self.has_zookeeper and not self.data.exists():
            shutil.copytree(formatted(self.version), self.data)
        self._launch().wait_until_ready()

    def _launch(self) -> Server:
        self.starts += 1
        log = self.folder / f"broker-{self.starts}.log"
        self.process = Server(self.version, log, "kafka.Kafka", self.properties)
        return self.process

    def start_in_vain(self) -> list[str]:
        """What it says when it has to give up at its start."""
        process = self._launch()
        try:
            process.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            pytest.fail(f"{process.log} does not give up:\n{process.text()[-6000:]}")
        self.process = None
        return self.said()

    def stop(self) -> None:
        """Stop it cleanly."""
        self._running().stop()
        self.process = None

    def kill(self) -> None:
        """SIGKILL it; with ZooKeeper, wait until its name is free again."""
        self._running().kill()
        self.process = None
        if self.zookeeper is not None:
            until = time.monotonic() + PATIENCE_S
            while "Expiring session" not in self.zookeeper.text():
                if time.monotonic() > until:
                    pytest.fail(f"the session of the killed broker does not expire:\n{self.zookeeper.text()[-6000:]}")
                time.sleep(0.1)

    def _running(self) -> Server:
        if self.process is None:
            raise RuntimeError(f"the broker {self.version} does not run")
        return self.process

    def said(self) -> list[str]:
        """The lines of its latest start."""
        log = self.folder / f"broker-{self.starts}.log"
        return log.read_text(encoding="utf-8", errors="replace").splitlines()

    def partition(self, topic: str) -> Path:
        """The directory of the topic's only partition."""
        return self.data / f"{topic}-0"


@cache
def client() -> JavaLoop:
    """`java/brokers/BrokerClient.java`, for all brokers of this process."""
    java = Jvm(FOLDER / f"broker-{CLIENT}.xml", FOLDER / "BrokerClient.java")
    logging = java.folder / "client-log4j.properties"
    quiet = LOGGING.replace("INFO", "WARN") + "log4j.appender.out.target=System.err\n"
    logging.write_text(quiet, encoding="utf-8")
    return JavaLoop(java, "BrokerClient", options=[*OPTIONS, f"-Dlog4j.configuration=file:{logging}"])


class Client:
    """Kafka's own admin, producer and consumer for one broker."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.ask("forget")

    def ask(self, do: str, **asked: object) -> dict[str, Any]:
        """Its answer to one command; a failure there is a failure here."""
        answer = client().ask(do, bootstrap=self.bootstrap, **asked)
        if "error" in answer:
            pytest.fail(f"the Java client could not {do}: {answer['error']}\n{client().said()}")
        return answer


@contextlib.contextmanager
def kafka(version: str, folder: Path) -> Iterator[tuple[Broker, Client]]:
    """A broker that has not started yet, and a client for it."""
    folder.mkdir(parents=True, exist_ok=True)
    with Broker(version, folder) as broker, Client(broker.bootstrap) as client:
        yield broker, client
