"""A commit of segments that were written aside: crashes at every operation, faults, and readers beside it."""

from __future__ import annotations

import errno
import os
import random
import shutil
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.disk.crashdisk import write_tree
from support.disk.faultfs import WRITING, Fault, FaultyOs
from support.disk.scripted_lives import in_place_of_os, quick_directory
from support.golden import scaled

import kts
from kts.log import staging
from kts.log.commit import finish_commit
from kts.log.epochs import LeaderEpochs
from kts.offline.verify import verify
from kts.segment.commits import FILE, Commits, read_commits, write_commits
from kts.segment.names import CLEAN_SHUTDOWN
from kts.store import local

T = 1_700_000_000_000
SMALL = {"segment.bytes": 700}
FORMATS = {"2": SMALL, "1": {**SMALL, "message.format.version": "0.10.2"}}
Seen = dict[str, list[bytes]]  # the values of each partition


def rows(topic: str, values: list[bytes]) -> pa.Table:
    """Of two partitions the keys go to the first."""
    times = [T + n for n in range(len(values))]
    keys = [b"k"] * len(values)
    columns = {"topic": [topic] * len(values), "key": keys, "value": values, "timestamp": pa.array(times, pa.int64())}
    return pa.table(columns)


def stage(
    directory: str, settings: dict[str, Any], number: int, topics: tuple[str, ...] = ("a", "b")
) -> list[staging.StagedLog]:
    """Two tasks, each with rows of both topics; `a` has one partition, a new topic two."""
    root = staging.staging_root(directory, f"{number:032x}")
    local.make_directory(root)
    staged = []
    for task in range(2):
        with staging.StagedWriter(root, settings, {"a": 1}, default_count=2, clock=lambda: T) as writer:
            for topic in topics:
                writer.append(rows(topic, [b"%d/%d/%d" % (number, task, n) for n in range(12)]))
            staged += writer.finish()
    return staged


def write(directory: str, settings: dict[str, Any], number: int) -> None:
    staged = stage(directory, settings, number)
    staging.commit(directory, staged, settings)
    staging.remove_staging(directory, write_id=f"{number:032x}")


def first(directory: str, settings: dict[str, Any]) -> None:
    """A log directory with one partition that has records and no other."""
    with kts.Log(os.path.join(directory, "a-0"), settings, clock=lambda: T) as log:
        log.append_rows(rows("a", [b"old %d" % n for n in range(20)]))


def seen(directory: str) -> Seen:
    """What a reader sees; offsets have no holes."""
    found = {}
    for name, log in kts.open_log_dirs(directory).items():
        table = log.scan(columns=["offset", "value"]).read_all()
        assert table.column("offset").to_pylist() == list(range(table.num_rows))
        found[str(name)] = table.column("value").to_pylist()
    return found


def opened(directory: str, settings: dict[str, Any]) -> list[tuple[bool, list[Any]]]:
    """Whether each partition was clean, and what was recovered; all are opened for writing, and closed."""
    with ExitStack() as stack:
        paths = [log.path for log in kts.open_log_dirs(directory).values()]
        logs = [stack.enter_context(kts.Log(path, settings, clock=lambda: T)) for path in paths]
        return [(log.clean_start, log.recovered) for log in logs]


def outcome(directory: str, before: Seen, after: Seen) -> str:
    found = seen(directory)
    if found not in (before, after):
        counts = {name: len(values) for name, values in found.items()}
        pytest.fail(f"a reader sees {counts}, neither what was there before nor all: {sorted(os.listdir(directory))}")
    return "after" if found == after else "before"


