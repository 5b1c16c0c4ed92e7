"""A small blocking client: connections to the brokers of a cluster, and the requests that a replica makes.

Memory for an answer grows with the bytes that arrive, not with the size that the broker claims.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Self

from kts.arguments import parse_address, show_address
from kts.broker import wire
from kts.broker.codes import ApiError, ErrorCode
from kts.broker.wire.messages import ApiKey
from kts.errors import InvalidRequestError, UnsupportedVersionError
from kts.model import ZERO_UUID

MAX_FRAME_BYTES = 100 * 2**20  # socket.request.max.bytes
MAX_ELEMENTS, MAX_TOPICS_ELEMENTS = 100_000, 1_000_000  # of arrays in an answer; Metadata describes a whole cluster
_SIZE = struct.Struct(">i")
_CORRELATION = struct.Struct(">i")
_PIECE_BYTES = 1 << 18
_VERSIONS_OF_0_9: dict[int, tuple[int, int]] = {
    ApiKey.PRODUCE: (0, 1),
    ApiKey.FETCH: (0, 1),
    ApiKey.LIST_OFFSETS: (0, 0),
    ApiKey.METADATA: (0, 0),
}
_TLS_ALERT = b"\x15\x03"  # how a TLS listener answers what is not TLS: type alert, major version
_NEITHER = "kts has neither TLS nor SASL yet: give the address of a PLAINTEXT listener"
_PROBES = 2  # rounds of requests that tell Kafka 0.9 from others
_FIRST_PROBE_S, _PROBE_S = 10.0, 2.0  # timeout of each
TOPIC = 2  # a resource type of DescribeConfigs


class DisconnectedError(ApiError):
    """The broker cannot be reached, closed the connection, or did not answer in time. A retry may help.

    Attributes
    ----------
    ignored : bool
        The broker accepted the connection and sent no byte of an answer.
    """

    ignored = False

    def __init__(self, message: str, *, ignored: bool = False) -> None:
        super().__init__(ErrorCode.NETWORK_EXCEPTION, message)
        self.ignored = ignored


class Connection:
    """A connection to one broker, opened on first use. A context manager.

    Parameters
    ----------
    host, port : str, int
    client_id : str
    timeout_s : float
        To connect, and for each whole answer.
    max_frame_bytes : int
        The largest answer.
    private : mapping, optional
        Private versions, from ``wire.private_layouts``.

    Notes
    -----
    One request at a time. Memory for an answer grows with the bytes that arrive. Any error closes the connection, and
    the next request opens a new one.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        client_id: str = "kts",
        timeout_s: float = 30.0,
        max_frame_bytes: int = MAX_FRAME_BYTES,
        private: wire.Private = wire.NO_PRIVATE,
    ) -> None:
        self.host, self.port = host, port
        self.client_id = client_id
        self.timeout_s = timeout_s
        self.max_frame_bytes = max_frame_bytes
        self.waiting = False  # for an answer
        self._private = private
        self._socket: socket.socket | None = None
        self._versions: Mapping[int, tuple[int, int]] | None = None
        self._answers_api_versions = self._was_0_9 = False
        self._answers = 0  # over the present connection
        self._correlation = 0

    def __repr__(self) -> str:
        return show_address(self.host, self.port)

    # --- versions ---------------------------------------------------------------------------------

    def versions(self) -> Mapping[int, tuple[int, int]]:
        """The oldest and newest version of each API that the broker serves.

        Notes
        -----
        Kafka 0.9 answers neither ApiVersions nor Metadata 1. A broker counts as 0.9 only if this repeats.
        """
        if self._versions is None:
            try:
                self._versions = self._ask_versions()
                self._answers_api_versions = True
            except DisconnectedError as error:
                if not error.ignored or self._answers_api_versions or not self._is_0_9():
                    raise
                self._versions = _VERSIONS_OF_0_9
                self._was_0_9 = True
        return self._versions

    @property
    def is_0_9(self) -> bool:
        """Whether the broker behaves like Kafka 0.9."""
        return self._versions is _VERSIONS_OF_0_9

    def version(self, api: ApiKey, highest: int | None = None) -> int:
        """The newest version of an API that both sides know.

        Raises
        ------
        UnsupportedVersionError
            There is no such version.
        """
        ours = wire.versions(api)
        theirs = self.versions().get(api)
        if theirs is None:
            raise UnsupportedVersionError(f"expected a broker that serves {api.name}, found that {self} does not")
        most = min(ours[1], theirs[1], ours[1] if highest is None else highest)
        if most < max(ours[0], theirs[0]):
            raise UnsupportedVersionError(
                f"expected {api.name} of version {ours[0]} to {ours[1]}, found {theirs[0]} to {theirs[1]} at {self}"
            )
        return most

    def serves(self, api: ApiKey, version: int = 0) -> bool:
        """Whether the broker serves a version of an API."""
        least, most = self.versions().get(api, (1, 0))
        return least <= version <= most

    def _ask_versions(self) -> dict[int, tuple[int, int]]:
        answer = self.ask(ApiKey.API_VERSIONS, 0, {}, timeout_s=_PROBE_S if self._was_0_9 else _FIRST_PROBE_S)
        if answer["error_code"]:
            raise error_of(answer["error_code"], f"{self} refuses ApiVersions")
        return {each["api_key"]: (each["min_version"], each["max_version"]) for each in answer["api_keys"]}

    def _is_0_9(self) -> bool:
        for _ in range(_PROBES):
            self.ask(ApiKey.METADATA, 0, {"topics": []})  # it answers at all
            for api, version in ((ApiKey.METADATA, 1), (ApiKey.API_VERSIONS, 0)):
                try:
                    self.ask(api, version, {"topics": []}, timeout_s=_PROBE_S)
                    return False
                except InvalidRequestError:
                    continue
                except DisconnectedError as error:
                    if not error.ignored:
                        raise
        return True

    # --- requests ---------------------------------------------------------------------------------

    def ask(
        self,
        api: int,
        version: int,
        body: Mapping[str, Any],
        *,
        patience_s: float = 0.0,
        timeout_s: float | None = None,
    ) -> dict[str, Any]:
        """Send a request and return the body of its answer.

        Parameters
        ----------
        patience_s : float
            How long the request lets the broker wait, in addition to the timeout.
        timeout_s : float, optional
            Used if it is shorter than the connection's.

        Raises
        ------
        DisconnectedError
            No answer.
        InvalidRequestError
            The answer is malformed: its size, correlation id or fields.
        """
        self._correlation = (self._correlation + 1) & 0x7FFFFFFF
        frame = wire.encode_request(api, version, self._correlation, self.client_id, dict(body), private=self._private)
        try:
            self.waiting = True
            answer = self._exchange(frame, min(timeout_s or self.timeout_s, self.timeout_s) + patience_s)
            self.waiting = False
            found = _CORRELATION.unpack_from(answer)[0]
            if found != self._correlation:
                raise InvalidRequestError(f"expected the answer to request {self._correlation}, found that to {found}")
            most = MAX_TOPICS_ELEMENTS if api == ApiKey.METADATA else MAX_ELEMENTS
            return wire.decode_response(api, version, answer, max_elements=most, private=self._private)[1]
        except InvalidRequestError as error:
            self.close()
            raise InvalidRequestError(f"{ApiKey(api).name} {version} of {self}: {error}") from error
        except BaseException:
            self.close()
            raise
        finally:
            self.waiting = False

    def _exchange(self, frame: bytes, patience_s: float) -> memoryview:
        until = time.monotonic() + patience_s
        connected = self._connect()
        received = 0
        try:
            connected.settimeout(patience_s)
            connected.sendall(frame)
            head = bytearray()
            self._receive(connected, head, _SIZE.size, until)
            received = len(head)
            if head.startswith(_TLS_ALERT):
                raise UnsupportedVersionError(f"{self} speaks TLS; {_NEITHER}")
            size = _SIZE.unpack(head)[0]
            if not _CORRELATION.size <= size <= self.max_frame_bytes:
                raise InvalidRequestError(f"expected an answer of 4 to {self.max_frame_bytes} bytes, found {size}")
            answer = bytearray()
            self._receive(connected, answer, size, until)
            self._answers += 1
            return memoryview(answer).toreadonly()
        except TimeoutError as error:
            raise DisconnectedError(f"{self} did not answer within {patience_s:g} s", ignored=not received) from error
        except (EOFError, ConnectionError) as error:
            said = "closed the connection" if isinstance(error, EOFError) else f"is gone: {error}"
            if self._answers <= 1 and not received:  # SASL answers ApiVersions, and nothing else
                said += f"; a listener with TLS or SASL does that, and {_NEITHER}"
            raise DisconnectedError(f"{self} {said}", ignored=not received) from error
        except OSError as error:
            raise DisconnectedError(f"{self}: {error}") from error

    def _receive(self, connected: socket.socket, into: bytearray, count: int, until: float) -> None:
        """Read ``count`` bytes; the buffer grows as they arrive."""
        while len(into) < count:
            left = until - time.monotonic()
            if left <= 0:
                raise TimeoutError
            connected.settimeout(left)
            piece = connected.recv(min(count - len(into), _PIECE_BYTES))
            if not piece:
                raise EOFError
            into += piece

    def _connect(self) -> socket.socket:
        if self._socket is None:
            try:
                self._socket = socket.create_connection((self.host, self.port), self.timeout_s)
                self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._answers = 0
            except (OSError, UnicodeError) as error:
                raise DisconnectedError(f"cannot reach {self}: {error}") from error
        return self._socket

    def close(self) -> None:
        """Disconnect. The next request connects again and asks for the served versions."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
            self._versions = None

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def error_of(code: int, message: str) -> ApiError:
    """The error for a code that a broker answered with."""
    try:
        error = ErrorCode(code)
    except ValueError:
        return ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{message}: error {code}")
    return ApiError(error, f"{message}: {error.name}")


class PartitionMetadata(NamedTuple):
    """The leader of a partition; -1 if there is none or the broker does not say."""

    leader: int
    leader_epoch: int
    error_code: int


class TopicMetadata(NamedTuple):
    """A topic as Metadata describes it; the id is ``ZERO_UUID`` below version 10."""

    name: str
    topic_id: bytes
    partitions: dict[int, PartitionMetadata]


class OffsetAnswer(NamedTuple):
    """The answer of ListOffsets for a partition."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


