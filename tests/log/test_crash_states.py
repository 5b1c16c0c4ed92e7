"""Crash a log at every operation of scripts, in everything a disk may hold then, and start it again."""

from __future__ import annotations

import errno
import os
import random
import shutil
from dataclasses import replace

import pytest
from support.disk.crashdisk import State, Tree, write_tree
from support.disk.faultfs import Fault
from support.disk.life_judge import allowed, found, start, what_is_wrong, wrong_contents
from support.disk.life_scripts import KILLED, SCRIPTS, Script, go_on
from support.disk.scripted_lives import KINDS, Facts, Kind, Life, in_place_of_os, quick_directory
from support.golden import scaled

import kts

STATES = scaled(24, 390)
# Different ones for each script and kind of topic. At full length two have hardly more: 12 * 390 + 2 * 280 > 5,000.
LEAST = scaled(20, 280)
SECOND_LIVES, SECOND_STATES = scaled(1, 3), scaled(6, 20)
FAILED_SYNCS, SYNC_STATES = scaled(3, 8), scaled(3, 5)
PER_MOMENT = scaled(30, 80)  # of which some are drawn


def crash_states(life: Life, rng: random.Random, wanted: int) -> list[tuple[list[Facts], State]]:
    """(what may be true, what the disk may hold), all different, drawn from the moments of a life, in their order."""
    trace, disk = life.system.trace, life.system.disk()
    moments = set(rng.sample(range(len(trace) + 1), min(wanted, len(trace) + 1)))
    found: dict[int, list[tuple[list[Facts], State]]] = {}
    for done in range(len(trace) + 1):
        facts = allowed(life, done) if done in moments else []
        for state in disk.states(rng, count=PER_MOMENT) if done in moments else ():
            label = f"after {done} operations, {state.label}"
            found.setdefault(state.digest(), []).append((facts, state._replace(label=label)))
        if done < len(trace):
            disk.step(trace[done])
    every = list(found.values())
    return [rng.choice(every[i]) for i in sorted(rng.sample(range(len(every)), min(wanted, len(every))))]


def crash_and_check(life: Life, script: Script, rng: random.Random, wanted: int, folder: str) -> int:
    """Crash a life in up to ``wanted`` ways; how many they were, all different."""
    where = os.path.join(folder, "crashed")
    assert life.system.unrecorded() == []
    assert life.system.open_files() == []
    states = crash_states(life, rng, wanted)
    for facts, state in states:
        try:
            wrong = what_is_wrong(where, state.tree, life, facts, exact=script.exact)
        except (kts.KtsError, OSError) as error:
            wrong = repr(error)
        if wrong:
            pytest.fail(f"{state.label}: {wrong}\n{told(life, state)}")
        shutil.rmtree(where)
    return len(states)


def told(life: Life, state: State) -> str:
    """The calls of the log, and of the system, before a crash."""
    done = int(state.label.split()[1])
    steps = [step.name for step in life.steps if step.begin <= done]
    return f"calls {steps}\nlast operations {[op.call for op in life.system.trace[max(0, done - 8) : done]]}"


def born(script: Script, kind: Kind, folder: str, seed: int) -> Life:
    where = os.path.join(folder, "life")
    shutil.rmtree(where, ignore_errors=True)
    os.mkdir(where)
    return Life(where, kind, script.settings, seed=seed)


def live(script: Script, kind: Kind, folder: str, rng: random.Random) -> Life:
    life = born(script, kind, folder, rng.randrange(2**31))
    script.run(life)
    life.drop()
    return life


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.generation)
@pytest.mark.parametrize("script", [*SCRIPTS, KILLED], ids=lambda script: script.name)
def test_after_any_crash_the_log_is_a_prefix_with_all_that_was_flushed_and_indexes_as_rebuilt(
    script: Script, kind: Kind, rng: random.Random
) -> None:
    with quick_directory() as folder:
        life = live(script, kind, folder, rng)
        assert crash_and_check(life, script, rng, STATES, folder) >= LEAST


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.generation)
@pytest.mark.parametrize("script", [*SCRIPTS, KILLED], ids=lambda script: script.name)
def test_a_crash_during_or_after_recovery_takes_nothing_that_was_recovered(
    script: Script, kind: Kind, rng: random.Random
) -> None:
    with quick_directory() as folder:
        life = live(script, kind, folder, rng)
        for number, (facts, state) in enumerate(crash_states(life, rng, SECOND_LIVES)):
            where = os.path.join(folder, f"{number}")
            os.mkdir(where)
            write_tree(os.path.join(where, "life"), state.tree)
            second = Life(os.path.join(where, "life"), kind, script.settings, seed=rng.randrange(2**31))
            second.facts = after_recovery(where, state.tree, life, facts)
            second.first_offsets, second.holed = dict(life.first_offsets), life.holed
            go_on(second)
            second.drop()
            crash_and_check(second, Script(go_on, script.settings, exact=False), rng, SECOND_STATES, where)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.generation)
@pytest.mark.parametrize("script", [*SCRIPTS, KILLED], ids=lambda script: script.name)
def test_a_flush_after_one_that_failed_promises_only_what_it_keeps(
    script: Script, kind: Kind, rng: random.Random
) -> None:
    seed = rng.randrange(2**31)
    with quick_directory() as folder:
        syncs = sum(call == "fsync" for call in live(script, kind, folder, random.Random(seed)).system.calls)
        closed = 0
        for at in sorted(rng.sample(range(1, syncs + 1), min(FAILED_SYNCS, syncs))):
            life = born(script, kind, folder, random.Random(seed).randrange(2**31))
            life.system.fault = Fault(at, frozenset({"fsync"}), errno.EIO)
            with in_place_of_os(life.system), pytest.raises(kts.LogStorageError):
                script.run(life)
            facts = life.possible
            try:
                if life.is_open:
                    life.flush()  # it may say so where it can
                    facts = [replace(found(life.log, facts), flushed=life.log.log_end_offset)]
            except kts.LogClosedError:
                closed += 1
            life.drop()
            disk = life.system.disk()
            for op in life.system.trace:
                disk.step(op)
            for state in rng.sample(every := list(disk.states(rng, count=PER_MOMENT)), min(len(every), SYNC_STATES)):
                wrong = what_is_wrong(os.path.join(folder, "crashed"), state.tree, life, facts, exact=False)
                assert not wrong, f"fsync {at} failed in {life.name}; {state.label}: {wrong}"
                shutil.rmtree(os.path.join(folder, "crashed"))
        assert closed >= scaled(0, 1)  # of three syncs in a short run it may be none


def after_recovery(where: str, tree: Tree, life: Life, facts: list[Facts]) -> Facts:
    """What an undisturbed start-up makes of a state: it was on the disk, so it stays."""
    scratch = os.path.join(where, "recovered")
    write_tree(scratch, tree)
    log = start(scratch, life)
    assert not wrong_contents(log, facts)
    one = found(log, facts)
    log.abandon()
    return replace(one, flushed=one.end, least_start=one.start)
