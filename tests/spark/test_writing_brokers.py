"""Real brokers open what Spark wrote beside their own records: as after a clean stop, with the same answers."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from support.golden import RECORD_COLUMNS, row_from_json, rows, scaled
from support.kafka.broker_load import Files, complaints, differing, errors, load, partition_files
from support.kafka.broker_play import PLAIN
from support.kafka.brokers import Broker, Client, kafka

import kts
from kts.segment.names import CLEAN_SHUTDOWN

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

T = 1_700_000_000_000
ROWS = 600
OLD, NEW = {"message.format.version": "0.10.2"}, {"segment.bytes": "3000"}
TOPICS = {  # the options of each, by the broker that it is for
    "3.9.2": {
        "plain": NEW,
        "zstd": {"compression.type": "zstd", **NEW},
        "sorted": {"sortBy": "timestamp", **NEW},
        "append-time": {"timestampType": "LogAppendTime", **NEW},
    },
    "0.10.2.2": {
        "v0-gzip": {"message.format.version": "0.9.0", "compression.type": "gzip", **NEW},
        "v0": {"message.format.version": "0.9.0", **NEW},
        "v1-gzip": {**OLD, "compression.type": "gzip", **NEW},
        "v1": {**OLD, **NEW},
    },
    "4.3.1": {"plain": NEW, "lz4": {"compression.type": "lz4", **NEW}},
}


def frame(spark: SparkSession, topic: str, sorts: bool) -> DataFrame:
    """Rows in two tasks whose times fall as often as they rise; some have headers, as far as the format has."""
    frame = spark.range(0, ROWS, 1, 1 if sorts else 2).selectExpr(
        "if(id % 5 = 0, null, cast(id as string)) key",
        "if(id % 7 = 0, null, encode(concat('value ', id), 'utf-8')) value",
        f"timestamp_millis({T} + (id * 7919) % 3001) timestamp",
    )
    if topic.startswith("v"):
        return frame
    return frame.selectExpr("*", "if(value is null, null, array(struct('h' as key, value))) headers")


class Story:
    """A broker makes topics and stops, Spark writes to them, the broker starts again."""

    def __init__(self, broker: Broker, client: Client, spark: SparkSession) -> None:
        self.topics = TOPICS[broker.version]
        self.broker = broker
        broker.start()
        configs = {"message.format.version": "0.9.0"}
        client.ask("create", topics={name: configs if name.startswith("v0") else {} for name in self.topics})
        for topic in self.topics:
            records = [
                {"timestamp": T - 10 + n, "value": base64.b64encode(b"of the broker").decode()} for n in range(10)
            ]
            client.ask("produce", topic=topic, groups=[records], settings=PLAIN)
        self.locked = self.write_error(spark)
        broker.stop()
        for topic, options in self.topics.items():
            for _ in range(2):
                written = frame(spark, topic, "sortBy" in options)
                written.write.format("kts").options(topic=topic, **options).mode("append").save(str(broker.data))
        self.has_marker = (broker.data / CLEAN_SHUTDOWN).exists()
        # What a driver that was killed leaves behind.
        self.left = broker.data / f"kts-write-0.{'5' * 32}-delete"
        (self.left / "attempt" / "plain-0").mkdir(parents=True)
        (self.left / "attempt" / "plain-0" / f"{0:020d}.log").write_bytes(b"x" * 100)
        self.logs = {name: kts.open_partition(broker.partition(name)) for name in self.topics}
        self.written = {name: partition_files(broker, name) for name in self.topics}
        self.rows = {name: rows(log.scan(columns=RECORD_COLUMNS).read_all()) for name, log in self.logs.items()}
        times = [0, *range(T - 12, T + 3010, 151)]
        self.ours = {name: [log.offset_for_timestamp(t) for t in times] for name, log in self.logs.items()}
        broker.start()
        self.said = broker.said()
        self.running: dict[str, Files] = {}
        self.consumed: dict[str, Any] = {}
        self.theirs: dict[str, Any] = {}
        for topic in self.topics:
            self.consumed[topic] = client.ask("consume", topic=topic)
            self.running[topic] = partition_files(broker, topic)
            self.theirs[topic] = client.ask("times", topic=topic, targets=times)["answers"]
            record = {"timestamp": T, "value": base64.b64encode(b"later").decode()}
            self.next = client.ask("produce", topic=topic, groups=[[record]], settings=PLAIN)["sends"]
            assert self.next[0].get("offset") == self.logs[topic].log_end_offset - 1, self.next
        broker.stop()

    def write_error(self, spark: SparkSession) -> str:
        with pytest.raises(Exception, match="holds the lock") as caught:
            topic = next(iter(self.topics))
            frame(spark, topic, False).write.format("kts").option("topic", topic).mode("append").save(
                str(self.broker.data)
            )
        return str(caught.value)


@pytest.fixture(scope="module", params=[*TOPICS][: scaled(1, 3)])  # each costs ten seconds
def story(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, spark: SparkSession
) -> Iterator[Story]:
    with kafka(request.param, tmp_path_factory.mktemp("spark-broker")) as (broker, client):
        yield Story(broker, client, spark)


def test_a_live_broker_is_left_alone(story: Story) -> None:
    assert "LogLockedError" in story.locked


def test_a_broker_opens_what_spark_wrote_as_after_a_clean_stop(story: Story) -> None:
    assert story.has_marker
    for topic, log in story.logs.items():
        assert complaints(story.said, topic) == [], topic
        found = load(story.said, topic)
        segments = sum(name.endswith(".log") for name in story.written[topic])
        assert (found.segments, found.log_end_offset) == (segments, 10 + 2 * ROWS), topic
        assert segments > 5, topic
        assert differing(story.written[topic], story.running[topic], running=True) == [], topic
        assert log.log_end_offset == 10 + 2 * ROWS + 1, topic
    assert errors(story.said) == []


def test_a_java_consumer_reads_what_spark_wrote(story: Story) -> None:
    for topic, expected in story.rows.items():
        assert len(expected) == 10 + 2 * ROWS
        assert [row_from_json(line) for line in story.consumed[topic]["records"]] == expected, topic


def test_a_broker_finds_times_in_what_spark_wrote(story: Story) -> None:
    for topic, ours in story.ours.items():
        theirs = story.theirs[topic]
        assert [one and [one.timestamp_ms, one.offset] for one in ours] == theirs, topic
        assert topic.startswith("v0") or any(theirs), topic


def test_what_a_killed_write_left_aside_does_no_harm(story: Story) -> None:
    assert not any("kts-write" in line for line in story.said if line.startswith("ERROR")), story.said
