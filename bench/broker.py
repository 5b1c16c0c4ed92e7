"""A real Kafka broker on this machine, and the jars of Kafka that Maven finds."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from .java import ROOT, tool

HERE = Path(__file__).parent
BUILD = ROOT / "build" / "bench"
START_SECONDS = 120.0
# Those of Kafka's own scripts.
JVM = "-server -XX:+UseG1GC -XX:MaxGCPauseMillis=20 -XX:InitiatingHeapOccupancyPercent=35 -XX:MaxInlineLevel=15".split()
SETTINGS = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{broker}
controller.listener.names=CONTROLLER
log.dirs={data}
log.retention.ms=-1
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
"""


class NotHere(Exception):
    """What a part of the benchmark needs and this machine has not; the text says what."""


def class_path(pom: Path) -> str:
    """The jars that a pom names, through Maven; kept until the pom changes.

    Raises
    ------
    NotHere
        Without a JDK or Maven, or where Maven cannot get them.
    """
    if not all(shutil.which(name) for name in (tool("java"), tool("javac"), "mvn")):
        raise NotHere("a JDK 17 and Maven")
    BUILD.mkdir(parents=True, exist_ok=True)
    answer = BUILD / f"{pom.stem}.class-path"
    if not answer.exists() or answer.stat().st_mtime < pom.stat().st_mtime:
        fresh = answer.with_suffix(".part")
        command = ["mvn", "-q", "-B", "-f", str(pom), "dependency:build-classpath", f"-Dmdep.outputFile={fresh}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise NotHere(f"the jars that {pom.name} names, which Maven could not get: {done.stdout[:300].strip()}")
        fresh.replace(answer)
    return answer.read_text(encoding="utf-8").strip()


def kafka_java(*arguments: str, heap: str = "256m") -> list[str]:
    """The command that runs a class of Kafka 3.9.2 as Kafka's scripts do."""
    return [tool("java"), f"-Xmx{heap}", *JVM, "-cp", class_path(HERE / "broker-pom.xml"), *arguments]


@dataclass(frozen=True)
class Broker:
    """A broker that runs: where clients connect, its log directory, its process."""

    address: str
    data: Path
    process: int


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]
    finally:
        for one in sockets:
            one.close()


@contextmanager
def running_broker() -> Iterator[Broker]:
    """A single-node broker with its data in a temporary directory; it is gone afterwards."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        client, controller = free_ports(2)
        settings, said, data = folder / "server.properties", folder / "broker.out", folder / "data"
        settings.write_text(SETTINGS.format(broker=client, controller=controller, data=data), encoding="utf-8")
        log4j = folder / "log4j.properties"
        log4j.write_text(
            "log4j.rootLogger=INFO, out\nlog4j.appender.out=org.apache.log4j.ConsoleAppender\n"
            "log4j.appender.out.layout=org.apache.log4j.PatternLayout\n",
            encoding="utf-8",
        )
        logging = f"-Dlog4j.configuration=file:{log4j}"
        form = ["format", "-t", "AAAAAAAAQACAAAAAAAAAAA", "-c", str(settings)]
        subprocess.run(kafka_java(logging, "kafka.tools.StorageTool", *form), check=True, capture_output=True)
        command = kafka_java(logging, "kafka.Kafka", str(settings), heap="1g")
        with said.open("wb") as out, subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT) as process:
            try:
                deadline = time.monotonic() + START_SECONDS
                while b"Kafka Server started" not in said.read_bytes():
                    if process.poll() is not None or time.monotonic() > deadline:
                        raise RuntimeError(f"the broker did not start:\n{said.read_text(errors='replace')[-3000:]}")
                    time.sleep(0.1)
                yield Broker(f"127.0.0.1:{client}", data, process.pid)
            finally:
                process.terminate()
