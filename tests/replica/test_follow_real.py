"""`kts follow` copies topics of real brokers: the bytes, the segments and the indexes are the broker's own."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from support.broker.follow_play import Leader, Told, files, log_bytes, logs, tell
from support.kafka.brokers import kafka
from support.processes.cli_runs import lines, run

import kts


class Followed(NamedTuple):
    leader: Leader
    told: Told

    def copy(self, topic: str) -> Path:
        return self.leader.copies / f"{topic}-0"

    def of(self, topic: str) -> tuple[dict[str, bytes], dict[str, bytes]]:
        """The broker's files and the copy's."""
        return self.told.theirs[topic], files(self.copy(topic))


@pytest.fixture(scope="module", params=["3.9.2", "0.10.2.2", "4.3.1"])
def followed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Followed]:
    folder = tmp_path_factory.mktemp(f"leader-{request.param}")
    with kafka(request.param, folder / "broker") as (broker, client):
        leader = Leader(broker, client, random.Random(int(os.environ["KTS_SEED"])), folder)
        yield Followed(leader, tell(leader))


@pytest.fixture
def topics(followed: Followed) -> list[str]:
    """Those whose first segments the leader has not deleted."""
    return [topic for topic in followed.told.first if topic != "deleted"]


def test_the_copies_have_the_brokers_bytes(followed: Followed, topics: list[str]) -> None:
    assert len(topics) >= 5
    for topic in topics:
        theirs, ours = followed.of(topic)
        assert len(logs(theirs)) > 1 and log_bytes(ours) == log_bytes(theirs), topic
        assert run("verify", followed.copy(topic)).exit_code == 0


def with_records(of: dict[str, bytes]) -> dict[str, bytes]:
    """Segments that a cleaner has not emptied: whether it goes over them once more and joins them is up to it."""
    return {name: data for name, data in logs(of).items() if data}


def test_the_segments_are_the_brokers(followed: Followed, topics: list[str]) -> None:
    for topic in topics:
        theirs, ours = followed.of(topic)
        if topic != "compacted":
            assert logs(ours) == logs(theirs), topic
        elif not followed.leader.broker.version.startswith("4."):  # which does not tell them
            whole, (first, *_) = with_records(theirs), logs(theirs)
            begins = {first: whole.pop(min(whole))}  # where the leader's empty ones do
            assert with_records(ours) == begins | whole


def test_the_indexes_are_those_that_a_rebuild_makes(followed: Followed) -> None:
    for topic in followed.told.first:
        said = lines("reindex", followed.copy(topic), "--index-interval-bytes", 200, "--json")
        states = {each["state"] for each in said if "state" in each}
        # A second run counts the interval anew, as a broker's does.
        assert states and states <= {"equal", "sound"} if topic in followed.told.later else states == {"equal"}, topic


def test_all_other_files_are_the_brokers(followed: Followed, topics: list[str]) -> None:
    """The indexes too, as far as the broker appended entry by entry: 0.10 takes sets, a cleaner writes anew."""
    for topic in topics:
        theirs, ours = followed.of(topic)
        if not followed.leader.legacy and topic != "compacted" and topic not in followed.told.later:
            assert ours == theirs, topic
            assert topic != "transactions" or any(name.endswith(".txnindex") for name in ours)


def test_compacted_topics_keep_their_gaps(followed: Followed) -> None:
    records = log_bytes(followed.of("compacted")[1])
    held = kts.decode(records, ["offset"])["offset"].to_pylist()
    assert len(held) < held[-1] - held[0] + 1
    assert followed.told.first["compacted"]["logEndOffset"] == held[-1] + 1


def test_a_copy_goes_on_where_it_ended(followed: Followed) -> None:
    said = [followed.told.first["growing"], *followed.told.later["growing"]]
    assert all(each["truncations"] == 0 and each["copiedBatches"] > 0 for each in said)
    assert sum(each["copiedBytes"] for each in said) == len(log_bytes(followed.of("growing")[1]))


def test_another_history_of_the_leader_replaces_the_copys(followed: Followed) -> None:
    first, again = followed.told.later["other"]
    assert (first["truncations"], again["truncations"], again["copiedBytes"]) == (1, 0, 0)
    assert followed.told.first["other"]["logEndOffset"] > followed.told.cut_at
    theirs, ours = followed.of("other")
    assert ours.get("leader-epoch-checkpoint") == theirs.get("leader-epoch-checkpoint")
    assert followed.leader.legacy or ours["leader-epoch-checkpoint"].startswith(b"0\n2\n0 0\n")


def test_what_the_leader_no_longer_counts_goes(followed: Followed) -> None:
    if followed.leader.legacy:  # which cannot delete records
        return
    start = followed.told.first["deleted"]["logEndOffset"] // 2
    (said,) = followed.told.later["deleted"]
    assert said["logStartOffset"] == followed.told.fresh["logStartOffset"] == start
    theirs = log_bytes(followed.told.theirs["deleted"])  # the leader has deleted as much if it ran for half a minute
    copied = followed.told.first["deleted"]["copiedBytes"] + said["copiedBytes"]
    for copy in (followed.copy("deleted"), followed.leader.fresh / "deleted-0"):
        records = log_bytes(files(copy))
        assert 0 < len(records) < copied and theirs.endswith(records)
        with kts.open(copy) as log:
            assert log.log_start_offset == start
