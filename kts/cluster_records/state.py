"""The state of a cluster: what the records of the metadata log add up to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from kts.arguments import suggestion
from kts.cluster_records.layout import DecodedRecord
from kts.cluster_records.names import (
    ACL_RESOURCE_TYPES,
    MECHANISMS,
    MIGRATION_STATES,
    OPERATIONS,
    PATTERN_TYPES,
    PERMISSIONS,
    RESOURCE_TYPES,
    SECURITY_PROTOCOLS,
    named,
)
from kts.cluster_records.secrets import without_secrets
from kts.errors import InvalidRequestError, UnknownTopicOrPartitionError
from kts.model import uuid_text

NO_LEADER_CHANGE = -2
METADATA_VERSION = "metadata.version"  # the one feature that may have level 0
KRAFT_VERSION = "kraft.version"


class Endpoint(NamedTuple):
    """Where a broker or controller listens."""

    name: str
    host: str
    port: int
    security_protocol: str | None


class ClusterBroker(NamedTuple):
    """A registered broker.

    ``features`` are the least and greatest level of each that it supports. ``log_dirs`` are ids of directories, None of
    ``cordoned_log_dirs`` is not told.
    """

    broker_id: int
    epoch: int
    incarnation_id: str
    endpoints: tuple[Endpoint, ...]
    features: Mapping[str, tuple[int, int]]
    rack: str | None
    fenced: bool
    in_controlled_shutdown: bool
    is_migrating_zk_broker: bool
    log_dirs: tuple[str, ...]
    cordoned_log_dirs: tuple[str, ...] | None


class ClusterController(NamedTuple):
    """A registered controller; ``features`` as of a broker."""

    controller_id: int
    incarnation_id: str
    endpoints: tuple[Endpoint, ...]
    features: Mapping[str, tuple[int, int]]
    zk_migration_ready: bool


class Voter(NamedTuple):
    """A controller that votes, where the log says it (kraft.version 1); its endpoints name no security protocol."""

    voter_id: int
    directory_id: str
    endpoints: tuple[Endpoint, ...]


class ClusterPartition(NamedTuple):
    """A partition; replicas are ids of brokers, ``directories`` the ids of their directories in the same order."""

    partition: int
    leader: int
    leader_epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    removing_replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    directories: tuple[str, ...]
    eligible_leader_replicas: tuple[int, ...]
    last_known_elr: tuple[int, ...]
    recovering: bool


class ClusterTopic(NamedTuple):
    """A topic: its id, its own settings by Kafka's names, and its partitions by number."""

    name: str
    topic_id: str | None
    config: Mapping[str, str]
    partitions: Mapping[int, ClusterPartition]


class Quota(NamedTuple):
    """Quotas of an entity: a user, a client id, an ip, or several together; the name None is the default."""

    entity: Mapping[str, str | None]
    values: Mapping[str, float]


class Acl(NamedTuple):
    """An access control entry."""

    acl_id: str
    resource_type: str
    resource_name: str
    pattern_type: str
    principal: str
    host: str
    operation: str
    permission_type: str


class ScramUser(NamedTuple):
    """A user's SCRAM credential, without its secrets."""

    name: str
    mechanism: str
    iterations: int


class DelegationToken(NamedTuple):
    """A delegation token, without its secret, which is not in the log; times in ms since the epoch."""

    token_id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issue_ms: int
    max_ms: int
    expiry_ms: int


class Unknown(NamedTuple):
    """A record, or a part of one, that is newer than what is known of Kafka: its offset, and what was passed over."""

    offset: int
    what: str


class ClusterOrigin(NamedTuple):
    """Where a state was read.

    Attributes
    ----------
    directory : str
        The log directory.
    snapshot : str or None
        The file that it begins with: a snapshot, or ``bootstrap.checkpoint``.
    log : str or None
        The directory of the log whose records follow.
    last_offset, last_ms : int or None
        The last offset that counts, and its time in ms since the epoch.
    open_transaction : bool
        Whether records at the end are left out, because their metadata transaction had not ended.
    """

    directory: str
    snapshot: str | None
    log: str | None
    last_offset: int | None
    last_ms: int | None
    open_transaction: bool = False


