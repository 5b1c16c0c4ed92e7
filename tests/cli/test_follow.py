"""`kts follow` as its users meet it: examples, what it says, wrong use, and what it leaves alone."""

from __future__ import annotations

import random
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.broker.follow_play import files, log_bytes
from support.broker.follow_serving import SMALL, KtsLeader, known_topic_id
from support.kafka.brokers import free_ports
from support.processes.cli_runs import KTS, lines, process, run
from support.processes.dying import DIES_TOO
from support.waiting import wait_until

import kts
from kts.arguments import parse_address
from kts.broker.topics import topic_file
from kts.cli.follow import EPILOG


@pytest.fixture
def leader(tmp_path: Path, rng: random.Random) -> Iterator[KtsLeader]:
    with KtsLeader(tmp_path / "leader") as leader:
        for topic in ("orders", "returns"):
            leader.create(topic, 2)
            leader.produce(topic, rng, 10)
            leader.produce(topic, rng, 10, partition=1)
        yield leader


def once(leader: KtsLeader, *rest: object) -> list[object]:
    return ["follow", "--bootstrap-server", leader.address, "--topic", "orders", "--once", *rest]


@pytest.mark.parametrize("line", re.findall(r"^  kts (follow .*)$", EPILOG.replace("\\\n", ""), re.MULTILINE))
def test_every_example_works(line: str, leader: KtsLeader, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    said = run(*shlex.split(line.replace("localhost:9092", leader.address).replace("DIR", str(folder)))).stdout
    copies = sorted(path for path in folder.iterdir() if path.is_dir())
    assert copies and len(said.splitlines()) == len(copies)
    for copy in copies:
        assert log_bytes(files(copy)) == log_bytes(files(leader.folder / copy.name)) != b""


@pytest.mark.slow
def test_in_a_pipe_it_prints_a_line_a_partition_and_nothing_else(leader: KtsLeader, tmp_path: Path) -> None:
    command = once(leader, tmp_path / "copy")
    done = process(*command)
    assert (done.returncode, done.stderr) == (0, "")
    ends = [leader.log("orders", partition).log_end_offset for partition in (0, 1)]
    assert re.fullmatch(
        rf"orders-0: offsets 0 to {ends[0]}: copied 10 batches, [0-9.]+ KiB\n"
        rf"orders-1: offsets 0 to {ends[1]}: copied 10 batches, [0-9.]+ KiB\n",
        done.stdout,
    )
    assert run(*command).stdout == "".join(
        f"orders-{partition}: offsets 0 to {end}: copied 0 batches, 0 B\n" for partition, end in enumerate(ends)
    )


def test_the_summary_for_programs(leader: KtsLeader, tmp_path: Path) -> None:
    command = once(leader, "--json", tmp_path / "copy")
    said = lines(*command, "--partition", 1)
    assert said == [
        {
            "topic": "orders",
            "partition": 1,
            "topicId": known_topic_id(leader, "orders"),
            "logStartOffset": 0,
            "logEndOffset": leader.log("orders", 1).log_end_offset,
            "highWatermark": leader.log("orders", 1).log_end_offset,
            "leaderEpoch": leader.log("orders", 1).leader_epochs[-1][0],
            "copiedBatches": 10,
            "copiedBytes": leader.log("orders", 1).size_bytes,
            "truncations": 0,
            "complete": True,
        }
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--topic", "nope"], "topic nope at 127.0.0.1:[0-9]+: UNKNOWN_TOPIC_OR_PARTITION"),
        (["--topic", "orders", "--partition", "2"], r"topic orders has 2 partitions, no \[2\]"),
        (["--topic", "../orders"], "expected a topic of 1 to 249 characters"),
        (["--topic", ".."], "expected a topic of 1 to 249 characters"),
        (["--topic", "orders", "--config", "segment.byte=1"], "unknown setting 'segment.byte'"),
        (["--topic", "orders", "--bootstrap-server", "nowhere"], "expected HOST:PORT, found 'nowhere'"),
        (["--topic", "orders", "--bootstrap-server", "::1"], "expected HOST:PORT"),
        ([], "Missing option '--topic'"),
    ],
    ids=str,
)
def test_wrong_use_is_named(arguments: list[str], said: str, leader: KtsLeader, tmp_path: Path) -> None:
    done = run("follow", "--bootstrap-server", leader.address, *arguments, "--once", tmp_path / "copy", code=2)
    assert re.search(said, " ".join(done.stderr.split())), done.stderr
    assert not (tmp_path / "copy").exists()
    assert leader.broker.topics.names() == ["orders", "returns"]


