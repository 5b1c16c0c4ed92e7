"""What the metadata of a cluster says of the partitions that lie in a log directory."""

from __future__ import annotations

from kts.cluster_records.layout import TOPIC
from kts.cluster_records.state import ClusterState
from kts.dataset.partition import PartitionLog

_NO_DIRECTORY = frozenset(
    {"AAAAAAAAAAAAAAAAAAAAAA", "AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg"}
)  # MIGRATING, UNASSIGNED, LOST


def stray(state: ClusterState, log: PartitionLog) -> str | None:
    """Why a partition that lies in a node's log directory is not the cluster's, or not there; None if it is.

    Parameters
    ----------
    state : ClusterState
        Of the log directory.

    Notes
    -----
    Source: BrokerMetadataPublisher, LogManager.isStrayReplica; KIP-858 for directories.
    """
    if state.by_zookeeper or state.origin.log is None or log.topic == TOPIC:
        return None
    topic = state.topics.get(log.topic)
    if topic is None:
        return "stray: the cluster has no topic of this name"
    own = log.topic_id
    if own is not None and topic.topic_id is not None and own != topic.topic_id:
        return f"stray: the topic was made again, with id {topic.topic_id}; this one had {own}"
    known = topic.partitions.get(log.partition)
    if known is None:
        return f"stray: the topic has {len(topic.partitions)} partitions"
    if state.node_id is None:
        return None
    if state.node_id not in known.replicas:
        return f"moved: its replicas are on {', '.join(map(str, known.replicas))}, and this is node {state.node_id}"
    at = known.replicas.index(state.node_id)
    directory = known.directories[at] if at < len(known.directories) else None
    if state.directory_id is None or directory in (None, state.directory_id, *_NO_DIRECTORY):
        return None
    return f"moved: node {state.node_id} has it in the log directory {directory}, and this is {state.directory_id}"
