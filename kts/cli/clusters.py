"""What the metadata of a cluster, where it lies beside partitions, says of them; for several commands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

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


def configs_of(logs: Sequence[PartitionLog], own: dict[str, Any], release: str) -> dict[tuple[str, str], LogConfig]:
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
    found: dict[tuple[str, str], LogConfig] = {}
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
            tell_tiers(topic, merged(kept_settings, own))
            below = merged(known_settings(kept_settings, Behaviour.of(release)), own)
            try:
                found[home, topic] = LogConfig.of(merged(below, above), release=release)
            except ValueError as error:
                where = topic_file.path(home) if state is None else read_from(state)
                raise click.UsageError(f"topic {topic} of {where}: {error}") from error
    return found


def tell_tiers(topic: str, settings: Mapping[str, str]) -> None:
    """Tell the limits of a topic's local segments, which differ from those of the topic and are not applied."""
    local = {name: value for name, value in settings.items() if name.startswith("local.retention.") and value != "-2"}
    if local and str(settings.get("remote.storage.enable", "")).lower() == "true":
        shown = ", ".join(f"{name}={value}" for name, value in sorted(local.items()))
        note(
            f"{topic} has tiered storage, and its local segments have {shown}, which is not applied here: give it as "
            "--retention-ms or --retention-bytes"
        )
