"""What `verify` finds in partitions beside the metadata of their cluster, which real brokers wrote."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from support.clusters import LOG, VERSIONS, cluster_of
from support.golden import scaled
from support.kafka.broker_play import PLAIN
from support.kafka.brokers import kafka
from support.kafka.cluster_play import CONFIGS, TOPICS
from support.kafka.java_tools import JavaTools
from support.kafka.jvm import require_java

import kts
from kts.cluster_records.layout import write_record
from kts.offline.cluster_check import compacted, strays, verify_topic_ids
from kts.offline.copy import copy
from kts.offline.verify import verify

OTHER_ID = "AAAAAAAAAAAAAAAAAAAABB"
TOPIC = 2


@pytest.fixture(params=VERSIONS)
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The log directory of a broker, which has no partitions yet."""
    home = tmp_path / "data"
    shutil.copytree(cluster_of(request.param), home)
    return home


def id_in(home: Path, topic: str) -> str | None:
    return kts.cluster(home).topic(topic).topic_id


def partition(path: Path, topic_id: str | None, keys: list[bytes | None]) -> kts.PartitionLog:
    with kts.Log(path, topic_id=topic_id) as log:
        log.append_rows({"key": keys, "value": [b"v"] * len(keys)})
    return kts.open_partition(path)


def set_policy(home: Path, resource: tuple[int, str], name: str, policy: str) -> None:
    """A record of a controller that sets a policy."""
    fields = {"resourceType": resource[0], "resourceName": resource[1], "name": name, "value": policy}
    with kts.Log(home / LOG) as log:
        log.append_rows([{"value": write_record("Config", 0, fields)}])


def test_the_clusters_own_partitions_have_no_fault(home: Path) -> None:
    partition(home / "orders-0", id_in(home, "orders"), [None])
    partition(home / "orders-1", None, [None])  # of a time before ids
    assert [*verify(home, deep=True)] == []


def test_the_directory_of_a_topic_that_was_made_again_is_found_with_both_ids(home: Path) -> None:
    partition(home / "orders-0", OTHER_ID, [b"k"])
    for path in (home, home / "orders-0"):
        [found] = verify(path)
        assert (found.path, found.kind) == (str(home / "orders-0/partition.metadata"), "topic-id")
        assert OTHER_ID in found.message and str(id_in(home, "orders")) in found.message


def test_a_malformed_id_is_one_fault(home: Path) -> None:
    partition(home / "orders-0", id_in(home, "orders"), [b"k"])
    (home / "orders-0/partition.metadata").write_text("version: 0\n", encoding="utf-8")
    with pytest.warns(kts.KtsWarning, match="no topic id is known"):
        assert [one.kind for one in verify(home)] == ["partition-metadata"]


def test_an_id_that_cannot_be_read_is_one_fault(home: Path) -> None:
    partition(home / "orders-0", id_in(home, "orders"), [b"k"])
    (home / "orders-0/partition.metadata").unlink()
    (home / "orders-0/partition.metadata").mkdir()
    assert [one.kind for one in verify(home)] == ["unreadable"]


def test_strays_are_told_and_are_no_faults(home: Path) -> None:
    partition(home / "orders-3", id_in(home, "orders"), [b"k"])
    partition(home / "gone-0", OTHER_ID, [b"k"])
    with pytest.warns(kts.KtsWarning) as told:
        assert [*verify(home)] == []
    assert [str(one.message) for one in told] == [
        f"{home}/gone-0 is stray: the cluster has no topic of this name",
        f"{home}/orders-3 is stray: the topic has 3 partitions",
    ]


def test_one_whose_topic_was_made_again_is_a_fault_and_not_told_twice(home: Path) -> None:
    log = partition(home / "orders-7", OTHER_ID, [b"k"])
    states = {str(home): kts.cluster(home)}
    assert [one.kind for one in verify_topic_ids([log], states)] == ["topic-id"]
    assert [*strays([log], states)] == []
    assert [*verify_topic_ids([log], {})] == [*strays([log], {})] == []
    assert compacted([log], states) == frozenset()


