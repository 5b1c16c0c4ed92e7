"""What the clients of the wire benchmark do: each function gives the seconds that its work took."""

from __future__ import annotations

import re
import socket
import struct
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import confluent_kafka
import kafka
import pyarrow as pa
from confluent_kafka.admin import AdminClient, NewTopic

import kts
from kts.arguments import parse_address
from kts.broker import wire
from kts.broker.wire.messages import ApiKey
from kts.replica.client import Connection

from .broker import JVM, class_path
from .java import tool

HERE = Path(__file__).parent
RECORD_BYTES, SMALL_BYTES = 1000, 100
QUIET = {"log_level": 0}


def create_topic(address: str, topic: str) -> None:
    """A topic of one partition."""
    admin = AdminClient({"bootstrap.servers": address, **QUIET})
    for future in admin.create_topics([NewTopic(topic, 1, 1)]).values():
        future.result()


class KafkaPython:
    """kafka-python, as it comes."""

    @staticmethod
    def produce(address: str, topic: str, records: int) -> float:
        """Until all are acknowledged."""
        producer, value = kafka.KafkaProducer(bootstrap_servers=address), bytes(RECORD_BYTES)
        producer.partitions_for(topic)
        start = time.perf_counter()
        for _ in range(records):
            producer.send(topic, value)
        producer.flush()
        taken = time.perf_counter() - start
        producer.close()
        return taken

    @staticmethod
    def fetch(address: str, topic: str, records: int) -> float:
        """Until all were given out."""
        consumer = kafka.KafkaConsumer(bootstrap_servers=address, auto_offset_reset="earliest", group_id=None)
        consumer.assign([kafka.TopicPartition(topic, 0)])
        consumer.position(kafka.TopicPartition(topic, 0))
        start, found = time.perf_counter(), 0
        while found < records:
            found += sum(map(len, consumer.poll(1000, max_records=records).values()))
        taken = time.perf_counter() - start
        consumer.close()
        return taken


class Librdkafka:
    """confluent-kafka, as it comes."""

    @staticmethod
    def produce(address: str, topic: str, records: int) -> float:
        """Until all are acknowledged."""
        producer, value = confluent_kafka.Producer({"bootstrap.servers": address, **QUIET}), bytes(RECORD_BYTES)
        producer.list_topics(topic)
        start = time.perf_counter()
        for _ in range(records):
            while True:
                try:
                    producer.produce(topic, value, partition=0)
                    break
                except BufferError:
                    producer.poll(0.01)
        if producer.flush(60):
            raise RuntimeError("librdkafka did not get all records acknowledged")
        return time.perf_counter() - start

    @staticmethod
    def fetch(address: str, topic: str, records: int) -> float:
        """Until all were given out."""
        settings = {"bootstrap.servers": address, "group.id": "bench", "enable.auto.commit": False, **QUIET}
        consumer = confluent_kafka.Consumer(settings)
        consumer.list_topics(topic)
        start, found = time.perf_counter(), 0
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        while found < records:
            found += len(consumer.consume(min(1000, records - found), 1.0))
        taken = time.perf_counter() - start
        consumer.close()
        return taken


