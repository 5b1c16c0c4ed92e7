"""What a log tells a rule that watches it: each change once, in the order in which it happened."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.sets.log_records import NOW, Clock, bases, batch, opened

import kts
from kts.config import Extension, extend
from kts.model import TimestampOffset


class Recorder:
    """A listener that notes what it is told, stamps a minute late, and refuses to roll by time."""

    index = None

    def __init__(self, rolls: bool) -> None:
        self.rolls = rolls
        self.told: list[tuple[object, ...]] = []

    def opened(self) -> None:
        self.told.append(("opened",))

    def append_time(self, now_ms: int) -> int:
        return now_ms + 60_000

    def time_roll(self, reason: str | None, now_ms: int, created_ms: int, limit_ms: int) -> str | None:
        return reason if self.rolls else None

    def idle_roll(self, now_ms: int, created_ms: int, limit_ms: int) -> str | None:
        return "idle" if self.rolls and now_ms > created_ms + limit_ms else None

    def appended(self, base_offset: int, records: bytes | memoryview, first_offset: int) -> None:
        offsets = kts.decode(bytes(records), ["offset"]).column(0).to_pylist()
        self.told.append(("appended", base_offset, first_offset, offsets))

    def rolled(self, closed_base: int, new_base: int) -> None:
        self.told.append(("rolled", closed_base, new_base))

    def removed(self, base_offset: int) -> None:
        self.told.append(("removed", base_offset))

    def truncated(self) -> None:
        self.told.append(("truncated",))

    def flushed(self) -> None:
        self.told.append(("flushed",))

    def closed(self) -> None:
        self.told.append(("closed",))


def watched(log: kts.Log, rolls: bool = True) -> Recorder:
    listener = Recorder(rolls)
    log._listeners = {"ours": listener}  # what the setting of an extension sets
    return listener


def test_a_listener_is_told_of_each_change_in_order(tmp_path: Path) -> None:
    log = opened(tmp_path, Clock(), segment_bytes=10_000, file_delete_delay_ms=0)
    listener = watched(log)
    log.append(batch(NOW, NOW))
    assert log.roll() == 2
    log.append(batch(NOW))
    log.flush()
    assert listener.told[-1] == ("flushed",)
    log.truncate_to(2)
    log.append(batch(NOW))
    log.advance_log_start_offset(2)
    log.delete_old_segments()
    log.close()
    assert [one for one in listener.told if one != ("flushed",)] == [
        ("appended", 0, 0, [0, 1]),
        ("rolled", 0, 2),
        ("appended", 2, 2, [2]),
        ("truncated",),
        ("appended", 2, 2, [2]),
        ("removed", 0),
        ("closed",),
    ]


def test_a_listener_decides_the_append_time_and_whether_time_rolls(tmp_path: Path) -> None:
    clock = Clock()
    settings = {"message_timestamp_type": "LogAppendTime", "segment_ms": 1000, "segment_bytes": 10_000}
    with opened(tmp_path, clock, **settings) as log:
        watched(log, rolls=False)
        assert log.append(batch(0)).log_append_time_ms == NOW + 60_000
        clock.now += 5000
        log.append(batch(0))
        assert bases(log) == [0]
        watched(log, rolls=True)
        log.append(batch(0))
        assert bases(log) == [0, 2]


class Ours(Recorder):
    """A listener of an extension, with an index whose answer no other search has."""

    class Index:
        def search(self, log: object, target_ms: int) -> Ours.Index:
            return self

        found = TimestampOffset(NOW, 7)

    index = Index()


def test_a_log_reports_to_the_listener_of_an_extension_and_searches_by_its_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kts.config, "_DEFAULTS", {"ours": "", "ours.more": ""})
    monkeypatch.setattr(kts.config, "_EXTENSIONS", {})
    made: list[tuple[str, kts.LogConfig, Ours]] = []

    def make(value: str, log: kts.PartitionLog, config: kts.LogConfig) -> Ours:
        made.append((value, config, Ours(rolls=True)))
        assert (log.topic, log.partition) == ("t", 0)
        return made[-1][-1]

    ours = {"ours": Extension(lambda key, value: str(value), make), "ours.more": Extension(lambda key, value: value)}
    extend({"ours": "", "ours.more": ""}, lambda: ours)
    with kts.Log(tmp_path / "t-0", {"ours": "a", "ours.more": "x"}) as log:
        log.append(batch(NOW))
        assert log.offset_for_timestamp(NOW - 1) == (NOW, 7)
        assert log.offset_for_timestamp(NOW - 1, shipped_search=True) == (NOW, 0)
        log.reconfigure({"ours": "b"})
        log.append(batch(NOW))
        log.reconfigure({})
        log.append(batch(NOW))
        assert log.offset_for_timestamp(NOW - 1) == (NOW, 0)
    [(first, config, before), (second, _, after)] = made
    assert (first, config.of_extension("ours.more"), second) == ("a", "x", "b")
    assert before.told == [("opened",), ("appended", 0, 0, [0]), ("closed",)]
    assert after.told == [("opened",), ("appended", 0, 1, [1]), ("closed",)]
