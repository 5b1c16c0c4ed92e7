"""Answers to a socket: every kind of chunk, slow readers, and files that are cut meanwhile."""

from __future__ import annotations

import random
import socket
import struct
import time
from pathlib import Path

import pytest
from support.broker.connections import FETCH, framed, served
from support.clients.raw_client import RawClient

from kts.broker.request import Peer
from kts.server.sending import PIECE_BYTES, SENDFILE_BYTES, Chunk
from kts.store.local import File, FileRange


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


@pytest.mark.slow
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
