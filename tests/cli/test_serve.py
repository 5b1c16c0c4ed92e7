"""`kts serve` as people start and end it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.broker.served import ROOT, serve
from support.clients.raw_client import RawClient, batch
from support.golden import PATIENCE_S, golden
from support.processes.cli_runs import run

import kts
from kts.broker.broker import Broker
from kts.broker.codes import ErrorCode
from kts.broker.wire.messages import ApiKey
from kts.cli.serve import command

pytestmark = pytest.mark.slow

EXAMPLES = [shlex.split(line)[1:] for line in re.findall(r"^  (kts .*)$", command.epilog or "", re.MULTILINE)]


@pytest.mark.parametrize("arguments", EXAMPLES, ids=" ".join)
def test_its_examples_serve(tmp_path: Path, arguments: list[str]) -> None:
    assert arguments[:2] == ["serve", "DIR"]
    options = arguments[2:]
    if "--listen" in options:
        at = options.index("--listen")
        assert re.fullmatch(r"127\.0\.0\.1:\d+", options[at + 1])
        del options[at : at + 2]
    with serve(tmp_path / "data", None, *options) as broker, RawClient(broker.address) as client:
        assert client.ask(ApiKey.API_VERSIONS, 0, {})["error_code"] == 0
        assert broker.stop() == 0
        assert broker.said() == ""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_closes_it_cleanly_and_what_was_written_is_there(tmp_path: Path, number: int) -> None:
    for values in ([b"1", b"2"], [b"3"]):
        with serve(tmp_path / "data") as broker, RawClient(broker.address) as client:
            client.ask(ApiKey.METADATA, 4, {"topics": [{"name": "orders"}], "allow_auto_topic_creation": True})
            assert client.produce("orders", batch(values))["error_code"] == 0
            assert broker.stop(number) == 0
            assert broker.said() == ""
            assert client.is_closed()
        assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()
    lines = run("dump", tmp_path / "data" / "orders-0", "--format", "jsonl", "--values", "utf8").stdout.splitlines()
    assert [json.loads(line)["value"] for line in lines] == ["1", "2", "3"]
    assert json.loads(run("ls", tmp_path / "data", "--json").stdout.splitlines()[0])["topic"] == "orders"


def test_a_request_that_waits_does_not_hold_up_the_end(tmp_path: Path) -> None:
    with serve(tmp_path / "data") as broker, RawClient(broker.address) as client:
        client.ask(ApiKey.METADATA, 4, {"topics": [{"name": "orders"}], "allow_auto_topic_creation": True})
        one = {"topic": "orders", "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}]}
        body = {"max_wait_ms": 2**31 - 1, "min_bytes": 1, "max_bytes": 1000, "topics": [one]}
        client.send(client.request(ApiKey.FETCH, 4, body))
        assert broker.stop() == 0


def test_it_says_where_it_listens_as_json_too(tmp_path: Path) -> None:
    with serve(tmp_path / "data", {"node.id": 7}, "--json") as broker:
        said = json.loads(broker.line)
        assert (said["nodeId"], said["topics"]) == (7, 0)
        with RawClient(broker.address) as client:
            assert client.ask(ApiKey.METADATA, 4, {"topics": None})["cluster_id"] == said["clusterId"]


def test_it_listens_on_the_loopback_address_of_ipv6(tmp_path: Path) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError as error:
        pytest.skip(f"this machine has no IPv6: {error}")
    with serve(tmp_path / "data", listen="[::1]:0") as broker, RawClient(broker.address) as client:
        assert broker.line.startswith("[::1]:")
        [node] = client.ask(ApiKey.METADATA, 1, {"topics": []})["brokers"]
        assert (node["host"], node["port"]) == broker.address


@pytest.mark.parametrize("listen", ["0.0.0.0:0", "[::]:0", ":0", "10.1.2.3:0", "kafka.invalid:0"])
def test_what_others_could_reach_is_wrong_use_that_says_what_to_type(tmp_path: Path, listen: str) -> None:
    said = run("serve", tmp_path / "data", "--listen", listen, code=2).stderr
    assert "expected a loopback address such as 127.0.0.1" in said
    assert "--insecure allows it" in said
    assert not (tmp_path / "data").exists()


def test_insecure_listens_where_it_is_told_to(tmp_path: Path) -> None:
    with serve(tmp_path / "data", None, "--insecure", listen="0.0.0.0:0") as broker:
        with RawClient(("127.0.0.1", broker.address[1])) as client:
            [node] = client.ask(ApiKey.METADATA, 1, {"topics": []})["brokers"]
        assert (node["host"], node["port"]) == ("127.0.0.1", broker.address[1])


def test_clients_are_told_the_advertised_listener(tmp_path: Path) -> None:
    settings = {"advertised.listeners": "PLAINTEXT://kafka.example:19092"}
    with serve(tmp_path / "data", settings) as broker, RawClient(broker.address) as client:
        [node] = client.ask(ApiKey.METADATA, 1, {"topics": []})["brokers"]
        assert (node["host"], node["port"]) == ("kafka.example", 19092)
        [node] = client.ask(ApiKey.DESCRIBE_CLUSTER, 0, {})["brokers"]
        assert (node["host"], node["port"]) == ("kafka.example", 19092)


def test_wrong_use_is_said(tmp_path: Path) -> None:
    data = tmp_path / "data"
    assert "nearest name is num.partitions" in run("serve", data, "--config", "num.partition=3", code=2).stderr
    stderr = run("serve", data, "--config", "message.timestamp.type=LogAppendTime", code=2).stderr
    assert "which is a topic's; the broker's is log.message.timestamp.type" in stderr
    assert "expected KEY=VALUE" in run("serve", data, "--config", "num.partitions", code=2).stderr
    assert "with a port from 0 to 65535" in run("serve", data, "--listen", "127.0.0.1:99999", code=2).stderr
    assert not data.exists()


def test_a_config_may_use_kip_32s_name_and_a_client_is_answered_by_it(tmp_path: Path) -> None:
    name = "max.message.time.difference.ms"
    with serve(tmp_path / "data", {name: 5000}) as broker, RawClient(broker.address) as client:
        asked = {"resource_type": 4, "resource_name": "1", "configuration_keys": [name]}
        [found] = client.ask(ApiKey.DESCRIBE_CONFIGS, 4, {"resources": [asked]})["results"]
        assert [(one["name"], one["value"]) for one in found["configs"]] == [(name, "5000")]


def test_a_port_or_a_directory_that_is_taken_is_said(tmp_path: Path) -> None:
    with serve(tmp_path / "data") as broker:
        taken = f"127.0.0.1:{broker.address[1]}"
        assert f"{taken}: Address already in use" in run("serve", tmp_path / "b", "--listen", taken, code=3).stderr
        assert "stop the broker" in run("serve", tmp_path / "data", "--listen", "127.0.0.1:0", code=3).stderr


def test_a_real_brokers_directory_is_served_and_nothing_of_it_expires(tmp_path: Path) -> None:
    orders = golden("demo", "orders").copy(tmp_path)
    before = run("ls", orders.log_dir, "--json").stdout
    with serve(orders.log_dir, {"log.retention.check.interval.ms": 100}) as broker, RawClient(broker.address) as client:
        assert "nothing of them expires" in broker.said()
        known = client.ask(ApiKey.METADATA, 4, {"topics": None})["topics"]
        assert known[0]["name"] == json.loads(before.splitlines()[0])["topic"]
        short = {"name": "short", "num_partitions": 1, "replication_factor": 1}
        short["configs"] = [{"name": "retention.ms", "value": "1"}]
        client.ask(ApiKey.CREATE_TOPICS, 4, {"topics": [short], "timeout_ms": 1000})
        assert client.produce("short", batch([b"old"]))["error_code"] == 0
        until = time.monotonic() + PATIENCE_S
        while client.fetch("short", 0)["error_code"] != ErrorCode.OFFSET_OUT_OF_RANGE:
            assert time.monotonic() < until
            time.sleep(0.05)
        client.ask(ApiKey.DELETE_TOPICS, 1, {"topic_names": ["short"], "timeout_ms": 1000})
        assert broker.stop() == 0
    assert run("ls", orders.log_dir, "--json").stdout == before


def test_a_terminal_is_told_what_goes_on(tmp_path: Path) -> None:
    ours, theirs = os.openpty()
    arguments = [sys.executable, "-m", "kts.cli", "serve", str(tmp_path / "data"), "--listen", "127.0.0.1:0"]
    with subprocess.Popen(arguments, cwd=ROOT, stdout=theirs, stderr=theirs, stdin=subprocess.DEVNULL) as process:
        os.close(theirs)
        said = b""
        while b"Ctrl-C stops it" not in said:
            said += os.read(ours, 1000)
        process.send_signal(signal.SIGINT)
        while b"closing the logs" not in said:
            said += os.read(ours, 1000)
        assert process.wait() == 0
    os.close(ours)
    assert re.search(rb"serving 0 topics?; clients connect to 127\.0\.0\.1:\d+", said)


@pytest.mark.skipif(sys.platform != "linux", reason="descriptors of a process are looked at in /proc")
def test_few_descriptors_are_enough_and_a_lack_of_them_is_told_in_few_lines(tmp_path: Path) -> None:
    import resource

    names = [f"t{number}" for number in range(30)]
    with serve(tmp_path / "data") as broker, contextlib.ExitStack() as silent:
        resource.prlimit(broker.process.pid, resource.RLIMIT_NOFILE, (64, 64))
        with RawClient(broker.address) as client:
            topics = [{"name": name} for name in names]
            client.ask(ApiKey.METADATA, 4, {"topics": topics, "allow_auto_topic_creation": True})
            assert {client.produce(name, batch([b"1"]))["error_code"] for name in names} == {0}
            for _ in range(200):
                silent.enter_context(socket.create_connection(broker.address))
            assert {client.produce(name, batch([b"2"]))["error_code"] for name in names} == {0}
            silent.close()
        until = time.monotonic() + PATIENCE_S
        while broker.descriptors() > 40:
            assert time.monotonic() < until
            time.sleep(0.05)
        with RawClient(broker.address) as client:
            assert client.produce("t0", batch([b"3"]))["error_code"] == 0
        assert broker.stop() == 0
        said = [line for line in broker.said().splitlines() if "ulimit -n" in line]
        assert said == ["kts: no file or connection can be opened: the limit is 64 open files, `ulimit -n` raises it"]
        assert len(broker.said().splitlines()) < 10


def test_a_broker_that_starts_with_few_descriptors_says_so_and_serves_a_log_of_more_segments(tmp_path: Path) -> None:
    """Starts a process: the limit is one of the process."""
    log = kts.Log(tmp_path / "data" / "t-0", {"segment.bytes": 200, "retention.ms": -1})
    for _ in range(150):
        log.append(batch([b"v" * 100]))
    assert len(log.segments) == 150
    log.abandon()
    with serve(tmp_path / "data", most_files=64) as broker:
        with RawClient(broker.address) as client:
            assert client.produce("t", batch([b"1"]))["base_offset"] == 150
        assert broker.descriptors() < 40
        assert broker.stop() == 0
    assert "32 connections at most: the limit is 64 open files, `ulimit -n` raises it" in broker.said()


def test_groups_that_cannot_be_read_are_told(tmp_path: Path) -> None:
    with Broker(tmp_path / "data") as broker:
        partition = broker.coordinator.journal.make_topic().partitions[0]
        partition.append(kts.encode({"timestamp": [1], "key": [b"\0\2\0\1g"], "value": [b"\0\x09"]}))
    with serve(tmp_path / "data") as broker:
        assert broker.stop() == 0
        assert "group 'g'" in broker.said()
