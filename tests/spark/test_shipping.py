"""What a worker says that lacks kts or has another version: the objects that travel explain themselves."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from support.kafka.jvm import require_spark

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


def unacknowledged(one: socket.socket) -> int:
    """The segments that a connection sent and the other side has not acknowledged: ``tcp_info.tcpi_unacked``."""
    found: int = struct.unpack_from("I", one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 28), 24)[0]
    return found


def test_what_a_worker_got_is_acknowledged_before_it_waits_for_more() -> None:
    """At least once in twenty times at once: on a busy machine the kernel may put it off."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as worker:
        jvm, _ = server.accept()
        with jvm:
            left = []
            for _ in range(20):
                for _ in range(8):  # from here on Linux waits for an answer that could take the acknowledgement along
                    jvm.sendall(b"task")
                    assert worker.recv(4) == b"task"
                    worker.sendall(b"done")
                    assert jvm.recv(4) == b"done"
                before = set(os.listdir("/proc/self/fd"))
                jvm.sendall(b"reader")
                assert worker.recv(6) == b"reader"
                shipping.acknowledge()
                left.append(unacknowledged(jvm))
                assert set(os.listdir("/proc/self/fd")) <= before
                jvm.sendall(b"partition")  # the connections stay open
                assert worker.recv(9) == b"partition"
            assert 0 in left
