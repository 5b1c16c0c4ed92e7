"""What the metadata of a cluster says of the partitions that lie in a log directory."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence

from kts.cluster_records.layout import TOPIC
from kts.cluster_records.state import ClusterState
from kts.config import FORMAT_OF_MAGIC, LogConfig, settings_for
from kts.dataset.cluster import cluster
from kts.dataset.partition import PartitionLog
from kts.errors import KtsError
from kts.segment.rereading import warn
from kts.store.addresses import StorageOptions

# What a writer of a topic's files asks for. Of max.message.bytes, a smaller value does not count for what was there.
_OF_FILES = frozenset(
    "cleanup_policy compression_type index_interval_bytes message_timestamp_type segment_bytes segment_index_bytes "
    "segment_ms".split()
)
_NO_DIRECTORY = frozenset(
    {"AAAAAAAAAAAAAAAAAAAAAA", "AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg"}
)  # MIGRATING, UNASSIGNED, LOST


def home_of(log: PartitionLog) -> str:
    """The log directory of a partition."""
    return os.path.dirname(os.path.abspath(log.path)) if log.source.is_here else os.path.dirname(log.path)


def states_beside(logs: Sequence[PartitionLog], storage_options: StorageOptions = None) -> dict[str, ClusterState]:
    """The newest state of the cluster in each log directory that holds a metadata log.

    Of several log directories of a node, the first has it: the others take it from there, if their ``meta.properties``
    name the same cluster and node.

    Warns
    -----
    KtsWarning
        The metadata cannot be read, and is left out.
    """
    found: dict[str, ClusterState] = {}
    others: dict[str, ClusterState] = {}
    for home in dict.fromkeys(home_of(log) for log in logs if not (log.lone or log.remote_alone)):
        try:
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                state = cluster(home, storage_options=storage_options)
        except FileNotFoundError:
            continue
        except (KtsError, OSError) as error:
            warn(f"the cluster's metadata is left out: {error}", home)
            continue
        if state.origin.log is None:  # which its warning says
            others[home] = state
            continue
        found[home] = state
        for one in said:
            warn(str(one.message), home)
    for home, other in others.items():
        if None in (other.cluster_id, other.node_id):
            continue
        for state in list(found.values()):
            if (state.cluster_id, state.node_id) == (other.cluster_id, other.node_id):
                found[home] = state.of_directory(other.directory_id)
    return found


def id_of(states: Mapping[str, ClusterState], log: PartitionLog) -> str | None:
    """The id that the cluster has for a partition's topic; None if nothing is known of it."""
    state = None if log.lone or log.remote_alone else states.get(home_of(log))
    topic = None if state is None or state.by_zookeeper else state.topics.get(log.topic)
    return None if topic is None else topic.topic_id


def broker_levels(state: ClusterState) -> list[Mapping[str, str]]:
    """The settings that were altered of all brokers, and of this node, which precede them."""
    return [state.configs.get(("BROKER", name), {}) for name in ("", str(state.node_id))]


def settings_of(state: ClusterState, topic: str) -> dict[str, str]:
    """A topic's settings that were altered, and those of its brokers, by their own names."""
    levels = [*broker_levels(state), state.topics[topic].config if topic in state.topics else {}]
    return {name: value for level in levels for name, value in level.items()}


def log_config(state: ClusterState | None, topic: str, magic: int) -> LogConfig:
    """What the cluster says of how a topic's files are written, in the newest format of a magic; else Kafka's defaults.

    Warns
    -----
    KtsWarning
        A value that the release of the format does not take: the defaults are used.
    """
    version = FORMAT_OF_MAGIC[magic]
    default = LogConfig(message_format_version=version)
    if state is None:
        return default
    settings = settings_for(_OF_FILES, settings_of(state, topic), default.behaviour())
    try:
        return LogConfig.of({**settings, "message.format.version": version})
    except ValueError as error:
        warn(f"topic {topic} of {state.origin.log}: {error}; defaults are used", state.origin.log)
        return default


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
