"""``__consumer_offsets``: what a start reads, what it leaves out, and when it writes the topic anew."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from support.broker.group_play import Restartable, T, commit, committed, members, play

import kts
from kts.broker.groups import journal
from kts.broker.groups.journal import java_hash
from kts.coordinator_records.groups import TOPIC, offset_key


def test_a_topic_that_is_mostly_outdated_is_written_anew_at_a_start(
    broker: Restartable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "REWRITE_BYTES", 20_000)

    async def story() -> None:
        (member,) = await members(broker.coordinator, 1)
        for offset in range(300):
            assert not member.commit(offset, offset % 4)
        before = broker.coordinator.fetch("g", None)
        again = broker.restart()
        log = broker.topics.get(TOPIC).partitions[0].log  # type: ignore[union-attr]
        assert log.log_end_offset - log.log_start_offset == 5  # four offsets and the group
        assert log.size_bytes < 1000
        for _ in range(2):
            assert again.fetch("g", None) == before
            assert again.registry.groups["g"].leader_id == member.member_id
            again = broker.restart()

    play(story())


def test_a_topic_that_cannot_be_written_anew_stays_as_it_is_and_the_broker_starts(
    broker: Restartable, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        for offset in range(300):
            commit(broker.coordinator, "g", {("t", offset % 4): committed(offset)})
        before = broker.coordinator.fetch("g", None)
        broker.topics.alter(TOPIC, {"cleanup.policy": "compact", "max.message.bytes": "10"})
        monkeypatch.setattr(journal, "REWRITE_BYTES", 20_000)
        again = broker.restart()
        assert again.fetch("g", None) == before
        [problem] = again.journal.problems
        assert "cannot remove outdated records" in problem

    play(story())


@pytest.mark.parametrize("crash_after", ["roll", "append", "flush", "advance_log_start_offset"])
def test_a_crash_while_the_topic_is_written_anew_loses_nothing(
    broker: Restartable, monkeypatch: pytest.MonkeyPatch, crash_after: str
) -> None:
    monkeypatch.setattr(journal, "REWRITE_BYTES", 20_000)

    class Crash(Exception):
        pass

    async def story() -> None:
        for offset in range(300):
            commit(broker.coordinator, "g", {("t", offset % 4): committed(offset)})
        before = broker.coordinator.fetch("g", None)
        with monkeypatch.context() as patch:

            def crashing(log: kts.Log, *arguments: Any, **more: Any) -> Any:
                real(log, *arguments, **more)
                raise Crash

            real = getattr(kts.Log, crash_after)
            broker.coordinator.close()
            broker.topics.close()
            patch.setattr(kts.Log, crash_after, crashing)
            with pytest.raises(Crash):
                broker.open()
        broker.topics.close()
        assert broker.open().fetch("g", None) == before

    play(story())


def test_records_that_make_no_sense_are_reported_and_the_others_count(broker: Restartable) -> None:
    async def story() -> None:
        commit(broker.coordinator, "g", {("t", 0): committed(1)})
        strange = {
            b"": b"",
            b"\0": b"x",
            b"\0\1\0\5ab": b"x",
            b"\0\2\0\1h": b"\0\3\0\1",
            b"\0\2\0\1i": b"\0\x09",
            offset_key("g", "t", 1): b"\0\3",
            b"\0\3\0\1k": b"\0\0\0",  # of the newer consumer protocol
        }
        times = pa.array([T] * len(strange), pa.int64())
        columns = {"timestamp": times, "key": pa.array(strange, pa.binary()), "value": pa.array(strange.values())}
        topic = broker.topics.get(TOPIC)
        assert topic is not None
        topic.partitions[0].append(kts.encode(columns))
        again = broker.restart()
        assert {group.group_id for group in again.groups()} >= {"g"}
        assert set(again.fetch("g", None)) == {("t", 0)}
        assert len(again.journal.problems) == 6

    play(story())


@pytest.mark.parametrize(
    ("text", "number"),
    [("", 0), ("a", 97), ("group", 98629247), ("polygenelubricants", 0), ("\N{SNAKE}", 1772400), ("zzzzzz", 685785664)],
)
def test_groups_are_spread_over_partitions_by_javas_hash(text: str, number: int) -> None:
    assert java_hash(text) == number
