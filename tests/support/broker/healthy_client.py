"""A well-behaved client in a process of its own, which measures how long its round trips take.

Beside each round trip to the broker it makes one to a child process that only sends bytes back: how long that takes
says how busy the machine is.

    python healthy_client.py HOST PORT TOPIC

Each line on stdin gets one on stdout: the round trips since the last one, and the longest of both kinds in seconds.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from typing import NamedTuple, Self

from support import ROOT, TESTS
from support.clients.raw_client import RawClient, batch

from kts.broker.wire.messages import ApiKey

PAUSE_S = 0.02


class Trips(NamedTuple):
    """What a healthy client saw."""

    count: int
    longest_s: float
    longest_echo_s: float


class HealthyClient:
    """The process, seen from a test; a context manager."""

    def __init__(self, address: tuple[str, int], topic: str) -> None:
        command = [sys.executable, __file__, address[0], str(address[1]), topic]
        path = os.pathsep.join([str(TESTS), str(ROOT)])
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": path}
        )
        self.trips()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    def trips(self) -> Trips:
        """Those since the last call, at least one."""
        stdin, stdout = self.process.stdin, self.process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write("\n")
        stdin.flush()
        line = stdout.readline()
        assert line, "the healthy client ended"
        return Trips(*json.loads(line))


def echo(end: socket.socket) -> None:
    while data := end.recv(4096):
        end.sendall(data)
    os._exit(0)


def listen(asked: threading.Semaphore) -> None:
    for _ in sys.stdin:
        asked.release()
    os._exit(0)


def main() -> None:
    host, port, topic = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    ours, theirs = socket.socketpair()
    if os.fork() == 0:
        ours.close()
        echo(theirs)
    theirs.close()
    asked = threading.Semaphore(0)
    threading.Thread(target=listen, args=(asked,), daemon=True).start()
    records = batch([b"healthy"])
    client = RawClient((host, port))
    count, longest, longest_echo = 0, 0.0, 0.0
    while True:
        start = time.monotonic()
        round_trip(client, topic, records)
        middle = time.monotonic()
        ours.sendall(b"x" * 100)
        ours.recv(4096)
        end = time.monotonic()
        count, longest, longest_echo = count + 1, max(longest, middle - start), max(longest_echo, end - middle)
        if asked.acquire(blocking=False):
            print(json.dumps([count, longest, longest_echo]), flush=True)
            count, longest, longest_echo = 0, 0.0, 0.0
        time.sleep(PAUSE_S)


def round_trip(client: RawClient, topic: str, records: bytes) -> None:
    """Ask for the topic, write to it, read what was written."""
    known = client.ask(ApiKey.METADATA, 8, {"topics": [{"name": topic}], "allow_auto_topic_creation": False})
    written = client.produce(topic, records)
    read = client.fetch(topic, written["base_offset"])
    if known["topics"][0]["error_code"] or written["error_code"] or read["error_code"] or not read["records"]:
        raise ValueError(f"expected no errors and the records, found {known}, {written}, {read}")


if __name__ == "__main__":
    main()
