"""Private versions of APIs: an extension answers them, and every other client sees a broker without them."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from kts.broker import wire
from kts.broker.extensions import PrivateVersions
from kts.broker.wire import Fields
from kts.broker.wire.messages import MESSAGES, ApiKey
from kts.errors import InvalidRequestError, LogStorageError, UnsupportedVersionError
from kts.log.log import Deleted
from kts.protocol.fields import fields_of
from kts.replica.client import Connection, DisconnectedError
from kts.server.dispatch import OTHER_REQUEST_BYTES
from kts.testing import Expired, KtsBroker

VERSION = 20_000
REQUEST = fields_of("    words    []string  0+\n    records  records   0+  null 0+\n", VERSION)
RESPONSE = fields_of("    count    int64     0+\n    found    records   0+  null 0+\n", VERSION)


class Counting:
    """Counts the words of a request, and sends its records back."""

    def __init__(self, *api_keys: ApiKey) -> None:
        self.private_versions = {(int(key), VERSION): (REQUEST, RESPONSE) for key in api_keys}
        self.frames: list[int] = []

    def run_retention(self) -> list[tuple[str, int, Deleted]]:
        if self.frames == [-1]:
            raise LogStorageError("the disk is full")
        return [("words", 0, Deleted(len(self.frames), 1, 2, "retention.ms"))]

    def answer(self, api_key: int, body: dict[str, Any]) -> dict[str, Any] | None:
        self.frames.append(api_key)
        if body["words"] == ["refuse"]:
            raise InvalidRequestError("expected other words")
        if body["words"] == ["silence"]:
            return None
        return {"count": len(body["words"]), "found": body["records"]}


@pytest.fixture
def extension() -> Counting:
    return Counting(ApiKey.FETCH, ApiKey.PRODUCE)


@pytest.fixture
def broker(extension: Counting) -> Iterator[KtsBroker]:
    with KtsBroker(extensions=[extension]) as found:
        found.create_topic("orders")
        yield found


def connection(broker: KtsBroker, versions: dict[tuple[int, int], tuple[Fields, Fields]]) -> Connection:
    return Connection(broker.host, broker.port, private=wire.private_layouts(versions))


def test_an_extension_answers_its_private_versions(broker: KtsBroker, extension: Counting) -> None:
    with connection(broker, extension.private_versions) as asked:
        for api in (ApiKey.FETCH, ApiKey.PRODUCE):
            found = asked.ask(api, VERSION, {"words": ["a", "b"], "records": b"\0\1"})
            assert (found["count"], bytes(found["found"])) == (2, b"\0\1")
        many = ["x" * 10] * 30_000  # decoded in a thread
        assert asked.ask(ApiKey.FETCH, VERSION, {"words": many})["count"] == 30_000
        asked.ask(ApiKey.METADATA, 1, {"topics": None})  # the same connection serves Kafka's versions
    assert extension.frames == [1, 0, 1]


def test_kafkas_versions_of_the_same_api_are_answered_as_before(broker: KtsBroker, extension: Counting) -> None:
    broker.produce("orders", b"paid")
    with connection(broker, extension.private_versions) as asked:
        body = {"replica_id": -1, "topics": [{"name": "orders", "partitions": [{"timestamp": -1}]}]}
        [topic] = asked.ask(ApiKey.LIST_OFFSETS, 1, body)["topics"]
    assert topic["partitions"][0]["offset"] == 1
    assert extension.frames == []


def test_api_versions_does_not_list_a_private_version(broker: KtsBroker) -> None:
    with connection(broker, {}) as asked, KtsBroker() as other, connection(other, {}) as plain:
        assert asked.versions() == plain.versions() == {int(key): wire.versions(key) for key in MESSAGES}


def test_a_broker_without_the_extension_serves_no_private_version(extension: Counting) -> None:
    with KtsBroker() as broker, connection(broker, extension.private_versions) as asked:
        with pytest.raises(DisconnectedError, match="closed the connection"):
            asked.ask(ApiKey.FETCH, VERSION, {"words": []})
        asked.ask(ApiKey.METADATA, 1, {"topics": None})
    frame = wire.encode_request(ApiKey.FETCH, VERSION, 1, "c", {}, private=asked._private)[4:]
    with pytest.raises(UnsupportedVersionError, match=f"version 0 to 18 of FETCH, found {VERSION}"):
        wire.decode_request(memoryview(frame))


def test_a_version_that_no_extension_answers_closes_the_connection(broker: KtsBroker, extension: Counting) -> None:
    versions = {(int(ApiKey.FETCH), VERSION + 1): (REQUEST, RESPONSE), (int(ApiKey.METADATA), VERSION): (REQUEST, ())}
    with connection(broker, versions) as asked:
        for key, version in versions:
            with pytest.raises(DisconnectedError, match="closed the connection"):
                asked.ask(ApiKey(key), version, {"words": []})
    assert extension.frames == []


def test_an_extension_that_refuses_a_request_closes_the_connection(broker: KtsBroker, extension: Counting) -> None:
    with connection(broker, extension.private_versions) as asked:
        with pytest.raises(DisconnectedError, match="closed the connection"):
            asked.ask(ApiKey.FETCH, VERSION, {"words": ["refuse"]})
        assert asked.ask(ApiKey.FETCH, VERSION, {"words": []})["count"] == 0


def test_an_extension_may_send_no_answer(broker: KtsBroker, extension: Counting) -> None:
    layouts = wire.private_layouts(extension.private_versions)
    with socket.create_connection((broker.host, broker.port)) as client:
        client.sendall(wire.encode_request(ApiKey.PRODUCE, VERSION, 1, "c", {"words": ["silence"]}, private=layouts))
        client.sendall(wire.encode_request(ApiKey.PRODUCE, VERSION, 2, "c", {"words": ["a"]}, private=layouts))
        head = client.recv(8, socket.MSG_WAITALL)
    assert struct.unpack(">ii", head)[1] == 2


def test_a_frame_of_a_private_version_has_the_limit_of_its_api(broker: KtsBroker) -> None:
    with socket.create_connection((broker.host, broker.port)) as client:
        client.sendall(struct.pack(">ihhi", OTHER_REQUEST_BYTES + 1, ApiKey.FETCH, VERSION, 1))
        assert client.recv(1) == b""


def test_a_private_version_is_one_that_kafka_never_uses() -> None:
    fields = (REQUEST, RESPONSE)
    for version in (0, 18, 19, 16_383, 32_768, -1):
        with pytest.raises(ValueError, match=f"FETCH: expected 16384 to 32767, .*found {version}$"):
            wire.private_layouts({(int(ApiKey.FETCH), version): fields})
    with pytest.raises(ValueError, match="expected an API key of .*found 4$"):
        wire.private_layouts({(4, VERSION): fields})
    with pytest.raises(ValueError, match="once, found FETCH version 20000 twice"):
        PrivateVersions([Counting(ApiKey.FETCH), Counting(ApiKey.FETCH, ApiKey.PRODUCE)])


def test_the_brokers_retention_reaches_every_extension_and_one_that_fails_stops_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    failing, sound = Counting(ApiKey.FETCH), Counting(ApiKey.PRODUCE)
    failing.frames = [-1]
    with KtsBroker(extensions=[failing, sound]) as broker:
        assert broker.run_retention() == [Expired("words", 0, 0, 1, 2, "retention.ms")]
    [told] = [record.getMessage() for record in caplog.records if record.name == "kts.broker.extensions"]
    assert told.startswith("retention of <") and told.endswith("failed: the disk is full")
