"""Attacks on a broker's socket: none takes memory, and none makes a healthy client wait."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from support.broker.healthy_client import HealthyClient, Trips
from support.broker.malformed_requests import malformed_requests
from support.broker.served import Serve, serve
from support.clients.raw_client import RawClient, batch, fetch_body
from support.golden import PATIENCE_S, scaled

from kts.broker import wire
from kts.broker.broker import Broker
from kts.broker.wire.messages import ApiKey
from kts.server.event_loop import THREADS

pytestmark = pytest.mark.slow

MIB = 1 << 20
REQUEST_S, IDLE_S, MOST_CONNECTIONS = 1.5, 4.0, 400
QUEUED_BYTES, BIG_BYTES, BOMB_BYTES = 32 * MIB, 24 * MIB, 15 * MIB
SETTINGS = {
    "auto.create.topics.enable": "false",
    "request.timeout.ms": int(REQUEST_S * 1000),
    "connections.max.idle.ms": int(IDLE_S * 1000),
    "max.connections": MOST_CONNECTIONS,
    "queued.max.request.bytes": QUEUED_BYTES,
    "socket.request.max.bytes": 50 * MIB,
}
# More than before an attack: what may be queued, and what each thread unpacks, from one buffer to another.
ALLOWED_BYTES = QUEUED_BYTES + 2 * THREADS * BOMB_BYTES + 32 * MIB
MALFORMED = scaled(6_000, 50_000)
WAIT_S = 1.0  # that a healthy client may wait on a machine that is not busy
HEADER = struct.pack(">hhihs", 0, 3, 1, 1, b"x")


class Target:
    """A broker under attack, and a healthy client of it."""

    def __init__(self, broker: Serve, healthy: HealthyClient) -> None:
        self.broker, self.healthy = broker, healthy
        self.address = broker.address
        self.calm = healthy.trips()

    @contextlib.contextmanager
    def client(self) -> Iterator[RawClient]:
        with RawClient(self.address) as client, contextlib.suppress(ConnectionError, EOFError):
            yield client


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    folder = tmp_path_factory.mktemp("hostile")
    with Broker(folder / "data") as made:  # before anybody is cut off for being slow
        for name in ("healthy", "big", "bombed"):
            made.topics.create(name)
        big = made.topics.get("big")
        assert big is not None
        records = batch([random.Random(1).randbytes(1 << 19)])
        for _ in range(BIG_BYTES >> 19):
            big.partitions[0].append(records)
    with serve(folder / "data", SETTINGS) as broker:
        with HealthyClient(broker.address, "healthy") as healthy:
            time.sleep(0.3)
            yield Target(broker, healthy)
        with RawClient(broker.address) as client:
            assert len(client.fetch("big", 0, 1 << 19)["records"]) > 1000
        assert broker.said() == ""
        assert broker.stop() == 0


@pytest.fixture(autouse=True)
def unharmed(target: Target) -> Iterator[None]:
    """During each attack the healthy client goes on; afterwards the broker has what it had before."""
    target.healthy.trips()
    target.broker.forget_peak()
    before = target.broker.status("VmRSS")
    calm = target.broker.descriptors()
    yield
    trips: Trips = target.healthy.trips()
    busy = 10 * max(trips.longest_echo_s, target.calm.longest_s, target.calm.longest_echo_s)
    print(trips, f"allowed {WAIT_S + busy:.2f} s, {target.broker.status('VmHWM') - before} bytes more at most")
    assert trips.longest_s < WAIT_S + busy
    assert target.broker.status("VmHWM") < before + ALLOWED_BYTES
    target.broker.wait_for_descriptors(calm + 4)


def at_once(count: int, attack: Callable[[int], None]) -> None:
    """Several attackers; each of them has to come to its end."""
    failed: list[BaseException] = []

    def one(number: int) -> None:
        try:
            attack(number)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=one, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []


@pytest.mark.parametrize("size", [-(2**31), -1, 0, 1, 50 * MIB + 1, 2**31 - 1])
def test_a_size_that_no_request_has_closes_the_connection(target: Target, size: int) -> None:
    for _ in range(50):
        with RawClient(target.address) as client:
            client.send(struct.pack(">i", size) + HEADER)
            assert client.is_closed()


def http(method: bytes) -> bytes:
    return method + b" /topics HTTP/1.1\r\nHost: rebound.example:9092\r\nContent-Type: text/plain\r\n"


SPOKEN = [http(method) for method in (b"POST", b"GET", b"PUT", b"HEAD", b"OPTIONS", b"PATCH", b"CONNECT")]
SPOKEN += [b"\r\n" + http(b"POST"), b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"]
# ClientHello of 512 bytes: what lies where an API key does is that of Fetch.
SPOKEN += [bytes((22, 3, minor, 2, 0, 1, 0, 1, 252, 3, 3)) + bytes(32) for minor in (1, 3)]


@pytest.mark.parametrize("spoken", SPOKEN)
def test_a_browser_is_hung_up_on_and_no_request_is_read_out_of_what_it_says(target: Target, spoken: bytes) -> None:
    """A page whose name is bound to a loopback address (DNS rebinding) sends any body, but behind headers."""
    names = [{"name": "rebound", "num_partitions": 1, "replication_factor": 1}]
    for gap in range(4):
        with RawClient(target.address) as client:
            frame = client.request(ApiKey.CREATE_TOPICS, 0, {"topics": names, "timeout_ms": 1000})
            head = spoken + b"Content-Length: %d\r\n\r\n" % (200 * len(frame)) + b" " * gap
            with contextlib.suppress(ConnectionError):
                client.send(head + 200 * frame)
            assert client.is_closed()
    with RawClient(target.address) as client:
        found = client.ask(ApiKey.METADATA, 1, {"topics": None})["topics"]
        assert "rebound" not in {topic["name"] for topic in found}


def test_no_text_names_an_api() -> None:
    """So nothing that begins with a line of text is a request, however large a request may be by the settings."""
    assert max(ApiKey) < int.from_bytes(b"\t\t", "big")


def test_large_requests_that_carry_no_records_are_refused_by_their_size(target: Target) -> None:
    for api_key in (ApiKey.METADATA, ApiKey.FETCH, ApiKey.JOIN_GROUP, ApiKey.OFFSET_COMMIT, ApiKey.API_VERSIONS):
        with RawClient(target.address) as client:
            client.send(struct.pack(">ih", 17 * MIB, api_key) + bytes(100))
            assert client.is_closed()


def test_half_frames_are_dropped_and_take_no_more_than_is_queued_at_most(target: Target) -> None:
    half = struct.pack(">i", 40 * MIB) + HEADER + bytes(512 * 1024)
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(target.client()) for _ in range(200)]
        for client in clients:
            with contextlib.suppress(ConnectionError):
                client.send(half)
        for client in clients:
            assert client.is_closed()


def test_bytes_behind_a_request_that_waits_take_no_more_than_is_queued_at_most(target: Target) -> None:
    behind = struct.pack(">i", 40 * MIB) + HEADER + bytes(1024 * 1024)
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(target.client()) for _ in range(100)]
        for client in clients:
            waiting = client.request(ApiKey.FETCH, 4, fetch_body("bombed", 0, max_wait_ms=30_000))
            with contextlib.suppress(ConnectionError):
                client.send(waiting)
                client.socket.setblocking(False)
                client.socket.send(behind)
                client.socket.setblocking(True)
        for client in clients:
            assert client.is_closed()


def test_bytes_that_drip_in_are_dropped(target: Target) -> None:
    clients = [RawClient(target.address) for _ in range(50)]
    until = time.monotonic() + PATIENCE_S
    open_ones = list(clients)
    for client in clients:
        client.socket.setblocking(False)
        client.send(struct.pack(">i", 1000))
    while open_ones and time.monotonic() < until:
        for client in list(open_ones):
            try:
                client.socket.send(b"\0")
                if client.socket.recv(1) == b"":
                    open_ones.remove(client)
            except BlockingIOError:
                continue
            except ConnectionError:
                open_ones.remove(client)
        time.sleep(0.01)
    for client in clients:
        client.socket.close()
    assert not open_ones


LYING_ARRAYS = {
    "metadata": (ApiKey.METADATA, 1, b"\x7f\xff\xff\xff"),
    "metadata, compact": (ApiKey.METADATA, 12, b"\0\xff\xff\xff\xff\x07"),
    "fetch": (ApiKey.FETCH, 4, bytes(17) + b"\x7f\xff\xff\xff"),
    "produce": (ApiKey.PRODUCE, 3, b"\xff\xff" + bytes(6) + b"\x7f\xff\xff\xff"),
    "join group": (ApiKey.JOIN_GROUP, 0, b"\0\1g" + bytes(4) + b"\0\0\0\0" + b"\x7f\xff\xff\xff"),
    "negative": (ApiKey.FETCH, 4, bytes(17) + b"\x80\0\0\0"),
}


@pytest.mark.parametrize("api_key, version, body", LYING_ARRAYS.values(), ids=LYING_ARRAYS)
def test_arrays_larger_than_their_frame_close_the_connection(
    target: Target, api_key: int, version: int, body: bytes
) -> None:
    for _ in range(50):
        with RawClient(target.address) as client:
            frame = struct.pack(">hhih", api_key, version, 1, -1) + body
            client.send(struct.pack(">i", len(frame)) + frame)
            assert client.is_closed()


def test_a_million_tags_or_names_cost_one_client_its_connection(target: Target) -> None:
    tags = b"".join(wire_varint(number) + b"\0" for number in range(1_000_000))
    many_tags = struct.pack(">hhih", ApiKey.API_VERSIONS, 3, 1, -1) + wire_varint(1_000_000) + tags
    names = struct.pack(">i", 1_000_000) + b"\0\1a" * 1_000_000
    many_names = struct.pack(">hhih", ApiKey.METADATA, 1, 1, -1) + names

    def attack(number: int) -> None:
        frame = many_tags if number % 2 else many_names
        with target.client() as client:
            client.send(struct.pack(">i", len(frame)) + frame)
            assert client.is_closed()

    at_once(6, attack)


def wire_varint(value: int) -> bytes:
    done = bytearray()
    while value > 127:
        done.append(value & 127 | 128)
        value >>= 7
    return bytes([*done, value])


def test_as_many_names_as_are_allowed_are_answered_while_others_go_on(target: Target) -> None:
    def attack(number: int) -> None:
        with RawClient(target.address) as client:
            names = [{"name": f"no-such-topic-{number}-{each}"} for each in range(30_000)]
            answer = client.ask(ApiKey.METADATA, 4, {"topics": names, "allow_auto_topic_creation": True})
            assert {each["error_code"] for each in answer["topics"]} == {3}
            assert len(answer["topics"]) == 30_000

    at_once(3, attack)


@pytest.mark.parametrize("compression", ["gzip", "zstd", "lz4", "snappy"])
def test_bombs_are_read_in_threads_and_in_little_memory(target: Target, compression: str) -> None:
    bomb = batch([bytes(BOMB_BYTES)], compression)
    assert len(bomb) < BOMB_BYTES / 15

    def attack(number: int) -> None:
        with RawClient(target.address) as client:
            for _ in range(3):
                client.produce("bombed", bomb)

    at_once(8, attack)


def test_readers_that_do_not_read_are_dropped_and_wait_in_little_memory(target: Target) -> None:
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(RawClient(target.address)) for _ in range(60)]
        for client in clients:
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.send(client.request(ApiKey.FETCH, 4, fetch_body("big", 0, BIG_BYTES)) * 4)
        for client in clients:
            size = struct.unpack(">i", client.receive(4))[0]
            assert size > BIG_BYTES
            time.sleep(0.01)
        target.broker.wait_for_descriptors(40)


def test_idle_connections_are_closed(target: Target) -> None:
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(RawClient(target.address)) for _ in range(100)]
        spoken = [stack.enter_context(RawClient(target.address)) for _ in range(100)]
        for client in spoken:
            client.ask(ApiKey.API_VERSIONS, 0, {})
        for client in clients + spoken:
            assert client.is_closed()


def test_too_many_connections_take_the_place_of_silent_ones_only(target: Target) -> None:
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(RawClient(target.address))
        first.ask(ApiKey.API_VERSIONS, 0, {})
        for _ in range(3 * MOST_CONNECTIONS):
            with contextlib.suppress(ConnectionError):
                stack.enter_context(RawClient(target.address))
        first.ask(ApiKey.API_VERSIONS, 0, {})
        with RawClient(target.address) as new:
            assert new.ask(ApiKey.API_VERSIONS, 0, {})["error_code"] == 0
        assert target.broker.descriptors() < MOST_CONNECTIONS + 40


def test_ten_thousand_requests_at_once_from_each_of_many_are_answered(target: Target) -> None:
    def attack(number: int) -> None:
        with RawClient(target.address) as client:
            request = client.request(ApiKey.API_VERSIONS, 0, {})
            sending = threading.Thread(target=client.send, args=(request * 10_000,))
            sending.start()
            answers = 0
            while answers < 10_000:
                client.frame()
                answers += 1
            sending.join()

    at_once(2, attack)

    def unread(number: int) -> None:
        with RawClient(target.address) as client:
            request = client.request(ApiKey.METADATA, 1, {"topics": None}) * 100_000
            client.socket.setblocking(False)
            sent = 0
            while sent < len(request):
                try:
                    sent += client.socket.send(request[sent : sent + 65536])
                except (BlockingIOError, ConnectionError):
                    break

    at_once(8, unread)


def test_malformed_requests_over_a_socket(target: Target, rng: random.Random) -> None:
    frames = iter(list(malformed_requests(rng, MALFORMED)))
    lock = threading.Lock()
    sent = 0

    def attack(number: int) -> None:
        nonlocal sent
        client = RawClient(target.address)
        try:
            while True:
                with lock:
                    some = [frame for _, frame in zip(range(20), frames, strict=False)]
                    sent += len(some)
                if not some:
                    return
                data = b"".join(struct.pack(">i", len(frame)) + frame for frame in some)
                try:
                    client.socket.sendall(data)
                    client.socket.setblocking(False)
                    with contextlib.suppress(BlockingIOError):
                        if client.socket.recv(1 << 20) == b"":
                            raise ConnectionError
                    client.socket.setblocking(True)
                except ConnectionError:
                    client.socket.close()
                    client = RawClient(target.address)
        finally:
            client.socket.close()

    at_once(2, attack)
    assert sent == MALFORMED
    with RawClient(target.address) as client:
        assert client.ask(ApiKey.API_VERSIONS, 0, {})["error_code"] == 0
        assert len(client.fetch("big", 0, 1 << 19)["records"]) > 1000
        low, high = wire.versions(ApiKey.METADATA)
        for version in range(low, high + 1):
            answer = client.ask(
                ApiKey.METADATA, version, {"topics": [{"name": "big"}], "allow_auto_topic_creation": False}
            )
            assert [each["error_code"] for each in answer["topics"]] == [0]
