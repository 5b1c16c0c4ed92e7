"""What brokers left of their clusters' metadata in `data/cluster`, and what Kafka's classes and clients say of it."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import kts
from kts.cluster_records import names
from kts.cluster_records.layout import record_types
from kts.cluster_records.secrets import is_secret_setting
from kts.cluster_records.state import ClusterState
from kts.protocol.fields import Field
from support import TESTS

FOLDER = TESTS / "data/cluster"
VERSIONS = ["3.9.2", "4.3.1"]
LOG = "__cluster_metadata-0"
Row = dict[str, Any]


def _lines(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def cluster_of(version: str) -> Path:
    """The log directory of a broker."""
    return FOLDER / version


def records_of(folder: Path) -> dict[str, list[Row]]:
    """The records that Kafka's classes read, by the name of the file, without secrets."""
    found: dict[str, list[Row]] = {}
    for row in _lines(folder / "records.jsonl"):
        found.setdefault(row["file"], []).append(row)
    return found


def images_of(folder: Path) -> dict[int, list[Row]]:
    """By offset: the state after it, as the records of which Kafka's image consists."""
    return {row["offset"]: row["records"] for row in _lines(folder / "images.jsonl")}


def described(folder: Path) -> Row:
    """What Kafka's Admin client was told while the broker ran."""
    found: Row = json.loads((folder / "described.json").read_text(encoding="utf-8"))
    return found


def written() -> list[Row]:
    """Values of every type and version that Kafka 4.3.1's classes wrote: `apiKey`, `version`, `bytes`, their `data`."""
    return _lines(FOLDER / "values.jsonl")


# --- random records -------------------------------------------------------------------------------


def random_data(rng: random.Random, fields: Sequence[Field], version: int) -> Row:
    """Fields of a record, as Kafka's converters read them from JSON."""
    return {
        field.name: _random_value(rng, field, version)
        for field in fields
        if version in field.versions and (field.tag is None or rng.random() < 0.7)
    }


def _random_value(rng: random.Random, field: Field, version: int) -> Any:
    if version in field.null and rng.random() < 0.3:
        return None
    if field.is_array:
        one = field._replace(is_array=False, null=range(0))
        return [_random_value(rng, one, version) for _ in range(rng.choice([0, 1, 2, 3, 130]))]
    match field.type:
        case "{}":
            return random_data(rng, field.fields, version)
        case "bool":
            return rng.random() < 0.5
        case "float64":
            return rng.choice([0.0, 1.5, -2e300, 1024.0])
        case "uuid":
            return base64.urlsafe_b64encode(rng.randbytes(16)).decode().rstrip("=")
        case "bytes":
            return base64.b64encode(rng.randbytes(rng.choice([0, 3, 300]))).decode()
        case "string":
            return rng.choice(["", "orders", "ä→𝄞", "x" * 200, "-"])
        case "uint16":
            return rng.choice([0, 9092, 65535])
    bits = int(field.type[3:]) - 1
    return rng.choice([0, 1, -1, 2**bits - 1, -(2**bits)])


# --- states, as dicts to compare ------------------------------------------------------------------


def of_image(records: Sequence[Row]) -> Row:
    """What Kafka's image says."""
    found: Row = {name: {} for name in ("brokers", "controllers", "topics", "features", "configs", "quotas", "acls")}
    found |= {"users": {}, "tokens": {}, "next": None}
    ids: dict[str, str] = {}
    for record in records:
        data = record["data"]
        match record_types()[record["apiKey"]].name:
            case "RegisterBroker":
                keys = ("brokerEpoch", "incarnationId", "rack", "fenced")
                found["brokers"][data["brokerId"]] = {
                    **{key: data[key] for key in keys},
                    "inControlledShutdown": data.get("inControlledShutdown", False),
                    "logDirs": data.get("logDirs", []),
                    "cordonedLogDirs": data.get("cordonedLogDirs"),
                    "ports": [each["port"] for each in data["endPoints"]],
                    "features": {each["name"]: each["maxSupportedVersion"] for each in data["features"]},
                }
            case "RegisterController":
                found["controllers"][data["controllerId"]] = [each["port"] for each in data["endPoints"]]
            case "Topic":
                ids[data["topicId"]] = data["name"]
                found["topics"][data["name"]] = {"id": data["topicId"], "partitions": {}}
            case "Partition":
                of = found["topics"][ids[data["topicId"]]]["partitions"]
                of[data["partitionId"]] = {
                    "leaderRecoveryState": 0,
                    **{name: [] for name in ("directories", "eligibleLeaderReplicas", "lastKnownElr")},
                    **{name: value for name, value in data.items() if name not in ("topicId", "partitionId")},
                }
            case "Config":
                of = names.RESOURCE_TYPES[data["resourceType"]], data["resourceName"]
                hidden = is_secret_setting(data["resourceType"], data["name"])
                found["configs"].setdefault(of, {})[data["name"]] = "[hidden]" if hidden else data["value"]
            case "FeatureLevel":
                found["features"][data["name"]] = data["featureLevel"]
            case "ClientQuota":
                of = tuple(sorted((each["entityType"], each["entityName"]) for each in data["entity"]))
                found["quotas"].setdefault(of, {})[data["key"]] = data["value"]
            case "AccessControlEntry":
                found["acls"][data["id"]] = {name: value for name, value in data.items() if name != "id"}
            case "UserScramCredential":
                found["users"][data["name"], names.MECHANISMS[data["mechanism"]]] = data["iterations"]
            case "DelegationToken":
                found["tokens"][data["tokenId"]] = data
            case "ProducerIds":
                found["next"] = data["nextProducerId"]
            case "ZkMigrationState":
                pass  # an image of 3.9 always has it
            case other:
                raise ValueError(f"an image has no {other}")
    return found


