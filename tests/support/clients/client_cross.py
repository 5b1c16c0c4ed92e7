"""What each client wrote, read by all: old consumers of new records and new ones of old, in every message format."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from support.clients.client_all import CODECS, NAMES, Clients
from support.clients.client_checks import on_disk, same
from support.clients.client_places import Place
from support.clients.client_records import APPEND, CREATE, NONE, Record, make
from support.clients.clients import Client

import kts

COUNT = 300
MAGIC = {"0.9.0": 0, "0.10.2": 1, "newest": 2}
OLD = ("Java 0.9.0.1", "Java 0.10.2.2")


def write(served: Place, client: Client, codecs: Sequence[str], version: str, rng: random.Random) -> str:
    """A topic in that format with records in each codec."""
    settings = {} if version == "newest" else {"message_format_version": version}
    topic = served.create("-".join([client.name.replace(" ", "-"), *codecs, version]), **settings)
    expected: list[Record] = []
    for codec in codecs:
        records = [client.sent(one) for one in make(rng, COUNT, text=client.takes_lines)]
        if version != "newest":
            records = [one._replace(headers=()) for one in records]
        sent = client.produce(served.bootstrap, topic, records, codec=codec)
        if client.tells:
            assert [one.offset for one in sent] == list(range(len(expected), len(expected) + COUNT))
        if client.sends_times and not client.tells_first_time:
            same([one.timestamp for one in sent], [one.timestamp for one in records], "times of RecordMetadata")
        expected += records
    check_stored(served, topic, expected, version, client.takes_lines)
    return topic


def check_stored(served: Place, topic: str, expected: list[Record], version: str, any_time: bool) -> None:
    """In magic 0 there are no times; a client that has none leaves -1, of type CreateTime; kcat's are the clock's."""
    stored = on_disk(served, topic)
    same([row[1:4] for row in stored], [(at, one.key, one.value) for at, one in enumerate(expected)], "stored")
    same([row.headers for row in stored], [one.headers for one in expected], "headers")
    magic = kts.scan(served.data, topics=[topic], columns=["magic"]).read_all()["magic"]
    assert set(magic.to_pylist()) == {MAGIC[version]}
    assert {row.timestamp_type for row in stored} == {NONE if version == "0.9.0" else CREATE}
    if version == "0.9.0":
        assert {row.timestamp for row in stored} == {-1}
    elif not any_time:
        times = [-1 if one.timestamp is None else one.timestamp for one in expected]
        same([row.timestamp for row in stored], times, "times")


def read_by_all(served: Place, clients: Clients, topic: str, magic: int = 2, readers: Sequence[str] = NAMES) -> None:
    stored = on_disk(served, topic)
    for name in readers:
        client = clients[name]
        same(client.consume(served.bootstrap, topic), [client.seen(row, magic) for row in stored], f"read by {name}")


class CrossReads:
    writers: tuple[str, ...]
    readers = NAMES
    versions: tuple[str, ...]

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        if "writer" in metafunc.fixturenames:
            metafunc.parametrize(("version", "writer"), [(v, w) for v in self.versions for w in self.writers])
        if "old" in metafunc.fixturenames:
            metafunc.parametrize("old", OLD)

    def test_every_consumer_reads_what_every_producer_wrote(
        self, served: Place, clients: Clients, writer: str, version: str, rng: random.Random
    ) -> None:
        codecs = [one for one in CODECS[writer] if one != "zstd"]  # which old consumers cannot read
        if version == "0.9.0":  # its broken frames of lz4 are not for all
            topic = write(served, clients[writer], ["lz4"], version, rng)
            readers = [one for one in self.readers if one != "aiokafka"]
            read_by_all(served, clients, topic, MAGIC[version], readers)
            codecs.remove("lz4")
        topic = write(served, clients[writer], codecs, version, rng)
        read_by_all(served, clients, topic, MAGIC[version], self.readers)


class NewestCrossReads(CrossReads):
    """With what only a broker of the newest format has."""

    def test_old_consumers_read_ten_thousand_records_of_the_newest_producer(
        self, served: Place, clients: Clients, old: str, rng: random.Random
    ) -> None:
        topic = served.create(f"many-for-{old.replace(' ', '-')}")
        records = make(rng, 10_000)
        for codec, part in zip(CODECS[old], (records[at : at + 2500] for at in range(0, 10_000, 2500)), strict=True):
            clients["Java 4.3.1"].produce(served.bootstrap, topic, part, codec=codec)
        stored = on_disk(served, topic)
        expected = [(at, one.key, one.value, one.timestamp) for at, one in enumerate(records)]
        same([row[1:5] for row in stored], expected, "stored")
        seen = [clients[old].seen(row) for row in stored]
        same(clients[old].consume(served.bootstrap, topic), seen, f"read by {old}")

    def test_every_consumer_sees_the_times_of_the_broker(
        self, served: Place, clients: Clients, rng: random.Random
    ) -> None:
        topic = served.create("appended", message_timestamp_type=APPEND)
        for codec in CODECS["Java 0.9.0.1"]:
            clients["Java 4.3.1"].produce(served.bootstrap, topic, make(rng, 50), codec=codec)
        assert {row.timestamp_type for row in on_disk(served, topic)} == {APPEND}
        read_by_all(served, clients, topic, MAGIC["newest"], self.readers)
