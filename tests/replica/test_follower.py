"""Followers of a kts broker: formats, deletions, other histories of the leader, another clock."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.broker.follow_play import files, log_bytes
from support.broker.follow_serving import SMALL, KtsLeader, T, copying, known_topic_id, record_set
from support.processes.cli_runs import lines, run

import kts

FORMATS = {0: "0.9.0", 1: "0.10.2", 2: "3.9"}


@pytest.fixture
def leader(tmp_path: Path) -> Iterator[KtsLeader]:
    with KtsLeader(tmp_path / "leader") as leader:
        yield leader


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_a_copy_has_the_leaders_files(magic: int, leader: KtsLeader, tmp_path: Path, rng: random.Random) -> None:
    leader.create("t", message_format_version=FORMATS[magic])
    leader.produce("t", rng, 60, magic=magic)
    (said,) = lines(
        "follow", "--bootstrap-server", leader.address, "--topic", "t", "--once", "--json", tmp_path / "copy"
    )
    assert said["logEndOffset"] == leader.log("t").log_end_offset and said["complete"]
    leader.stop()
    theirs, ours = leader.files("t"), files(tmp_path / "copy" / "t-0")
    leader.start()
    assert len([name for name in theirs if name.endswith(".log")]) > 2
    theirs.pop("leader-epoch-checkpoint", None)
    ours.pop("leader-epoch-checkpoint", None)
    assert ours == theirs
    assert run("verify", tmp_path / "copy" / "t-0").exit_code == 0


def test_formats_may_change_within_a_log(leader: KtsLeader, tmp_path: Path, rng: random.Random) -> None:
    leader.create("t", message_format_version="0.9.0")
    for magic in (0, 1, 2):
        leader.broker.topics.alter("t", SMALL | {"message.format.version": FORMATS[magic]})
        leader.produce("t", rng, 15, magic=magic)
    with copying(leader.address, tmp_path / "copy", "t") as copy:
        copy.fetcher.catch_up()
        assert copy.bytes == log_bytes(leader.files("t"))
        magics = kts.scan_batches(copy.bytes)["magic"].to_pylist()
        assert set(magics) == {0, 1, 2}


def test_batches_that_are_larger_than_a_segment_may_be_now(
    leader: KtsLeader, tmp_path: Path, rng: random.Random
) -> None:
    leader.create("t", segment_bytes="4000")
    leader.produce("t", rng, 10)
    leader.broker.topics.alter("t", SMALL | {"segment.bytes": "300"})
    leader.append("t", record_set(rng, records=1))
    said = lines("follow", "--bootstrap-server", leader.address, "--topic", "t", "--once", "--json", tmp_path / "copy")
    assert said[0]["complete"] and log_bytes(files(tmp_path / "copy" / "t-0")) == log_bytes(leader.files("t"))
    assert run("verify", tmp_path / "copy").exit_code == 0


# --- the leader deletes ---------------------------------------------------------------------------


def test_segments_that_the_leader_deletes_go(leader: KtsLeader, tmp_path: Path, rng: random.Random) -> None:
    leader.create("t", retention_bytes="9000", retention_ms="-1", file_delete_delay_ms="0")
    leader.produce("t", rng, 40)
    settings = {"file.delete.delay.ms": 0}
    with copying(leader.address, tmp_path / "copy", "t", settings=settings) as copy:
        copy.fetcher.catch_up()
        assert copy.log.log_start_offset == 0
        for _ in range(3):
            assert leader.broker.topics.run_retention()
            leader.produce("t", rng, 20)
            copy.fetcher.catch_up()
            copy.fetcher.step()
            assert copy.log.log_start_offset == leader.log("t").log_start_offset > 0
            assert copy.bytes == log_bytes(leader.files("t"))
    assert not copy.fetcher.failed and copy.follower.truncations == 0


def test_a_copy_that_the_leader_has_left_behind_begins_anew(
    leader: KtsLeader, tmp_path: Path, rng: random.Random
) -> None:
    leader.create("t", retention_bytes="5000", retention_ms="-1", file_delete_delay_ms="0")
    leader.produce("t", rng, 5)
    with copying(leader.address, tmp_path / "copy", "t") as copy:
        copy.fetcher.catch_up()
        end = copy.log.log_end_offset
        leader.produce("t", rng, 60)
        leader.broker.topics.run_retention()
        assert leader.log("t").log_start_offset > end
        copy.fetcher.catch_up()
        assert copy.log.log_start_offset == leader.log("t").log_start_offset
        assert copy.bytes == log_bytes(leader.files("t"))
        assert copy.said == [
            f"t-0: the leader begins at {copy.log.log_start_offset}, after the end of the copy: "
            "restarting the copy there"
        ]


def test_a_log_may_begin_inside_of_a_batch(leader: KtsLeader, tmp_path: Path, rng: random.Random) -> None:
    leader.create("t")
    for _ in range(3):
        leader.append("t", record_set(rng, records=10))
    leader.log("t").advance_log_start_offset(15)
    with copying(leader.address, tmp_path / "copy", "t") as copy:
        copy.fetcher.catch_up()
        assert (copy.log.log_start_offset, copy.log.log_end_offset) == (15, 30)
        assert copy.bytes == log_bytes(leader.files("t"))[-len(copy.bytes) :]
        assert kts.scan_batches(copy.bytes)["baseOffset"].to_pylist() == [10, 20]


# --- another history ------------------------------------------------------------------------------


def another_history(leader: KtsLeader, rng: random.Random, offset: int, sets: int) -> None:
    """The leader loses what is behind an offset, and gets something else there."""
    magic = leader.log("t").config.magic
    leader.stop()
    with kts.Log(leader.folder / "t-0", SMALL | {"message.format.version": FORMATS[magic]}, generation="3.9") as log:
        log.truncate_to(offset)
    leader.start()
    leader.produce("t", rng, sets, magic=magic)


@pytest.mark.slow
@pytest.mark.parametrize("magic", [1, 2])
def test_a_copy_is_cut_where_the_leaders_history_is_another_one(
    magic: int, leader: KtsLeader, tmp_path: Path, rng: random.Random
) -> None:
    """By epochs, and below magic 2 by records; while it follows, or before it starts again."""
    leader.create("t", message_format_version=FORMATS[magic])
    leader.produce("t", rng, 30, magic=magic)
    for _ in range(4):
        with copying(
            leader.address, tmp_path / "copy", "t", settings={"message.format.version": FORMATS[magic]}
        ) as copy:
            copy.fetcher.catch_up()
            assert copy.bytes == log_bytes(leader.files("t"))
            end = copy.log.log_end_offset
            another_history(leader, rng, rng.randrange(end // 2, end), rng.randrange(1, 30))
            if rng.random() < 0.7:
                copy.fetcher.catch_up()
                assert copy.follower.truncations >= 1
                assert copy.bytes == log_bytes(leader.files("t"))
                if magic == 2:
                    assert copy.log.leader_epochs == [
                        entry for entry in leader.log("t").leader_epochs if entry[1] < copy.log.log_end_offset
                    ]
    assert run("verify", tmp_path / "copy" / "t-0").exit_code == 0


def test_an_end_inside_of_a_batch_gives_way_to_the_batch(leader: KtsLeader, tmp_path: Path, rng: random.Random) -> None:
    leader.create("t")
    for _ in range(3):
        leader.append("t", record_set(rng, records=10))
    with copying(leader.address, tmp_path / "copy", "t") as copy:
        copy.fetcher.catch_up()
        copy.log.truncate_to(25)  # the batch of 20 to 29 goes as a whole, the end stays at 25
        assert copy.log.log_end_offset == 25
        copy.fetcher.catch_up()
        assert copy.bytes == log_bytes(leader.files("t")) and copy.log.log_end_offset == 30
        assert copy.said == ["t-0: the leader's batch at 20 holds the copy's end: truncated from 25 to 20"]


def test_a_topic_made_anew_is_not_taken_for_the_old_one(leader: KtsLeader, tmp_path: Path, rng: random.Random) -> None:
    leader.create("t")
    leader.produce("t", rng, 10)
    with copying(leader.address, tmp_path / "copy", "t", topic_id=known_topic_id(leader, "t")) as copy:
        copy.fetcher.catch_up()
        before = copy.bytes
        leader.broker.topics.delete("t")
        leader.create("t")
        leader.produce("t", rng, 30)
        with pytest.raises(kts.InvalidRequestError, match="the topic was deleted and created again"):
            copy.fetcher.catch_up()
        assert copy.bytes == before


# --- a second host's clock ------------------------------------------------------------------------

HOUR_MS = 3_600_000


@pytest.mark.parametrize("apart_ms", [-T, -12 * HOUR_MS, 12 * HOUR_MS, 10**12])
@pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
def test_a_copy_by_another_clock_has_its_leaders_times_and_keeps_them_by_its_own(
    tmp_path: Path, rng: random.Random, kind: str, apart_ms: int
) -> None:
    """As in Kafka: time limits are a leader's, whoever copies takes what it took; retention is each one's own."""
    limits = {"message.timestamp.before.max.ms": str(6 * HOUR_MS), "message.timestamp.after.max.ms": str(6 * HOUR_MS)}
    settings = {"message.timestamp.type": kind, "retention.ms": str(2 * HOUR_MS), **limits}
    now = T + HOUR_MS
    with KtsLeader(tmp_path / "leader", clock=lambda: now) as leader:
        leader.broker.topics.create("t", 1, SMALL | settings)
        leader.produce("t", rng, 40)
        with copying(leader.address, tmp_path / "copy", "t", settings=settings, clock=lambda: now + apart_ms) as copy:
            copy.fetcher.catch_up()
            assert copy.bytes == log_bytes(leader.files("t")) and not copy.said
            assert [copy.log.offset_for_timestamp(T + each * HOUR_MS) for each in range(4)] == [
                leader.log("t").offset_for_timestamp(T + each * HOUR_MS) for each in range(4)
            ]
            kept = copy.log.log_end_offset
            assert not leader.log("t").delete_old_segments()
            gone = copy.log.delete_old_segments()
            assert copy.log.log_end_offset == kept and bool(gone) == (apart_ms > 0)
            late = record_set(rng)  # from the future for one, long gone for the other
            if kind == "CreateTime":
                with pytest.raises(kts.InvalidTimestampError):
                    copy.log.append(late)
            else:
                assert copy.log.append(late).log_append_time_ms == now + apart_ms
            leader.append("t", late)


# --- a leader that goes away ----------------------------------------------------------------------


def records_from(log: kts.Log, start: int) -> list[tuple[object, ...]]:
    found: list[tuple[object, ...]] = []
    at = start
    while records := log.read(at, 1 << 20, min_one_message=True).records:
        table = kts.decode(records, ["offset", "key", "value", "createTimestamp"])
        found += zip(*(column.to_pylist() for column in table.columns), strict=True)
        at = int(table["offset"][-1].as_py()) + 1
    return [record for record in found if int(str(record[0])) >= start]


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_a_copy_is_its_leaders_log_after_any_story(
    magic: int, leader: KtsLeader, tmp_path: Path, rng: random.Random
) -> None:
    """Appends, other histories, deletions, retention and restarts in any order, and rounds of fetching in between."""
    leader.create("t", message_format_version=FORMATS[magic], file_delete_delay_ms="0")
    version = {"message.format.version": FORMATS[magic]}

    def trim() -> None:
        log = leader.log("t")
        log.advance_log_start_offset(rng.randint(log.log_start_offset, log.log_end_offset))

    def restart() -> None:
        leader.stop()
        copy.fetcher.step()
        leader.start()

    def part() -> None:
        log = leader.log("t")
        another_history(leader, rng, rng.randint(log.log_start_offset, log.log_end_offset), rng.randrange(4))

    def produce() -> None:
        leader.produce("t", rng, rng.randrange(1, 6), magic=magic)

    with copying(leader.address, tmp_path / "copy", "t", settings=version) as copy:
        for _ in range(25):
            rng.choice(
                [produce, produce, copy.fetcher.step, trim, lambda: leader.broker.topics.run_retention(), restart, part]
            )()
        produce()
        copy.fetcher.catch_up()
        theirs, ours = leader.log("t"), copy.log
        assert ours.log_end_offset == theirs.log_end_offset
        assert ours.log_start_offset == theirs.log_start_offset or magic < 2
        assert records_from(ours, theirs.log_start_offset) == records_from(theirs, theirs.log_start_offset)
    assert run("verify", tmp_path / "copy" / "t-0").exit_code == 0
