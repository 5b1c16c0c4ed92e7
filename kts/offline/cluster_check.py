"""Checks partitions against the metadata of their cluster, where that lies beside them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress

from kts.cluster_records.state import ClusterState
from kts.dataset.partition import PartitionLog
from kts.dataset.placement import home_of, id_of, settings_of, stray
from kts.errors import LogStorageError
from kts.offline.findings import Violation
from kts.segment import checkpoints, names

States = Mapping[str, ClusterState]  # by log directory


def verify_topic_ids(logs: Iterable[PartitionLog], states: States) -> Iterator[Violation]:
    """Yield every partition whose topic has another id in the cluster."""
    for log in logs:
        own, known = _ids(log, states)
        if _differ(own, known):
            message = (
                f"expected {known}, the cluster's id of {log.topic}, found {own}: these are records of a topic that was"
                " deleted and made again, and a broker sets the directory aside as stray; copy what you need of it,"
                " and delete it"
            )
            yield Violation(os.path.join(log.path, names.PARTITION_METADATA), None, None, "topic-id", message)


def strays(logs: Iterable[PartitionLog], states: States) -> Iterator[tuple[PartitionLog, str]]:
    """Yield the partitions that are not the cluster's, or not there any more, and why; not those with another id."""
    for log in logs:
        state = None if log.lone or log.remote_alone else states.get(home_of(log))
        why = None
        with suppress(LogStorageError):  # of partition.metadata, whose own check tells it
            why = None if state is None or _differ(*_ids(log, states)) else stray(state, log)
        if why is not None:
            yield log, why


def compacted(logs: Iterable[PartitionLog], states: States) -> frozenset[str]:
    """The paths of the partitions whose topic the cluster compacts: their records need keys."""
    found = set()
    for log in logs:
        own, known = _ids(log, states)
        if known is not None and not _differ(own, known):
            settings = settings_of(states[home_of(log)], log.topic)
            policy = settings.get("cleanup.policy", settings.get("log.cleanup.policy", ""))
            found |= {log.path} if "compact" in map(str.strip, policy.split(",")) else set()
    return frozenset(found)


def _ids(log: PartitionLog, states: States) -> tuple[str | None, str | None]:
    """The topic's id as the partition has it, where it can be read, and as the cluster has it."""
    own, known = None, id_of(states, log)
    with suppress(LogStorageError):
        own = None if known is None else checkpoints.read_topic_id(log.path, log.source)
    return own, known


def _differ(own: str | None, known: str | None) -> bool:
    return None not in (own, known) and own != known
