"""What the metadata of a cluster, where it lies beside partitions, says of them; for several commands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from kts.behaviour import Behaviour

from .inputs import storage_options_of_context
from .output import note
from .times import show_time

if TYPE_CHECKING:
    from kts.cluster_records.state import ClusterState
    from kts.config import LogConfig
    from kts.dataset.partition import PartitionLog


def states_beside(logs: Sequence[PartitionLog]) -> dict[str, ClusterState]:
    """The newest state of the cluster in each log directory that holds a metadata log; one that cannot be read is told.

    See ``kts.dataset.placement``.
    """
    from kts.dataset import placement

    return placement.states_beside(logs, storage_options_of_context())


def applied_states(logs: Sequence[PartitionLog], what: str) -> dict[str, ClusterState]:
    """As ``states_beside``; a line says where each was read, and ``what`` comes from there."""
    states = states_beside(logs)
    for where in dict.fromkeys(map(read_from, states.values())):
        note(f"{what} are those of {where}, without those of server.properties")
    return states


def read_from(state: ClusterState) -> str:
    """Where a state was read, and of when it is."""
    at = "" if state.origin.last_ms is None else f", of {show_time(state.origin.last_ms)}"
    return f"{state.origin.log or state.origin.directory} (offset {state.origin.last_offset}{at})"


class LocalLimits(NamedTuple):
    """The limits of a tiered topic's local segments, once they are copied; ``own`` if they are not the topic's."""

    retention_ms: int
    retention_bytes: int
    own: bool

    def __str__(self) -> str:
        return f"local.retention.ms={self.retention_ms} and local.retention.bytes={self.retention_bytes}"


class KnownSettings(NamedTuple):
    """The settings of a topic, and the limits of its local segments; None if it is not copied to tiered storage."""

    config: LogConfig
    local: LocalLimits | None


def configs_of(logs: Sequence[PartitionLog], own: dict[str, Any], release: str) -> dict[tuple[str, str], LogConfig]:
    """The settings of each topic without those of tiered storage; see ``settings_by_topic``."""
    return {key: found.config for key, found in settings_by_topic(logs, own, release).items()}


def settings_by_topic(
    logs: Sequence[PartitionLog], own: dict[str, Any], release: str
) -> dict[tuple[str, str], KnownSettings]:
    """The settings of each topic, by log directory and name, replaced by ``own``.

    Those that a broker of kts keeps there, or those of the cluster, where its metadata lies there.
    """
    from kts.broker.settings.topic import BROKER_NAMES, merged
    from kts.broker.topics import topic_file
    from kts.config import DIFFERENCE, KIP_32_NAMES, LogConfig, known_settings
    from kts.dataset.placement import broker_levels, home_of

    told = LogConfig.of(own, release=release).to_properties()
    names = {
        DIFFERENCE if one in KIP_32_NAMES else BROKER_NAMES[one].name if one in BROKER_NAMES else one for one in own
    }
    above = {name: told[name] for name in names if name in told}  # by a topic's names, which precede a broker's
    found: dict[tuple[str, str], KnownSettings] = {}
    states = applied_states(logs, "settings")
    for home in dict.fromkeys(map(home_of, logs)):
        kept, state = topic_file.read(home), states.get(home)
        levels: list[Mapping[str, str]] = [kept.cluster, kept.node]
        if state is not None:
            levels = broker_levels(state)
        broker = {name: value for name, value in merged(*levels).items() if name in BROKER_NAMES}
        for topic in dict.fromkeys(log.topic for log in logs if home_of(log) == home):
            settings: Mapping[str, str]
            if state is None:
                settings = kept.topics[topic].configs if topic in kept.topics else {}
            else:
                settings = state.topics[topic].config if topic in state.topics else {}
            kept_settings = merged(broker, settings)
            below = merged(known_settings(kept_settings, Behaviour.of(release)), own)
            try:
                config = LogConfig.of(merged(below, above), release=release)
                found[home, topic] = KnownSettings(config, local_limits(config, merged(kept_settings, own)))
            except ValueError as error:
                where = topic_file.path(home) if state is None else read_from(state)
                raise click.UsageError(f"topic {topic} of {where}: {error}") from error
    return found


def local_limits(config: LogConfig, settings: Mapping[str, Any]) -> LocalLimits | None:
    """The limits of a topic's local segments; None if it is not copied to tiered storage.

    Notes
    -----
    Source: UnifiedLog.localRetentionMs, .localRetentionSize; LogConfig.localRetentionMs (3.9).
    """
    from kts.arguments import INT64_MAX
    from kts.broker.settings.topic import NO_OWN_RETENTION
    from kts.config import parse_integer

    def is_true(name: str) -> bool:
        return str(settings.get(name, "")).strip().lower() == "true"

    if not is_true("remote.storage.enable") or is_true("remote.log.copy.disable"):
        return None
    limits = {"ms": config.retention_ms, "bytes": config.retention_bytes}
    own = False
    for unit in limits:
        name = f"local.retention.{unit}"
        value = settings.get(name, settings.get(f"log.{name}", NO_OWN_RETENTION))
        given = parse_integer(name, value, NO_OWN_RETENTION, INT64_MAX)
        if given != NO_OWN_RETENTION:
            limits[unit], own = given, True
    return LocalLimits(limits["ms"], limits["bytes"], own)
