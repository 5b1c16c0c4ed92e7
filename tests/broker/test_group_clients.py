"""Consumer groups of real clients at a served directory."""

from __future__ import annotations

from pathlib import Path

import confluent_kafka
import kafka
import kafka.errors
import pyarrow as pa
import pytest
from support.clients.group_members import LIBRARIES, GroupMember, joined
from support.waiting import wait_until

import kts
from kts.broker.broker import Broker
from kts.server.server import ServerThread

PARTITIONS = 4
# Five seconds each in kafka-python, whose polls must be long; see KafkaPython.
EACH = [pytest.param(name, marks=pytest.mark.slow if name == "kafka-python" else ()) for name in LIBRARIES]


class Served:
    """A broker on a directory, that can be stopped and started again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.sent = 0
        self.start()

    def start(self) -> None:
        self.broker = Broker(self.folder)
        self.thread = ServerThread(self.broker)
        host, port = self.thread.start()
        self.bootstrap = f"{host}:{port}"
        if self.broker.topics.get("t") is None:
            self.broker.topics.create("t", PARTITIONS, {})

    def stop(self) -> None:
        self.thread.stop()
        self.broker.close()

    def send(self, count: int) -> list[bytes]:
        """So many records to each partition."""
        topic = self.broker.topics.get("t")
        assert topic is not None
        every = []
        for index, partition in topic.partitions.items():
            values = [f"{index}:{self.sent + number}".encode() for number in range(count)]
            partition.append(kts.encode({"value": pa.array(values, pa.binary())}))
            every += values
        self.sent += count
        return sorted(every)


@pytest.fixture
def served(tmp_path: Path):  # type: ignore[no-untyped-def]
    found = Served(tmp_path / "data")
    yield found
    found.stop()


def values(*members: GroupMember) -> list[bytes]:
    return sorted(value for member in members for _, _, value in list(member.records))


@pytest.mark.slow
@pytest.mark.parametrize("library", EACH)
def test_two_members_share_partitions_and_commits_survive_a_restart(served: Served, library: str) -> None:
    make = LIBRARIES[library]
    first, second = make(served.bootstrap, "g", "t"), make(served.bootstrap, "g", "t")
    with joined(first, second):
        wait_until("both have their part", lambda: len(first.assigned) == len(second.assigned) == 2)
        assert not first.assigned & second.assigned
        sent = served.send(100)
        wait_until("all is read", lambda: len(values(first, second)) >= len(sent))
        assert values(first, second) == sent
        for member in (first, second):
            assert {partition for partition, _, _ in member.records} == member.assigned
        second.leave()
        more = served.send(10)
        wait_until("the other takes over", lambda: len(values(first, second)) >= len(sent) + len(more))
        assert values(first, second) == sorted(sent + more)
        first.leave()
    assert served.broker.coordinator.fetch("g", None)["t", 0].offset == 110
    served.stop()
    served.start()
    last = served.send(1)
    third = make(served.bootstrap, "g", "t")
    with joined(third):
        wait_until("the rest is read", lambda: len(values(third)) >= len(last))
        assert values(third) == last
        third.leave()


@pytest.mark.slow
@pytest.mark.parametrize("library", EACH)
def test_a_static_member_that_comes_back_disturbs_nobody(served: Served, library: str) -> None:
    make = LIBRARIES[library]
    first, second = make(served.bootstrap, "g", "t", "one"), make(served.bootstrap, "g", "t", "two")
    with joined(first, second):
        wait_until("both have their part", lambda: len(first.assigned) == len(second.assigned) == 2)
        group = served.broker.coordinator.group("g")
        assert group is not None
        assert set(group.static) == {"one", "two"}
        before = group.generation_id, second.assigned
        second.leave()
        again = make(served.bootstrap, "g", "t", "two")
        with joined(again):
            wait_until("it has its part again", lambda: again.assigned == before[1])
            if library != "aiokafka":  # which leaves also as a static member
                assert group.generation_id == before[0]
            again.leave()
        first.leave()


def test_librdkafkas_transactions_are_refused_at_once(served: Served) -> None:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": served.bootstrap, "transactional.id": "x", "log_level": 0}
    )
    with pytest.raises(confluent_kafka.KafkaException) as refused:
        producer.init_transactions(30)
    assert refused.value.args[0].code() == confluent_kafka.KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


@pytest.mark.slow
def test_kafka_pythons_transactions_are_refused_at_once(served: Served) -> None:
    producer = kafka.KafkaProducer(bootstrap_servers=served.bootstrap, transactional_id="x")
    try:
        with pytest.raises(kafka.errors.TransactionalIdAuthorizationFailedError):
            producer.init_transactions()
    finally:
        producer.close(timeout=5)