@pytest.mark.parametrize("settings", FORMATS.values(), ids=FORMATS)
def test_after_any_crash_of_a_write_all_of_it_is_there_or_nothing(settings: dict[str, Any], rng: random.Random) -> None:
    """Both for a reader before anybody recovered, and after; only records that readers saw, or that were committed,
    decide it. Costs some seconds, because each state of the disk is opened four times."""
    with quick_directory() as folder:
        home, where = os.path.join(folder, "life"), os.path.join(folder, "crashed")
        os.mkdir(home)
        first(home, settings)
        before = seen(home)
        system = FaultyOs(home)
        with in_place_of_os(system):
            write(home, settings, 1)
        assert system.unrecorded() == [] and system.open_files() == []
        after = seen(home)
        assert [len(values) for values in after.values()] == [44, 24, 0]
        counts = {"before": 0, "after": 0}
        disk, moments = (
            system.disk(),
            set(rng.sample(range(len(system.trace)), min(scaled(12, 120), len(system.trace)))),
        )
        for done, op in enumerate([*system.trace, None]):
            for state in disk.states(rng, count=scaled(4, 12)) if done in moments or op is None else ():
                write_tree(where, state.tree)
                first_look = outcome(where, before, after)
                opened(where, settings)
                opened(where, settings)  # also what was not there before the first recovery
                last = outcome(where, before, after)
                counts[last] += 1
                assert (first_look, last) != ("after", "before"), (done, state.label)
                assert op is not None or last == "after", state.label
                assert [str(finding) for finding in verify(where, deep=True)] == [], (done, state.label)
                assert opened(where, settings) == [(True, [])] * len(seen(where)), (done, state.label)
                write(where, settings, 2)  # whatever lies around, the next write works and removes it
                assert [len(values) for values in seen(where).values()] == [
                    20 + 24 * (1 + (last == "after")),
                    24 * (1 + (last == "after")),
                    0,
                ]
                assert [name for name in os.listdir(where) if name.startswith("kts-commit-0")] == []
                shutil.rmtree(where)
            if op is not None:
                disk.step(op)
        assert all(counts.values()), counts


def test_a_reader_beside_a_commit_sees_all_partitions_as_before_or_all_as_after(tmp_path: Path) -> None:
    home = str(tmp_path)
    first(home, SMALL)
    before = seen(home)
    shutil.copytree(home, shadow := f"{home}-shadow")
    write(shadow, SMALL, 1)
    after = seen(shadow)
    staged = stage(home, SMALL, 1)
    looks: list[str] = []
    busy = False

    def look(_: str) -> None:
        nonlocal busy
        if not busy:
            busy = True
            looks.append(outcome(home, before, after))
            busy = False

    with in_place_of_os(FaultyOs(home, after=look)):
        staging.commit(home, staged, SMALL)
    changes = [number for number in range(1, len(looks)) if looks[number] != looks[number - 1]]
    assert len(looks) > 100 and len(changes) == 1, looks


@pytest.mark.parametrize("settings", FORMATS.values(), ids=FORMATS)
def test_after_any_failure_of_the_disk_all_of_a_write_is_there_or_nothing(
    settings: dict[str, Any], rng: random.Random
) -> None:
    """A failure at each operation in turn; a write that reported success is there."""
    with quick_directory() as folder:
        home = os.path.join(folder, "home")
        os.mkdir(home)
        first(home, settings)
        before, outcomes, step = seen(home), set(), scaled(9, 1)
        shutil.copytree(home, whole := os.path.join(folder, "whole"))
        system = FaultyOs(whole)
        with in_place_of_os(system):
            write(whole, settings, 1)
        after = seen(whole)
        operations = sum(name in WRITING for name in system.calls)
        for at in range(rng.randint(1, step), operations + 1, step):
            shutil.copytree(home, where := os.path.join(folder, "failed"))
            failed = False
            with in_place_of_os(FaultyOs(where, Fault(at, errno=errno.EIO))):
                try:
                    write(where, settings, 1)
                except kts.LogStorageError as error:
                    assert error.errno == errno.EIO, error
                    failed = True
            for _ in range(2):
                opened(where, settings)
            found = outcome(where, before, after)
            assert failed or found == "after", at
            outcomes.add((failed, found))
            assert list(verify(where, deep=True)) == []
            shutil.rmtree(where)
        assert {(True, "before"), (True, "after")} <= outcomes, outcomes


