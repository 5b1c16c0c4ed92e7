"""A real broker beside ours: the same requests and the same sequences of batches get the same answers; and each goes on
in a directory where the other stopped or was killed."""

from __future__ import annotations

import os
import random
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from support.broker.broker_asking import Ask, Asked, Body, real
from support.golden import PATIENCE_S
from support.kafka.brokers import SETTINGS, STEADY
from support.kafka.brokers import Broker as RealBroker
from support.kafka.two_broker_answers import Facts, comparable
from support.kafka.two_broker_answers import differences as compared

import kts
from kts.broker.broker import Broker
from kts.broker.topics import Topics
from kts.broker.wire.messages import ApiKey

NOW = time.time_ns() // 1_000_000  # producers that were silent for a day are forgotten at a start
GIVEN = {"log.retention.ms": SETTINGS["log.retention.ms"], "node.id": 1}


class Both(NamedTuple):
    theirs: Ask
    ours: Ask


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    folder = tmp_path_factory.mktemp("twins")
    with RealBroker("3.9.2", folder, STEADY) as broker:
        broker.start()
        with real(broker.bootstrap) as connection, Broker(folder / "ours", GIVEN) as own:
            yield Both(connection.ask, Asked(own))


def new(name: str, partitions: int = 1, factor: int = 1, assigned: Any = (), **configs: Any) -> Body:
    return {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": factor,
        "assignments": [{"partition_index": index, "broker_ids": brokers} for index, brokers in assigned],
        "configs": [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()],
    }


def create(ask: Ask, *topics: Body, version: int = 7) -> list[Body]:
    return list(ask(ApiKey.CREATE_TOPICS, version, {"topics": list(topics), "timeout_ms": 30_000})["topics"])


def compare(both: Both, api: ApiKey, version: int, body: Body, key: str, *, texts: bool = False) -> list[Body]:
    """Ours, after it was found to be theirs: order, codes and where they are Kafka's own words, texts."""

    def told(ask: Ask) -> list[Body]:
        found = ask(api, version, body)[key]
        for one in found:
            one.pop("topic_id", None)
            if not texts:
                one.pop("error_message", None)
        return sorted(found, key=lambda one: (str(one.get("name")), str(one.get("resource_name")), str(one)))

    theirs, ours = told(both.theirs), told(both.ours)
    assert differences(theirs, ours) == []
    return ours