@dataclass(frozen=True, kw_only=True)
class ClusterState:
    """A cluster as its metadata log says it, at an offset.

    Attributes
    ----------
    cluster_id, node_id, directory_id : str, int, str or None
        From ``meta.properties``: whose log directory this is.
    by_zookeeper : bool
        True for a directory of the time of ZooKeeper, which holds no metadata but ids.
    brokers, controllers, voters : dict
        By id. Without ``kraft.version`` 1, ``controller.quorum.voters`` of ``server.properties`` names the voters.
    topics : dict
        By name.
    features : dict
        The finalized level of each feature.
    configs : dict
        Settings that were altered, by (resource type, name): ("BROKER", "1"), ("BROKER", "") for all brokers,
        ("GROUP", "billing"). Those of topics are in ``topics``, too. Values that may be secrets are "[hidden]".
    quotas, acls, scram_users, delegation_tokens : tuple
        Without secrets.
    next_producer_id : int or None
        The first producer id that no broker was given yet.
    migration : str or None
        How far a migration from ZooKeeper is.
    unknown : tuple of Unknown
        What is newer than what is known of Kafka, and has no effect here.
    origin : ClusterOrigin
        Where this was read.
    """

    cluster_id: str | None
    node_id: int | None
    directory_id: str | None
    by_zookeeper: bool
    brokers: Mapping[int, ClusterBroker]
    controllers: Mapping[int, ClusterController]
    voters: Mapping[int, Voter]
    topics: Mapping[str, ClusterTopic]
    features: Mapping[str, int]
    configs: Mapping[tuple[str, str], Mapping[str, str]]
    quotas: tuple[Quota, ...]
    acls: tuple[Acl, ...]
    scram_users: tuple[ScramUser, ...]
    delegation_tokens: tuple[DelegationToken, ...]
    next_producer_id: int | None
    migration: str | None
    unknown: tuple[Unknown, ...]
    origin: ClusterOrigin

    def topic(self, name: str) -> ClusterTopic:
        """A topic by its name.

        Raises
        ------
        UnknownTopicOrPartitionError
            There is none, at that offset.
        """
        if name not in self.topics:
            hint = suggestion(name, self.topics)
            message = f"there is no topic {name} in the metadata of {self.origin.directory}"
            raise UnknownTopicOrPartitionError(f"{message}; {hint}" if hint else message)
        return self.topics[name]

    def of_directory(self, directory_id: str | None) -> ClusterState:
        """The same state, for another log directory of the node."""
        return replace(self, directory_id=directory_id)