def committed_by_half(home: str) -> list[staging.StagedLog]:
    """Kills a commit after its first renames into a partition."""
    first(home, SMALL)
    staged = stage(home, SMALL, 1)
    system = FaultyOs(home)

    def stop(_: str) -> None:
        pending = read_commits(home).pending
        if pending and not os.path.exists(os.path.join(home, pending[0].files[2].source)):
            raise KeyboardInterrupt

    done = False

    def after(name: str) -> None:
        nonlocal done
        if name == "replace" and not done:
            done = True
            try:
                stop(name)
            finally:
                done = False

    system.after = after
    with in_place_of_os(system), pytest.raises(KeyboardInterrupt):
        staging.commit(home, staged, SMALL)
    return staged


def test_a_commit_that_another_program_disturbed_is_refused_with_the_files_that_wait(tmp_path: Path) -> None:
    home = str(tmp_path)
    committed_by_half(home)
    last = max((tmp_path / "a-0").glob("*.log"))
    last.write_bytes(last.read_bytes() + b"of another program")
    with pytest.raises(kts.LogStorageError, match="wrote to it before the commit was complete") as caught:
        kts.Log(tmp_path / "a-0", SMALL)
    assert FILE in str(caught.value)
    assert seen(home) == {"a-0": [b"old %d" % n for n in range(20)]}  # readers do not see half of it


def test_a_commit_whose_segments_are_lost_is_refused(tmp_path: Path) -> None:
    home = str(tmp_path)
    committed_by_half(home)
    [*_, lost] = tmp_path.glob("kts-commit-0*.log")
    lost.unlink()
    with pytest.raises(kts.LogStorageError, match="expected a segment that joins .*, found no file"):
        finish_commit(home)


def test_a_commit_that_fails_leaves_no_clean_stop(tmp_path: Path) -> None:
    """A broker that found one would not look at indexes whose logs are still to come."""
    home = str(tmp_path)
    first(home, SMALL)
    assert (tmp_path / CLEAN_SHUTDOWN).exists()
    staged, system = stage(home, SMALL, 1), FaultyOs(home)

    def fail(name: str) -> None:
        if name == "replace" and list(tmp_path.glob("b-0/*.index")):
            system.after = None
            raise OSError(errno.EIO, "of the disk")

    system.after = fail
    with in_place_of_os(system), pytest.raises(kts.LogStorageError):
        staging.commit(home, staged, SMALL)
    assert not (tmp_path / CLEAN_SHUTDOWN).exists() and not list(tmp_path.glob("b-0/*.log"))


def test_the_epochs_of_a_broker_that_came_before_the_list_was_emptied_stay(tmp_path: Path) -> None:
    home = str(tmp_path)
    staged, system = stage(home, SMALL, 1, topics=("a",)), FaultyOs(home)
    listed: list[Commits] = []

    def keep(_: str) -> None:
        system.after = None
        found = read_commits(home)
        system.after = keep
        listed.extend([found] * bool(found.pending))

    system.after = keep
    with in_place_of_os(system):
        staging.commit(home, staged, SMALL)
    write_commits(home, listed[0])
    LeaderEpochs(str(tmp_path / "a-0")).replace([(7, 24)])
    finish_commit(home)
    assert not read_commits(home).pending
    assert LeaderEpochs(str(tmp_path / "a-0")).entries == [(7, 24)]


def test_the_next_open_completes_a_commit(tmp_path: Path) -> None:
    home = str(tmp_path)
    committed_by_half(home)
    assert read_commits(home).pending
    with kts.Log(tmp_path / "a-0", SMALL) as log:
        assert log.log_end_offset == 44
    assert not read_commits(home).pending
    assert [len(values) for values in seen(home).values()] == [44, 24, 0]