def differences(theirs: Any, ours: Any, where: str = "") -> list[str]:
    """Every place in which two answers are not the same."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        return [
            found
            for key in sorted({*theirs, *ours}, key=str)
            for found in differences(theirs.get(key, "absent"), ours.get(key, "absent"), f"{where}.{key}")
        ]
    if isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        each = enumerate(zip(theirs, ours, strict=True))
        return [found for number, pair in each for found in differences(*pair, f"{where}[{number}]")]
    return [] if theirs == ours else [f"{where}: {theirs} is ours {ours}"]


# --- the same answers -------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 4, 7])
def test_topics_are_made_and_refused_as_by_kafka(both: Both, version: int) -> None:
    for ask in both:
        made(ask, new("there"), new("a.b"))
    mark = f"v{version}-"
    same = [
        new(mark + "made", 2, 1, retention_ms="77", cleanup_policy="compact, delete"),
        new(mark + "assigned", -1, -1, [(1, [1]), (0, [1])]),
        new("there"),
        new("a_b"),
        new(mark + "none", 0),
        new(mark + "copies0", 1, 0),
        new(mark + "copies", 1, 3),
        new(mark + "null", segment_bytes=None),
        new(mark + "both", 1, -1, [(0, [1])]),
        new(mark + "both2", -1, 1, [(0, [1])]),
        new(mark + "elsewhere", -1, -1, [(0, [9])]),
        new(mark + "nowhere", -1, -1, [(0, [])]),
        new(mark + "hole", -1, -1, [(1, [1])]),
        new(mark + "again", -1, -1, [(0, [1]), (0, [1])]),
        new("__cluster_metadata"),
        new("double"),
        new("double"),
    ]
    body = {"topics": same, "timeout_ms": 30_000}
    compare(both, ApiKey.CREATE_TOPICS, version, body, "topics", texts=True)
    own_words = [
        new("no/name"),
        new(""),
        new("x" * 250),
        new(mark + "bad", segment_bytes="3"),
        new(mark + "unknown", some_thing="3"),
        new(mark + "text", retention_ms="soon"),
        new(mark + "policy", cleanup_policy="keep"),
        new(mark + "ratio", min_cleanable_dirty_ratio="2"),
        new(mark + "flag", preallocate="maybe"),
    ]
    compare(both, ApiKey.CREATE_TOPICS, version, {"topics": own_words, "timeout_ms": 30_000}, "topics")


def test_settings_are_described_as_by_kafka(both: Both) -> None:
    configs = {"segment_bytes": "500", "preallocate": "true", "cleanup_policy": "compact", "flush_ms": "7"}
    for ask in both:
        made(ask, new("described", 1, 1, **configs))
    for version in (0, 1, 4):
        resources = [
            {"resource_type": 2, "resource_name": "described", "configuration_keys": None},
            {"resource_type": 2, "resource_name": "none", "configuration_keys": None},
            {"resource_type": 4, "resource_name": "", "configuration_keys": None},
        ]
        body = {"resources": resources, "include_synonyms": version > 0}
        told = []
        for ask in both:
            found = ask(ApiKey.DESCRIBE_CONFIGS, version, body)["results"]
            for one in found:
                one.pop("error_message")
                one["configs"] = sorted(one["configs"], key=lambda config: str(config["name"]))
            told.append(found)
        assert differences(*told) == []
    for name, key in (("7", None), ("x", None), ("--1", None), ("\u00b9", None), ("9" * 5000, None)):
        body = {"resources": [{"resource_type": 4, "resource_name": name, "configuration_keys": key}]}
        compare(both, ApiKey.DESCRIBE_CONFIGS, 4, body, "results")


def test_what_the_broker_says_of_itself_kafka_says_too(both: Both) -> None:
    """All of 3.9's settings, with their defaults: the real broker here was given some."""
    asked = {"resource_type": 4, "resource_name": "1", "configuration_keys": None}
    body = {"resources": [asked], "include_synonyms": True, "include_documentation": True}
    theirs, ours = (
        {one["name"]: one for one in ask(ApiKey.DESCRIBE_CONFIGS, 4, body)["results"][0]["configs"]} for ask in both
    )
    assert ours.keys() - theirs.keys() == {"cluster.id", "release", "shipped", "shipped.search"}
    assert theirs.keys() <= ours.keys()
    assert len(theirs) == 315

    def default(one: Body) -> Body:
        [value] = [each["value"] for each in one["synonyms"] if each["source"] == 5][:1] or [None]
        return {"value": value, **{key: one[key] for key in ("config_type", "is_sensitive")}}

    # Ours are for one machine and for tests.
    other = {"group.initial.rebalance.delay.ms", "offsets.topic.num.partitions", "offsets.topic.replication.factor"}
    other |= {"queued.max.request.bytes", "node.id", "inter.broker.protocol.version", "advertised.listeners"}
    wanted, found = ({name: default(one[name]) for name in theirs.keys() - other} for one in (theirs, ours))
    assert differences(wanted, found) == []
    alike = {name for name in theirs if theirs[name]["config_source"] == ours[name]["config_source"] == 5} - other
    assert len(alike) > 280
    assert {name: theirs[name]["value"] for name in alike} == {name: ours[name]["value"] for name in alike}
    theirs_change, ours_change = (
        {name for name, one in each.items() if not one["read_only"]} for each in (theirs, ours)
    )
    assert ours_change <= theirs_change
    assert {name for name in theirs_change if name.startswith("log.cleaner.")} <= ours_change
    for each in (theirs, ours):  # the words are each one's own
        assert [name for name, one in each.items() if not one["documentation"]] == []


