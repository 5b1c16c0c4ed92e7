"""KIP-228, statement by statement: those that no other test is named after (docs/statements.md has all)."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from support.golden import PATIENCE_S

import kts
from kts.testing import KtsBroker

SPUTNIK = -4_472 * 86_400 * 1000  # the paper's example: 4,472 days before the epoch
NOW = 1_500_000_000_000


def test_1957_10_04_is_4472_days_before_the_epoch() -> None:
    assert SPUTNIK == -386_380_800 * 1000
    rows = kts.decode(kts.encode({"timestamp": [SPUTNIK], "value": [b"v"]}), ["timestamp"]).to_pylist()
    assert rows == [{"timestamp": datetime(1957, 10, 4, tzinfo=UTC)}]


@pytest.mark.slow
def test_a_client_can_publish_a_negative_timestamp_and_the_broker_accepts_and_serves_it() -> None:
    """A real client: by time, and as a record."""
    with KtsBroker(config={"log.allow.negative.timestamps": "true"}, time=NOW) as broker:
        broker.create_topic("history")
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers)
        for at in (SPUTNIK, -2_000, 5):
            producer.send("history", b"v", timestamp_ms=at).get(PATIENCE_S)
        producer.close()
        consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap_servers)
        partition = TopicPartition("history", 0)
        consumer.assign([partition])
        consumer.seek_to_beginning(partition)
        found: list[int] = []
        while len(found) < 3:
            polled = consumer.poll(int(PATIENCE_S * 1000))
            assert polled
            found += [row.timestamp for row in polled[partition]]
        consumer.close()
        assert found == [SPUTNIK, -2_000, 5]
        assert broker.offsets_for_times({("history", 0): SPUTNIK}) == {("history", 0): kts.TimestampOffset(SPUTNIK, 0)}


def test_no_reader_drops_a_record_with_a_negative_timestamp(tmp_path: Path) -> None:
    """The paper's streams; kts has readers in their place."""
    times = [SPUTNIK, -2, -1, 0, 5]
    with kts.Log(tmp_path / "t-0", {"allow.negative.timestamps": "true"}) as log:
        log.append(kts.encode({"timestamp": times, "value": [b"v"] * 5}))
    for table in (kts.scan(tmp_path / "t-0").read_all(), kts.open_partition(tmp_path / "t-0").scan().read_all()):
        assert table["timestamp"].cast("int64").to_pylist() == times


@pytest.mark.parametrize("allowed", ["false", "true"])
def test_for_users_that_do_not_set_a_timestamp_there_is_no_impact(allowed: str, tmp_path: Path) -> None:
    """The bytes and the answers are the same under either setting."""
    with kts.Log(tmp_path / "t-0", {"allow.negative.timestamps": allowed}, clock=lambda: NOW) as log:
        log.append_rows({"value": [b"a", b"b"]})
        assert (
            kts.decode(log.read(0, 1 << 20).records, ["timestamp"])["timestamp"].cast("int64").to_pylist() == [NOW] * 2
        )
        assert log.offset_for_timestamp(0) == kts.TimestampOffset(NOW, 0)
        data = (tmp_path / "t-0" / f"{0:020}.log").read_bytes()
    with kts.Log(tmp_path / "other-0", clock=lambda: NOW) as log:
        log.append_rows({"value": [b"a", b"b"]})
    assert (tmp_path / "other-0" / f"{0:020}.log").read_bytes() == data


def test_minus_1_is_a_real_time_or_no_timestamp_by_the_choice_of_the_user(tmp_path: Path) -> None:
    found = {}
    for choice in ("-1", "accept"):
        settings = {"allow.negative.timestamps": "true", "message.timestamp.missing": choice}
        with kts.Log(tmp_path / f"{choice.strip('-')}-0", settings) as log:
            log.append(kts.encode({"timestamp": [-5, -1, 7], "value": [b"v"] * 3}))
            found[choice] = log.offset_for_timestamp(-4)
    assert found == {"-1": kts.TimestampOffset(-1, 1), "accept": kts.TimestampOffset(7, 2)}


@pytest.mark.parametrize(("missing", "expected"), [("refuse", [NOW - 60_000, SPUTNIK]), ("now", [NOW, SPUTNIK])])
def test_the_records_of_the_old_topic_are_streamed_to_a_new_one_with_the_current_or_a_specific_time(
    missing: str, expected: list[int]
) -> None:
    """A specific one is from the content of the message; a topic that refuses records without one says so till then."""
    with KtsBroker(time=NOW) as broker:
        broker.create_topic("old", config={"allow.negative.timestamps": "true"})
        values = [b"seen at %d" % (NOW - 60_000), b"Sputnik"]
        broker.append("old", kts.encode({"timestamp": [-1, SPUTNIK], "value": values}))
        broker.create_topic("new", config={"allow.negative.timestamps": "true", "message.timestamp.missing": missing})
        for record in broker.consume("old"):
            time = int(record.timestamp)
            if missing == "refuse" and time == -1:
                with pytest.raises(kts.InvalidTimestampError):
                    broker.append("new", kts.encode({"timestamp": [time], "value": [record.value]}))
                time = int(record.value.split()[-1])
            broker.append("new", kts.encode({"timestamp": [time], "value": [record.value]}))
        found = [(record.timestamp, record.value) for record in broker.consume("new")]
        assert found == list(zip(expected, values, strict=True))
        assert broker.offsets_for_times({("new", 0): NOW - 60_000}) == {("new", 0): kts.TimestampOffset(expected[0], 0)}
