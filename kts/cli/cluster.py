"""``kts cluster``: what a dead KRaft broker's disk says of its cluster."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from kts.errors import OffsetOutOfRangeError, UnknownTopicOrPartitionError
from kts.options import camel_case
from kts.store.addresses import has_pattern

from .inputs import existing_paths, json_option, now_option, storage_options_of_context, storage_options_option
from .output import counted, expand_option, note, print_json, print_table, remark
from .times import MOMENTS, resolve, show_time, zone_option

if TYPE_CHECKING:
    from kts.cluster_records.state import (
        ClusterBroker,
        ClusterController,
        ClusterPartition,
        ClusterState,
        ClusterTopic,
        Voter,
    )

EPILOG = f"""\b
Examples:
  kts cluster DIR
  kts cluster DIR --topic orders --json
  kts cluster DIR --as-of 40
  kts cluster DIR --as-of now

DIR is a log directory with __cluster_metadata-0: the one that metadata.log.dir names in server.properties, or else the
first of log.dirs. Brokers have it as well as controllers. The newest snapshot (*.checkpoint) and the log after it are
read, up to --as-of: an integer is an offset of the metadata log, and the state is that after the record there; anything
else is a time, and the state that before the first record after it. The quorum may not have committed the last records.

Times: {MOMENTS}.

