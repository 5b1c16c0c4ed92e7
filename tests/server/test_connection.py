"""One connection over a real socket: order, slow readers, and those who never finish."""

from __future__ import annotations

import asyncio
import random
import socket
import struct
import threading

import pytest
from support.broker.connections import FETCH, METADATA, PRODUCE, echo, framed, served
from support.clients.raw_client import RawClient
from support.golden import PATIENCE_S

from kts.broker.request import ConnectionClose, Peer
from kts.errors import InvalidRequestError
from kts.server.framing import SCRATCH_BYTES
from kts.server.sending import Chunk


def test_answers_come_in_order_and_one_request_is_in_work_at_a_time(rng: random.Random) -> None:
    working, most = 0, 0

    async def answer(frame: memoryview, peer: Peer) -> list[Chunk]:
        nonlocal working, most
        working += 1
        most = max(most, working)
        if frame[-1] % 7 == 0:
            await asyncio.sleep(0)
        working -= 1
        return [struct.pack(">i", len(frame)), frame]

    bodies = [rng.randbytes(rng.choice([2, 30, 1000, 70_000])) for _ in range(400)]
    with served(answer) as found, RawClient(found.address) as client:
        sending = threading.Thread(target=lambda: client.send(b"".join(framed(METADATA, body) for body in bodies)))
        sending.start()
        for body in bodies:
            assert bytes(client.frame()[2:]) == body
        sending.join()
    assert most == 1


def test_ten_thousand_requests_at_once_are_answered_and_take_little_memory() -> None:
    with served() as found, RawClient(found.address) as client:
        sending = threading.Thread(target=lambda: client.send(framed(METADATA, b"12345678") * 10_000))
        sending.start()
        [connection] = [
            found.wait_until(lambda: bool(found.shared.connections)) or next(iter(found.shared.connections))
        ]
        most = 0
        for _ in range(10_000):
            assert bytes(client.frame()[2:]) == b"12345678"
            most = max(most, connection._framing.filled_bytes)
        sending.join()
    assert most <= 2 * SCRATCH_BYTES


UNFINISHED = {
    "size": b"\0",
    "API key": b"\0\0\0\x50\0",
    "small": framed(METADATA, bytes(100))[:-1],
    "large": framed(PRODUCE, bytes(1 << 20))[:-1],
}


@pytest.mark.slow
@pytest.mark.parametrize("sent", UNFINISHED.values(), ids=UNFINISHED)
def test_a_request_that_never_ends_is_dropped(sent: bytes) -> None:
    with served(request_s=0.3) as found, RawClient(found.address) as client, RawClient(found.address) as other:
        client.send(sent)
        assert client.is_closed()
        other.send(framed(METADATA, b"x"))
        assert other.frame() == framed(METADATA, b"x")[4:]


@pytest.mark.slow
def test_a_client_that_is_silent_for_too_long_is_dropped() -> None:
    with served(idle_s=0.3) as found, RawClient(found.address) as client:
        client.send(framed(METADATA, b"x"))
        client.frame()
        assert client.is_closed()


@pytest.mark.parametrize("error", [ConnectionClose("as asked"), InvalidRequestError("no"), ConnectionError()])
def test_what_goes_wrong_costs_one_client_its_connection(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    async def answer(frame: memoryview, peer: Peer) -> list[Chunk]:
        if frame[2]:
            raise error
        return await echo(frame, peer)

    with served(answer) as found, RawClient(found.address) as client, RawClient(found.address) as other:
        client.send(framed(METADATA, b"\1"))
        assert client.is_closed()
        other.send(framed(METADATA, b"\0"))
        assert other.frame()
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_a_fault_of_ours_is_logged_and_costs_one_client_its_connection(caplog: pytest.LogCaptureFixture) -> None:
    async def answer(frame: memoryview, peer: Peer) -> list[Chunk]:
        return [struct.pack(">i", 1 // frame[2])]

    with served(answer) as found, RawClient(found.address) as client, RawClient(found.address) as other:
        client.send(framed(METADATA, b"\0"))
        assert client.is_closed()
        other.send(framed(METADATA, b"\1"))
        assert other.receive(4)
    [record] = [record for record in caplog.records if record.levelname == "ERROR"]
    assert record.exc_info is not None


@pytest.mark.slow
def test_a_waiting_request_is_given_up_when_its_client_leaves_and_others_are_finished() -> None:
    ended: list[str] = []

    async def answer(frame: memoryview, peer: Peer) -> list[Chunk]:
        try:
            await asyncio.sleep(PATIENCE_S if frame[1] == FETCH else 0.3)
            ended.append("finished")
        except asyncio.CancelledError:
            ended.append("given up")
            raise
        return await echo(frame, peer)

    with served(answer) as found:
        for api_key, outcome in ((FETCH, "given up"), (PRODUCE, "finished")):
            with RawClient(found.address) as client:
                client.send(framed(api_key, b"x"))
                found.wait_until(lambda: any(each._doing is not None for each in found.shared.connections))
            found.wait_until(lambda: bool(ended))
            assert ended == [outcome]
            ended.clear()


def test_what_came_whole_is_done_also_when_the_client_has_closed() -> None:
    """A producer with acks 0 has no answers to wait for."""
    seen: list[int] = []

    async def answer(frame: memoryview, peer: Peer) -> list[Chunk] | None:
        seen.append(int.from_bytes(frame[2:6], "big"))
        if seen[-1] % 10 == 3:
            await asyncio.sleep(0.001)
        return None if seen[-1] % 2 else [bytes(100)]

    expected: list[int] = []
    with served(answer) as server:
        for count, size in ((50, 10), (400, 10), (5, 70_000), (1, 10)):
            requests = range(len(expected), len(expected) + count)
            with socket.create_connection(server.address) as client:
                client.sendall(b"".join(framed(PRODUCE, one.to_bytes(4, "big") + bytes(size)) for one in requests))
                client.sendall(framed(PRODUCE, bytes(100))[:50])  # and the beginning of one
                client.shutdown(socket.SHUT_WR)
                expected.extend(requests)
                server.wait_until(lambda: len(seen) == len(expected))
            server.wait_until(lambda: not server.shared.connections)
        assert seen == expected
        assert server.shared.memory.used == 0
