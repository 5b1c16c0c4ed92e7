"""A small client: which broker and version it asks, and which answers it refuses."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.broker.follow_play import log_bytes
from support.broker.follow_serving import KtsLeader, copying
from support.broker.wire_proxy import Proxy, as_it_is, joined

import kts
from kts.broker import wire
from kts.broker.codes import ApiError, ErrorCode
from kts.broker.wire.messages import ApiKey
from kts.errors import UnsupportedVersionError
from kts.replica.client import Client, DisconnectedError


@pytest.fixture
def leader(tmp_path: Path) -> Iterator[KtsLeader]:
    with KtsLeader(tmp_path / "leader") as leader:
        yield leader


@pytest.mark.parametrize("size", [2**31 - 1, 100 * 2**20 + 1, -1, 3])
def test_a_size_that_no_answer_has_is_refused_before_it_is_read(size: int, leader: KtsLeader) -> None:
    leader.proxy.answer = lambda api, version, frame: struct.pack(">i", size) + frame
    with Client(leader.address) as client, pytest.raises(kts.InvalidRequestError, match=f"found {size}"):
        client.any_broker()


@pytest.mark.slow
def test_an_answer_of_nothing_but_elements_is_refused(leader: KtsLeader) -> None:
    def bomb(api: int, version: int, frame: bytes) -> bytes | None:
        if api != ApiKey.FETCH:
            return struct.pack(">i", len(frame)) + frame
        correlation, body = wire.decode_response(api, version, memoryview(frame))
        body["responses"] = [{"topic": "", "topic_id": bytes(16), "partitions": []}] * 200_000
        return b"".join(map(bytes, wire.encode_response(api, version, correlation, body)))  # type: ignore[arg-type]

    leader.create("t")
    with Client(leader.address) as client:
        topic = client.metadata("t")
        leader.proxy.answer = bomb
        with pytest.raises(kts.InvalidRequestError, match="elements"):
            client.fetch(client.node(topic.partitions[0].leader), [])


def test_an_answer_to_another_request_is_refused(leader: KtsLeader) -> None:
    leader.proxy.answer = lambda api, version, frame: struct.pack(">ii", len(frame), 7777) + frame[4:]
    with Client(leader.address) as client, pytest.raises(kts.InvalidRequestError, match="found that to 7777"):
        client.metadata("t")


def test_the_leader_is_whom_metadata_names(leader: KtsLeader, tmp_path: Path, rng: random.Random) -> None:
    """Two addresses of one broker stand for two; the leader moves from the one to the other and back."""
    leader.create("t")
    leader.produce("t", rng, 20)
    leads, asked = [7], Counter[tuple[int, int]]()
    with Proxy(":".join(map(str, leader.proxy.target))) as second:

        def answering(node: int) -> Any:
            def answer(api: int, version: int, frame: bytes) -> bytes | None:
                asked[node, api] += 1
                if api == ApiKey.FETCH and node != leads[0]:
                    correlation, body = wire.decode_response(api, version, memoryview(frame))
                    for topic in body["responses"]:
                        for partition in topic["partitions"]:
                            partition |= {"error_code": 6, "records": b"", "high_watermark": -1}
                    return joined(api, version, correlation, body)
                if api != ApiKey.METADATA:
                    return as_it_is(api, version, frame)
                correlation, body = wire.decode_response(api, version, memoryview(frame))
                body["brokers"] = [
                    {"node_id": each, "host": "127.0.0.1", "port": int(proxy.address.split(":")[1])}
                    for each, proxy in ((7, second), (1, leader.proxy))
                ]
                body["topics"][0]["partitions"][0]["leader_id"] = leads[0]
                return joined(api, version, correlation, body)

            return answer

        leader.proxy.answer, second.answer = answering(1), answering(7)
        with copying(leader.address, tmp_path / "copy", "t") as copy:
            copy.fetcher.catch_up()
            assert asked[7, ApiKey.FETCH] > 1 and asked[1, ApiKey.FETCH] == 0
            leads[0] = 1
            leader.produce("t", rng, 20)
            copy.fetcher.catch_up()
            assert asked[1, ApiKey.FETCH] > 1
            leads[0] = -1
            copy.fetcher.step()
            for _ in range(3):
                copy.fetcher.step()
            assert "LEADER_NOT_AVAILABLE" in str(copy.fetcher.troubles[copy.follower].error)
            leads[0] = 7
            copy.fetcher.catch_up()
            assert copy.bytes == log_bytes(leader.files("t"))


def test_the_newest_version_that_both_know_is_asked_for_and_none_is_an_error(leader: KtsLeader) -> None:
    def offering(api: int, version: int, frame: bytes) -> bytes | None:
        if api != ApiKey.API_VERSIONS:
            return as_it_is(api, version, frame)
        offered = {ApiKey.FETCH: (0, 5), ApiKey.METADATA: (1, 99), ApiKey.PRODUCE: (50, 60)}
        keys = [{"api_key": key, "min_version": low, "max_version": high} for key, (low, high) in offered.items()]
        correlation, body = wire.decode_response(api, version, memoryview(frame))
        return joined(api, version, correlation, body | {"api_keys": keys})

    leader.proxy.answer = offering
    with Client(leader.address) as client:
        broker = client.any_broker()
        assert broker.version(ApiKey.FETCH) == 5
        assert broker.version(ApiKey.FETCH, highest=3) == 3
        assert broker.version(ApiKey.METADATA) == wire.versions(ApiKey.METADATA)[1]
        assert (broker.serves(ApiKey.FETCH, 5), broker.serves(ApiKey.FETCH, 6)) == (True, False)
        assert not broker.serves(ApiKey.LIST_OFFSETS)
        with pytest.raises(kts.UnsupportedVersionError, match="serves LIST_OFFSETS"):
            broker.version(ApiKey.LIST_OFFSETS)
        with pytest.raises(kts.UnsupportedVersionError, match="found 50 to 60"):
            broker.version(ApiKey.PRODUCE)


def test_the_first_address_that_answers_is_taken(leader: KtsLeader) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        nobody = f"127.0.0.1:{closed.getsockname()[1]}"
    with Client(f"{nobody},{leader.address}") as client:
        assert str(client.any_broker()) == leader.address
    with Client(nobody) as client, pytest.raises(DisconnectedError, match=f"cannot reach {nobody}") as raised:
        client.any_broker()
    assert not raised.value.ignored
    with Client(leader.address) as client, pytest.raises(ApiError, match="broker with id 3") as refused:
        client.node(3)
    assert refused.value.error == ErrorCode.LEADER_NOT_AVAILABLE
    with pytest.raises(ValueError, match="expected HOST:PORT"):
        Client("localhost")


@pytest.mark.parametrize("answers", [b"\x15\x03\x03\x00\x02\x02\x28", b""], ids=["an alert of TLS", "nothing"])
def test_a_listener_that_is_not_plaintext_is_told_as_what_it_may_be(answers: bytes) -> None:
    """TLS answers what is not TLS with an alert, or closes; so does SASL for what comes before it."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            for _ in range(8):
                with contextlib.suppress(OSError), listening.accept()[0] as connected:
                    connected.recv(1000)
                    connected.sendall(answers)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        words = "TLS.* give the address of a PLAINTEXT listener"
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        with Client(address) as client, pytest.raises(kts.KtsError, match=words) as told:
            client.any_broker()
        listening.shutdown(socket.SHUT_RDWR)
        thread.join()  # a late accept would answer for the next socket with this one's number
    assert isinstance(told.value, UnsupportedVersionError) == bool(answers)


def test_a_broker_that_stops_later_is_not_taken_for_one_with_tls(leader: KtsLeader) -> None:
    leader.create("t")
    with Client(leader.address) as client:
        client.metadata("t")
        leader.proxy.answer = lambda api, version, frame: None
        with pytest.raises(DisconnectedError) as told:
            client.metadata("t")
    assert "TLS" not in str(told.value)
