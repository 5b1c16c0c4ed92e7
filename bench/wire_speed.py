"""A broker's speed on the wire: kts serve beside a real single broker, through the same clients, in one run."""

from __future__ import annotations

import itertools
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from .broker import HERE, Broker, NotHere, class_path, running_broker
from .java import ROOT
from .table import Report, all_cores, medians
from .wire_clients import (
    RECORD_BYTES,
    JavaTools,
    KafkaPython,
    Librdkafka,
    RawSocket,
    cpu_seconds_of,
    create_topic,
    read_all,
    write_messages,
)

OURS, THEIRS = "kts", "Kafka 3.9.2"
MB = 1e6
READ, SMALL = "read", "small"
Client = type[KafkaPython] | type[Librdkafka] | type[JavaTools]
_numbers = itertools.count()


@contextmanager
def running_kts(data: Path) -> Iterator[Broker]:
    """`kts serve` over a directory."""
    command = [sys.executable, "-m", "kts.cli", "serve", str(data), "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            if process.stdout is None or not (line := process.stdout.readline().strip()):
                raise RuntimeError("kts serve did not start")
            yield Broker(line, data, process.pid)
        finally:
            process.terminate()


def run(report: Report, total_bytes: int, rounds: int) -> None:
    """Produce and fetch as many bytes with each client, then small requests one by one."""
    records = max(1000, total_bytes // RECORD_BYTES)
    clients: dict[str, Client] = {"kafka-python": KafkaPython, "librdkafka": Librdkafka}
    with all_cores(), ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        old_messages(report, folder / "old", total_bytes, rounds)
        brokers = {OURS: stack.enter_context(running_kts(folder / "new"))}
        try:
            class_path(HERE / "tools-pom.xml")
            brokers[THEIRS] = stack.enter_context(running_broker())
            clients["Kafka's Java tools"] = JavaTools
        except NotHere as missing:
            report.text(f"Kafka's own broker and its tools are left out: they need {missing}.")
        for broker in brokers.values():
            create_topic(broker.address, READ)
            Librdkafka.produce(broker.address, READ, records)
        rows = [streaming(report, name, client, brokers, records, rounds) for name, client in clients.items()]
        title = (
            f"A broker on the wire, {records * RECORD_BYTES / MB:.0f} MB of {RECORD_BYTES:,} B records, one partition"
        )
        header = [f"{what}, {name} MB/s" for what in ("produce", "fetch") for name in (OURS, THEIRS)]
        header = ["client", *header[:2], "of Kafka", *header[2:], "of Kafka"]
        report.table(title, header, rows)
        small_requests(report, brokers, max(100, records // 20), rounds)
    report.text("The clients are as they come; Java's start and its group's forming are not counted. Clock time.")


def old_messages(report: Report, data: Path, total_bytes: int, rounds: int) -> None:
    """What it costs the broker to send messages of magic 0 and 1 to clients of every age."""
    versions = {f"v{magic}-fetch-{version}": version for magic in (0, 1) for version in range(5)}
    for topic in versions:
        write_messages(data / f"{topic}-0", int(topic[1]), total_bytes)
    write_messages(data / "any-0", 1, RECORD_BYTES)
    cpu: dict[tuple[str, bool], list[float]] = {(topic, again): [] for topic in versions for again in (False, True)}
    for number in range(rounds):
        report.progress(f"messages of magic 0 and 1, round {number + 1} of {rounds}")
        with running_kts(data) as broker:
            for version in range(5):
                read_all(broker.address, "any", version)
            for again in (False, True, True, True):
                for topic, version in random.sample(list(versions.items()), len(versions)):
                    before = cpu_seconds_of(broker.process)
                    mib = read_all(broker.address, topic, version) / 2**20
                    cpu[topic, again].append((cpu_seconds_of(broker.process) - before) / mib * 1e6)
    costs = {which: statistics.median(taken) for which, taken in cpu.items()}
    rows = []
    for topic, version in versions.items():
        row = [f"v{topic[1]}", f"{version}{', converted' if version < 2 and topic[1] == '1' else ''}"]
        for again in (False, True):
            paired = zip(cpu[topic, again], cpu[f"{topic[:-1]}4", again], strict=True)
            ratio = statistics.median(cost / newest for cost, newest in paired)
            row += [f"{costs[topic, again]:.0f}", f"{ratio:.2f}x"]
        rows.append(row)
    header = ["messages", "Fetch", "first after a clean stop, CPU us a MiB", "of Fetch 4", "again", "of Fetch 4"]
    report.table("Messages of magic 0 and 1 from kts, in answers of 1 MiB", header, rows)


def streaming(
    report: Report, name: str, client: Client, brokers: dict[str, Broker], records: int, rounds: int
) -> list[str]:
    """A client's row: MB/s at each broker, and the ratio, produced and fetched."""
    row = [name]
    report.progress(name)

    def produced(address: str) -> float:
        topic = f"written-{next(_numbers)}"
        create_topic(address, topic)
        return client.produce(address, topic, records)

    for work in (produced, lambda address: client.fetch(address, READ, records)):
        found = medians({each: lambda at=one.address: work(at) for each, one in brokers.items()}, rounds)  # noqa: B023
        rates = {each: records * RECORD_BYTES / MB / seconds for each, seconds in found.items()}
        row += against(rates, ".1f")
    return row


def against(rates: dict[str, float], shape: str) -> list[str]:
    """Our figure, Kafka's and the share of it, where it is there."""
    theirs = rates.get(THEIRS)
    share = ["-", "-"] if theirs is None else [format(theirs, shape), f"{rates[OURS] / theirs:.2f}x"]
    return [format(rates[OURS], shape), *share]


def small_requests(report: Report, brokers: dict[str, Broker], count: int, rounds: int) -> None:
    """What one small request costs: requests a second of one connection, and the broker's CPU."""
    rows = []
    for broker in brokers.values():
        create_topic(broker.address, SMALL)
    sockets = {name: RawSocket(broker.address, SMALL) for name, broker in brokers.items()}
    for request in sockets[OURS].requests:
        cpu: dict[str, list[float]] = {name: [] for name in brokers}

        def once(name: str, request: str = request, cpu: dict[str, list[float]] = cpu) -> float:
            before = cpu_seconds_of(brokers[name].process)
            seconds = sockets[name].loop(request, count)()
            cpu[name].append(cpu_seconds_of(brokers[name].process) - before)
            return seconds

        found = medians({name: lambda name=name: once(name) for name in brokers}, rounds)  # type: ignore[misc]
        rates = {name: count / seconds for name, seconds in found.items()}
        costs = {name: statistics.median(taken) / count * 1e6 for name, taken in cpu.items()}
        rows.append([request, *against(rates, ",.0f"), *against(costs, ".0f")])
    header = ["request", f"{OURS} /s", f"{THEIRS} /s", "of Kafka", f"{OURS} CPU us", f"{THEIRS} CPU us", "of Kafka"]
    report.table("One small request after the other, one connection", header, rows)