@pytest.mark.slow
def test_a_leader_that_is_not_there_is_waited_for_no_longer_than_patience(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_ports(1)[0]}"
    command = ["follow", "--bootstrap-server", address, "--topic", "orders", tmp_path / "copy"]
    done = run(*command, "--patience", 0, code=3)
    assert done.stderr.startswith(f"kts: cannot reach {address}: ")
    done = run(*command, "--patience", 0.6, code=3)
    assert "; trying again" in done.stderr and len(done.stderr.splitlines()) == 2


def test_a_partition_that_another_process_has_open_is_left_alone(leader: KtsLeader, tmp_path: Path) -> None:
    with kts.Log(tmp_path / "copy" / "orders-0", SMALL):
        done = process(*once(leader, tmp_path / "copy"))
    assert done.returncode == 3 and "stop the broker (or the other program) first" in done.stderr
    assert not (tmp_path / "copy" / "orders-0" / "partition.metadata").exists()


def test_another_topic_of_the_same_name_is_refused(leader: KtsLeader, tmp_path: Path, rng: random.Random) -> None:
    command = once(leader, tmp_path / "copy")
    run(*command)
    before = files(tmp_path / "copy" / "orders-0")
    leader.broker.topics.delete("orders")
    leader.create("orders", 2)
    leader.produce("orders", rng, 30)
    assert "topic_id: expected" in run(*command, code=3).stderr
    assert files(tmp_path / "copy" / "orders-0") == before


def test_old_segments_go_or_stay_as_asked(leader: KtsLeader, tmp_path: Path, rng: random.Random) -> None:
    leader.produce("orders", rng, 60)
    command = once(leader, "--partition", 0, "--json")
    for folder in ("kept", "replica"):
        run(*command, tmp_path / folder)
    leader.log("orders").advance_log_start_offset(leader.log("orders").log_end_offset // 2)
    leader.produce("orders", rng, 1)
    (kept,), (replica,) = lines(*command, "--no-retention", tmp_path / "kept"), lines(*command, tmp_path / "replica")
    assert kept["logStartOffset"] == replica["logStartOffset"] == leader.log("orders").log_start_offset
    logs = {
        folder: sorted(path.name for path in (tmp_path / folder / "orders-0").glob("*.log"))
        for folder in ("kept", "replica")
    }
    assert len(logs["kept"]) > len(logs["replica"]) and logs["kept"][0] == f"{0:020d}.log"


@pytest.mark.slow  # five seconds of waiting: whether readers of a copy that never ends see anything of it
def test_readers_of_a_copy_learn_how_far_it_is_while_it_grows(leader: KtsLeader, tmp_path: Path) -> None:
    copy = tmp_path / "copy" / "orders-0"
    forever = [each for each in once(leader, copy.parent) if each != "--once"]
    with subprocess.Popen([*DIES_TOO, *KTS, *map(str, forever)]) as copying:
        try:
            wait_until("the copy", copy.exists)
            end = leader.log("orders").log_end_offset
            wait_until("its checkpoint", lambda: kts.open_partition(copy).high_watermark == end)
        finally:
            copying.terminate()


def test_settings_given_win_over_the_leaders(leader: KtsLeader, tmp_path: Path) -> None:
    settings = ["--config", "segment.bytes=1000000", "--config", "retention.bytes=7"]
    run(*once(leader, *settings, tmp_path))
    kept = topic_file.read(str(tmp_path)).topics["orders"]
    assert kept.configs == SMALL | {"segment.bytes": "1000000", "retention.bytes": "7"}
    assert kept.partitions == [0, 1] and kept.topic_id == known_topic_id(leader, "orders")


def test_addresses() -> None:
    for text, address in (
        ("localhost:9092", ("localhost", 9092)),
        ("[::1]:1", ("::1", 1)),
        (" a-b.c:65535 ", ("a-b.c", 65535)),
    ):
        assert parse_address(text) == address
    for text in ("", "a", ":1", "a:", "a:0", "a:65536", "a:-1", "::1", "[]:1", "a:b:1", "a:1_0"):
        with pytest.raises(ValueError, match="expected HOST:PORT"):
            parse_address(text)
