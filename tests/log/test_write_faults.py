"""Make each operation of six scripts fail (every twentieth in a short run), in every way, one by one, and go on."""

from __future__ import annotations

import errno
import os
import random
import shutil
from collections.abc import Iterator

import pytest
from support.disk.faultfs import INTERRUPTED_CLOSES, READING, WRITING, Fault
from support.disk.life_judge import found, sound, wrong_contents
from support.disk.life_scripts import SCRIPTS, Script
from support.disk.scripted_lives import KINDS, Facts, Kind, Life, in_place_of_os, quick_directory
from support.golden import scaled

import kts

WRITES = frozenset({"pwrite"})
STEP = scaled(20, 1)
READS = frozenset({"pread", "preadv"})
SPACE = frozenset({"create", "mkdir", "pwrite", "ftruncate", "fsync", "replace"})  # what a full disk refuses


def faults(calls: list[str], rng: random.Random) -> Iterator[Fault]:
    """Every way to fail at every STEP-th of these calls; a disk that stays dead from one on, at a third of them."""
    count = {which: sum(name in which for name in calls) for which in (WRITING, READING, WRITES, SPACE)}

    def places(which: frozenset[str], step: int = STEP) -> range:
        return range(rng.randint(1, step), count[which] + 1, step)

    for which in (WRITING, READING):
        for at in places(which):
            yield Fault(at, which, errno.EIO)
    for at in places(SPACE):
        yield Fault(at, SPACE, errno.ENOSPC)
    for at in places(WRITES):
        yield Fault(at, WRITES, errno.ENOSPC, short=True)
        yield Fault(at, WRITES, errno.ENOSPC, short=True, lasting=True)
    for at in places(WRITING, 3 * STEP):
        yield Fault(at, WRITING, errno.EIO, lasting=True)
    # Nothing is wrong with the disk here, so that one run has it at every call.
    yield INTERRUPTED_CLOSES
    for which in (WRITES, READS):
        yield Fault(1, which, short=True, lasting=True)


def harmless(fault: Fault) -> bool:
    """True if nothing is wrong with the disk: a signal came, or a call moved fewer bytes than it was asked to."""
    return fault == INTERRUPTED_CLOSES or fault.errno is None


def seen_by_a_reader(path: str) -> list[int]:
    """The offsets that someone else sees who opens the directory now."""
    if not os.path.isdir(path):
        return []
    with kts.open(path) as log:
        assert isinstance(log, kts.PartitionLog)
        return log.scan(columns=["offset"]).read_all().column(0).to_pylist()


def torn(offsets: list[int], facts: list[Facts]) -> str:
    """Why these are not the offsets of a run of whole entries; empty if they are."""
    for one in facts:
        entries = [range(e.first_offset, e.last_offset + 1) for e in one.entries]
        firsts = [i for i, entry in enumerate(entries) if offsets and entry.start == offsets[0]]
        if not offsets or (firsts and _is_run(offsets, entries[firsts[0] :])):
            return ""
    return f"a reader sees {offsets} of {[e[:2] for e in facts[-1].entries]}"


def _is_run(offsets: list[int], entries: list[range]) -> bool:
    run: list[int] = []
    for entry in entries:
        if len(run) >= len(offsets):
            break
        run.extend(entry)
    return run == offsets


def watched(life: Life, most: int = 6) -> list[str]:
    """What a reader sees that it should not, right after a fault and after each of the calls that mend it."""
    found: list[str] = []
    left = iter(range(most))

    def look(_: str) -> None:
        if life.system.failed and next(left, None) is not None:
            with in_place_of_os(os):
                found.extend(filter(None, [torn(seen_by_a_reader(life.path), life.possible)]))

    life.system.after = look
    return found


def suffer(life: Life, script: Script, fault: Fault) -> str:
    """Run a script into a fault and go on; what was wrong, or nothing."""
    life.system.fault = fault
    meanwhile = watched(life) if fault.short else []
    wrong = ""
    raised: tuple[int | None, str] | None = None
    with in_place_of_os(life.system):  # also while the error goes, and with it what its traceback holds open
        try:
            script.run(life)
        except kts.LogStorageError as error:
            raised = error.errno, str(error)
    if raised is not None:
        if raised[0] != fault.errno:
            return f"errno {raised[0]}: {raised[1]}"
        if harmless(fault):
            return f"nothing was wrong with the disk: {raised[1]}"
        wrong = go_on(life, os.strerror(fault.errno or 0), bool(fault.lasting))
    wrong = wrong or torn(seen_by_a_reader(life.path), life.possible) or "; ".join(meanwhile)
    life.system.fault = life.system.after = None
    life.drop()
    if life.system.open_files():
        return f"{wrong} left open: {life.system.open_files()}"
    return wrong or start_again(life)


def go_on(life: Life, reason: str, lasting: bool) -> str:
    """Append after an error: it works, or the log is closed and says why."""
    wrong = torn(seen_by_a_reader(life.path), life.possible)
    if wrong or not life.is_open:
        return wrong
    if not life.log.closed:
        wrong = settle(life)
        if wrong:
            return f"alive, but {wrong}"
    possible, failed = life.possible, life.name
    try:
        life.append(1, 100)
    except kts.LogClosedError as error:
        life.possible = possible
        told = reason in str(error) or failed == "close"
        return "" if told else f"expected {reason!r} as the reason, found {error}"
    except kts.LogStorageError as error:
        return "" if lasting else f"the next append fails: {error}"
    return ""


def settle(life: Life) -> str:
    """Take what the log holds for what is true, if it is possible."""
    wrong = wrong_contents(life.log, life.possible)
    if not wrong:
        life.know(found(life.log, life.possible))
    return wrong


def start_again(life: Life) -> str:
    """Start from what is left on a sound disk: whole entries, and everything works."""
    possible = life.possible
    life.open()
    life.possible = possible
    wrong = settle(life)
    if wrong:
        return f"started again: {wrong}"
    life.append(1, 100)
    wrong = settle(life)
    life.close()
    life.drop()
    return wrong or sound(life.directory, life)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.generation)
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_after_a_fault_at_any_call_nothing_partial_is_visible_and_the_log_goes_on_or_says_why(
    script: Script, kind: Kind, rng: random.Random
) -> None:
    seed = rng.randrange(2**31)
    with quick_directory() as folder:
        where = os.path.join(folder, "life")

        def life() -> Life:
            shutil.rmtree(where, ignore_errors=True)
            os.mkdir(where)
            return Life(where, kind, script.settings, seed=seed)

        flawless = life()
        script.run(flawless)
        calls = list(flawless.system.calls)
        flawless.drop()
        struck = 0
        for fault in faults(calls, rng):
            one = life()
            wrong = suffer(one, script, fault)
            struck += bool(one.system.failed)
            assert not wrong, f"{fault} at {one.system.failed} in {one.name}: {wrong}"
        assert struck > 100 / STEP
