"""A server in a loop or a thread: started, asked from inside and outside, stopped, forked."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
import time
from pathlib import Path

import pytest
from support.clients.raw_client import RawClient, batch, fetch_body
from support.golden import PATIENCE_S

from kts.broker.broker import Broker
from kts.broker.request import Request
from kts.broker.wire.messages import ApiKey
from kts.errors import InvalidRequestError
from kts.server.server import Server, ServerThread, check_address, is_loopback


def test_a_thread_serves_until_it_is_stopped_and_can_start_again(tmp_path: Path) -> None:
    before = threading.active_count()
    with Broker(tmp_path / "data") as broker:
        server = ServerThread(broker)
        for _ in range(2):
            host, port = server.start()
            assert (host, port) == server.address == broker.listener
            with RawClient((host, port)) as client:
                assert client.ask(ApiKey.API_VERSIONS, 0, {})["error_code"] == 0
                asked = [{"name": f"{number:0100}", "topic_id": bytes(16)} for number in range(1000)]  # in a thread
                body = {"topics": asked, "allow_auto_topic_creation": False}
                assert len(client.ask(ApiKey.METADATA, 4, body)["topics"]) == 1000
                server.stop()
                assert client.is_closed()
            server.stop()
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection((host, port)).close()
    assert threading.active_count() == before


def test_a_running_thread_is_not_started_again(tmp_path: Path) -> None:
    with Broker(tmp_path / "data") as broker, ServerThread(broker) as server, pytest.raises(RuntimeError):
        server.start()


def test_a_thread_says_why_it_cannot_listen(tmp_path: Path) -> None:
    with Broker(tmp_path / "data") as broker:
        with pytest.raises(InvalidRequestError, match="expected a loopback address"):
            ServerThread(broker, "0.0.0.0")
        with ServerThread(broker) as server, pytest.raises(OSError):
            ServerThread(broker, *server.address).start()


def test_a_request_from_inside_is_handled_in_the_servers_loop(tmp_path: Path) -> None:
    with Broker(tmp_path / "data") as broker, ServerThread(broker) as server:
        broker.topics.create("orders")
        found = server.handle(
            Request(ApiKey.METADATA, 1, "inside", {"topics": [{"name": "orders", "topic_id": bytes(16)}]})
        )
        assert found is not None
        [node] = found["brokers"]
        assert (node["host"], node["port"]) == server.address
        assert [each["name"] for each in found["topics"]] == ["orders"]
    with pytest.raises(RuntimeError, match="the server is not running"):
        server.handle(Request(ApiKey.METADATA, 1, "inside", {"topics": None}))


def test_a_server_lives_in_a_loop_of_the_callers(tmp_path: Path) -> None:
    async def play() -> int:
        with Broker(tmp_path / "data") as broker:
            async with Server(broker) as server:
                reader, writer = await asyncio.open_connection(*server.address)
                writer.write(bytes.fromhex("0000000b0012000000000001000163"))
                size = int.from_bytes(await reader.readexactly(4), "big")
                answer = await reader.readexactly(size)
                writer.close()
        return int.from_bytes(answer[4:6], "big")

    assert asyncio.run(play()) == 0


def test_what_waits_when_the_server_stops_is_cut_and_what_is_written_is_answered(tmp_path: Path) -> None:
    with Broker(tmp_path / "data") as broker, ServerThread(broker) as server:
        broker.topics.create("orders")
        with RawClient(server.address) as waiting, RawClient(server.address) as writing:
            waiting.send(waiting.request(ApiKey.FETCH, 10, fetch_body("orders", 0, max_wait_ms=2**31 - 1)))
            assert writing.produce("orders", batch([b"1"]))["error_code"] == 0
            waiting.frame()
            waiting.send(waiting.request(ApiKey.FETCH, 10, fetch_body("orders", 1, max_wait_ms=2**31 - 1)))
            started = time.monotonic()
            server.stop()
            assert time.monotonic() - started < PATIENCE_S
            assert waiting.is_closed()


def test_a_fork_neither_stops_the_server_nor_closes_the_logs(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with Broker(folder) as broker, ServerThread(broker) as server:
        broker.topics.create("orders")
        with RawClient(server.address) as client:
            assert client.produce("orders", batch([b"1"]))["error_code"] == 0
            child = os.fork()
            if child == 0:
                try:
                    server.stop()
                    broker.close()
                finally:
                    os._exit(0)
            os.waitpid(child, 0)
            assert not (folder / ".kafka_cleanshutdown").exists()
            assert client.produce("orders", batch([b"2"]))["base_offset"] == 1
    assert (folder / ".kafka_cleanshutdown").exists()


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_this_machine_alone_is_fine(host: str) -> None:
    assert is_loopback(host)
    check_address(host, insecure=False)


@pytest.mark.parametrize(
    "host", ["", "0.0.0.0", "::", "10.0.0.1", "192.168.1.7", "::ffff:10.0.0.1", "fe80::1", "a.invalid"]
)
def test_what_others_could_reach_is_refused_unless_somebody_says_so(host: str) -> None:
    assert not is_loopback(host)
    with pytest.raises(InvalidRequestError, match="expected a loopback address"):
        check_address(host, insecure=False)
    check_address(host, insecure=True)
