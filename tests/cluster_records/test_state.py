"""What records of the metadata log add up to."""

from __future__ import annotations

from typing import Any

import pytest

import kts
from kts.cluster_records.layout import read_control, read_record, write_record
from kts.cluster_records.state import ClusterOrigin, ClusterState, Fold

TOPIC = bytes(15) + b"\1"
Given = tuple[str, dict[str, Any]]


def folded(*given: Given) -> ClusterState:
    fold = Fold()
    for offset, (name, fields) in enumerate(given):
        fold.take(offset, read_record(write_record(name, 0, fields)))
    return fold.state(ClusterOrigin("DIR", None, None, None, None))


def config(key: str, value: str | None, kind: int = 2, name: str = "orders") -> Given:
    return "Config", {"resourceType": kind, "resourceName": name, "name": key, "value": value}


BEGIN, END, ABORT = ("BeginTransaction", {}), ("EndTransaction", {}), ("AbortTransaction", {})
ORDERS = ("Topic", {"name": "orders", "topicId": TOPIC})
PARTITION = ("Partition", {"partitionId": 0, "topicId": TOPIC, "replicas": [1, 2], "isr": [1, 2], "leader": 1})


def test_records_of_a_transaction_count_once_it_ends_and_aborted_ones_never() -> None:
    assert folded(BEGIN, ORDERS, END, config("a", "1")).topic("orders").config == {"a": "1"}
    assert not folded(BEGIN, ORDERS, ABORT).topics
    assert not folded(BEGIN, ORDERS).topics
    assert folded(ORDERS, BEGIN, config("a", "1"), ABORT, config("b", "2")).topic("orders").config == {"b": "2"}


def test_a_topic_that_is_made_again_has_none_of_its_settings() -> None:
    again = ("Topic", {"name": "orders", "topicId": bytes(15) + b"\2"})
    state = folded(ORDERS, PARTITION, config("retention.ms", "1"), ("RemoveTopic", {"topicId": TOPIC}), again)
    assert state.topic("orders") == ("orders", "AAAAAAAAAAAAAAAAAAAAAg", {}, {})
    assert not state.configs


def test_a_setting_that_is_removed_is_gone() -> None:
    assert folded(config("a", "1", 32, "g"), config("b", "2", 32, "g"), config("a", None, 32, "g")).configs == {
        ("GROUP", "g"): {"b": "2"}
    }
    assert folded(config("a", "1", 4, ""), config("a", None, 4, ""), config("a", None, 4, "")).configs == {}


def test_a_change_of_leader_raises_the_leader_epoch_and_any_change_the_partition_epoch() -> None:
    change = "PartitionChange", {"partitionId": 0, "topicId": TOPIC, "isr": [2]}
    partition = folded(ORDERS, PARTITION, change).topic("orders").partitions[0]
    assert (partition.leader, partition.leader_epoch, partition.partition_epoch, partition.isr) == (1, -1, 0, (2,))
    same = "PartitionChange", {"partitionId": 0, "topicId": TOPIC, "leader": 1}
    partition = folded(ORDERS, PARTITION, same).topic("orders").partitions[0]
    assert (partition.leader, partition.leader_epoch, partition.partition_epoch, partition.isr) == (1, 0, 0, (1, 2))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (PARTITION, "expected a topic that exists, found AAAAAAAAAAAAAAAAAAAAAQ"),
        (("RemoveTopic", {"topicId": TOPIC}), "expected a topic that exists"),
        (("UnfenceBroker", {"id": 7}), "expected a broker that exists, found 7"),
    ],
)
def test_a_record_about_what_does_not_exist_is_refused(given: Given, said: str) -> None:
    with pytest.raises(kts.KtsError, match=said):
        folded(given)


def test_an_unknown_topic_is_told_with_the_nearest_name() -> None:
    with pytest.raises(kts.UnknownTopicOrPartitionError, match="there is no topic order in .*did you mean orders"):
        folded(ORDERS).topic("order")


def test_voters_and_the_version_of_kraft_count_at_once() -> None:
    fold = Fold()
    fold.take(0, read_record(write_record("BeginTransaction", 0, {})))
    fold.take_control(read_control(b"\0\0\0\5", b"\0\0\0\1\0"))
    voter = b"\0\0\0\7" + TOPIC + b"\2\2C\2h\x23\x84\0" + b"\0\0\0\1\0" + b"\0"
    fold.take_control(read_control(b"\0\0\0\6", b"\0\0\2" + voter + b"\0"))
    fold.take_control(read_control(b"\0\0\0\2", b"anything"))  # a change of leader
    state = fold.state(ClusterOrigin("DIR", None, None, None, None))
    assert state.features == {"kraft.version": 1}
    assert state.voters == {7: (7, "AAAAAAAAAAAAAAAAAAAAAQ", (("C", "h", 9092, None),))}
    with pytest.raises(kts.KtsError, match="expected"):
        read_control(b"\0\0\0\6", b"\0\0\2")


def test_what_is_newer_has_no_effect_and_is_told() -> None:
    fold = Fold()
    fold.take(7, read_record(b"\1\x63\0\0"))
    fold.take(8, read_record(write_record("FeatureLevel", 0, {"name": "metadata.version", "featureLevel": 99})))
    state = fold.state(ClusterOrigin("DIR", None, None, None, None))
    assert state.unknown == ((7, "type 99"),)
    assert state.features == {"metadata.version": 99}
