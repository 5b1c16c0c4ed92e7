"""Two brokers' answers made comparable: what must differ (ids, addresses, the clock) is named alike, the rest stays.

``differences`` gives the paths where two answers differ; ``LISTED`` are those that may, each with its reason.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from support.reference import reference

from kts.broker.codes import ErrorCode
from kts.broker.wire.messages import ApiKey

IDENTITY = [
    "name",
    "topic",
    "topic_id",
    "group_id",
    "key",
    "index",
    "partition_index",
    "partition",
    "api_key",
    "source",
    "partition_id",
    "transactional_id",
]
NEAR_MS = 3_000_000  # no time of the script is that close to now, so what is has been set by the broker
ADDRESSES = {"host", "port"}
BROKER_IDS = {"node_id", "leader_id", "controller_id", "broker_id"}
BROKER_LISTS = {"replica_nodes", "isr_nodes", "offline_replicas"}
TIMES = {"timestamp", "log_append_time_ms", "last_timestamp"}
PLACES = {"log_dir", "total_bytes", "usable_bytes"}
SET_TIMES = {"timestamp", "baseTimestamp", "maxTimestamp", "createTimestamp"}


class Window(NamedTuple):
    """When an operation ran on a broker, ms."""

    start: int
    end: int
    operation: int


class Facts:
    """What is known of one broker: its topics' ids, and when each operation ran on it."""

    def __init__(self) -> None:
        self.names_by_id: dict[bytes, str] = {}
        self.ids: dict[str, bytes] = {}
        self.windows: list[Window] = []

    def learn(self, name: str, topic_id: bytes) -> None:
        if any(topic_id):
            self.names_by_id[topic_id] = name
            self.ids[name] = topic_id

    def time(self, value: int | None) -> Any:
        """The operation in whose time the broker took its clock's, else the value."""
        if value is None or not self.windows or abs(value - self.windows[-1].end) > NEAR_MS:
            return value
        found = [window.operation for window in self.windows if window.start <= value <= window.end]
        return f"the clock at operation {found[-1]}" if found else f"a time of the clock when nothing ran: {value}"


def comparable(value: Any, facts: Facts, exact: bool, name: str = "") -> Any:
    """An answer without what must differ between two brokers.

    Parameters
    ----------
    value : of a field or the whole body
    facts : about the broker that answered
    exact : whether compressed bytes are to be the same
    name : of the field
    """
    if isinstance(value, dict):
        return {key: comparable(each, facts, exact, key) for key, each in value.items()}
    if isinstance(value, list) and name in BROKER_LISTS:
        return len(value)
    if name == "responses":
        value = merged(value)
    if isinstance(value, list):
        return sorted((comparable(each, facts, exact, name) for each in value), key=identity)
    if name == "records" and isinstance(value, bytes):
        return record_set(value, facts, exact)
    if name in ADDRESSES:
        return "set" if value not in ("", -1) else value
    if name in BROKER_IDS:
        return "a broker" if value >= 0 else value
    if name == "topic_id":
        return facts.names_by_id.get(value, "an id" if any(value) else "none")
    if name == "cluster_id" or name in PLACES:
        return "set" if value not in (None, "", -1) else value
    if name == "documentation":
        return "told" if value else value
    if name == "producer_id":
        return "an id" if value >= 0 else value
    return facts.time(value) if name in TIMES else value


