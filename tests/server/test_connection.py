"""One connection over a real socket: order, slow readers, and those who never finish."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from support.clients.raw_client import RawClient
from support.golden import PATIENCE_S

from kts.broker.request import ConnectionClose, Peer
from kts.errors import InvalidRequestError
from kts.segment.files import File, FileRange
from kts.server.connection import Connection, Shared
from kts.server.framing import SCRATCH_BYTES
from kts.server.limits import Memory, PipelineQueue, Places
from kts.server.sending import PIECE_BYTES, SENDFILE_BYTES, Chunk

PRODUCE, FETCH, METADATA = 0, 1, 3
Answer = Callable[[memoryview, Peer], Awaitable[list[Chunk] | None]]


def framed(api_key: int, body: bytes = b"") -> bytes:
    return struct.pack(">ih", len(body) + 2, api_key) + body


async def echo(frame: memoryview, peer: Peer) -> list[Chunk]:
    return [struct.pack(">i", len(frame)), frame]


class Served:
    """Connections of one listening socket, in a thread."""

    def __init__(self, answer: Answer, request_s: float, idle_s: float) -> None:
        self.loop = asyncio.new_event_loop()
        self.loop.set_exception_handler(lambda loop, context: self.complaints.append(str(context)))
        self.complaints: list[str] = []
        self.shared = Shared(
            answer=answer,
            limit=lambda api_key: 1 << 26,
            scratch=memoryview(bytearray(SCRATCH_BYTES)),
            places=Places(1000, 1000),
            memory=Memory(1 << 27, self.loop.time),
            pipelined=PipelineQueue(),
            idle_s=idle_s,
            request_s=request_s,
            connections={},
        )
        ready = threading.Event()
        self.thread = threading.Thread(target=self._run, args=(ready,))
        self.thread.start()
        ready.wait()

    def _run(self, ready: threading.Event) -> None:
        async def listen() -> None:
            server = await self.loop.create_server(lambda: Connection(self.shared), "127.0.0.1", 0)
            self.address = server.sockets[0].getsockname()
            self.stopped = asyncio.Event()
            looking = self.loop.create_task(self._look())
            ready.set()
            await self.stopped.wait()
            looking.cancel()
            server.close()
            for connection in list(self.shared.connections):
                connection.drop("the test is over")
            await asyncio.sleep(0)

        self.loop.run_until_complete(listen())
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(0.02)
            for connection in list(self.shared.connections):
                connection.look(self.loop.time())

    def wait_until(self, true: Callable[[], bool]) -> None:
        until = time.monotonic() + PATIENCE_S
        while not true():
            assert time.monotonic() < until
            time.sleep(0.005)


@contextlib.contextmanager
def served(answer: Answer = echo, *, request_s: float = PATIENCE_S, idle_s: float = 3600) -> Iterator[Served]:
    found = Served(answer, request_s, idle_s)
    try:
        yield found
        assert found.complaints == []
    finally:
        found.loop.call_soon_threadsafe(found.stopped.set)
        found.thread.join()


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


@pytest.mark.parametrize("slow", [False, True], ids=["fast", "slow"])
def test_every_kind_of_chunk_arrives_as_it_is_whoever_reads_it(tmp_path: Path, rng: random.Random, slow: bool) -> None:
    path = tmp_path / "file"
    data = rng.randbytes(4 * PIECE_BYTES)
    path.write_bytes(data)

    def chunk(position: int, count: int) -> Chunk:
        match rng.randrange(3):
            case 0:
                return data[position : position + count]
            case 1:
                return memoryview(data)[position : position + count]
        return FileRange(File(str(path)), position, count)

    answers: list[list[tuple[int, int]]] = []
    borders = (0, 1, 100, SENDFILE_BYTES - 1, SENDFILE_BYTES, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES + 5)
    for _ in range(6 if slow else 20):
        counts = [rng.choice(borders) for _ in range(rng.randint(1, 6))]
        answers.append([(rng.randint(0, len(data) - count), count) for count in counts])

    async def answer(frame: memoryview, peer: Peer) -> list[Chunk]:
        parts = answers[frame[2]]
        size: list[Chunk] = [struct.pack(">i", sum(count for _, count in parts))]
        return size + [chunk(*part) for part in parts]

    with served(answer) as found, RawClient(found.address) as client:
        if slow:
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        client.send(b"".join(framed(FETCH, bytes([number])) for number in range(len(answers))))
        for parts in answers:
            if slow:
                time.sleep(0.001)
            assert bytes(client.frame()) == b"".join(data[position : position + count] for position, count in parts)


def test_an_answer_that_nobody_reads_waits_in_little_memory_and_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(1 << 24))

    async def answer(frame: memoryview, peer: Peer) -> list[Chunk]:
        whole = FileRange(File(str(path)), 0, 1 << 24)
        return [struct.pack(">i", 1 << 24), memoryview(bytes(1 << 24)) if frame[2] else whole]

    for kind in range(2):
        with (
            served(answer, request_s=0.5) as found,
            RawClient(found.address) as client,
            RawClient(found.address) as other,
        ):
            client.send(framed(FETCH, bytes([kind])))
            found.wait_until(lambda: len(found.shared.connections) == 2)
            waiting = 0
            while len(found.shared.connections) == 2:
                for connection in list(found.shared.connections):
                    if connection._transport is not None:
                        waiting = max(waiting, connection._transport.get_write_buffer_size())
                time.sleep(0.005)
            assert 0 < waiting <= PIECE_BYTES
            other.send(framed(FETCH, b"\0"))
            assert other.frame() == bytes(1 << 24)


def test_a_file_that_is_cut_while_it_is_sent_ends_the_connection(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(1 << 20))

    async def answer(frame: memoryview, peer: Peer) -> list[Chunk]:
        return [struct.pack(">i", 1 << 21), FileRange(File(str(path)), 0, 1 << 21)]

    with served(answer) as found, RawClient(found.address) as client:
        client.send(framed(FETCH, b""))
        with pytest.raises((EOFError, ConnectionError)):
            client.frame()


UNFINISHED = {
    "size": b"\0",
    "API key": b"\0\0\0\x50\0",
    "small": framed(METADATA, bytes(100))[:-1],
    "large": framed(PRODUCE, bytes(1 << 20))[:-1],
}


@pytest.mark.parametrize("sent", UNFINISHED.values(), ids=UNFINISHED)
def test_a_request_that_never_ends_is_dropped(sent: bytes) -> None:
    with served(request_s=0.3) as found, RawClient(found.address) as client, RawClient(found.address) as other:
        client.send(sent)
        assert client.is_closed()
        other.send(framed(METADATA, b"x"))
        assert other.frame() == framed(METADATA, b"x")[4:]


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