def of_state(state: ClusterState) -> Row:
    """What kts says, in the same form."""
    codes = {
        "resourceType": names.ACL_RESOURCE_TYPES,
        "patternType": names.PATTERN_TYPES,
        "operation": names.OPERATIONS,
        "permissionType": names.PERMISSIONS,
    }
    numbers = {kind: {name: number for number, name in known.items()} for kind, known in codes.items()}
    return {
        "brokers": {
            number: {
                "brokerEpoch": one.epoch,
                "incarnationId": one.incarnation_id,
                "rack": one.rack,
                "fenced": one.fenced,
                "inControlledShutdown": one.in_controlled_shutdown,
                "logDirs": list(one.log_dirs),
                "cordonedLogDirs": None if one.cordoned_log_dirs is None else list(one.cordoned_log_dirs),
                "ports": [endpoint.port for endpoint in one.endpoints],
                "features": {name: most for name, (_, most) in one.features.items()},
            }
            for number, one in state.brokers.items()
        },
        "controllers": {n: [endpoint.port for endpoint in one.endpoints] for n, one in state.controllers.items()},
        "topics": {
            name: {
                "id": topic.topic_id,
                "partitions": {
                    number: {
                        "replicas": list(one.replicas),
                        "isr": list(one.isr),
                        "removingReplicas": list(one.removing_replicas),
                        "addingReplicas": list(one.adding_replicas),
                        "leader": one.leader,
                        "leaderEpoch": one.leader_epoch,
                        "partitionEpoch": one.partition_epoch,
                        "directories": list(one.directories),
                        "eligibleLeaderReplicas": list(one.eligible_leader_replicas),
                        "lastKnownElr": list(one.last_known_elr),
                        "leaderRecoveryState": int(one.recovering),
                    }
                    for number, one in topic.partitions.items()
                },
            }
            for name, topic in state.topics.items()
        },
        "features": {
            name: level for name, level in state.features.items() if name != "kraft.version"
        },  # not an image's
        "configs": {of: dict(config) for of, config in state.configs.items()},
        "quotas": {tuple(sorted(one.entity.items())): dict(one.values) for one in state.quotas},
        "acls": {
            one.acl_id: {
                "resourceType": numbers["resourceType"][one.resource_type],
                "resourceName": one.resource_name,
                "patternType": numbers["patternType"][one.pattern_type],
                "principal": one.principal,
                "host": one.host,
                "operation": numbers["operation"][one.operation],
                "permissionType": numbers["permissionType"][one.permission_type],
            }
            for one in state.acls
        },
        "users": {(one.name, one.mechanism): one.iterations for one in state.scram_users},
        "tokens": {
            one.token_id: {
                "owner": one.owner,
                "requester": one.requester,
                "renewers": list(one.renewers),
                "issueTimestamp": one.issue_ms,
                "maxTimestamp": one.max_ms,
                "expirationTimestamp": one.expiry_ms,
                "tokenId": one.token_id,
            }
            for one in state.delegation_tokens
        },
        "next": state.next_producer_id,
    }


def check_described(folder: Path) -> None:
    """The state at the time when the Admin client asked is what it was told."""
    said = described(folder)
    state = kts.cluster(folder, as_of=said["logEndOffset"] - 1)
    assert state.cluster_id == said["clusterId"]
    assert [(one.broker_id, one.endpoints[0].host, one.endpoints[0].port) for one in state.brokers.values()] == [
        (one["id"], one["host"], one["port"]) for one in said["brokers"]
    ]
    assert {name: level for name, level in state.features.items() if level} == said["features"]
    assert list(state.voters) == ([1] if "kraft.version" in said["features"] else [])
    assert {name: topic.topic_id for name, topic in state.topics.items()} == {
        name: topic["id"] for name, topic in said["topics"].items()
    }
    for name, topic in said["topics"].items():
        for expected, one in zip(topic["partitions"], state.topic(name).partitions.values(), strict=True):
            found = {"partition": one.partition, "leader": one.leader}
            assert found | {"replicas": list(one.replicas), "isr": list(one.isr)} == expected
    configs: dict[tuple[str, str], dict[str, str]] = {}
    for one in said["configs"]:
        value = "[hidden]" if one["value"] is None else one["value"]  # Kafka tells no secrets either
        configs.setdefault((one["type"], one["name"]), {})[one["key"]] = value
    assert state.configs == configs
    assert [(one["entity"], one["values"]) for one in said["quotas"]] == [*state.quotas] or {
        tuple(sorted(one["entity"].items())): one["values"] for one in said["quotas"]
    } == {tuple(sorted(one.entity.items())): one.values for one in state.quotas}
    assert {(one["name"], one["mechanism"], one["iterations"]) for one in said["users"]} == {*state.scram_users}
    assert {tuple(one.values()) for one in said["acls"]} == {one[1:] for one in state.acls}
