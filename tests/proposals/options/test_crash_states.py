"""Crash a log of each option at every operation of a script, in everything a disk may hold then, and start it again."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from support.disk.crashdisk import State, write_tree
from support.disk.faultfs import FaultyOs
from support.disk.scripted_lives import in_place_of_os, quick_directory
from support.golden import scaled
from support.reference.option_messages import Row, rows
from support.sets.option_logs import MINUTE_MS, Replica

from kts.proposals.options import OptionLog, TimeIndexEntry, encode

STATES = scaled(60, 600)
PER_MOMENT = scaled(12, 60)
SETTINGS = {
    "segment.bytes": 900,
    "segment.index.bytes": 240,
    "index.interval.bytes": 300,
    "retention.bytes": 1000,
    "retention.ms": 10**9,
}


@dataclass(frozen=True)
class Facts:
    """What is true of a log between two calls."""

    rows: tuple[Row, ...] = ()  # all that were appended and not truncated
    index: tuple[TimeIndexEntry, ...] = ()  # option 3: all that was ever deleted is left out where it is compared
    flushed_index: tuple[TimeIndexEntry, ...] = ()
    flushed: int = 0
    start: int = 0
    least_start: int = 0  # what retention takes may come back
    end: int = 0


@dataclass
class Life:
    """A replica whose every call is recorded, with the facts before and after it."""

    replica: Replica
    system: FaultyOs
    facts: Facts = field(default_factory=Facts)
    steps: list[tuple[int, int, Facts, Facts]] = field(default_factory=list)

    def do(self, call: Callable[[], object], flushed: bool = False, least_start: int | None = None) -> None:
        begin, before = len(self.system.trace), self.facts
        with in_place_of_os(self.system):
            call()
            log = self.replica.log
            index = tuple(log.index_entries()) if self.replica.option == 3 else ()
            self.facts = Facts(
                tuple(rows(self.replica.contents(), self.replica.option)),
                index,
                index if flushed else tuple(entry for entry in before.flushed_index if entry in index),
                log.log_end_offset if flushed else min(before.flushed, log.log_end_offset),
                log.log_start_offset,
                before.least_start if least_start is None else least_start,
                log.log_end_offset,
            )
        self.steps.append((begin, len(self.system.trace), before, self.facts))

    def append(self, count: int, codec: str = "none") -> None:
        self.replica.clock.now_ms += 17_000
        self.do(lambda: self.replica.append(count, codec=codec, size=90))

    def allowed(self, done: int) -> list[Facts]:
        """Two while a call is under way."""
        for begin, end, before, after in self.steps:
            if begin < done < end:
                return [before, after]
        finished = [after for _, end, _, after in self.steps if end <= done]
        return finished[-1:] or [Facts()]


def script(life: Life) -> None:
    """Append, flush, roll, retain, truncate, close and open again."""
    log = life.replica.log
    for number in range(14):
        life.append(1 + number % 2, ("none", "gzip")[number % 3 == 0])
        if number in (3, 9):
            life.do(log.flush, flushed=True)
        if number == 6:
            life.do(log.roll)
    life.do(log.delete_old_segments)
    assert life.facts.start > 0
    life.append(2, "lz4")
    life.do(log.flush, flushed=True)
    for back in (2, 7):  # in the active segment; in one that was closed
        life.do(lambda back=back: log.truncate_to(life.facts.end - back))
        life.append(2, "none")
        life.append(3, "gzip")
    life.do(life.replica.reopen, flushed=True)
    life.append(2)
    life.do(life.replica.log.flush, flushed=True)
    life.append(1, "gzip")


def states(life: Life, rng: random.Random) -> list[tuple[list[Facts], State]]:
    """(what may be true, what the disk may hold), drawn from all moments of a life."""
    trace, disk = life.system.trace, life.system.disk()
    found: dict[int, tuple[list[Facts], State]] = {}
    for done in range(len(trace) + 1):
        facts = life.allowed(done)
        for state in disk.states(rng, count=PER_MOMENT):
            found.setdefault(state.digest(), (facts, state._replace(label=f"after {done} operations, {state.label}")))
        if done < len(trace):
            disk.step(trace[done])
    every = list(found.values())
    return rng.sample(every, min(STATES, len(every)))


def what_is_wrong(replica: Replica, facts: list[Facts]) -> str:
    """Why an opened log is none of what these facts allow; empty if it is."""
    reasons = []
    log, found = replica.log, rows(replica.contents(), replica.option)
    start, end = log.log_start_offset, log.log_end_offset
    flushed = min(one.flushed for one in facts)
    for one in facts:
        expected = [row for row in one.rows if start <= row.offset < end]
        if not (one.least_start <= start <= one.start and flushed <= end <= one.end):
            reasons.append(f"{start} to {end}, expected {one.least_start}-{one.start} to {flushed}-{one.end}")
        elif [row for row in found if row.offset >= one.start] != [row for row in expected if row.offset >= one.start]:
            reasons.append(f"holds {[row.offset for row in found]}, expected {[row.offset for row in expected]}")
        else:
            reasons.append("")
    return "" if "" in reasons else "; or ".join(reasons)


def wrong_index(replica: Replica, life: Life, facts: list[Facts]) -> str:
    """Option 3: what the index says without the leader is what it said before; what the leader gives completes it."""
    end, leaders = replica.log.log_end_offset, sorted({entry for one in facts for entry in one.index})
    gaps = replica.log.waits_for_leader
    known = [entry for entry in replica.log.index_entries() if entry.offset >= life.facts.start]
    ever = {entry for *_, after in life.steps for entry in after.index}
    if set(known) - ever:
        return f"the index says {set(known) - ever}, which it never said"
    for gap in gaps:
        replica.log.fill_index(gap, [one for one in leaders if gap.first_offset <= one.offset <= gap.last_offset])
    lacking = []
    for one in facts:
        here = {entry for entry in replica.log.index_entries() if entry.offset >= one.start}
        lacking.append({entry for entry in one.index if entry.offset < end} - here)
    return "" if not all(lacking) else f"the index lacks {lacking}; it waited for {gaps}"


def wrong_leader(replica: Replica, facts: list[Facts]) -> str:
    """Option 3: why a log that nobody gives index entries is no leader that goes on with what was flushed."""
    start, end = replica.log.log_start_offset, replica.log.log_end_offset
    append_ms = replica.append(2)
    found = replica.log.index_entries()
    replica.reopen()
    if found != replica.log.index_entries():
        return f"the index has {replica.log.index_entries()} after a close, expected {found}"
    lacking = []
    for one in facts:
        flushed = [entry for entry in one.flushed_index if start <= entry.offset < end]
        lacking.append(set(flushed) - set(found))
        if not lacking[-1] and all(entry.append_ms <= append_ms for entry in flushed):
            return ""
    return f"the index lacks {lacking}, which was flushed, or the append at {append_ms} is before it"


@pytest.mark.parametrize("option", [1, 2, 3])
def test_after_any_crash_the_log_is_a_prefix_with_all_that_was_flushed(option: int, rng: random.Random) -> None:
    """Costs seconds: each of the states is written, opened, read, appended to and opened again."""
    with quick_directory() as folder:
        directory = os.path.join(folder, "life")
        os.mkdir(directory)
        system = FaultyOs(directory)
        with in_place_of_os(system):
            life = Life(Replica(Path(directory, "t-0"), option, SETTINGS), system)
        life.steps.append((0, len(system.trace), Facts(), Facts()))
        script(life)
        with in_place_of_os(system):
            life.replica.log.abandon()
        assert system.unrecorded() == []
        assert system.open_files() == []
        made = states(life, rng)
        for facts, state in made:
            if option == 3:
                alone = os.path.join(folder, "alone")
                write_tree(alone, state.tree)
                leader = Replica(Path(alone, "t-0"), option, SETTINGS)
                leader.clock.now_ms = 1  # a clock that is far behind
                wrong = wrong_leader(leader, facts)
                leader.log.close()
                shutil.rmtree(alone)
                assert not wrong, f"{state.label}: {wrong}"
            where = os.path.join(folder, "crashed")
            write_tree(where, state.tree)
            again = Replica(Path(where, "t-0"), option, SETTINGS)
            again.clock.now_ms = life.replica.clock.now_ms + MINUTE_MS
            wrong = what_is_wrong(again, facts) or (wrong_index(again, life, facts) if option == 3 else "")
            assert not wrong, f"{state.label}: {wrong}"
            before, end = again.contents(), again.log.log_end_offset
            again.append(2, codec="gzip")
            again.crash()
            assert rows(again.contents()[: len(before)], option) == rows(before, option), state.label
            assert again.log.log_end_offset == end + 2, state.label
            if option != 3:
                times = again.times("logAppendTimestamp")
                offsets = again.table()["offset"].to_pylist()
                assert times == sorted(times)
                for target in (times[0], times[-1], times[len(times) // 2] + 1):
                    exact = next(((t, o) for t, o in zip(times, offsets, strict=True) if t >= target), None)
                    assert again.log.search(target).found == exact, state.label
            again.log.close()
            shutil.rmtree(where)
        assert len(made) >= scaled(40, 400)


def after_a_power_loss(system: FaultyOs, folder: Path) -> OptionLog:
    """Option 3's log as a disk has it that kept nothing but what was synced."""
    disk = system.disk()
    for operation in system.trace:
        disk.step(operation)
    write_tree(str(folder), disk.tree(lambda _, __: []))
    return OptionLog(folder / "b-0", option=3)


