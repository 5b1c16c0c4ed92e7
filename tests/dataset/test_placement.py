"""Partitions that lie in a log directory, against what the cluster's metadata says of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.clusters import cluster_of

import kts
from kts.cluster_records.state import ClusterState
from kts.dataset.placement import stray

OTHER_ID = "AAAAAAAAAAAAAAAAAAAABB"
UNASSIGNED = "AAAAAAAAAAAAAAAAAAAAAQ"


@pytest.fixture(scope="module")
def state() -> ClusterState:
    return kts.cluster(cluster_of("4.3.1"))


def partition(path: Path, topic_id: str | None) -> kts.PartitionLog:
    with kts.Log(path, topic_id=topic_id) as log:
        log.append_rows({"value": [b"v"]})
    return kts.open_partition(path)


def changed(state: ClusterState, **partition: Any) -> ClusterState:
    """The state with partition 0 of orders altered."""
    topic = state.topics["orders"]
    partitions = {**topic.partitions, 0: topic.partitions[0]._replace(**partition)}
    return replace(state, topics={**state.topics, "orders": topic._replace(partitions=partitions)})


def test_a_partition_is_the_clusters_by_topic_id_number_and_replicas(state: ClusterState, tmp_path: Path) -> None:
    own = state.topic("orders").topic_id
    assert stray(state, partition(tmp_path / "orders-0", own)) is None
    assert stray(state, partition(tmp_path / "orders-1", None)) is None  # of a time before ids
    assert stray(state, partition(tmp_path / "orders-3", own)) == "stray: the topic has 3 partitions"
    assert stray(state, partition(tmp_path / "gone-0", own)) == "stray: the cluster has no topic of this name"
    again = f"stray: the topic was made again, with id {own}; this one had {OTHER_ID}"
    assert stray(state, partition(tmp_path / "orders-2", OTHER_ID)) == again


def test_a_replica_may_be_elsewhere(state: ClusterState, tmp_path: Path) -> None:
    log = partition(tmp_path / "orders-0", state.topic("orders").topic_id)
    away = changed(state, replicas=(2, 3), directories=(OTHER_ID, OTHER_ID))
    assert stray(away, log) == "moved: its replicas are on 2, 3, and this is node 1"
    told = f"moved: node 1 has it in the log directory {OTHER_ID}, and this is {state.directory_id}"
    assert stray(changed(state, replicas=(2, 1), directories=(UNASSIGNED, OTHER_ID)), log) == told
    assert stray(changed(state, replicas=(2, 1), directories=(OTHER_ID, UNASSIGNED)), log) is None
    assert stray(changed(state, directories=()), log) is None  # of a release without directories
    assert stray(replace(away, node_id=None), log) is None


def test_nothing_is_said_without_a_metadata_log_and_of_that_log_itself(state: ClusterState, tmp_path: Path) -> None:
    log = partition(tmp_path / "gone-0", OTHER_ID)
    assert stray(replace(state, by_zookeeper=True), log) is None
    assert stray(replace(state, origin=state.origin._replace(log=None)), log) is None
    assert stray(state, kts.open_partition(cluster_of("4.3.1") / "__cluster_metadata-0")) is None