class JavaTools:
    """Kafka's own performance tools, as they come; what they print is believed."""

    @staticmethod
    def _run(*arguments: object) -> str:
        jars = class_path(HERE / "tools-pom.xml")
        command = [tool("java"), "-Xmx512m", *JVM, "-cp", jars, *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{arguments[0]} failed:\n{done.stdout[-1000:]}{done.stderr[-2000:]}")
        return done.stdout

    @classmethod
    def produce(cls, address: str, topic: str, records: int) -> float:
        """Until all are acknowledged."""
        sizes = ["--num-records", records, "--record-size", RECORD_BYTES, "--throughput", -1]
        props = ["--producer-props", f"bootstrap.servers={address}"]
        said = cls._run("org.apache.kafka.tools.ProducerPerformance", "--topic", topic, *sizes, *props)
        rate = re.findall(r"([0-9.,]+) records/sec", said.splitlines()[-1])
        return records / float(rate[0].replace(",", "."))

    @classmethod
    def fetch(cls, address: str, topic: str, records: int) -> float:
        """Until all were given out, without what its group takes to form."""
        asked = ["--bootstrap-server", address, "--topic", topic, "--messages", records, "--timeout", 60_000]
        said = cls._run("org.apache.kafka.tools.ConsumerPerformance", *asked)
        header, values = (line.split(", ") for line in said.strip().splitlines()[-2:])
        found = dict(zip(header, values, strict=True))
        return records / float(found["fetch.nMsg.sec"])


class RawSocket:
    """One connection, one small request at a time."""

    def __init__(self, address: str, topic: str) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        value = pa.array([bytes(SMALL_BYTES)], pa.binary())
        batch = kts.encode(pa.table({"timestamp": pa.array([time.time_ns() // 1_000_000]), "value": value}))
        written = [{"name": topic, "partition_data": [{"index": 0, "records": batch}]}]
        read = [{"topic": topic, "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 100}]}]
        latest = [{"name": topic, "partitions": [{"partition_index": 0, "timestamp": -1}]}]
        bodies: dict[str, tuple[ApiKey, int, dict[str, Any]]] = {
            "ApiVersions": (ApiKey.API_VERSIONS, 0, {}),
            "Metadata": (ApiKey.METADATA, 8, {"topics": [{"name": topic}]}),
            "Produce, 1 record": (ApiKey.PRODUCE, 8, {"acks": 1, "timeout_ms": 10_000, "topic_data": written}),
            "Fetch, 1 record": (ApiKey.FETCH, 10, {"max_wait_ms": 0, "max_bytes": 100, "topics": read}),
            "ListOffsets": (ApiKey.LIST_OFFSETS, 5, {"topics": latest}),
        }
        self.requests = {name: wire.encode_request(*one[:2], 1, "bench", one[2]) for name, one in bodies.items()}
        for name in ("Produce, 1 record", *bodies):
            api_key, version, _ = bodies[name]
            errors = re.findall(
                r"'error_code': (-?\d+)", str(wire.decode_response(api_key, version, self.ask(name))[1])
            )
            if not errors or any(map(int, errors)):
                raise RuntimeError(f"{name} was answered with errors {errors}")

    def ask(self, name: str) -> memoryview:
        """Send one, wait for its answer."""
        self.socket.sendall(self.requests[name])
        return memoryview(self._receive(*struct.unpack(">i", self._receive(4))))

    def _receive(self, count: int) -> bytes:
        data = self.socket.recv(count, socket.MSG_WAITALL)
        if len(data) != count:
            raise ConnectionError("the broker closed the connection")
        return data

    def loop(self, name: str, count: int) -> Callable[[], float]:
        """What asks so often and gives the seconds."""

        def once() -> float:
            start = time.perf_counter()
            for _ in range(count):
                self.ask(name)
            return time.perf_counter() - start

        return once


def write_messages(path: Path, magic: int, size: int) -> None:
    """A partition with so many bytes of uncompressed messages, in sets of 16 KiB."""
    rows = {"timestamp": [time.time_ns() // 1_000_000] * 16, "value": [bytes(RECORD_BYTES)] * 16}
    records = kts.encode(rows, magic=magic)
    with kts.Log(path, {"message.format.version": "0.9.0" if magic == 0 else "0.10.0"}) as log:
        while log.size_bytes < size:
            log.append(records)


def read_all(address: str, topic: str, version: int) -> int:
    """Read a topic's only partition with Fetch of a version, by 1 MiB. Returns the bytes of the records."""
    offset = size = 0
    with Connection(*parse_address(address)) as connection:
        while True:
            partition = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
            body = {"max_wait_ms": 0, "min_bytes": 0, "topics": [{"topic": topic, "partitions": [partition]}]}
            [found] = connection.ask(ApiKey.FETCH, version, body)["responses"][0]["partitions"]
            if found["error_code"]:
                raise RuntimeError(f"Fetch {version} of {topic} was answered with error {found['error_code']}")
            if not (records := found["records"]):
                return size
            offset = kts.scan_batches(records)["lastOffset"][-1].as_py() + 1
            size += len(records)


def cpu_seconds_of(process: int) -> float:
    """What all threads of a process have computed so far."""
    tasks = Path(f"/proc/{process}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9
