"""What the metadata of a cluster, where it lies beside partitions, says of them; for several commands."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kts.errors import KtsError

from .inputs import storage_options_of_context
from .output import note
from .times import show_time

if TYPE_CHECKING:
    from kts.cluster_records.state import ClusterState
    from kts.dataset.partition import PartitionLog


def home_of(log: PartitionLog) -> str:
    """The log directory of a partition."""
    return os.path.dirname(os.path.abspath(log.path)) if log.source.is_here else os.path.dirname(log.path)


def states_beside(logs: Sequence[PartitionLog]) -> dict[str, ClusterState]:
    """The newest state of the cluster in each log directory that holds a metadata log; one that cannot be read is told.

    Of several log directories of a node, the first has it: the others take it from there, if their ``meta.properties``
    name the same cluster and node.
    """
    from kts.dataset.cluster import cluster

    found: dict[str, ClusterState] = {}
    others: dict[str, ClusterState] = {}
    for home in dict.fromkeys(home_of(log) for log in logs if not log.lone):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a directory without a metadata log
            try:
                state = cluster(home, storage_options=storage_options_of_context())
            except FileNotFoundError:
                continue
            except (KtsError, OSError) as error:
                note(f"the cluster's metadata is left out: {error}")
                continue
        (others if state.origin.log is None else found)[home] = state
    for home, other in others.items():
        for state in list(found.values()):
            if (state.cluster_id, state.node_id) == (other.cluster_id, other.node_id):
                found[home] = state.of_directory(other.directory_id)
    return found


def read_from(state: ClusterState) -> str:
    """Where a state was read, and of when it is."""
    at = "" if state.origin.last_ms is None else f", of {show_time(state.origin.last_ms)}"
    return f"{state.origin.log or state.origin.directory} (offset {state.origin.last_offset}{at})"
