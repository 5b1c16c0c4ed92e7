"""A random script for two brokers: what is asked next depends on the seed and on what Apache Kafka answered so far."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from support.kafka.two_broker_answers import Facts
from support.sets.two_broker_records import DAY, HOUR, bad_set, encoded, good_set, random_time, resealed

import kts
from kts.broker.wire.messages import ApiKey
from kts.broker.wire.releases import offered

LARGE = 1_000_000


class TopicId(NamedTuple):
    """Stands for the id that a broker gave a topic."""

    name: str


class ClockAt(NamedTuple):
    """Stands for the append time that a broker gave in an operation, and some ms."""

    operation: int
    more: int


@dataclass
class Topic:
    """What the script knows of a topic from Kafka's answers."""

    partitions: int
    exact: bool = True  # its compressed bytes are the clients' own
    ends: dict[int, int] = field(default_factory=dict)


Damage = Callable[[bytes], bytes]  # of a request without its size


class Operation(NamedTuple):
    """A request; ``answers`` is False where none is to come; ``exact`` as in ``two_broker_answers.comparable``."""

    api: ApiKey
    version: int
    body: dict[str, Any]
    answers: bool = True
    exact: bool = True
    note: str = ""
    damage: Damage | None = None
    answered: int | None = None  # the version of the answer's layout


def resolved(value: Any, facts: Facts, clocks: dict[int, int]) -> Any:
    """The body with a broker's own ids and times."""
    if isinstance(value, TopicId):
        return facts.ids.get(value.name, b"no such topic id"[:16])
    if isinstance(value, ClockAt):
        return clocks.get(value.operation, 0) + value.more
    if isinstance(value, dict):
        return {key: resolved(each, facts, clocks) for key, each in value.items()}
    return [resolved(each, facts, clocks) for each in value] if isinstance(value, list) else value


TOPICS: dict[str, tuple[int, dict[str, str]]] = {
    "plain": (3, {"segment.bytes": "4096", "index.interval.bytes": "200"}),
    "append": (2, {"message.timestamp.type": "LogAppendTime", "segment.bytes": "4096", "index.interval.bytes": "200"}),
    "packed": (1, {"compression.type": "gzip"}),
    "strict": (
        1,
        {
            "message.timestamp.before.max.ms": str(6 * HOUR),
            "message.timestamp.after.max.ms": str(HOUR),
            "max.message.bytes": "2000",
            "segment.bytes": "2500",
        },
    ),
    "twisted": (1, {}),  # only for what the two brokers take differently
    "compact": (1, {"cleanup.policy": "compact", "min.compaction.lag.ms": str(1000 * 365 * DAY)}),
}