class FetchPartition(NamedTuple):
    """One partition of a Fetch request."""

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
        ``HOST:PORT``, several separated by commas.
    client_id, timeout_s, max_frame_bytes
        As of ``Connection``.

    Raises
    ------
    ValueError
        An address is malformed.

    Notes
    -----
    Not thread-safe. Requests have the newest version that both sides know. Errors of a whole answer, or of the one
    partition asked for, are raised as ``ApiError``; ``DisconnectedError`` is a subclass.
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
        """Whether a request waits for its answer; to interrupt it then loses nothing."""
        return any(connection.waiting for connection in self._connections.values())

    def connection(self, address: tuple[str, int]) -> Connection:
        """The connection to an address."""
        if address not in self._connections:
            self._connections[address] = Connection(*address, **self._named)  # type: ignore[arg-type]
        return self._connections[address]

    def any_broker(self) -> Connection:
        """A broker that can be reached: one of the bootstrap addresses, else one that Metadata named.

        Raises
        ------
        DisconnectedError
            No broker can be reached.
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
            Metadata named no such broker.
        """
        if node_id not in self._nodes:
            raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, f"expected a broker with id {node_id}, found none")
        return self.connection(self._nodes[node_id])

    # --- requests -------------------------------------------------------------------

    def metadata(self, topic: str) -> TopicMetadata:
        """The partitions of a topic and their leaders. The request does not create the topic.

        Raises
        ------
        ApiError
            The topic is unknown, or the broker refuses.
        """
        broker = self.any_broker()
        version = broker.version(ApiKey.METADATA)
        asked: list[dict[str, Any]] | None = [{"name": topic, "topic_id": ZERO_UUID}]
        if version < 4:  # asking for one topic may create it, so ask for all
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
        """Fetch records of partitions as the leader stores them, up to the high watermark.

        Returns
        -------
        dict
            Fields of the answer by (topic, partition), with ``error_code``.

        Raises
        ------
        ApiError
            An error of the whole answer.
        InvalidRequestError
            The answer has a partition that was not requested.
        """
        partitions = list(wanted)
        ids = {each.topic_id: each.topic for each in partitions}
        version = leader.version(ApiKey.FETCH, 12 if ZERO_UUID in ids else None)  # from 13 on by topic id
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
        """The offset for a time, ``EARLIEST`` or ``LATEST``. ListOffsets 0 answers by segment, without a timestamp.

        Raises
        ------
        ApiError
            The leader refuses.
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
        """Base offsets of segments and the log end offset, newest first (ListOffsets 0)."""
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
        """The largest known epoch up to ``leader_epoch``, and its end offset; (-1, -1) if there is none.

        Raises
        ------
        ApiError
            The leader refuses.
        UnsupportedVersionError
            The leader is older than Kafka 0.11.
        """
        asked = {"partition": partition, "current_leader_epoch": current_leader_epoch, "leader_epoch": leader_epoch}
        topics = [{"topic": topic, "partitions": [asked]}]
        version = leader.version(ApiKey.OFFSET_FOR_LEADER_EPOCH)
        answer = leader.ask(ApiKey.OFFSET_FOR_LEADER_EPOCH, version, {"replica_id": -1, "topics": topics})
        where = f"OffsetForLeaderEpoch of {leader}"
        found = _only(answer["topics"], "topic", topic, "partition", partition, where)
        return found["leader_epoch"], found["end_offset"]

    def topic_configs(self, topic: str) -> dict[str, str]:
        """All settings of a topic by name, with defaults. Empty if the broker is older than Kafka 0.11.

        Raises
        ------
        ApiError
            The broker refuses.
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


def _entry(entries: Iterable[Mapping[str, Any]], name: str, wanted: Any, where: str) -> Mapping[str, Any]:
    """The requested entry of an answer, if it is not an error."""
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