def test_documentation_is_told_when_it_is_asked_for(both: Both) -> None:
    for ask in both:
        made(ask, new("documented"))
    for version, asked in ((3, True), (4, True), (4, False)):
        resource = {"resource_type": 2, "resource_name": "documented", "configuration_keys": None}
        body = {"resources": [resource], "include_documentation": asked}
        told = []
        for ask in both:
            configs = ask(ApiKey.DESCRIBE_CONFIGS, version, body)["results"][0]["configs"]
            told.append({one["name"]: one["documentation"] is not None for one in configs})
            assert set(told[-1].values()) == {asked}
        assert told[0] == told[1]


def test_the_cleaners_settings_are_changed_and_told_as_by_kafka(both: Both) -> None:
    """1.4 s, in which the real broker hears of 30 changes: which values pass, and how Java writes numbers."""
    asked = {
        "log.cleaner.threads": ("2", "0", "-1", "x"),
        "log.cleaner.io.max.bytes.per.second": ("1", "-1", "1e3", "12345678", "1e7", "0.0001", "NaN", "x"),
        "log.cleaner.io.buffer.size": ("0", "-1", "2147483648"),
        "log.cleaner.io.buffer.load.factor": (".5", "1.0", "two"),
        "log.cleaner.dedupe.buffer.size": ("1048577", "1048576", "-5", "x"),
        "log.cleaner.backoff.ms": ("0", "-1"),
        "log.cleaner.min.cleanable.ratio": ("0.50", "2"),
        "log.cleaner.enable": ("true",),
    }
    for name in asked:  # none of them is wrong because of another
        for value in asked[name]:
            told = []
            for ask in both:
                changed = alter_broker(ask, name, value, 0)
                shown = settled(ask, name, value) if not changed else None
                told.append((changed, shown))
            assert told[0] == told[1], f"{name}={value}"
        for ask in both:
            alter_broker(ask, name, None, 1)
            settled(ask, name, None)


def alter_broker(ask: Ask, name: str, value: str | None, operation: int) -> int:
    """The code that a change of a setting of node 1 is answered with."""
    resource = {"resource_type": 4, "resource_name": "1"}
    configs = [{"name": name, "config_operation": operation, "value": value}]
    body = {"resources": [{**resource, "configs": configs}]}
    return int(ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, body)["responses"][0]["error_code"])


def settled(ask: Ask, name: str, value: str | None) -> Body:
    """A setting of node 1 once it is what it was set to: a broker hears of changes later than its controller."""
    resource = {"resource_type": 4, "resource_name": "1", "configuration_keys": [name]}
    until = time.monotonic() + PATIENCE_S
    while True:
        [one] = ask(ApiKey.DESCRIBE_CONFIGS, 4, {"resources": [resource], "include_synonyms": True})["results"][0][
            "configs"
        ]
        changed = [each["value"] for each in one["synonyms"] if each["source"] == 2]
        now, set_to = one["value"], one["synonyms"][0]["value"]
        applied = now == set_to or str(float(now)) == str(float(set_to))
        if changed == ([] if value is None else [value]) and applied:
            given = [each for each in one["synonyms"] if each["source"] != 4]
            return {key: one[key] for key in ("value", "read_only", "config_source", "config_type")} | {"given": given}
        assert time.monotonic() < until, f"{name} is {one}, and was set to {value}"
        time.sleep(0.01)