class Script:
    """Makes operations, one after the other.

    Parameters
    ----------
    rng : decides everything
    now : ms, around which times are chosen
    release : whose versions of requests and names of settings are used
    """

    def __init__(self, rng: random.Random, now: int, release: str) -> None:
        self.rng, self.now = rng, now
        self.offered = offered(release)
        self.segment_bytes = "segment.bytes" if release == "3.9" else "internal.segment.bytes"  # which may be small
        self.topics = {name: Topic(count, name != "packed") for name, (count, _) in TOPICS.items()}
        self.clocks: list[int] = []  # the operations that gave an append time
        self.made = 0

    def first(self) -> Operation:
        """Creates the topics."""
        topics = [
            {
                "name": name,
                "num_partitions": count,
                "replication_factor": 1,
                "configs": [
                    {"name": self.segment_bytes if key == "segment.bytes" else key, "value": value}
                    for key, value in configs.items()
                ],
            }
            for name, (count, configs) in TOPICS.items()
        ]
        return Operation(ApiKey.CREATE_TOPICS, 4, {"topics": topics, "timeout_ms": 30_000})

    def next(self) -> Operation:
        """Any operation."""
        kinds = {
            self.produce: 34,
            self.fetch: 26,
            self.list_offsets: 16,
            self.alter_configs: 6,
            self.describe_configs: 3,
            self.delete_records: 4,
            self.leader_epoch: 4,
            self.create_topics: 4,
            self.create_partitions: 2,
            self.delete_topics: 1,
            self.metadata: 5,
            self.init_producer_id: 1,
            self.describe_cluster: 1,
            self.api_versions: 2,
            self.damaged: 4,
            self.twisted: 1,
            self.offset_commit: 3,
            self.offset_fetch: 3,
            self.groups: 3,
            self.log_dirs: 2,
            self.replicas: 3,
            self.producers: 2,
            self.security_and_transactions: 3,
        }
        return self.rng.choices(list(kinds), list(kinds.values()))[0]()

    def version(self, api: ApiKey, low: int = 0) -> int:
        versions = self.offered[api].versions
        return self.rng.randint(max(versions[0], low), versions[-1])

    def topic(self, strange: float = 0.06, internal: bool = True) -> tuple[str, int]:
        """A topic and a partition of it, now and then one that is not there, or Kafka's own.

        Not where it is about its records: which ones a group leaves there is the coordinator's own affair.
        """
        name = self.rng.choice(sorted(self.topics.keys() - {"twisted"}))
        partition = self.rng.randrange(self.topics[name].partitions)
        if self.rng.random() < strange:
            own = [("__consumer_offsets", 0)] if internal else []
            return self.rng.choice([("missing", 0), (name, 99), (name, -1), ("", 0), ("bad name!", 0), *own])
        return name, partition

    def exact(self, name: str) -> bool:
        return name not in self.topics or self.topics[name].exact

    # --- records --------------------------------------------------------------------------------

    def produce(self) -> Operation:
        rng = self.rng
        version = self.version(ApiKey.PRODUCE)
        acks = rng.choice([1, 1, 1, -1, -1, 0, 2]) if rng.random() < 0.3 else 1
        topics: dict[str, list[dict[str, Any]]] = {}
        note, good = [], True
        for _ in range(rng.choice([1, 1, 1, 2])):
            name, partition = self.topic()
            if any(each["index"] == partition for each in topics.get(name, [])):
                continue
            if rng.random() < 0.08 and version >= 3:
                data: bytes | None = encoded(
                    rng,
                    self.now,
                    2,
                    "none",
                    2,
                    producer_id=rng.choice([700, 701]),
                    producer_epoch=rng.choice([0, 0, 1]),
                    base_sequence=rng.choice([0, 0, 2, 4, 9]),
                )
                kept = True
            else:
                bad = rng.random() < 0.2
                good = good and not bad
                data, _, kept = (bad_set if bad else good_set)(rng, self.now, version)
            if not kept and name in self.topics:
                self.topics[name].exact = False
            note.append(f"{name}-{partition}")
            topics.setdefault(name, []).append({"index": partition, "records": data})
        body = {
            "acks": acks,
            "timeout_ms": 10_000,
            "transactional_id": "tx" if good and rng.random() < 0.02 else None,
            "topic_data": [
                {"name": name, "topic_id": TopicId(name), "partition_data": partitions}
                for name, partitions in topics.items()
            ],
        }
        return Operation(ApiKey.PRODUCE, version, body, acks != 0, note=" ".join(note))

    def twisted(self) -> Operation:
        """A time type that only a broker may set, a codec that there is not, a size that no batch has."""
        plain = kts.encode({"timestamp": [self.now - DAY], "value": [b"v"]})
        odd = [
            resealed(plain, 21, b"\x00\x08"),
            resealed(plain, 21, b"\x00\x05"),
            plain[:8] + b"\x7f" + b"\xff" * 3 + plain[12:],
        ]
        data = self.rng.choice(odd)
        partition = {"index": 0, "records": data}
        topic = {"name": "twisted", "topic_id": TopicId("twisted"), "partition_data": [partition]}
        body = {"acks": 1, "timeout_ms": 9, "topic_data": [topic]}
        return Operation(ApiKey.PRODUCE, self.version(ApiKey.PRODUCE, 3), body, note="twisted")

    def offset(self, name: str, partition: int) -> int:
        end = self.topics[name].ends.get(partition, 0) if name in self.topics else 0
        return self.rng.choice(
            [0, end, end, max(end - 1, 0), self.rng.randint(0, end), self.rng.randint(0, end), end + 1, -1]
        )

    def fetch(self) -> Operation:
        rng = self.rng
        version = self.version(ApiKey.FETCH)
        chosen = {self.topic(internal=False) for _ in range(rng.choice([1, 1, 2, 3]))}
        exact = all(self.exact(name) for name, _ in chosen)
        # Compressed again, bytes are not the same: no limit may depend on them. Nor may one where they are converted.
        limited = exact and version > 3 and rng.random() < 0.5
        topics: dict[str, list[dict[str, Any]]] = {}
        for name, partition in sorted(chosen):
            topics.setdefault(name, []).append(
                {
                    "partition": partition,
                    "current_leader_epoch": rng.choice([-1] * 8 + [0, 0, 5]),
                    "fetch_offset": self.offset(name, partition),
                    "last_fetched_epoch": rng.choice([-1] * 8 + [0, 3]),
                    "partition_max_bytes": rng.choice([0, 1, 200, 1000, 5000]) if limited else LARGE,
                }
            )
        body = {
            "max_wait_ms": rng.choice([0, 0, 3]),
            "min_bytes": rng.choice([0, 1, 1000]),
            "max_bytes": rng.choice([1, 700, 3000, LARGE]) if limited else 50 * LARGE,
            "isolation_level": rng.choice([0, 0, 1]),
            "session_epoch": -1,
            "topics": [
                {"topic": name, "topic_id": TopicId(name), "partitions": partitions}
                for name, partitions in topics.items()
            ],
        }
        return Operation(ApiKey.FETCH, version, body, exact=exact and version > 3, note=str(sorted(chosen)))

    # --- offsets --------------------------------------------------------------------------------

    def time(self, version: int) -> Any:
        rng = self.rng
        # Version 0 is about files' times, which the system rounds.
        if version and self.clocks and rng.random() < 0.3:
            return ClockAt(rng.choice(self.clocks), rng.choice([0, 1]))
        return rng.choice(
            [-1, -1, -2, -2, -3, -3, -4, -5, -6, 0, 1, random_time(rng, self.now), random_time(rng, self.now)]
        )

    def list_offsets(self) -> Operation:
        rng = self.rng
        version = self.version(ApiKey.LIST_OFFSETS)
        topics: dict[str, list[dict[str, Any]]] = {}
        for _ in range(rng.choice([1, 1, 2, 3])):
            name, partition = self.topic(internal=False)
            topics.setdefault(name, []).append(
                {
                    "partition_index": partition,
                    "current_leader_epoch": rng.choice([-1] * 8 + [0, 0, 5]),
                    "timestamp": self.time(version),
                    "max_num_offsets": rng.choice([1, 1, 3, 100, 0]),
                }
            )
        body = {
            "replica_id": -1,
            "isolation_level": rng.choice([0, 0, 1]),
            "topics": [{"name": name, "partitions": partitions} for name, partitions in topics.items()],
        }
        return Operation(ApiKey.LIST_OFFSETS, version, body)

    def delete_records(self) -> Operation:
        name, partition = self.topic()
        partitions = [
            {"partition_index": partition, "offset": self.rng.choice([self.offset(name, partition), 1, 3, -1])}
        ]
        body = {"topics": [{"name": name, "partitions": partitions}], "timeout_ms": 10_000}
        return Operation(ApiKey.DELETE_RECORDS, self.version(ApiKey.DELETE_RECORDS), body)

    def leader_epoch(self) -> Operation:
        rng = self.rng
        name, partition = self.topic(internal=False)
        asked = {"partition": partition, "current_leader_epoch": rng.choice([-1, -1, 0, 4])}
        asked["leader_epoch"] = rng.choice([0, 0, 0, 1, -1, 7])
        body = {"replica_id": -1, "topics": [{"topic": name, "partitions": [asked]}]}
        return Operation(ApiKey.OFFSET_FOR_LEADER_EPOCH, self.version(ApiKey.OFFSET_FOR_LEADER_EPOCH), body)

    # --- topics ---------------------------------------------------------------------------------

    def metadata(self) -> Operation:
        rng = self.rng
        version = self.version(ApiKey.METADATA)
        topics = [{"name": self.topic(0.3)[0], "topic_id": bytes(16)} for _ in range(rng.choice([1, 1, 2]))]
        if version >= 10 and rng.random() < 0.4:
            topics = [{"name": None, "topic_id": TopicId(rng.choice([*sorted(self.topics), "missing"]))}]
        chosen: list[Any] | None = topics
        if rng.random() < 0.2:
            chosen = [] if version == 0 or rng.random() < 0.5 else None
        return Operation(ApiKey.METADATA, version, {"topics": chosen, "allow_auto_topic_creation": rng.random() < 0.5})

    def describe_cluster(self) -> Operation:
        return Operation(ApiKey.DESCRIBE_CLUSTER, self.version(ApiKey.DESCRIBE_CLUSTER), {})

    def init_producer_id(self) -> Operation:
        timeout = self.rng.choice([2**31 - 1, 1000])
        return Operation(
            ApiKey.INIT_PRODUCER_ID,
            self.version(ApiKey.INIT_PRODUCER_ID),
            {"transactional_id": None, "transaction_timeout_ms": timeout},
        )

    # --- groups ---------------------------------------------------------------------------------

    def group(self) -> str:
        return self.rng.choice(["one", "one", "two", "two", "three", "none.of.them", ""])

    def offset_commit(self) -> Operation:
        """Of a consumer that is in no group, or says that it is."""
        rng = self.rng
        name, partition = self.topic()
        each = {"partition_index": partition, "committed_offset": rng.choice([0, 5, 2**40, -1])}
        each["committed_leader_epoch"] = rng.choice([-1, 0, 3])
        each["committed_metadata"] = rng.choice(["", "note", "x" * 4096, "x" * 4097, None])
        topics = [{"name": name, "topic_id": TopicId(name), "partitions": [each]}]
        if len(each["committed_metadata"] or "") > 4096:  # it may depend on Kafka's memory whether it leaves a group
            other = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
            topics.append({"name": "twisted", "topic_id": TopicId("twisted"), "partitions": [other]})
        body = {"group_id": self.group(), "topics": topics}
        if rng.random() < 0.2:
            body |= {"generation_id_or_member_epoch": rng.choice([0, 3]), "member_id": rng.choice(["", "nobody"])}
        return Operation(ApiKey.OFFSET_COMMIT, self.version(ApiKey.OFFSET_COMMIT, 1), body)  # 0 is about ZooKeeper

    def offset_fetch(self) -> Operation:
        rng = self.rng
        version = self.version(ApiKey.OFFSET_FETCH)
        topics: list[Any] | None = [
            {"name": name, "topic_id": TopicId(name), "partition_indexes": [partition, 0]}
            for name, partition in [self.topic()]
        ]
        if rng.random() < 0.4 and version >= 2:
            topics = None
        groups = [{"group_id": self.group(), "topics": topics} for _ in range(rng.choice([1, 2]))]
        body = {"group_id": self.group(), "topics": topics, "groups": groups, "require_stable": rng.random() < 0.3}
        return Operation(ApiKey.OFFSET_FETCH, version, body)

    def groups(self) -> Operation:
        """What can be asked about groups without being in one."""
        rng = self.rng
        group, name = self.group(), self.topic()[0]
        api, body = rng.choice(
            [
                (ApiKey.FIND_COORDINATOR, {"key": group, "key_type": 0, "coordinator_keys": [group, "more"]}),
                (ApiKey.LIST_GROUPS, {"states_filter": rng.choice([[], ["Empty"], ["Stable"], ["Odd"]])}),
                (ApiKey.DESCRIBE_GROUPS, {"groups": [group]}),
                (ApiKey.DELETE_GROUPS, {"groups_names": [group]}),
                (ApiKey.HEARTBEAT, {"group_id": group, "generation_id": 0, "member_id": "nobody"}),
                (ApiKey.LEAVE_GROUP, {"group_id": group, "member_id": "nobody", "members": [{"member_id": "nobody"}]}),
                (ApiKey.SYNC_GROUP, {"group_id": group, "generation_id": 0, "member_id": "nobody"}),
                (
                    ApiKey.OFFSET_DELETE,
                    {"group_id": group, "topics": [{"name": name, "partitions": [{"partition_index": 0}]}]},
                ),
                (
                    ApiKey.JOIN_GROUP,
                    {
                        "group_id": group,
                        "session_timeout_ms": rng.choice([1, 2**31 - 1]),
                        "protocol_type": "consumer",
                        "protocols": [{"name": "range", "metadata": b""}],
                    },
                ),
            ]
        )
        return Operation(api, self.version(api), body, note=group)

    # --- the cluster ----------------------------------------------------------------------------

    def log_dirs(self) -> Operation:
        """Of topics whose bytes are the same on both sides."""
        chosen = [self.topic(internal=False) for _ in range(self.rng.choice([0, 1, 2]))]
        topics = [{"topic": name, "partitions": [partition, 0]} for name, partition in chosen if self.exact(name)]
        return Operation(ApiKey.DESCRIBE_LOG_DIRS, self.version(ApiKey.DESCRIBE_LOG_DIRS), {"topics": topics})

    def replicas(self) -> Operation:
        """Elections and reassignments, none of which there is a reason for."""
        rng = self.rng
        name, partition = self.topic(0.2)
        replicas = rng.choice([[1], [1], None, [], [1, 1], [77], [1, 77], [-1]])
        reassigned = {"name": name, "partitions": [{"partition_index": partition, "replicas": replicas}]}
        indexes = [{"name": name, "partition_indexes": [partition]}]
        elected = [{"topic": name, "partitions": [partition, 0]}]
        api, body = rng.choice(
            [
                (
                    ApiKey.ELECT_LEADERS,
                    {
                        "election_type": rng.choice([0, 1, 1, 2, -1]),
                        "topic_partitions": rng.choice([None, elected, elected]),
                    },
                ),
                (ApiKey.ALTER_PARTITION_REASSIGNMENTS, {"topics": [reassigned]}),
                (ApiKey.LIST_PARTITION_REASSIGNMENTS, {"topics": rng.choice([None, indexes])}),
            ]
        )
        return Operation(api, self.version(api), {**body, "timeout_ms": 30_000}, note=name)

    def producers(self) -> Operation:
        name, partition = self.topic(internal=False)
        partitions = self.rng.choice([[partition], [partition, 0], [partition, partition]])
        body = {"topics": [{"name": name, "partition_indexes": partitions}]}
        return Operation(ApiKey.DESCRIBE_PRODUCERS, self.version(ApiKey.DESCRIBE_PRODUCERS), body)

    def security_and_transactions(self) -> Operation:
        """What one broker without an authorizer has none of."""
        rng = self.rng
        kind, operation = rng.choice([0, 1, 2, 4, 30, -1]), rng.choice([1, 3, 3, 0])
        acl = {"resource_name": "x", "principal": "User:a", "host": "*"}
        acl |= {"resource_type": kind, "resource_pattern_type": rng.choice([0, 3, 3, 4]), "permission_type": 3}
        asked = {"resource_name_filter": rng.choice([None, "x"]), "principal_filter": None, "host_filter": None}
        asked |= {"resource_type_filter": kind, "pattern_type_filter": rng.choice([0, 1, 3]), "permission_type": 1}
        quorum = {"topic_name": rng.choice(["__cluster_metadata", "plain"])}
        api, body = rng.choice(
            [
                (ApiKey.DESCRIBE_ACLS, {**asked, "operation": operation}),
                (ApiKey.CREATE_ACLS, {"creations": [{**acl, "operation": operation}] * rng.choice([0, 1, 2])}),
                (ApiKey.DELETE_ACLS, {"filters": [{**asked, "operation": operation}] * rng.choice([0, 1, 2])}),
                (ApiKey.LIST_TRANSACTIONS, {"state_filters": rng.choice([[], ["Ongoing"], ["Ongoing", "ongoing"]])}),
                (ApiKey.DESCRIBE_TRANSACTIONS, {"transactional_ids": rng.choice([[], ["x"], ["x", "", "y"]])}),
                (
                    ApiKey.DESCRIBE_QUORUM,
                    {"topics": [quorum | {"partitions": [{"partition_index": rng.choice([0, 0, 1])}]}]},
                ),
            ]
        )
        return Operation(api, self.version(api), body)

    # --- no request at all ----------------------------------------------------------------------

    def api_versions(self) -> Operation:
        """Also of versions that nobody serves, which get an answer in the first one's layout."""
        strange = self.rng.choice([5, 99, -1]) if self.rng.random() < 0.5 else None
        asked = {"client_software_name": "script", "client_software_version": self.rng.choice(["1", "", "a b"])}
        if strange is None:
            return Operation(ApiKey.API_VERSIONS, self.version(ApiKey.API_VERSIONS), asked)
        number = strange.to_bytes(2, signed=True)
        return Operation(
            ApiKey.API_VERSIONS,
            3,
            asked,
            note=f"as {strange}",
            damage=lambda frame: frame[:2] + number + frame[4:],
            answered=0,
        )

    def damaged(self) -> Operation:
        """A request that is cut, longer than it says, of an unknown API or version, or not a request at all."""
        rng = self.rng
        plain = rng.choice([self.metadata, self.list_offsets, self.fetch, self.leader_epoch])()
        cut, more, shown = rng.randrange(1, 40), rng.randbytes(rng.randrange(1, 20)), rng.choice([0, 1, 3, 8, 9])
        number = (
            rng.choice([4, 7, 77, 1000, -1]).to_bytes(2, signed=True),
            rng.choice([40, 1000, -1, -9]).to_bytes(2, signed=True),
        )
        damages: dict[str, Damage] = {
            "cut": lambda frame: frame[:-cut],
            "longer": lambda frame: frame + more,
            "unknown API": lambda frame: number[0] + frame[2:],
            "unknown version": lambda frame: frame[:2] + number[1] + frame[4:],
            "header alone": lambda frame: frame[:shown],
        }
        name = rng.choice(sorted(damages))
        return plain._replace(note=f"{name} {plain.note}", damage=damages[name])

    def settings(self) -> list[dict[str, Any]]:
        """Some of a topic's settings, most of them right."""
        rng = self.rng
        good = {
            "message.timestamp.type": ["CreateTime", "LogAppendTime"],
            "retention.ms": ["-1", "31536000000000"],
            "segment.bytes": ["2000", "100000"],
            "max.message.bytes": ["3000", "1048588"],
            "message.timestamp.after.max.ms": ["9223372036854775807", str(HOUR)],
            "cleanup.policy": ["delete", "compact,delete"],
            "min.insync.replicas": ["1", "2"],
        }
        bad = {
            "segment.bytes": ["x", "-1", "13"],
            "no.such.key": ["1"],
            "message.timestamp.type": ["Never"],
            "retention.ms": ["-2"],
        }
        bad |= {"max.message.bytes": ["-1"], "compression.type": ["brotli"], "cleanup.policy": ["", "keep"]}
        chosen = bad if rng.random() < 0.2 else good
        return [
            {"name": key, "value": rng.choice(chosen[key])} for key in rng.sample(sorted(chosen), rng.choice([1, 1, 2]))
        ]

    def create_topics(self) -> Operation:
        rng = self.rng
        fresh = f"topic.{self.made}" if rng.random() < 0.6 else None
        self.made += 1
        name = fresh or rng.choice(
            ["plain", "", ".", "..", "a b", "x" * 249, "x" * 250, "topic_1", "topic.1", "é", "__consumer_offsets"]
        )
        topic: dict[str, Any] = {
            "name": name,
            "num_partitions": rng.choice([1, 1, 2, 3, -1, 0, -2]),
            "replication_factor": rng.choice([1, 1, 1, 1, -1, 2, 0]),
            "configs": self.settings() if rng.random() < 0.4 else [],
        }
        if rng.random() < 0.1:
            topic |= {"num_partitions": -1, "replication_factor": -1}
            topic["assignments"] = [
                {"partition_index": index, "broker_ids": [1]} for index in rng.choice([[0], [0, 1], [1], [0, 0]])
            ]
        topics = [topic] * (2 if rng.random() < 0.05 else 1)
        body = {"topics": topics, "timeout_ms": 30_000, "validate_only": rng.random() < 0.2}
        return Operation(ApiKey.CREATE_TOPICS, self.version(ApiKey.CREATE_TOPICS), body, note=name)

    def create_partitions(self) -> Operation:
        rng = self.rng
        name = self.topic(0.2)[0]
        topic: dict[str, Any] = {"name": name, "count": rng.choice([1, 2, 3, 4, 0, -1]), "assignments": None}
        if rng.random() < 0.2:
            topic["assignments"] = [{"broker_ids": rng.choice([[1], [1, 1], [77], []])}]
        body = {"topics": [topic], "timeout_ms": 30_000, "validate_only": rng.random() < 0.3}
        return Operation(ApiKey.CREATE_PARTITIONS, self.version(ApiKey.CREATE_PARTITIONS), body)

    def delete_topics(self) -> Operation:
        rng = self.rng
        made = [name for name in sorted(self.topics) if name not in TOPICS]
        name = rng.choice([*made, "missing", "", "a b"])
        version = self.version(ApiKey.DELETE_TOPICS)
        by_id = rng.random() < 0.5
        topics = [{"name": None if by_id else name, "topic_id": TopicId(name) if by_id else bytes(16)}]
        return Operation(
            ApiKey.DELETE_TOPICS, version, {"topics": topics, "topic_names": [name], "timeout_ms": 30_000}, note=name
        )

    def alter_configs(self) -> Operation:
        rng = self.rng
        name = rng.choice(["plain", "append", "compact", self.topic(0.2)[0]])
        resource = {"resource_type": 2, "resource_name": name}
        if rng.random() < 0.3 and name not in TOPICS:
            api = ApiKey.ALTER_CONFIGS
            resource["configs"] = self.settings()
        else:
            api = ApiKey.INCREMENTAL_ALTER_CONFIGS
            operations = [0, 0, 0, 0, 1, 2, 3] if name in self.topics else [0]  # one thing wrong at a time
            resource["configs"] = [{**each, "config_operation": rng.choice(operations)} for each in self.settings()]
        body = {"resources": [resource], "validate_only": rng.random() < 0.15}
        return Operation(api, self.version(api), body, note=name)

    def describe_configs(self) -> Operation:
        rng = self.rng
        keys = [
            "message.timestamp.type",
            "segment.bytes",
            "retention.ms",
            "cleanup.policy",
            "max.message.bytes",
            "compression.type",
        ]
        keys += ["message.timestamp.after.max.ms", "index.interval.bytes", "no.such.key"]
        resource = {
            "resource_type": 2,
            "resource_name": self.topic(0.2)[0],
            "configuration_keys": rng.sample(keys, rng.choice([1, 3, 9])) if rng.random() < 0.9 else [],
        }
        body = {"resources": [resource], "include_synonyms": rng.random() < 0.5}
        body["include_documentation"] = rng.random() < 0.3
        return Operation(ApiKey.DESCRIBE_CONFIGS, self.version(ApiKey.DESCRIBE_CONFIGS), body)

    # --- what Kafka answered --------------------------------------------------------------------

    def learn(self, number: int, operation: Operation, answer: Any, facts: Facts) -> None:
        """Topics made and deleted, log ends, append times."""
        if not isinstance(answer, dict):
            return
        if operation.api == ApiKey.CREATE_TOPICS and not operation.body.get("validate_only"):
            asked = {topic["name"]: topic for topic in operation.body["topics"]}
            for topic in answer["topics"]:
                if topic["error_code"] == 0 and topic["name"] not in self.topics:
                    wanted = asked[topic["name"]]
                    count = len(wanted.get("assignments", [])) or max(wanted["num_partitions"], 1)
                    self.topics[topic["name"]] = Topic(count)
        elif operation.api == ApiKey.DELETE_TOPICS:
            for topic in answer["responses"]:
                if topic["error_code"] == 0:
                    self.topics.pop(operation.note, None)
        elif operation.api == ApiKey.CREATE_PARTITIONS and not operation.body["validate_only"]:
            for topic, wanted in zip(answer["results"], operation.body["topics"], strict=True):
                if topic["error_code"] == 0 and topic["name"] in self.topics:
                    self.topics[topic["name"]].partitions = wanted["count"]
        elif operation.api == ApiKey.PRODUCE:
            for topic in answer["responses"]:
                name = topic["name"] or facts.names_by_id.get(topic["topic_id"])
                for each in topic["partition_responses"]:
                    if each["error_code"] == 0 and each["base_offset"] >= 0:
                        self.topics[name].ends[each["index"]] = each["base_offset"] + 1
                    if each["log_append_time_ms"] > 0:
                        self.clocks.append(number)