class Fold:
    """Takes records in the order of the log, and makes the state of them.

    Notes
    -----
    Records of a metadata transaction count once it ends; those of an aborted one never.

    Source: MetadataDelta, MetadataBatchLoader, PartitionRegistration.merge, ClusterDelta, FeaturesDelta (4.3.1).
    """

    def __init__(self) -> None:
        self.brokers: dict[int, ClusterBroker] = {}
        self.controllers: dict[int, ClusterController] = {}
        self.voters: dict[int, Voter] = {}
        self.names: dict[bytes, str] = {}  # of topics, by id
        self.partitions: dict[bytes, dict[int, ClusterPartition]] = {}
        self.features: dict[str, int] = {}
        self.configs: dict[tuple[int, str], dict[str, str]] = {}
        self.quotas: dict[tuple[tuple[str, str | None], ...], dict[str, float]] = {}
        self.acls: dict[bytes, Acl] = {}
        self.scram_users: dict[tuple[str, int], ScramUser] = {}
        self.delegation_tokens: dict[str, DelegationToken] = {}
        self.next_producer_id: int | None = None
        self.migration: str | None = None
        self.unknown: list[Unknown] = []
        self.waiting: list[tuple[int, DecodedRecord]] | None = None  # of an open metadata transaction

    def take(self, offset: int, record: DecodedRecord) -> None:
        """Add the next record.

        Raises
        ------
        InvalidRequestError
            It contradicts the ones before it.
        """
        if record.name == "BeginTransaction":
            self.waiting = []
        elif record.name == "AbortTransaction":
            self.waiting = None
        elif record.name == "EndTransaction":
            waiting, self.waiting = self.waiting or [], None
            for each in waiting:
                self._apply(*each)
        elif self.waiting is not None:
            self.waiting.append((offset, record))
        else:
            self._apply(offset, record)

    def take_control(self, record: DecodedRecord | None) -> None:
        """Add the next control record; it counts at once, also inside of a transaction."""
        fields = {} if record is None or record.fields is None else record.fields
        if "kRaftVersion" in fields:
            self._feature_level({"name": KRAFT_VERSION, "featureLevel": fields["kRaftVersion"]})
        if "voters" in fields:
            self.voters = {
                each["voterId"]: Voter(
                    each["voterId"],
                    uuid_text(each["voterDirectoryId"]),
                    tuple(Endpoint(one["name"], one["host"], one["port"], None) for one in each["endpoints"]),
                )
                for each in fields["voters"]
            }

    def _apply(self, offset: int, record: DecodedRecord) -> None:
        if record.unknown is not None:
            self.unknown.append(Unknown(offset, record.unknown))
        if record.fields is not None and (apply := _RULES.get(record.name or "")) is not None:
            apply(self, record.fields)

    def state(
        self,
        origin: ClusterOrigin,
        cluster_id: str | None = None,
        node_id: int | None = None,
        directory_id: str | None = None,
        by_zookeeper: bool = False,
    ) -> ClusterState:
        """The state after the records so far."""
        configs = {
            (named(RESOURCE_TYPES, kind), name): dict(sorted(found.items()))
            for (kind, name), found in self.configs.items()
        }
        topics = {
            name: ClusterTopic(
                name,
                uuid_text(topic_id),
                dict(configs.get(("TOPIC", name), {})),
                dict(sorted(self.partitions[topic_id].items())),
            )
            for topic_id, name in self.names.items()
        }
        quotas = [Quota(dict(entity), dict(values)) for entity, values in self.quotas.items()]
        return ClusterState(
            cluster_id=cluster_id,
            node_id=node_id,
            directory_id=directory_id,
            by_zookeeper=by_zookeeper,
            brokers=dict(sorted(self.brokers.items())),
            controllers=dict(sorted(self.controllers.items())),
            voters=dict(sorted(self.voters.items())),
            topics=dict(sorted(topics.items())),
            features=dict(sorted(self.features.items())),
            configs=dict(sorted(configs.items())),
            quotas=tuple(
                sorted(quotas, key=lambda quota: sorted((kind, name or "") for kind, name in quota.entity.items()))
            ),
            acls=tuple(sorted(self.acls.values(), key=lambda acl: acl[1:])),
            scram_users=tuple(sorted(self.scram_users.values())),
            delegation_tokens=tuple(sorted(self.delegation_tokens.values())),
            next_producer_id=self.next_producer_id,
            migration=self.migration,
            unknown=tuple(self.unknown),
            origin=origin,
        )

    # --- a rule for each type of record ---

    def _register_broker(self, found: dict[str, Any]) -> None:
        self.brokers[found["brokerId"]] = ClusterBroker(
            found["brokerId"],
            found["brokerEpoch"],
            uuid_text(found["incarnationId"]),
            _endpoints(found),
            _features(found),
            found["rack"],
            found["fenced"],
            found["inControlledShutdown"],
            found["isMigratingZkBroker"],
            _uuids(found["logDirs"]),
            None if found["cordonedLogDirs"] is None else _uuids(found["cordonedLogDirs"]),
        )

    def _unregister_broker(self, found: dict[str, Any]) -> None:
        _known(self.brokers, found["brokerId"], "broker")
        del self.brokers[found["brokerId"]]

    def _fence_broker(self, found: dict[str, Any], fenced: bool) -> None:
        broker = _known(self.brokers, found["id"], "broker")
        self.brokers[found["id"]] = broker._replace(fenced=fenced)

    def _change_broker(self, found: dict[str, Any]) -> None:
        broker = _known(self.brokers, found["brokerId"], "broker")
        if found["fenced"]:
            broker = broker._replace(fenced=found["fenced"] > 0)
        if found["inControlledShutdown"]:
            broker = broker._replace(in_controlled_shutdown=True)
        if found["logDirs"]:
            broker = broker._replace(log_dirs=_uuids(found["logDirs"]))
        if found["cordonedLogDirs"] is not None:
            broker = broker._replace(cordoned_log_dirs=_uuids(found["cordonedLogDirs"]))
        self.brokers[found["brokerId"]] = broker

    def _register_controller(self, found: dict[str, Any]) -> None:
        self.controllers[found["controllerId"]] = ClusterController(
            found["controllerId"],
            uuid_text(found["incarnationId"]),
            _endpoints(found),
            _features(found),
            found["zkMigrationReady"],
        )

    def _topic(self, found: dict[str, Any]) -> None:
        self.names[found["topicId"]] = found["name"]
        self.partitions[found["topicId"]] = {}

    def _remove_topic(self, found: dict[str, Any]) -> None:
        name = _known(self.names, found["topicId"], "topic")
        del self.names[found["topicId"]], self.partitions[found["topicId"]]
        self.configs.pop((2, name), None)

    def _partition(self, found: dict[str, Any]) -> None:
        partitions = _known(self.partitions, found["topicId"], "topic")
        partitions[found["partitionId"]] = ClusterPartition(
            found["partitionId"],
            found["leader"],
            found["leaderEpoch"],
            found["partitionEpoch"],
            tuple(found["replicas"]),
            tuple(found["isr"]),
            tuple(found["removingReplicas"]),
            tuple(found["addingReplicas"]),
            _uuids(found["directories"]),
            tuple(found["eligibleLeaderReplicas"] or ()),
            tuple(found["lastKnownElr"] or ()),
            found["leaderRecoveryState"] == 1,
        )

    def _change_partition(self, found: dict[str, Any]) -> None:
        partitions = _known(self.partitions, found["topicId"], "topic")
        partition = _known(partitions, found["partitionId"], "partition")
        changed: dict[str, Any] = {"partition_epoch": partition.partition_epoch + 1}
        for field, name in _REPLICAS.items():
            if found[field] is not None:
                changed[name] = tuple(found[field])
        if found["directories"] is not None:
            changed["directories"] = _uuids(found["directories"])
        if found["leader"] != NO_LEADER_CHANGE:
            changed |= {"leader": found["leader"], "leader_epoch": partition.leader_epoch + 1}
        if found["leaderRecoveryState"] >= 0:
            changed["recovering"] = found["leaderRecoveryState"] == 1
        partitions[found["partitionId"]] = partition._replace(**changed)

    def _clear_elr(self, found: dict[str, Any]) -> None:
        for topic_id, name in self.names.items():
            if found["topicName"] not in ("", name):
                continue
            for number, one in self.partitions[topic_id].items():
                if one.eligible_leader_replicas or one.last_known_elr:
                    self.partitions[topic_id][number] = one._replace(
                        partition_epoch=one.partition_epoch + 1, eligible_leader_replicas=(), last_known_elr=()
                    )

    def _config(self, found: dict[str, Any]) -> None:
        of = found["resourceType"], found["resourceName"]
        value = without_secrets("Config", found)["value"]
        if value is not None:
            self.configs.setdefault(of, {})[found["name"]] = value
        elif of in self.configs:
            self.configs[of].pop(found["name"], None)
            if not self.configs[of]:
                del self.configs[of]

    def _feature_level(self, found: dict[str, Any]) -> None:
        if found["featureLevel"] or found["name"] == METADATA_VERSION:
            self.features[found["name"]] = found["featureLevel"]
        else:
            self.features.pop(found["name"], None)

    def _client_quota(self, found: dict[str, Any]) -> None:
        entity = tuple(sorted((each["entityType"], each["entityName"]) for each in found["entity"]))
        values = self.quotas.setdefault(entity, {})
        if found["remove"]:
            values.pop(found["key"], None)
        else:
            values[found["key"]] = found["value"]
        if not values:
            del self.quotas[entity]

    def _acl(self, found: dict[str, Any]) -> None:
        self.acls[found["id"]] = Acl(
            uuid_text(found["id"]),
            named(ACL_RESOURCE_TYPES, found["resourceType"]),
            found["resourceName"],
            named(PATTERN_TYPES, found["patternType"]),
            found["principal"],
            found["host"],
            named(OPERATIONS, found["operation"]),
            named(PERMISSIONS, found["permissionType"]),
        )

    def _scram_user(self, found: dict[str, Any]) -> None:
        of = found["name"], found["mechanism"]
        self.scram_users[of] = ScramUser(found["name"], named(MECHANISMS, found["mechanism"]), found["iterations"])

    def _delegation_token(self, found: dict[str, Any]) -> None:
        self.delegation_tokens[found["tokenId"]] = DelegationToken(
            found["tokenId"],
            found["owner"],
            found["requester"],
            tuple(found["renewers"]),
            found["issueTimestamp"],
            found["maxTimestamp"],
            found["expirationTimestamp"],
        )

    def _producer_ids(self, found: dict[str, Any]) -> None:
        self.next_producer_id = found["nextProducerId"]

    def _migration(self, found: dict[str, Any]) -> None:
        self.migration = named(MIGRATION_STATES, found["zkMigrationState"])