def merged(topics: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each topic of a Fetch answer once: Kafka answers for partitions that it does not know apart from the others."""
    if not topics or "topic_id" not in topics[0] or "partitions" not in topics[0]:
        return topics
    found: dict[Any, dict[str, Any]] = {}
    for topic in topics:
        other = found.setdefault((topic["topic"], topic["topic_id"]), {**topic, "partitions": []})
        other["partitions"] += topic["partitions"]
    return list(found.values())


def identity(value: Any) -> list[str]:
    """What a list is sorted by: Kafka's order of topics, partitions, settings and groups is that of a hash map."""
    return [str(value.get(key)) for key in IDENTITY] if isinstance(value, dict) else []


def record_set(data: bytes, facts: Facts, exact: bool) -> list[Any]:
    """Each whole entry's header and records, and the length of a cut one behind them."""
    found: list[Any] = []
    whole = reference.valid_bytes(data)
    for entry in reference.scan_batches(data[:whole]):
        at, size = entry.pop("position"), entry.pop("sizeInBytes")
        raw = data[at : at + size]
        rows = [
            {key: facts.time(value) if key in SET_TIMES else value for key, value in row.items() if key != "position"}
            for row in reference.decode(raw)
        ]
        header = {key: facts.time(value) if key in SET_TIMES else value for key, value in entry.items()}
        if exact or not entry["codec"]:
            header["size"] = size
            if header["maxTimestamp"] == entry["maxTimestamp"]:
                header["bytes"] = hashlib.sha256(raw).hexdigest()[:16]
        found.append({"entry": header, "rows": rows})
    if whole < len(data):
        found.append({"cut": len(data) - whole})
    return found


class Difference(NamedTuple):
    """A field that is not the same in two answers, and the structs that it is in."""

    path: str
    kafka: Any
    ours: Any
    beside: tuple[Any, Any] = ({}, {})

    def __str__(self) -> str:
        if isinstance(self.kafka, list) and isinstance(self.ours, list):
            inside = differences(self.kafka, self.ours, frozenset(), self.path)
            first = next((str(each) for each in inside if each.path != self.path), None)
            count = f"{len(self.kafka)} of Kafka, {len(self.ours)} of kts"
            lengths = f"{self.path}: {count}: {self.kafka[-1:]!r} {self.ours[-1:]!r}"
            return first or lengths
        return f"{self.path}: Kafka {self.kafka!r}, kts {self.ours!r}"


def differences(
    kafka: Any, ours: Any, whole: frozenset[str] = frozenset(), path: str = "", beside: Any = ({}, {})
) -> Iterator[Difference]:
    """The fields of two comparable answers that are not the same; those in ``whole`` are not taken apart."""
    if isinstance(kafka, dict) and isinstance(ours, dict) and kafka.keys() == ours.keys():
        for key in kafka:
            inside = f"{path}.{key}" if path else key
            if key not in whole:
                yield from differences(kafka[key], ours[key], whole, inside, (kafka, ours))
            elif kafka[key] != ours[key]:
                yield Difference(inside, kafka[key], ours[key], (kafka, ours))
    elif isinstance(kafka, list) and isinstance(ours, list) and len(kafka) == len(ours):
        for index, (one, other) in enumerate(zip(kafka, ours, strict=True)):
            yield from differences(one, other, whole, f"{path}[{index}]", beside)
    elif kafka != ours:
        yield Difference(path, kafka, ours, beside)


class Listed(NamedTuple):
    """A difference that stays: where it may be, and why; ``when`` is of the structs around it."""

    api: ApiKey | None
    path: str
    reason: str
    when: Callable[[Any, Any], bool] = lambda kafka, ours: True
    asked: str = ""  # what the request must have


def is_unforeseen(kafka: Any, ours: Any) -> bool:
    return kafka["error_code"] == ErrorCode.UNKNOWN_SERVER_ERROR and ours["error_code"] != 0


def is_deleted(kafka: Any, ours: Any) -> bool:
    return kafka["offset"] >= 0 and (ours["offset"] == -1 or kafka["offset"] < ours["offset"])


def is_told_once(kafka: Any, ours: Any) -> bool:
    once = [group for at, group in enumerate(kafka["groups"]) if group not in kafka["groups"][:at]]
    return bool(once == ours["groups"])


def is_partition_told_once(kafka: Any, ours: Any) -> bool:
    """Each partition of a topic, but for the words."""
    rows, told = ([{**row, "error_message": None} for row in one.get("partitions", [])] for one in (kafka, ours))
    return [row for at, row in enumerate(rows) if row not in rows[:at]] == told


def is_committed_told_once(kafka: Any, ours: Any) -> bool:
    """Each partition of a topic of OffsetFetch."""
    return [row for at, row in enumerate(kafka["partitions"]) if row not in kafka["partitions"][:at]] == ours[
        "partitions"
    ]


def is_of_all_brokers(kafka: Any, ours: Any) -> bool:
    return kafka["name"] == "min.insync.replicas" and kafka["value"] == ours["value"]


def is_append_time_from_producer(kafka: Any, ours: Any) -> bool:
    return kafka["error_code"] == 0 and ours["error_code"] == ErrorCode.INVALID_TIMESTAMP


NO_TRANSACTIONS = (ErrorCode.NOT_COORDINATOR, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
LISTED = [
    Listed(None, r"(.*\.)?(error_message|batch_index_error_message)", "texts of errors are for people"),
    Listed(
        ApiKey.PRODUCE,
        r".*\.partition_responses.*\.(error_code|log_start_offset|record_errors.*)",
        "unknown codecs, bad compressed bytes, sizes near 2^31: 3.9 does not foresee them (-1), ours says why",
        is_unforeseen,
    ),
    Listed(
        ApiKey.PRODUCE,
        r".*\.partition_responses.*",
        "a producer's LogAppendTime passes in 3.9 if its time is in range; ours refuses it, as brokers to 3.5 (32)",
        is_append_time_from_producer,
    ),
    Listed(
        ApiKey.OFFSET_FETCH,
        r".*",
        "version 0 is about ZooKeeper, which 3.9 in KRaft mode lacks (35); ours keeps its offsets with the others",
        lambda kafka, ours: kafka.get("error_code") == ErrorCode.UNSUPPORTED_VERSION,
    ),
    Listed(
        ApiKey.OFFSET_FETCH,
        r"groups",
        "a group whose offsets are all asked for twice is told once: small requests must not have endless answers",
        is_told_once,
    ),
    Listed(
        ApiKey.OFFSET_FETCH,
        r"(groups\[\d+\]\.)?topics\[\d+\]\.partitions",
        "4.3 tells a partition as often as it is asked for; ours once: small requests must not have endless answers",
        is_committed_told_once,
    ),
    Listed(
        None,
        r".*\.configs\[\d+\]\.(config_source|synonyms)",
        "a new cluster of 4.3 has min.insync.replicas for all its brokers, for eligible leader replicas; ours has one",
        is_of_all_brokers,
    ),
    Listed(
        ApiKey.DESCRIBE_PRODUCERS,
        r"topics\[\d+\]\.partitions",
        "a partition whose producers are asked for twice is told once: small requests must not have endless answers",
        is_partition_told_once,
    ),
    Listed(
        ApiKey.DESCRIBE_TRANSACTIONS,
        r"transaction_states\[\d+\]\.error_code",
        "3.9 sends clients elsewhere (16) until some client had transactions; ours says that there is none (105)",
        lambda kafka, ours: (kafka["error_code"], ours["error_code"]) == NO_TRANSACTIONS,
    ),
    Listed(
        ApiKey.DESCRIBE_QUORUM,
        r"error_code|topics|nodes",
        "ours has no quorum of controllers and says so (35), as clients hear it from a broker with ZooKeeper",
        lambda kafka, ours: ours["error_code"] == ErrorCode.UNSUPPORTED_VERSION and kafka["error_code"] == 0,
        "'__cluster_metadata', 'partitions': [{'partition_index': 0}]",
    ),
    Listed(ApiKey.API_VERSIONS, r"(finalized|supported)_features.*", "features that the brokers of a cluster agree on"),
    Listed(
        ApiKey.LIST_OFFSETS,
        r".*\.(timestamp|offset|leader_epoch)",
        "3.9 may name a deleted record as that of the largest time; ours names one that is there",
        is_deleted,
        "'timestamp': -3",
    ),
    Listed(
        ApiKey.API_VERSIONS, r"api_keys(\[.*)?", "what is served: ours has no transactions, quotas, tokens, new groups"
    ),
    Listed(ApiKey.DESCRIBE_CONFIGS, r".*\.is_default", "3.9 has lost this field of version 0: it always says false"),
]
NULL = "where records cannot be converted for an old client, 3.9's record set is null, ours is empty"
# Inside a LogAppendTime wrapper 3.9 writes the append time, ours keeps the producers' times; readers see the wrapper's.
CONVERTED = "entries converted for old clients are compressed anew, then cut or padded to the size of what was read"


def begins_alike(kafka: Any, ours: Any) -> bool:
    """Whether the whole entries of two record sets are the same as far as both go."""
    if not isinstance(kafka, list) or not isinstance(ours, list):
        return False
    whole, others = ([each for each in entries if "entry" in each] for entries in (kafka, ours))
    both = min(len(whole), len(others))
    return both >= min(len(whole), 1) and readable(whole[:both]) == readable(others[:both])


def readable(entries: list[Any]) -> list[Any]:
    """What a reader sees of converted entries: of a LogAppendTime wrapper not the times of the messages inside."""
    return [
        [
            (key, value)
            for row in each["rows"]
            for key, value in row.items()
            if key != "createTimestamp" or not row["codec"]
        ]
        for each in entries
    ]


def reason_for(operation: Any, difference: Difference) -> str | None:
    """Why the difference may stay, None if it may not."""
    if operation.api == ApiKey.FETCH and operation.version < 4 and difference.path.endswith(".records"):
        if difference.kafka is None and difference.ours == []:
            return NULL
        return CONVERTED if begins_alike(difference.kafka, difference.ours) else None
    for listed in LISTED:
        here = (
            listed.api in (None, operation.api)
            and listed.asked in str(operation.body)
            and re.fullmatch(listed.path, difference.path)
        )
        if here and listed.when(*difference.beside):
            return listed.reason
    return None
