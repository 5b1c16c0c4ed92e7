"""`kts follow` as a process: killed again and again at any moment, interrupted, stopped."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.broker.follow_play import files, log_bytes
from support.broker.follow_serving import SMALL, KtsLeader
from support.golden import PATIENCE_S, scaled
from support.processes.cli_runs import lines, run
from support.processes.follow_nursery import Nursery, nursery
from support.waiting import wait_until

import kts
from kts.broker.topics import topic_file

pytestmark = pytest.mark.slow

KILLS = scaled(12, 50)


@pytest.fixture
def leader(tmp_path: Path) -> Iterator[KtsLeader]:
    with KtsLeader(tmp_path / "leader") as leader:
        leader.create("t")
        yield leader


@pytest.fixture
def commands(tmp_path: Path) -> Iterator[Nursery]:
    if not hasattr(os, "fork"):
        pytest.skip("commands are forked")
    with nursery(tmp_path) as commands:
        yield commands


def size(directory: Path) -> int:
    """Bytes of records in a partition that another process writes to."""
    found = 0
    for path in directory.glob("*.log") if directory.exists() else ():
        try:
            found += path.stat().st_size
        except FileNotFoundError:
            continue
    return found


def test_a_killed_copy_goes_on_with_whole_batches(
    leader: KtsLeader, commands: Nursery, tmp_path: Path, rng: random.Random
) -> None:
    copy = tmp_path / "copy" / "t-0"
    follow = ["follow", "--bootstrap-server", leader.address, "--topic", "t", copy.parent]
    grew = 0
    histories: list[bytes] = []  # that the leader had before
    kills = 0
    while kills < KILLS or (grew <= 5 and kills < 10 * KILLS):
        kills += 1
        leader.produce("t", rng, rng.randrange(60))
        before = size(copy)
        pid = commands.start(*follow)
        wanted = rng.choice([0, 0, rng.randrange(1, 4000)])
        until = time.monotonic() + 10 * rng.random()
        while size(copy) < before + wanted and size(copy) < size(leader.folder / "t-0") and time.monotonic() < until:
            time.sleep(0.001)
        time.sleep(rng.choice([0.0, 0.0, 0.05]) * rng.random())
        os.kill(pid, signal.SIGKILL)
        assert commands.ended() == -signal.SIGKILL, commands.said()
        grew += size(copy) > before
        if copy.exists() and rng.random() < 0.3:
            with kts.Log(copy, SMALL) as log:
                records = log_bytes(files(copy))
                assert any(each.startswith(records) for each in (*histories, log_bytes(leader.files("t"))))
                assert records == b"" or log.log_end_offset == kts.decode(records, ["offset"])["offset"][-1].as_py() + 1
        if rng.random() < 0.1:
            histories.append(log_bytes(leader.files("t")))
            leader.stop()
            with kts.Log(leader.folder / "t-0", SMALL) as log:
                log.truncate_to(rng.randrange(log.log_end_offset + 1))
            leader.start()
    (said,) = lines(*follow, "--once", "--json")
    assert said["logEndOffset"] == leader.log("t").log_end_offset
    assert log_bytes(files(copy)) == log_bytes(leader.files("t"))
    assert run("verify", copy).exit_code == 0
    print(f"{kills} kills, {grew} after something was copied, {len(histories)} other histories of the leader")
    assert grew > 5


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_and_sigterm_close_the_copy_cleanly(
    stop: signal.Signals, leader: KtsLeader, commands: Nursery, tmp_path: Path, rng: random.Random
) -> None:
    copy = tmp_path / "copy" / "t-0"
    for _ in range(5):
        leader.produce("t", rng, 40)
        pid = commands.start("follow", "--bootstrap-server", leader.address, "--topic", "t", "--json", copy.parent)
        enough = rng.randrange(size(leader.folder / "t-0") + 1)
        wait_until("something is copied", lambda: size(copy) >= enough and copy.exists())  # noqa: B023
        wait_until("it asks the leader", lambda: leader.proxy.connections > 0)
        os.kill(pid, stop)
        assert commands.ended() == 128 + stop, commands.said()
        said = commands.said()
        assert "Traceback" not in said
        if said.strip():
            (summary,) = map(json.loads, said.splitlines())
            assert summary["logEndOffset"] <= leader.log("t").log_end_offset
            with kts.Log(copy, SMALL) as log:
                assert log.clean_start and log.recovered == []
                assert summary["logEndOffset"] == log.log_end_offset
        leader.proxy.connections = 0
    run("follow", "--bootstrap-server", leader.address, "--topic", "t", "--once", copy.parent)
    assert log_bytes(files(copy)) == log_bytes(leader.files("t"))


def test_new_partitions_and_settings_are_taken_over(leader: KtsLeader, tmp_path: Path, rng: random.Random) -> None:
    folder = tmp_path / "copy"
    program = "import sys, kts.cli.follow as f; f.REFRESH_S = 0.1; from kts.cli import main; main(sys.argv[1:])"
    command = [sys.executable, "-c", program, "follow", "--bootstrap-server", leader.address, "--topic", "t", folder]
    with subprocess.Popen([str(each) for each in command], stderr=subprocess.PIPE, text=True) as running:
        try:
            leader.produce("t", rng, 5)
            wait_until("the copy has all", lambda: size(folder / "t-0") == size(leader.folder / "t-0") > 0)
            leader.broker.topics.add_partitions("t", 3)
            leader.broker.topics.alter("t", SMALL | {"segment.bytes": "2500"})
            leader.produce("t", rng, 20, partition=2)
            leader.produce("t", rng, 20)
            for partition in (0, 2):
                one = f"t-{partition}"
                wait_until("the copy has all", lambda: size(folder / one) == size(leader.folder / one))  # noqa: B023
        finally:
            running.send_signal(signal.SIGTERM)
            said = running.communicate(timeout=PATIENCE_S)[1].splitlines()
        assert running.returncode == 143
    assert set(said) == {
        "t-1: the topic has a new partition",
        "t-2: the topic has a new partition",
        "t: the copy has the leader's new settings",
    }
    for partition in range(3):
        assert log_bytes(files(folder / f"t-{partition}")) == log_bytes(leader.files("t", partition))
    kept = topic_file.read(str(folder)).topics["t"]
    assert kept.partitions == [0, 1, 2] and kept.configs == SMALL | {"segment.bytes": "2500"}


def test_it_follows_live_through_a_restart_of_the_leader(
    leader: KtsLeader, commands: Nursery, tmp_path: Path, rng: random.Random
) -> None:
    copy = tmp_path / "copy" / "t-0"
    pid = commands.start("follow", "--bootstrap-server", leader.address, "--topic", "t", copy.parent)
    for _ in range(3):
        leader.produce("t", rng, 10)
        wait_until("the copy has all", lambda: size(copy) == size(leader.folder / "t-0"))
        leader.stop()
        leader.start()
    leader.produce("t", rng, 10)
    wait_until("the copy has all", lambda: size(copy) == size(leader.folder / "t-0"))
    os.kill(pid, signal.SIGINT)
    assert commands.ended() == 130
    assert log_bytes(files(copy)) == log_bytes(leader.files("t"))
    said = commands.said().splitlines()
    assert any("continues at offset" in line for line in said)
    assert said[-1].startswith("t-0: offsets 0 to ")