Settings are those that were altered, as kafka-configs --describe shows them. Passwords, and settings of brokers that
Kafka does not know, are [hidden]; SCRAM users come without their secrets. A directory from the time of ZooKeeper says
which topics lie there, with their ids. Every record, one by one: kts dump DIR --decoder metadata.
"""


@click.command("cluster", short_help="Brokers, topics and settings, as a KRaft disk has them.", epilog=EPILOG)
@click.argument("path", metavar="DIR", type=click.Path())
@click.option("--as-of", metavar="OFFSET|TIME", help="The state at an offset or a time. Default: the newest.")
@click.option(
    "--topic",
    "topics",
    metavar="NAME",
    multiple=True,
    help="Only topics of these names, or of patterns such as ord*, and nothing else. Repeatable.",
)
@now_option
@zone_option
@storage_options_option
@expand_option
@json_option
def command(path: str, as_of: str | None, topics: tuple[str, ...], now: str | None, as_json: bool) -> None:
    """Show brokers, controllers, topics with ids and settings, partitions, features, ACLs, quotas and SCRAM users."""
    state = cluster_state(path, as_of, now)
    shown = chosen(state, topics) if topics else dict(state.topics)
    if as_json:
        for row in rows(state, shown, alone=bool(topics)):
            print_json(row)
        return
    tables = [*about_topics(shown)] if topics else [*about_cluster(state), *about_topics(shown), *about_access(state)]
    for number, table in enumerate(table for table in tables if table.rows):
        click.echo("\n" * bool(number), nl=False)
        print_table(table.headers, table.rows, right=table.right)
    for one in state.unknown:
        note(f"offset {one.offset}: {one.what} is newer than what is known here, and has no effect")
    if state.origin.open_transaction:
        note("the last records are left out: their metadata transaction had not ended")
    partitions = sum(len(topic.partitions) for topic in shown.values())
    remark(f"{counted(len(shown), 'topic')}, {counted(partitions, 'partition')}")


def chosen(state: ClusterState, names: tuple[str, ...]) -> dict[str, ClusterTopic]:
    """The topics that names and patterns mean."""
    from kts.dataset.paths import matching_topics

    found: dict[str, ClusterTopic] = {}
    for name in names:
        matching = matching_topics(name, state.topics, internal=True)
        if not matching and has_pattern(name):
            there = f"there are {', '.join(state.topics)}" if state.topics else "there is none"
            raise UnknownTopicOrPartitionError(
                f"no topic matches {name} in the metadata of {state.origin.directory}; {there}"
            )
        found |= {topic: state.topic(topic) for topic in matching or [name]}
    return found


def cluster_state(path: str, as_of: str | None, now: str | None) -> ClusterState:
    """The state that the options ask for."""
    from kts.dataset.cluster import cluster

    at: int | str | None = None
    if as_of is not None and (number := re.fullmatch(r"\s*([+-]?[0-9]+)\s*", as_of)) is not None:
        at = int(number[1])
    elif as_of is not None:
        at = show_time(resolve(as_of, "--as-of", None, now))
    existing_paths([path])
    try:
        return cluster(path, as_of=at, storage_options=storage_options_of_context())
    except FileNotFoundError as error:
        raise click.UsageError(f"{error.filename}: {error.strerror}") from error
    except (ValueError, OffsetOutOfRangeError) as error:
        raise click.UsageError(str(error)) from error


def rows(state: ClusterState, topics: Mapping[str, ClusterTopic], alone: bool) -> Iterator[dict[str, Any]]:
    """The rows of ``--json``; times in ms."""
    if not alone:
        origin = state.origin
        yield {
            "kind": "cluster",
            "clusterId": state.cluster_id,
            "nodeId": state.node_id,
            "byZookeeper": state.by_zookeeper,
            "path": origin.directory,
            "snapshot": origin.snapshot,
            "lastOffset": origin.last_offset,
            "lastTimestamp": origin.last_ms,
            "openTransaction": origin.open_transaction,
            "features": dict(state.features),
            "nextProducerId": state.next_producer_id,
            "migration": state.migration,
            "unknown": [one._asdict() for one in state.unknown],
        }
        for broker in state.brokers.values():
            yield {
                "kind": "broker",
                "nodeId": broker.broker_id,
                "brokerEpoch": broker.epoch,
                "endpoints": [_named(endpoint) for endpoint in broker.endpoints],
                "rack": broker.rack,
                "fenced": broker.fenced,
                "inControlledShutdown": broker.in_controlled_shutdown,
                "logDirs": list(broker.log_dirs),
                "cordonedLogDirs": None if broker.cordoned_log_dirs is None else list(broker.cordoned_log_dirs),
            }
        for controller in state.controllers.values():
            endpoints = [_named(endpoint) for endpoint in controller.endpoints]
            yield {"kind": "controller", "nodeId": controller.controller_id, "endpoints": endpoints}
        for voter in state.voters.values():
            endpoints = [_named(endpoint) for endpoint in voter.endpoints]
            yield {"kind": "voter", "nodeId": voter.voter_id, "directoryId": voter.directory_id, "endpoints": endpoints}
    for topic in topics.values():
        partitions = [_named(partition) for partition in topic.partitions.values()]
        yield {
            "kind": "topic",
            "topic": topic.name,
            "topicId": topic.topic_id,
            "config": dict(topic.config),
            "partitions": partitions,
        }
    if alone:
        return
    for (kind, name), config in state.configs.items():
        if kind != "TOPIC":
            yield {"kind": "config", "resourceType": kind, "resourceName": name, "config": dict(config)}
    for quota in state.quotas:
        yield {"kind": "quota", "entity": dict(quota.entity), "quota": dict(quota.values)}
    for acl in state.acls:
        yield {"kind": "acl", **_named(acl)}
    for user in state.scram_users:
        yield {"kind": "scramUser", "user": user.name, "mechanism": user.mechanism, "iterations": user.iterations}
    for token in state.delegation_tokens:
        yield {
            "kind": "delegationToken",
            "tokenId": token.token_id,
            "owner": token.owner,
            "requester": token.requester,
            "renewers": list(token.renewers),
            "issueTimestamp": token.issue_ms,
            "maxTimestamp": token.max_ms,
            "expirationTimestamp": token.expiry_ms,
        }


def _named(found: Any) -> dict[str, Any]:
    """The fields of a named tuple by names in camel case."""
    return {
        camel_case(name): list(value) if isinstance(value, tuple) else value for name, value in found._asdict().items()
    }


# --- tables ---------------------------------------------------------------------------------------


class StateTable(NamedTuple):
    """A table, and its columns that are aligned right."""

    headers: list[str]
    rows: list[list[object]]
    right: tuple[int, ...] = ()


def about_cluster(state: ClusterState) -> Iterator[StateTable]:
    """What is said of the cluster as a whole, and where that was read; brokers and controllers."""
    origin = state.origin
    facts: dict[str, object] = {"cluster": state.cluster_id, "node": state.node_id}
    facts |= {"read from": origin.log or origin.directory, "snapshot": origin.snapshot}
    if origin.last_offset is not None:
        facts["as of"] = f"offset {origin.last_offset:,}, {show_time(origin.last_ms)}"
    facts["features"] = _settings(state.features) or None
    facts["migration"] = None if state.migration == "NONE" else state.migration
    yield StateTable(["what", "is"], [[what, told] for what, told in facts.items() if told is not None])
    nodes: list[list[object]] = [
        ["broker", one.broker_id, _state_of(one), one.rack, _listeners(one)] for one in state.brokers.values()
    ]
    nodes += [["controller", one.controller_id, "", "", _listeners(one)] for one in state.controllers.values()]
    nodes += [["voter", one.voter_id, "", "", _listeners(one)] for one in state.voters.values()]
    yield StateTable(["node", "id", "state", "rack", "listeners"], nodes, (1,))


def about_topics(topics: Mapping[str, ClusterTopic]) -> Iterator[StateTable]:
    """Topics with their settings, and their partitions."""
    found: list[list[object]] = [
        [one.name, one.topic_id, len(one.partitions), _settings(one.config)] for one in topics.values()
    ]
    yield StateTable(["topic", "id", "partitions", "settings"], found, (2,))
    partitions: list[list[object]] = [
        [
            f"{topic.name}-{number}",
            *("none" if value < 0 else value for value in (one.leader, one.leader_epoch, one.partition_epoch)),
            _numbers(one.replicas),
            _numbers(one.isr),
            _reassigned(one),
        ]
        for topic in topics.values()
        for number, one in topic.partitions.items()
    ]
    names = ["partition", "leader", "leader epoch", "partition epoch", "replicas", "isr", "state"]
    yield StateTable(names, partitions, (1, 2, 3))


def about_access(state: ClusterState) -> Iterator[StateTable]:
    """Settings of brokers and groups, quotas, ACLs, SCRAM users and delegation tokens."""
    settings: list[list[object]] = [
        [kind, name or "(default)", _settings(config)]
        for (kind, name), config in state.configs.items()
        if kind != "TOPIC"
    ]
    yield StateTable(["resource", "name", "settings"], settings)
    quotas: list[list[object]] = [
        [_settings({kind: name or "(default)" for kind, name in one.entity.items()}), _settings(one.values)]
        for one in state.quotas
    ]
    yield StateTable(["entity", "quotas"], quotas)
    acls: list[list[object]] = [
        [a.permission_type, a.principal, a.host, a.operation, a.resource_type, a.pattern_type, a.resource_name]
        for a in state.acls
    ]
    yield StateTable(["acl", "principal", "host", "operation", "resource", "pattern", "name"], acls)
    yield StateTable(["scram user", "mechanism", "iterations"], [list(one) for one in state.scram_users], (2,))
    tokens: list[list[object]] = [
        [one.token_id, one.owner, show_time(one.expiry_ms)] for one in state.delegation_tokens
    ]
    yield StateTable(["delegation token", "owner", "expires"], tokens)


def _settings(found: Mapping[str, Any]) -> str:
    return " ".join(
        f"{key}={value:g}" if isinstance(value, float) else f"{key}={value}" for key, value in found.items()
    )


def _numbers(found: tuple[int, ...]) -> str:
    return ",".join(map(str, found))


def _listeners(node: ClusterBroker | ClusterController | Voter) -> str:
    return " ".join(f"{one.name}://{one.host}:{one.port}" for one in node.endpoints)


def _state_of(broker: ClusterBroker) -> str:
    return "fenced" if broker.fenced else "stopping" if broker.in_controlled_shutdown else "active"


def _reassigned(partition: ClusterPartition) -> str:
    words = [f"adds {_numbers(partition.adding_replicas)}"] if partition.adding_replicas else []
    words += [f"removes {_numbers(partition.removing_replicas)}"] if partition.removing_replicas else []
    return ", ".join([*words, *["recovering"] * partition.recovering])