_REPLICAS = {
    "replicas": "replicas",
    "isr": "isr",
    "removingReplicas": "removing_replicas",
    "addingReplicas": "adding_replicas",
    "eligibleLeaderReplicas": "eligible_leader_replicas",
    "lastKnownElr": "last_known_elr",
}
_RULES: dict[str, Callable[[Fold, dict[str, Any]], None]] = {
    "RegisterBroker": Fold._register_broker,
    "UnregisterBroker": Fold._unregister_broker,
    "FenceBroker": lambda fold, found: fold._fence_broker(found, True),
    "UnfenceBroker": lambda fold, found: fold._fence_broker(found, False),
    "BrokerRegistrationChange": Fold._change_broker,
    "RegisterController": Fold._register_controller,
    "Topic": Fold._topic,
    "RemoveTopic": Fold._remove_topic,
    "Partition": Fold._partition,
    "PartitionChange": Fold._change_partition,
    "ClearElr": Fold._clear_elr,
    "Config": Fold._config,
    "FeatureLevel": Fold._feature_level,
    "ClientQuota": Fold._client_quota,
    "AccessControlEntry": Fold._acl,
    "RemoveAccessControlEntry": lambda fold, found: _removed(fold.acls, found["id"]),
    "UserScramCredential": Fold._scram_user,
    "RemoveUserScramCredential": lambda fold, found: _removed(fold.scram_users, (found["name"], found["mechanism"])),
    "DelegationToken": Fold._delegation_token,
    "RemoveDelegationToken": lambda fold, found: _removed(fold.delegation_tokens, found["tokenId"]),
    "ProducerIds": Fold._producer_ids,
    "ZkMigrationState": Fold._migration,
}


def _known(found: Mapping[Any, Any], key: Any, what: str) -> Any:
    if key not in found:
        shown = uuid_text(key) if isinstance(key, bytes) else key
        raise InvalidRequestError(f"expected a {what} that exists, found {shown}")
    return found[key]


def _removed(found: dict[Any, Any], key: Any) -> None:
    found.pop(key, None)


def _uuids(found: list[bytes]) -> tuple[str, ...]:
    return tuple(uuid_text(each) for each in found)


def _endpoints(found: Mapping[str, Any]) -> tuple[Endpoint, ...]:
    return tuple(
        Endpoint(each["name"], each["host"], each["port"], named(SECURITY_PROTOCOLS, each["securityProtocol"]))
        for each in found["endPoints"]
    )


def _features(found: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
    return {each["name"]: (each["minSupportedVersion"], each["maxSupportedVersion"]) for each in found["features"]}
