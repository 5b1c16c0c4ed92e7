"""HDFS through WebHDFS: a real name node and a real data node, with proxies before them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest
from fsspec.implementations.webhdfs import WebHDFS
from support.buckets.checks import CHECKS
from support.buckets.doors import files, reach
from support.buckets.emulators import Emulator, hadoop
from support.buckets.proxy import Answer, Asked, Proxy

import kts
from kts.remote import buckets
from kts.remote.threads import Limit

pytestmark = pytest.mark.slow  # Hadoop: ten seconds


@pytest.fixture(scope="module")
def store() -> Iterator[Emulator]:
    with hadoop() as emulator:
        yield emulator


@pytest.mark.parametrize("check", CHECKS)
def test_hdfs_keeps_what_stores_promise(store: Emulator, check: Callable[[Emulator], None]) -> None:
    check(store)


class Between(NamedTuple):
    """Proxies before both nodes of HDFS, and addresses that go through them."""

    names: Proxy
    data: Proxy
    store: Emulator

    def address(self, key: str, **options: Any) -> str:
        address = f"webhdfs://127.0.0.1:{self.names.port}/bkt/{key}"
        through = {"data_proxy": {f":{self.store.data_port}/": f":{self.data.port}/"}, "max_attempts": 3}
        reach(address, self.store.options | through | options)
        return address


@pytest.fixture
def between(store: Emulator) -> Iterator[Between]:
    port = urlsplit(store.address).port
    assert port is not None
    with Proxy(port) as names, Proxy(store.data_port) as data:
        yield Between(names, data, store)


def refusal(status: int, kind: str, length: int = 0) -> bytes:
    told = {"RemoteException": {"exception": kind, "message": f"{kind} of {status}"}}
    return json.dumps(told).encode().ljust(length)


def test_what_a_data_node_refuses_is_not_taken_for_data(between: Between) -> None:
    """Its answer may be as long as what was asked for."""
    data = bytes(range(250)) * 40
    between.store.put("y.bin", data)
    with files.open_file(between.address("y.bin")) as file:
        between.data.change = lambda asked, answer: Answer(403, [], refusal(403, "AccessControlException", 10_000))
        with pytest.raises(kts.LogStorageError, match=r"403, AccessControlException.*HADOOP_USER_NAME"):
            file.read(0, 10_000)
        between.data.forget()
        assert file.read(0, 10_000) == data
    assert between.data.counted() == {"GET": 1} and between.data.body_bytes == 10_000


def test_failing_nodes_are_asked_again_as_often_as_told(between: Between) -> None:
    def fails_twice(asked: Asked, answer: Answer) -> Answer | None:
        turn = next(seen)
        if turn > 1:
            return None
        cut = Answer(200, answer.headers, answer.body, sent=1000)
        return cut if turn else Answer(503, [], b"busy")

    for number, node in enumerate((between.names, between.data)):
        data = bytes([number, *range(249)]) * 4_000  # others each time: the last answers are kept
        between.store.put("y.bin", data)
        seen = count()
        node.change = fails_twice
        with files.open_file(between.address("y.bin")) as file:
            assert file.read(0, len(data)) == data
        assert next(seen) > 2
        node.forget()
    between.names.forget()
    between.names.change = lambda asked, answer: Answer(500, [], refusal(500, "RetriableException"))
    with pytest.raises(kts.LogStorageError, match="500, RetriableException"):
        files.open_file(between.address("y.bin"))
    assert between.names.counted() == {"GET": 3}


ODD = {
    "html": b"<html></html>",
    "empty": b"",
    "a list": b"[]",
    "without its parts": b'{"FileStatus": {}, "FileStatuses": {}}',
    "of other types": b'{"FileStatus": {"type": "FILE", "length": "x"}, "FileStatuses": {"FileStatus": [{}]}}',
    "one of another kind": b'{"FileStatus": 7, "FileStatuses": {"FileStatus": 7}}',
}


@pytest.mark.parametrize("body", ODD.values(), ids=ODD)
def test_an_answer_that_is_none_of_webhdfs_is_an_error(between: Between, body: bytes) -> None:
    between.store.put("odd/y.bin", b"data")
    address = between.address("odd/y.bin", max_attempts=1)
    between.names.change = lambda asked, answer: Answer(200, [("Content-Type", "application/json")], body)
    for ask in (files.read_bytes, files.exists, files.size_of, files.names_in):
        with pytest.raises(kts.LogStorageError, match=r"failed: .*HADOOP_USER_NAME") as raised:
            ask(address)
        assert raised.value.path is not None


def test_a_data_node_that_is_too_slow_is_an_error_after_the_limit(
    between: Between, monkeypatch: pytest.MonkeyPatch
) -> None:
    between.store.put("y.bin", bytes(1000))
    with files.open_file(address := between.address("y.bin")) as file:
        monkeypatch.setattr(buckets.bucket_of(address), "_limit", Limit(0.4))  # a busy machine opens it later
        between.data.change = lambda asked, answer: Answer(answer.status, answer.headers, answer.body, pause_s=0.1)
        with pytest.raises(kts.LogStorageError, match=r"no answer within 0\.4 s"):
            file.read(0, 1000)
        between.data.forget()


def test_limits_of_time_users_and_ports_are_told(between: Between, monkeypatch: pytest.MonkeyPatch) -> None:
    between.store.put("y.bin", b"data")
    between.names.before = lambda asked: time.sleep(1)
    with pytest.raises(kts.LogStorageError, match="timed out"):
        files.open_file(between.address("y.bin", request_timeout=0.1, max_attempts=1))
    between.names.forget()
    system = WebHDFS("127.0.0.1", between.names.port, user="kafka")
    system.chmod("/bkt/y.bin", 600)
    monkeypatch.setenv("HADOOP_USER_NAME", "somebody")
    buckets._buckets.pop(f"webhdfs://127.0.0.1:{between.names.behind}", None)
    with pytest.raises(kts.LogStorageError, match=r"Permission denied: user=somebody.*HADOOP_USER_NAME"):
        files.read_bytes(f"webhdfs://127.0.0.1:{between.names.behind}/bkt/y.bin")
    with pytest.raises(ValueError, match=r"storage_options: unexpected argument 'colour'; .*max_attempts"):
        files.open_file(between.address("y.bin", colour=1))
    with pytest.raises(kts.LogStorageError, match=r"refused.*check the address"):
        kts.open("webhdfs://127.0.0.1:9/logs", storage_options={"max_attempts": 1})