def test_a_leader_that_waited_has_on_disk_what_came_meanwhile(tmp_path: Path) -> None:
    """Until it leads, these entries lie in memory alone, also those of a segment that was closed since."""
    leader = Replica(tmp_path / "a-0", 3)
    (tmp_path / "life").mkdir()
    system = FaultyOs(str(tmp_path / "life"))
    with in_place_of_os(system):
        other = Replica(tmp_path / "life" / "b-0", 3)
        leader.append(2)
        other.catch_up(leader)
        other.crash()
        assert other.log.waits_for_leader == ((0, 1),)
        for _ in range(3):
            leader.clock.now_ms += MINUTE_MS
            end, _ = leader.log.log_end_offset, leader.append()
            other.log.append_as_follower(leader.log.read(end, 1000), leader.log.index_entries(end))
        other.log.roll()
        other.log.lead()
        other.append()
        other.log.flush()
        expected = other.log.index_entries()
        other.log.abandon()
    assert [entry.offset for entry in expected] == [0, 2, 3, 4, 5]
    with after_a_power_loss(system, tmp_path / "again") as log:
        assert (log.index_entries(), log.waits_for_leader) == (expected, ())


def test_the_entry_of_a_last_message_is_on_disk_even_if_it_comes_after_the_follower_rolled(tmp_path: Path) -> None:
    leader = Replica(tmp_path / "a-0", 3)
    (tmp_path / "life").mkdir()
    system = FaultyOs(str(tmp_path / "life"))
    with in_place_of_os(system):
        other = Replica(tmp_path / "life" / "b-0", 3)
        leader.append(2)
        leader.log.roll()
        other.log.append_as_follower(leader.log.read(0, 1000), leader.log.index_entries(0, 0))
        other.log.roll()
        other.catch_up(leader)
        other.log.abandon()
    expected = leader.log.index_entries()
    assert [entry.offset for entry in expected] == [0, 1]
    with after_a_power_loss(system, tmp_path / "again") as log:
        assert (log.index_entries(), log.waits_for_leader) == (expected, ())