def test_settings_are_changed_and_refused_as_by_kafka(both: Both) -> None:
    for ask in both:
        made(ask, new("changed", 1, 1, segment_bytes="500", cleanup_policy="compact"))

    def resource(name: str, *configs: tuple[str, int, str | None], kind: int = 2) -> Body:
        entries = [dict(zip(("name", "config_operation", "value"), one, strict=True)) for one in configs]
        return {"resource_type": kind, "resource_name": name, "configs": entries}

    asked = [
        [resource("changed", ("segment.bytes", 1, None), ("cleanup.policy", 2, "delete"))],
        [resource("changed", ("cleanup.policy", 3, "compact,none"))],
        [resource("changed", ("flush.ms", 2, "6"))],
        [resource("changed", ("flush.ms", 0, None))],
        [resource("changed", ("flush.ms", 0, "-1"))],
        [resource("changed", ("no.such", 0, "1"))],
        [resource("changed", ("flush.ms", 0, "1"), ("flush.ms", 0, "2"))],
        [resource("none", ("flush.ms", 0, "1")), resource("no/name", ("flush.ms", 0, "1"))],
        [resource("", ("flush.ms", 0, "1"))],
        [resource("changed", ("flush.ms", 0, "1")), resource("changed", ("flush.ms", 0, "2"))],
        [resource("1", ("log.roll.hours", 0, "1"), kind=4)],
        [resource("1", ("log.segment.bytes", 0, "x"), kind=4)],
        [resource("9", ("log.segment.bytes", 0, "1000"), kind=4)],
        [resource(name, ("log.segment.bytes", 0, "1000"), kind=4) for name in ("--1", "\u00b9", "9" * 5000)],
        [resource("", ("log.segment.bytes", 0, "100000"), kind=4)],
        [resource("1", ("log.segment.bytes", 0, "200000"), kind=4)],
    ]
    for resources in asked:
        compare(both, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": resources}, "responses")
    for configs in ({"retention.ms": "9"}, {"retention.ms": "x"}, {"retention.ms": None}, {}):
        entries = [{"name": name, "value": value} for name, value in configs.items()]
        body = {"resources": [{"resource_type": 2, "resource_name": "changed", "configs": entries}]}
        compare(both, ApiKey.ALTER_CONFIGS, 2, body, "responses")


def test_partitions_are_added_and_topics_deleted_as_by_kafka(both: Both) -> None:
    for ask in both:
        made(ask, *(new(name, 2) for name in ("more", "same", "less", "few", "gone", "gone2")))
    here = {"broker_ids": [1]}
    topics = [("more", 4, None), ("same", 2, None), ("less", 1, None), ("none", 3, None), ("few", 5, [here])]
    topics += [("gone", 3, [{"broker_ids": [7]}]), ("gone2", 3, None), ("gone2", 4, None)]
    asked = [{"name": name, "count": count, "assignments": assigned} for name, count, assigned in topics]
    compare(both, ApiKey.CREATE_PARTITIONS, 3, {"topics": asked, "timeout_ms": 30_000}, "results", texts=True)
    names = ["gone", "none", "few", "few"]
    compare(both, ApiKey.DELETE_TOPICS, 5, {"topic_names": names, "timeout_ms": 30_000}, "responses", texts=True)
    body = {"topics": [{"name": "gone2"}, {"name": "none"}, {"name": None}], "timeout_ms": 30_000}
    compare(both, ApiKey.DELETE_TOPICS, 6, body, "responses", texts=True)


def test_requests_about_the_cluster_are_answered_as_by_kafka(both: Both) -> None:
    """Every API of the cluster with what is right, what is wrong and what there is not, in every version of 3.9."""
    for ask in both:
        made(ask, new("whole", 2), new("other"))
        rows = {"timestamp": [NOW, NOW + 1], "value": [b"v"] * 2}
        for producer in (9, 700, 16, 1):
            data = kts.encode(rows, producer_id=producer, producer_epoch=producer % 7, base_sequence=0)
            partitions = [{"index": 0, "records": data}]
            topic_data = [{"name": "whole", "partition_data": partitions}]
            answer = ask(ApiKey.PRODUCE, 9, {"acks": -1, "timeout_ms": 9000, "topic_data": topic_data})
            assert answer["responses"][0]["partition_responses"][0]["error_code"] == 0
        coordinator_of_transactions(ask)
    names = ("whole", "none", "other", "no/name", "")
    acl = {"resource_type": 2, "resource_name": "x", "resource_pattern_type": 3, "principal": "User:a", "host": "*"}
    acl |= {"resource_type_filter": 2, "pattern_type_filter": 3, "operation": 3, "permission_type": 3}
    acl |= {"resource_name_filter": "x", "principal_filter": None, "host_filter": None}
    elected = [{"topic": name, "partitions": [1, 0, 7, 0, -1]} for name in names]
    replicas = ([1], None, [], [1, 1], [2], [2, 1], [-1])
    moved = [{"partition_index": index, "replicas": each} for each in replicas for index in (0, 9)]
    asked: list[tuple[ApiKey, int, Body]] = [
        *((ApiKey.DESCRIBE_ACLS, version, acl) for version in range(4)),
        *((ApiKey.CREATE_ACLS, version, {"creations": [acl] * count}) for version in range(4) for count in (0, 2)),
        *((ApiKey.DELETE_ACLS, version, {"filters": [acl] * count}) for version in range(4) for count in (0, 2)),
        *(
            (ApiKey.ELECT_LEADERS, version, {"election_type": kind, "topic_partitions": wanted})
            for version in range(3)
            for kind in (0, 1, 2, -1)
            for wanted in ([], elected)
        ),
        (ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, {"topics": [{"name": name, "partitions": moved} for name in names]}),
        (ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, {"topics": []}),
        (ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, {"topics": None}),
        (
            ApiKey.LIST_PARTITION_REASSIGNMENTS,
            0,
            {"topics": [{"name": one, "partition_indexes": [0]} for one in names]},
        ),
        (ApiKey.DESCRIBE_PRODUCERS, 0, {"topics": [{"name": one, "partition_indexes": [1, 0, 7]} for one in names]}),
        *((ApiKey.LIST_TRANSACTIONS, version, {"state_filters": ["Ongoing", "odd"]}) for version in (0, 1)),
        (ApiKey.DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": ["x", "", "x"]}),
        *(
            (
                ApiKey.DESCRIBE_QUORUM,
                version,
                {"topics": [{"topic_name": name, "partitions": [{"partition_index": 1}]}]},
            )
            for version in range(3)
            for name in ("__cluster_metadata", "whole")
        ),
    ]
    for api, version, body in asked:
        told = [comparable(ask(api, version, {"timeout_ms": 30_000, **body}), Facts(), True) for ask in both]
        found = [str(each) for each in compared(*told) if not each.path.endswith("error_message")]
        assert found == [], f"{api.name} {version} {body}"
    for version in range(5):
        wanted = [{"topic": name, "partitions": [1, 0, 0, 7]} for name in names]
        for topics in (wanted, [], None):
            told = [
                comparable(sized(ask(ApiKey.DESCRIBE_LOG_DIRS, version, {"topics": topics})), Facts(), True)
                for ask in both
            ]
            assert [str(each) for each in compared(*told)] == [], f"{version} {topics}"
            assert (told[1]["results"][0]["topics"] == []) is (topics == [])


def sized(answer: Body) -> Body:
    """Without the topics of Kafka's own, and of transactions that only a real broker has."""
    for result in answer["results"]:
        result["topics"] = [one for one in result["topics"] if not one["name"].startswith("__")]
    return answer


def coordinator_of_transactions(ask: Ask) -> None:
    """Until the broker coordinates transactions; the real one makes a topic first."""
    until = time.monotonic() + PATIENCE_S
    body = {"key_type": 1, "coordinator_keys": ["x"]}
    while ask(ApiKey.FIND_COORDINATOR, 4, body)["coordinators"][0]["error_code"]:
        assert time.monotonic() < until
        time.sleep(0.05)
    while (
        ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": ["x"]})["transaction_states"][0]["error_code"] != 105
    ):
        assert time.monotonic() < until
        time.sleep(0.05)


# --- the same sequences -----------------------------------------------------------------------------


def batch(number: int, count: int = 1, **more: Any) -> bytes:
    rows = {"timestamp": [NOW + number] * count, "key": [b"k"] * count, "value": [b"%d" % number] * count}
    return kts.encode(rows, **more)


def patiently(ask: Callable[[], Body]) -> Body:
    """The answer, once the broker that has just started leads the partition."""
    until = time.monotonic() + PATIENCE_S
    while True:
        told = ask()
        if told["error_code"] not in (3, 5, 6, 78) or time.monotonic() > until:
            return told
        time.sleep(0.1)


def created(ask: Ask, topic: Body, version: int) -> None:
    """A topic of a broker that has just started, and may not be a controller's yet."""
    until = time.monotonic() + PATIENCE_S
    while (code := create(ask, topic, version=version)[0]["error_code"]) not in (0, 36):
        assert time.monotonic() < until, code
        time.sleep(0.1)


def made(ask: Ask, *topics: Body) -> None:
    """Topics that the broker has heard of: a real one does after it has said that they are made."""
    for topic in topics:
        created(ask, topic, 7)
    until = time.monotonic() + PATIENCE_S
    asked = {"topics": [{"name": topic["name"]} for topic in topics], "allow_auto_topic_creation": False}
    while any(one["error_code"] for one in ask(ApiKey.METADATA, 9, asked)["topics"]):
        assert time.monotonic() < until
        time.sleep(0.02)


def produce(ask: Ask, topic: str, records: bytes, version: int = 9) -> tuple[int, int, int]:
    partition = {"index": 0, "records": records}
    body = {"acks": -1, "timeout_ms": 30_000, "topic_data": [{"name": topic, "partition_data": [partition]}]}
    told = patiently(lambda: ask(ApiKey.PRODUCE, version, body)["responses"][0]["partition_responses"][0])
    return told["error_code"], told["base_offset"], told["log_append_time_ms"]


@pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
def test_random_sequences_of_idempotent_producers_get_kafkas_answers(both: Both, rng: random.Random, kind: str) -> None:
    topic = f"sequences-{kind}"
    for ask in both:
        made(ask, new(topic, 1, 1, message_timestamp_type=kind, segment_bytes="3000"))
    sent: list[bytes] = []
    state: dict[int, tuple[int, int]] = {}
    seen = set()

    def told(records: bytes) -> int:
        theirs, ours = produce(both.theirs, topic, records), produce(both.ours, topic, records)
        if kind == "LogAppendTime":  # two clocks
            theirs, ours = (*theirs[:2], theirs[2] > 0), (*ours[:2], ours[2] > 0)  # type: ignore[assignment]
        assert ours == theirs
        seen.add(theirs[0])
        return theirs[0]

    for number in range(150):
        producer = rng.choice([71, 72, 2**40])
        epoch, following = state.get(producer, (rng.randrange(2), rng.choice([0, 9, 2**31 - 3])))
        if sent and rng.random() < 0.35:
            records = rng.choice(sent[-14:])
        else:
            chance, count = rng.random(), rng.randrange(1, 4)
            if chance < 0.06:
                epoch, following = epoch + 1, rng.choice([0, 0, 3])
            elif chance < 0.1 and epoch:
                epoch -= 1
            elif chance < 0.2:
                following = max(following + rng.randrange(-2, 3), 0)
            sequences = {"producer_id": producer, "producer_epoch": epoch, "base_sequence": following % 2**31}
            records = batch(number, count, **sequences)
            sent.append(records)
        if told(records) == 0 and records is sent[-1]:
            state[producer] = epoch, following + count
    for epoch in (1, 0):  # an old epoch, where chance had none
        told(batch(150, producer_id=73, producer_epoch=epoch, base_sequence=0))
    assert seen == {0, 45, 47}


# --- one directory, two brokers ---------------------------------------------------------------------


def fetched(ask: Ask, topic: str, version: int) -> list[int]:
    out: list[int] = []
    while True:
        partition = {
            "partition": 0,
            "fetch_offset": len(out),
            "partition_max_bytes": 1 << 20,
            "current_leader_epoch": -1,
        }
        topics = [{"topic": topic, "partitions": [partition]}]
        body = {"replica_id": -1, "max_wait_ms": 100, "min_bytes": 0, "max_bytes": 1 << 20, "topics": topics}
        told = patiently(lambda: ask(ApiKey.FETCH, version, body)["responses"][0]["partitions"][0])  # noqa: B023
        assert told["error_code"] == 0
        rows = kts.decode(bytes(told["records"] or b""), ["offset", "value"]).to_pylist()
        new_ones = [int(row["value"]) for row in rows if row["offset"] >= len(out)]
        if not new_ones:
            return out
        out += new_ones


@pytest.mark.parametrize(("version", "killed"), [("0.10.2.2", True), ("3.9.2", True), ("4.3.1", False)])
def test_a_directory_goes_from_a_real_broker_to_ours_and_back(tmp_path: Path, version: str, killed: bool) -> None:
    old = version.startswith("0.10")
    api, magic = (2, 1) if old else (9, 2)
    settings = {"segment_bytes": "2000"} if version != "4.3.1" else {"internal_segment_bytes": "2000"}
    expected: list[int] = []

    def write(ask: Ask, count: int) -> None:
        for _ in range(count):
            error, offset, _ = produce(ask, "moved", batch(len(expected), magic=magic, **sequence(len(expected))), api)
            assert (error, offset) == (0, len(expected))
            expected.append(offset)

    def sequence(number: int) -> dict[str, int]:
        return {} if old else {"producer_id": 5, "producer_epoch": 0, "base_sequence": number}

    with RealBroker(version, tmp_path) as broker:
        broker.start()
        with real(broker.bootstrap) as connection:
            created(connection.ask, new("moved", 1, 1, **settings), version=1 if old else 5)
            write(connection.ask, 60)
        (broker.kill if killed else broker.stop)()
        controller = state(broker.data, "__cluster_metadata-0", "bootstrap.checkpoint", "meta.properties")
        before = log_files(broker.data / "moved-0")

        clock = [NOW + 1000]
        with Broker(broker.data, clock=lambda: clock[0]) as ours:
            ask = Asked(ours)
            assert "moved" in ours.topics.adopted
            partition = ours.topics.get("moved").partitions[0]  # type: ignore[union-attr]
            assert partition.log.clean_start == (not killed)
            assert [one for one in partition.log.recovered if one.bytes_cut] == []
            if not old:
                duplicate = produce(ask, "moved", batch(59, magic=magic, **sequence(59)), api)
                assert duplicate[:2] == (0, 59)
                assert produce(ask, "moved", batch(70, magic=magic, **sequence(70)), api)[0] == 45
            write(ask, 40)
            clock[0] += 10**11
            assert ours.topics.run_retention() == []
            clock[0] -= 10**11
            assert fetched(ask, "moved", 3 if old else 11) == expected
            if killed:
                ours.topics.abandon()
        after = log_files(broker.data / "moved-0")
        assert all(after[name].startswith(data) for name, data in before.items() if name.endswith(".log"))
        assert state(broker.data, "__cluster_metadata-0", "bootstrap.checkpoint", "meta.properties") == controller

        broker.start()
        with real(broker.bootstrap) as connection:
            if not old:
                assert produce(connection.ask, "moved", batch(99, magic=magic, **sequence(99)), api)[:2] == (0, 99)
            write(connection.ask, 20)
            assert fetched(connection.ask, "moved", 3 if old else 11) == expected
        broker.stop()
        said = "\n".join(broker.said())
        assert "moved-0-stray" not in said
        assert "CorruptIndexException" not in said
    with Topics(tmp_path / "data") as topics:
        assert topics.get("moved").partitions[0].log.log_end_offset == 120  # type: ignore[union-attr]


def test_a_real_broker_opens_partitions_that_kts_made(tmp_path: Path) -> None:
    """ZooKeeper knows the topic, its directory is ours: made from nothing, with data, closed cleanly."""
    with RealBroker("0.10.2.2", tmp_path) as broker:
        broker.start()
        with real(broker.bootstrap) as connection:
            created(connection.ask, new("made"), version=1)
            assert fetched(connection.ask, "made", 3) == []
        broker.stop()
        shutil.rmtree(broker.data / "made-0")
        settings = {"log.message.format.version": "0.10.2"}
        with Topics(broker.data, settings) as topics:
            if topics.get("made") is None:
                topics.create("made", 1, {"segment.bytes": "1000"})
            for number in range(50):
                topics.get("made").partitions[0].append(batch(number, magic=1))  # type: ignore[union-attr]
        broker.start()
        with real(broker.bootstrap) as connection:
            assert fetched(connection.ask, "made", 3) == list(range(50))
            assert produce(connection.ask, "made", batch(50, magic=1), 2)[:2] == (0, 50)
        broker.stop()


def log_files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def state(folder: Path, *names: str) -> dict[str, bytes]:
    """What is none of our business there."""
    found = {}
    for name in names:
        for path in [folder / name, *(folder / name).rglob("*")]:
            if path.is_file():
                found[os.path.relpath(path, folder)] = path.read_bytes()
    return found
