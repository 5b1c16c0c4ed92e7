"""What a worker says that lacks kts or has another version: the objects that travel explain themselves."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from support.kafka.jvm import require_spark
from support.waiting import wait_until

import kts
from kts.spark import shipping


def pickled() -> bytes:
    require_spark()
    from pyspark import cloudpickle
    from pyspark.sql.types import LongType, StructType

    from kts.spark.source import KtsReader

    data: bytes = cloudpickle.dumps(KtsReader({"path": "/logs"}, StructType().add("offset", LongType())))
    return data


def unpickle_where(prelude: str, data: bytes, tmp_path: Path) -> str:
    file = tmp_path / "reader.pickle"
    file.write_bytes(data)
    code = f"import pickle, sys\n{prelude}\nreader = pickle.load(sys.stdin.buffer)\nprint(reader.given)"
    with file.open("rb") as stdin:
        done = subprocess.run([sys.executable, "-c", code], stdin=stdin, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def test_the_same_wheel_gets_the_reader(tmp_path: Path) -> None:
    assert "{'path': '/logs'}" in unpickle_where("", pickled(), tmp_path)


def test_a_worker_without_the_wheel_says_so_and_what_to_do(tmp_path: Path) -> None:
    said = unpickle_where("sys.modules['kts'] = None", pickled(), tmp_path)
    assert "ImportError: the Python worker on" in said
    assert f"({sys.executable}) cannot import kts" in said
    assert "Install the wheel" in said
    assert "--archives" in said


def test_a_worker_with_another_version_says_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipping, "__version__", "99.0")
    said = unpickle_where("", pickled(), tmp_path)
    assert f"has kts {kts.__version__}, and the driver has kts 99.0" in said


def waits_for_an_answer(one: socket.socket) -> bool:
    """Whether Linux keeps acknowledgements of a connection for its next answer (``tcp(7)``: TCP_QUICKACK is 0)."""
    return not one.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK)


def test_what_a_worker_got_is_acknowledged_before_it_waits_for_more() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as worker:
        jvm, _ = server.accept()

        def tells() -> bool:
            jvm.sendall(b"task")
            assert worker.recv(4) == b"task"
            worker.sendall(b"done")
            assert jvm.recv(4) == b"done"
            return waits_for_an_answer(worker)

        with jvm, socket.socket(socket.AF_UNIX) as other:  # as Spark's own, if it is told so
            wait_until("Linux waits for an answer of the worker", tells)
            before = set(os.listdir("/proc/self/fd"))
            shipping.acknowledge()
            assert not waits_for_an_answer(worker) and other.fileno() >= 0
            assert set(os.listdir("/proc/self/fd")) <= before
            jvm.sendall(b"partition")  # and the connections stay open
            assert worker.recv(9) == b"partition"


def test_a_worker_whose_tasks_set_a_time_limit_for_sockets_keeps_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = socket.socketpair()
    with one, other:
        socket.setdefaulttimeout(5)
        try:
            shipping.acknowledge()
        finally:
            socket.setdefaulttimeout(None)
        assert os.get_blocking(one.fileno())
    monkeypatch.setattr(os, "listdir", lambda _: os.stat("/no/such/directory"))  # where there is no /proc
    shipping.acknowledge()