@pytest.mark.parametrize("option", [1, 3])
@pytest.mark.parametrize("start", [5, 300])
def test_a_log_that_is_to_begin_elsewhere_is_a_prefix_or_begins_there_after_any_crash(
    tmp_path: Path, option: int, start: int, rng: random.Random
) -> None:
    (tmp_path / "life").mkdir()
    system = FaultyOs(str(tmp_path / "life"))
    with in_place_of_os(system):
        replica = Replica(tmp_path / "life" / "t-0", option, SETTINGS)
        replica.log.truncate_fully_and_start_at(40)
        for _ in range(9):
            replica.append(2, size=200)
        replica.log.flush()
        assert len(replica.log.segments) > 2
        before, begin = rows(replica.contents(), option), len(system.trace)
        replica.log.truncate_fully_and_start_at(start)
        done = len(system.trace)
        assert (replica.log.log_start_offset, replica.log.log_end_offset, replica.contents()) == (start, start, b"")
        replica.log.abandon()
    disk, found = system.disk(), set()
    for number, operation in enumerate(system.trace[:done]):
        disk.step(operation)
        for state in disk.states(rng, count=8) if number + 1 >= begin else ():
            where = tmp_path / "crashed"
            write_tree(str(where), state.tree)
            log = OptionLog(where / "t-0", option=option, config=SETTINGS)
            here = log.log_start_offset, log.log_end_offset
            held = rows(b"".join(log.read(base.base_offset, 10**6) for base in log.segments if base.size), option)
            found.add(here)
            if here != (start, start):
                assert here[0] == 40, state.label
                assert held == [row for row in before if row.offset < here[1]], state.label
            else:
                assert not held
            log.append(encode({"value": [b"v"]}, option=option))
            log.close()
            shutil.rmtree(where)
    assert {(start, start), (40, 58)} <= found
