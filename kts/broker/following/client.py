"""A small blocking client: what a replica asks of its leader, and tests of a broker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Self

from kts.broker.codes import ApiError, ApiKey, ErrorCode
from kts.broker.following.client_connection import MAX_FRAME_BYTES, Connection, DisconnectedError, error_of
from kts.errors import InvalidRequestError, UnsupportedVersionError

TOPIC = 2  # a resource type of DescribeConfigs
EARLIEST, LATEST = -2, -1
NO_TOPIC_ID = bytes(16)


class PartitionMetadata(NamedTuple):
    """Who leads a partition; -1 where nobody does, or the broker does not say."""

    leader: int
    leader_epoch: int
    error_code: int


class TopicMetadata(NamedTuple):
    """A topic as a broker tells of it; the id is ``NO_TOPIC_ID`` below Metadata 10."""

    name: str
    topic_id: bytes
    partitions: dict[int, PartitionMetadata]


class OffsetAnswer(NamedTuple):
    """What ListOffsets says of a partition."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


class FetchPartition(NamedTuple):
    """What is wanted of a partition."""

    topic: str
    topic_id: bytes
    partition: int
    fetch_offset: int
    max_bytes: int
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1
    log_start_offset: int = -1


class Client:
    """Connections to the brokers of a cluster, found through one of them. A context manager.

    Parameters
    ----------
    bootstrap : str
        ``HOST:PORT``, several of them with commas between.
    client_id, timeout_s, max_frame_bytes
        As a ``Connection`` takes them.

    Raises
    ------
    ValueError
        An address that is none.

    Notes
    -----
    For one thread. Requests are of the newest version that both sides speak. Errors of the whole answer and of the one
    partition asked for are raised as ``ApiError``; ``DisconnectedError`` is one of them.
    """

    def __init__(
        self,
        bootstrap: str,
        *,
        client_id: str = "kts",
        timeout_s: float = 30.0,
        max_frame_bytes: int = MAX_FRAME_BYTES,
    ) -> None:
        self._addresses = [parse_address(each) for each in bootstrap.split(",")]
        self._named = {"client_id": client_id, "timeout_s": timeout_s, "max_frame_bytes": max_frame_bytes}
        self._connections: dict[tuple[str, int], Connection] = {}
        self._nodes: dict[int, tuple[str, int]] = {}

    @property
    def waiting(self) -> bool:
        """Whether a broker's answer is waited for, so that nothing is lost by an interruption."""
        return any(connection.waiting for connection in self._connections.values())

    def connection(self, address: tuple[str, int]) -> Connection:
        """The connection to an address."""
        if address not in self._connections:
            self._connections[address] = Connection(*address, **self._named)  # type: ignore[arg-type]
        return self._connections[address]

    def any_broker(self) -> Connection:
        """A broker that can be reached: one of those given first, else one that is known of.

        Raises
        ------
        DisconnectedError
            None can be.
        """
        failed: DisconnectedError | None = None
        for address in dict.fromkeys([*self._addresses, *self._nodes.values()]):
            connection = self.connection(address)
            try:
                connection.versions()
                return connection
            except DisconnectedError as error:
                failed = failed or error
        raise failed if failed is not None else DisconnectedError("there is no address")

    def node(self, node_id: int) -> Connection:
        """The connection to a broker that Metadata named.

        Raises
        ------
        ApiError
            It named none with that id.
        """
        if node_id not in self._nodes:
            raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, f"expected a broker with id {node_id}, found none")
        return self.connection(self._nodes[node_id])

    # --- what brokers are asked -------------------------------------------------------------------

    def metadata(self, topic: str) -> TopicMetadata:
        """Who leads the partitions of a topic; it is not created by asking.

        Raises
        ------
        ApiError
            The topic is unknown, or the broker says why not.
        """
        broker = self.any_broker()
        version = broker.version(ApiKey.METADATA)
        asked: list[dict[str, Any]] | None = [{"name": topic, "topic_id": NO_TOPIC_ID}]
        if version < 4:  # a question for a topic's name may create it: all are asked for
            asked = [] if version == 0 else None
        answer = broker.ask(ApiKey.METADATA, version, {"topics": asked, "allow_auto_topic_creation": False})
        self._nodes = {each["node_id"]: (each["host"], each["port"]) for each in answer["brokers"]}
        for found in answer["topics"]:
            if found["name"] == topic:
                break
        else:
            raise error_of(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic} at {broker}")
        if found["error_code"]:
            raise error_of(found["error_code"], f"topic {topic} at {broker}")
        partitions = {
            each["partition_index"]: PartitionMetadata(each["leader_id"], each["leader_epoch"], each["error_code"])
            for each in found["partitions"]
        }
        return TopicMetadata(topic, bytes(found["topic_id"]), partitions)

    def fetch(
        self,
        leader: Connection,
        wanted: Iterable[FetchPartition],
        *,
        max_wait_ms: int = 500,
        min_bytes: int = 1,
        max_bytes: int = 50 * 2**20,
    ) -> dict[tuple[str, int], dict[str, Any]]:
        """Records of partitions as they lie at the leader, up to the high watermark, from every offset asked for.

        Returns
        -------
        dict
            By topic and partition, the fields of the answer, ``error_code`` among them.

        Raises
        ------
        ApiError
            An error of the whole answer.
        InvalidRequestError
            An answer about a partition that nobody asked for.
        """
        partitions = list(wanted)
        ids = {each.topic_id: each.topic for each in partitions}
        version = leader.version(ApiKey.FETCH, 12 if NO_TOPIC_ID in ids else None)  # from 13 on by topic id
        topics: dict[str, dict[str, Any]] = {}
        for each in partitions:
            topic = topics.setdefault(each.topic, {"topic": each.topic, "topic_id": each.topic_id, "partitions": []})
            topic["partitions"].append(
                {
                    "partition": each.partition,
                    "current_leader_epoch": each.current_leader_epoch,
                    "fetch_offset": each.fetch_offset,
                    "last_fetched_epoch": each.last_fetched_epoch,
                    "log_start_offset": each.log_start_offset,
                    "partition_max_bytes": each.max_bytes,
                }
            )
        body = {
            "replica_id": -1,
            "max_wait_ms": max_wait_ms,
            "min_bytes": min_bytes,
            "max_bytes": max_bytes,
            "isolation_level": 0,
            "session_id": 0,
            "session_epoch": -1,
            "topics": list(topics.values()),
            "forgotten_topics_data": [],
            "rack_id": "",
        }
        answer = leader.ask(ApiKey.FETCH, version, body, patience_s=max_wait_ms / 1000)
        if answer["error_code"]:
            raise error_of(answer["error_code"], f"Fetch from {leader}")
        asked = {(each.topic, each.partition) for each in partitions}
        found: dict[tuple[str, int], dict[str, Any]] = {}
        for responses in answer["responses"]:
            name = ids.get(bytes(responses["topic_id"]), "") if version >= 13 else responses["topic"]
            for response in responses["partitions"]:
                key = name, response["partition_index"]
                if key not in asked or key in found:
                    raise InvalidRequestError(f"Fetch from {leader}: expected {sorted(asked)} once each, found {key}")
                found[key] = response
        return found

    def list_offsets(
        self, leader: Connection, topic: str, partition: int, timestamp: int, *, current_leader_epoch: int = -1
    ) -> OffsetAnswer:
        """The offset for a time, for ``EARLIEST`` or ``LATEST``; below ListOffsets 1 by segments, without a time.

        Raises
        ------
        ApiError
            The leader says why not.
        """
        version = leader.version(ApiKey.LIST_OFFSETS)
        if version == 0:
            offsets = self.old_style_offsets(leader, topic, partition, timestamp, 1)
            return OffsetAnswer(offsets[0] if offsets else -1, -1, -1)
        found = self._list_offsets(leader, version, topic, partition, timestamp, 1, current_leader_epoch)
        return OffsetAnswer(found["offset"], found["timestamp"], found["leader_epoch"])

    def old_style_offsets(
        self, leader: Connection, topic: str, partition: int, timestamp: int, max_num_offsets: int
    ) -> list[int]:
        """Base offsets of segments and the end offset, newest first, as ListOffsets 0 has them."""
        found = self._list_offsets(leader, 0, topic, partition, timestamp, max_num_offsets, -1)
        return list(found["old_style_offsets"])

    def _list_offsets(
        self, leader: Connection, version: int, topic: str, partition: int, timestamp: int, most: int, epoch: int
    ) -> dict[str, Any]:
        asked = {
            "partition_index": partition,
            "current_leader_epoch": epoch,
            "timestamp": timestamp,
            "max_num_offsets": most,
        }
        topics = [{"name": topic, "partitions": [asked]}]
        body = {"replica_id": -1, "isolation_level": 0, "topics": topics}
        answer = leader.ask(ApiKey.LIST_OFFSETS, version, body)
        return _only(answer["topics"], "name", topic, "partition_index", partition, f"ListOffsets of {leader}")

    def offset_for_leader_epoch(
        self, leader: Connection, topic: str, partition: int, leader_epoch: int, *, current_leader_epoch: int = -1
    ) -> tuple[int, int]:
        """The largest epoch that the leader knows up to one, and where it ends: (-1, -1) if there is none.

        Raises
        ------
        ApiError
            The leader says why not.
        UnsupportedVersionError
            It is older than Kafka 0.11.
        """
        asked = {"partition": partition, "current_leader_epoch": current_leader_epoch, "leader_epoch": leader_epoch}
        topics = [{"topic": topic, "partitions": [asked]}]
        version = leader.version(ApiKey.OFFSET_FOR_LEADER_EPOCH)
        answer = leader.ask(ApiKey.OFFSET_FOR_LEADER_EPOCH, version, {"replica_id": -1, "topics": topics})
        where = f"OffsetForLeaderEpoch of {leader}"
        found = _only(answer["topics"], "topic", topic, "partition", partition, where)
        return found["leader_epoch"], found["end_offset"]

    def topic_configs(self, topic: str) -> dict[str, str]:
        """All settings of a topic by name, the defaults too; empty where the broker is older than Kafka 0.11.

        Raises
        ------
        ApiError
            The broker says why not.
        """
        broker = self.any_broker()
        try:
            version = broker.version(ApiKey.DESCRIBE_CONFIGS)
        except UnsupportedVersionError:
            return {}
        resource = {"resource_type": TOPIC, "resource_name": topic, "configuration_keys": None}
        answer = broker.ask(ApiKey.DESCRIBE_CONFIGS, version, {"resources": [resource]})
        found = _entry(answer["results"], "resource_name", topic, f"DescribeConfigs of {broker}")
        return {each["name"]: each["value"] for each in found["configs"] if each["value"] is not None}

    def close(self) -> None:
        """Close all connections."""
        for connection in self._connections.values():
            connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def parse_address(text: str) -> tuple[str, int]:
    """``HOST:PORT``; IPv6 addresses in brackets."""
    given, _, port = text.strip().rpartition(":")
    host = given[1:-1] if given.startswith("[") and given.endswith("]") else given
    if not (
        host and (":" not in host or host != given) and port.isascii() and port.isdigit() and 0 < int(port) < 65536
    ):
        raise ValueError(f"expected HOST:PORT, found {text.strip()!r}")
    return host, int(port)


def _entry(entries: Iterable[Mapping[str, Any]], name: str, wanted: Any, where: str) -> Mapping[str, Any]:
    """The one entry that was asked for, if it is no error."""
    found = [each for each in entries if each[name] == wanted]
    if len(found) != 1:
        raise InvalidRequestError(f"{where}: expected {wanted} once, found it {len(found)} times")
    if found[0].get("error_code"):
        raise error_of(found[0]["error_code"], f"{where}, {wanted}")
    return found[0]


def _only(
    topics: Iterable[Mapping[str, Any]], name: str, topic: str, index: str, partition: int, where: str
) -> dict[str, Any]:
    return dict(_entry(_entry(topics, name, topic, where)["partitions"], index, partition, f"{where}, {topic}"))
