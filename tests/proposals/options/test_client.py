"""KIP-32's "ConsumerRecord / ProducerRecord format change" of options 1 to 3, over a socket; the mirror maker case."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.broker.option_replicas import TOPIC, Replica, replicas

from kts.errors import NotLeaderError, OffsetOutOfRangeError, UnsupportedForMessageFormatError
from kts.proposals.options import Consumer, ConsumerRecord, Producer, ProducerRecord, RecordMetadata

T0 = 1_500_000_000_000
MINUTE_MS = 60_000


@pytest.fixture(params=[1, 2, 3])
def one(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Replica]:
    """The leader of a partition of each option; its clock is 5 s behind T0."""
    with replicas(tmp_path, 1, option=request.param, start_ms=T0 - 5000) as [found]:
        found.lead()
        yield found


def test_a_consumer_record_has_the_times_that_its_option_exposes(one: Replica) -> None:
    create = None if one.option == 2 else T0
    with one.connect() as connection:
        records = [ProducerRecord(b"paid", b"k", create), ProducerRecord(None)]
        producer = Producer(connection, option=one.option, clock=lambda: T0 + 1)
        told = producer.send(TOPIC, records)
        found = Consumer(connection).fetch(TOPIC, 0)
    append = None if one.option == 3 else T0 - 5000  # option 3 hides LogAppendTime
    now = None if one.option == 2 else T0 + 1  # of a record without a CreateTime
    assert found == [
        ConsumerRecord(TOPIC, 0, 0, b"k", b"paid", create, append),
        ConsumerRecord(TOPIC, 0, 1, None, None, now, append),
    ]
    assert told == [RecordMetadata(TOPIC, 0, offset, append) for offset in (0, 1)]


@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4"])
def test_the_createtime_that_a_producer_sets_is_not_changed_in_a_compressed_set(one: Replica, compression: str) -> None:
    times = [None if one.option == 2 else T0 - number for number in range(50)]
    with one.connect() as connection:
        producer = Producer(connection, option=one.option, compression=compression)
        producer.send(TOPIC, [ProducerRecord(b"x" * number, None, time) for number, time in enumerate(times)])
        found = Consumer(connection).fetch(TOPIC, 17)  # inside of the wrapper
    assert [record.create_time_ms for record in found] == times[17:]
    assert [record.offset for record in found] == [*range(17, 50)]
    assert {record.log_append_time_ms for record in found} == {None if one.option == 3 else T0 - 5000}


def test_option_2_has_no_place_for_a_createtime(tmp_path: Path) -> None:
    with replicas(tmp_path, 1, option=2, start_ms=T0) as [one]:
        one.lead()
        with (
            one.connect() as connection,
            pytest.raises(UnsupportedForMessageFormatError, match="put it into the value"),
        ):
            Producer(connection, option=2).send(TOPIC, [ProducerRecord(b"paid", None, T0)])
        assert one.log.log_end_offset == 0


@pytest.mark.parametrize("option", [1, 2, 3])
def test_a_mirror_maker_keeps_createtime_and_the_target_overrides_logappendtime(tmp_path: Path, option: int) -> None:
    """T0 at the application, T1 at the first cluster, T2 at the second."""
    t1, t2 = T0 + 700, T0 + 700 + 90_000
    with (
        replicas(tmp_path / "1", 1, option=option, start_ms=t1) as [first],
        replicas(tmp_path / "2", 1, option=option, start_ms=t2) as [second],
    ):
        first.lead()
        second.lead()
        first.produce(3, create_time_ms=T0)
        with first.connect() as source, second.connect() as target:
            for record in Consumer(source).records(TOPIC):
                copied = ProducerRecord(record.value, record.key, record.create_time_ms)
                Producer(target, option=option).send(TOPIC, [copied])
            there, here = (list(Consumer(connection).records(TOPIC)) for connection in (source, target))
        times = [(one.create_time_ms, one.log_append_time_ms) for one in (there[0], here[0])]
        expected = {1: [(T0, t1), (T0, t2)], 2: [(None, t1), (None, t2)], 3: [(T0, None), (T0, None)]}
        assert times == expected[option]
        assert [one.value for one in there] == [one.value for one in here] == [b"0", b"1", b"2"]
        if option == 3:  # the brokers have them all the same
            assert [replica.log.index_entries()[0].append_ms for replica in (first, second)] == [t1, t2]


def test_the_offset_for_a_time_is_by_logappendtime(one: Replica) -> None:
    with one.connect() as connection:
        consumer = Consumer(connection)
        assert consumer.offset_for_time(TOPIC, T0) is None
        for _ in range(5):
            one.produce(2, create_time_ms=1)
            one.clock.now_ms += MINUTE_MS
        assert [consumer.offset_for_time(TOPIC, T0 - 5000 + n * MINUTE_MS) for n in (0, 1, 4, 5)] == [0, 2, 8, None]
        assert (consumer.beginning_offset(TOPIC), consumer.end_offset(TOPIC)) == (0, 10)
        assert consumer.fetch(TOPIC, 10) == []


def test_what_is_not_there_is_refused_with_kafkas_code(one: Replica) -> None:
    with one.connect() as connection:
        consumer = Consumer(connection)
        with pytest.raises(OffsetOutOfRangeError, match="expected an offset from 0 to 0, found 1"):
            consumer.fetch(TOPIC, 1)
        with pytest.raises(NotLeaderError, match="expected a partition that this broker leads, found other-0"):
            consumer.fetch("other", 0)
        with pytest.raises(NotLeaderError, match="found orders-3"):
            Producer(connection, option=one.option).send(TOPIC, [ProducerRecord(b"paid")], partition=3)
        assert Producer(connection, option=one.option).send(TOPIC, []) == []
