"""Processes that are stopped and go on (SIGSTOP, SIGCONT): a broker under its clients, a copy, a writer."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest
from support.broker.follow_play import files, log_bytes
from support.broker.follow_serving import SMALL, KtsLeader
from support.broker.served import serve
from support.clients.raw_client import RawClient, batch, fetch_body
from support.processes.follow_nursery import nursery
from support.waiting import wait_until

import kts
from kts.broker import wire
from kts.broker.wire.messages import ApiKey
from kts.offline.verify import verify

pytestmark = pytest.mark.slow

SESSION_MS, STOPPED_S = 4000, 4.6  # a busy machine ends no session before the test does
SETTINGS = {
    "group.min.session.timeout.ms": SESSION_MS,
    "request.timeout.ms": SESSION_MS,
    "connections.max.idle.ms": SESSION_MS,
    "log.retention.check.interval.ms": 1000,
}


def join(client: RawClient) -> dict[str, object]:
    """The only member of a group; the fields that its other requests share."""
    body = {"group_id": "g", "session_timeout_ms": SESSION_MS, "rebalance_timeout_ms": SESSION_MS, "member_id": ""}
    protocols = {"protocol_type": "consumer", "protocols": [{"name": "range", "metadata": b""}]}
    joined = client.ask(ApiKey.JOIN_GROUP, 2, body | protocols)
    who = {"group_id": "g", "member_id": joined["member_id"], "generation_id": joined["generation_id"]}
    part = {"assignments": [{"member_id": joined["member_id"], "assignment": b"x"}]}
    assert client.ask(ApiKey.SYNC_GROUP, 1, who | part)["assignment"] == b"x"
    return who


def produce_body(records: bytes) -> dict[str, object]:
    data = [{"name": "t", "partition_data": [{"index": 0, "records": records}]}]
    return {"acks": 1, "timeout_ms": 1000, "topic_data": data}


def test_a_broker_that_stood_still_hears_what_its_clients_sent_meanwhile(tmp_path: Path) -> None:
    """Longer than every timeout it knows: a session, the rest of a request, an idle connection, a poll that waits.

    Five seconds, because nothing but a stopped process is one.
    """
    with (
        serve(tmp_path / "data", SETTINGS) as broker,
        RawClient(broker.address) as member,
        RawClient(broker.address) as half,
        RawClient(broker.address) as idle,
        RawClient(broker.address) as polling,
    ):
        who = join(member)
        topic = {"topics": [{"name": "t", "topic_id": bytes(16)}], "allow_auto_topic_creation": True}
        polling.ask(ApiKey.METADATA, 4, topic)
        assert polling.produce("t", batch([b"a"]))["error_code"] == 0
        big = half.request(ApiKey.PRODUCE, 3, produce_body(batch([b"b" * 300_000])))
        half.send(big[: len(big) // 2])
        assert idle.ask(ApiKey.API_VERSIONS, 0, {})["error_code"] == 0
        polling.send(polling.request(ApiKey.FETCH, 4, fetch_body("t", 1, max_wait_ms=SESSION_MS)))
        assert member.ask(ApiKey.HEARTBEAT, 1, who)["error_code"] == 0
        os.kill(broker.process.pid, signal.SIGSTOP)
        member.send(member.request(ApiKey.HEARTBEAT, 1, who))
        half.send(big[len(big) // 2 : -1])
        time.sleep(STOPPED_S)
        os.kill(broker.process.pid, signal.SIGCONT)
        assert wire.decode_response(ApiKey.HEARTBEAT, 1, member.frame())[1]["error_code"] == 0
        time.sleep(1.1)  # until it has looked at its connections
        assert member.ask(ApiKey.HEARTBEAT, 1, who)["error_code"] == 0
        half.send(big[-1:])
        assert wire.decode_response(ApiKey.PRODUCE, 3, half.frame())[0] == half.correlation_id
        assert idle.ask(ApiKey.API_VERSIONS, 0, {})["error_code"] == 0
        [found] = wire.decode_response(ApiKey.FETCH, 4, polling.frame())[1]["responses"]
        assert found["partitions"][0]["high_watermark"] == 2


def test_a_copy_that_stood_still_goes_on_where_it_was(tmp_path: Path, rng: random.Random) -> None:
    """Its leader goes on meanwhile, is restarted, and loses its end to other records; it runs as a process."""
    with KtsLeader(tmp_path / "leader") as leader, nursery(tmp_path) as commands:
        leader.create("t")
        copy = tmp_path / "copy" / "t-0"
        pid = commands.start("follow", "--bootstrap-server", leader.address, "--topic", "t", copy.parent)

        def has_all() -> bool:
            with contextlib.suppress(FileNotFoundError):  # it is not there yet, or renames what it cuts off
                return log_bytes(files(copy)) == log_bytes(leader.files("t"))
            return False

        for number in range(3):
            leader.produce("t", rng, 10)
            wait_until("it has all records", has_all)
            leader.produce("t", rng, 10)  # an answer may be on its way
            os.kill(pid, signal.SIGSTOP)
            time.sleep(0.2)
            end = leader.log("t").log_end_offset
            leader.stop()
            if number:
                with kts.Log(leader.folder / "t-0", SMALL) as log:
                    log.truncate_to(rng.randrange(end // 2, end))
            leader.start()
            leader.produce("t", rng, 5)
            os.kill(pid, signal.SIGCONT)
            wait_until("it has all records", has_all)
        os.kill(pid, signal.SIGINT)
        assert commands.ended() == 130
        assert has_all() and list(verify(copy, deep=True)) == []


WRITER = """
import sys, kts
settings = {"segment.bytes": 10_000, "retention.bytes": 40_000, "retention.ms": -1, "file.delete.delay.ms": 0}
with kts.Log(sys.argv[1], settings) as log:
    print("open", flush=True)
    for number in range(10**9):
        log.append(kts.encode({"timestamp": [number] * 5, "value": [b"%020d" % number] * 5}))
        if number % 50 == 0:
            log.delete_old_segments()
"""


def test_readers_see_whole_batches_wherever_a_writer_stands_still(tmp_path: Path, rng: random.Random) -> None:
    """Between any two of its system calls, in an append, a roll or a deletion; its lock stays."""
    path = tmp_path / "t-0"
    with subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE) as writer:
        try:
            assert writer.stdout is not None and writer.stdout.readline() == b"open\n"
            end = 0
            while end < 2000:  # until it has deleted, too
                time.sleep(rng.random() / 50)
                os.kill(writer.pid, signal.SIGSTOP)
                os.waitid(os.P_PID, writer.pid, os.WSTOPPED)
                rows = kts.scan(path, columns=["offset", "timestamp"]).read_all()
                offsets, times = rows["offset"].to_pylist(), rows["timestamp"].cast(pa.int64()).to_pylist()
                if offsets:
                    assert offsets == list(range(offsets[0], offsets[-1] + 1)) and offsets[0] % 5 == offsets[-1] % 5 - 4
                    assert times == [offset // 5 for offset in offsets]
                    end = offsets[-1] + 1
                    with kts.open(path) as log:
                        assert isinstance(log, kts.PartitionLog)
                        assert log.log_end_offset == end and log.max_timestamp() == (end // 5 - 1, end - 5)
                        asked = rng.choice(times)
                        assert log.offset_for_timestamp(asked) == (asked, offsets[times.index(asked)])
                with pytest.raises(kts.LogLockedError):
                    kts.Log(path, {})
                os.kill(writer.pid, signal.SIGCONT)
        finally:
            writer.kill()