@pytest.mark.parametrize(("resource", "name"), [((TOPIC, "orders"), "cleanup.policy"), ((4, ""), "log.cleanup.policy")])
def test_a_record_without_a_key_in_a_compacted_topic_is_found_by_a_deep_check(
    home: Path, resource: tuple[int, str], name: str
) -> None:
    """Kafka 3.9 and 4.3: LogValidator refuses it, and Cleaner.shouldRetainRecord drops it as an invalid message."""
    set_policy(home, resource, name, "delete, compact")
    partition(home / "orders-0", id_in(home, "orders"), [b"a", None, b"b", None])
    partition(home / "orders-1", id_in(home, "orders"), [b"a", b""])
    assert [*verify(home)] == []
    [found] = verify(home, deep=True)
    segment = home / "orders-0" / f"{0:020}.log"
    assert (found.path, found.position, found.offset, found.kind) == (str(segment), 0, 1, "key")
    assert found.message.startswith("records without a key in a compacted topic: 2 in this batch; ")
    assert [*verify(segment, deep=True)] == []  # files by name belong to no topic


@pytest.mark.java
@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS[-scaled(1, 2) :])
def test_a_real_broker_sets_aside_what_is_found_and_opens_a_copy_with_the_id_that_was_lost(
    version: str, tmp_path: Path
) -> None:
    """Two starts of a broker, 7 seconds: it says itself what becomes of the directory of a topic made again."""
    require_java()
    records = [[{"value": "dg=="}], [{"key": "aw==", "value": "dg=="}]]
    with kafka(version, tmp_path) as (broker, client):
        broker.start()
        with JavaTools(version, broker.bootstrap, tmp_path) as tools:
            client.ask("create", topics={"again": {}, "keyed": {}})
            for topic in ("again", "keyed"):
                client.ask("produce", topic=topic, groups=records, settings=PLAIN)
            policy = ["--alter", "--add-config", "cleanup.policy=compact"]
            assert not tools.ask(CONFIGS, "--entity-type", "topics", "--entity-name", "keyed", *policy)[0]
            shutil.copytree(broker.partition("again"), tmp_path / "old")
            assert not tools.ask(TOPICS, "--delete", "--topic", "again")[0]
            client.ask("create", topics={"again": {}})
        broker.stop()
        data, old = broker.data, kts.open_partition(broker.partition("keyed")).topic_id
        assert [(one.kind, one.offset) for one in verify(data, deep=True)] == [("key", 0)]
        shutil.rmtree(broker.partition("again"))
        shutil.copytree(tmp_path / "old", broker.partition("again"))
        [found] = [
            one for one in verify(data) if one.path.endswith(".metadata")
        ]  # the indexes are those of before a stop
        own, known = kts.open_partition(broker.partition("again")).topic_id, id_in(data, "again")
        assert found.kind == "topic-id" and own != known
        assert str(own) in found.message and str(known) in found.message
        (broker.partition("keyed") / "partition.metadata").unlink()
        data.rename(tmp_path / "own")
        with pytest.warns(kts.KtsWarning) as told:
            copy(tmp_path / "own", data)
        assert [str(one.message).split(" has ")[0] for one in told] == [
            str(tmp_path / "own/again-0"),
            str(tmp_path / "own/keyed-0"),
        ]
        assert kts.open_partition(broker.partition("keyed")).topic_id == old
        broker.start()
        consumed = client.ask("consume", topic="keyed")["records"]
        assert [one["offset"] for one in consumed] == [0, 1]
        assert [path.name for path in data.glob("again-0.*-stray")] and client.ask("consume", topic="again")[
            "records"
        ] == []
        assert not [*data.glob("keyed-0.*")]
        broker.stop()
