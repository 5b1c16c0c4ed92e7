"""The magics that a clean stop notes: believed after a clean stop only, of a log that is still the same."""

from __future__ import annotations

import os
import random
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from support.sets.segments import walk
from support.waiting import wait_for_later_changes

import kts
from kts.offline.verify import verify
from kts.segment import magics
from kts.segment.magic_checkpoint import MagicCheckpoint, NotedMagics
from kts.segment.magics import UNREAD

NOW = 1_600_000_000_000


def records(magic: int, first: int, count: int = 5) -> bytes:
    rows: dict[str, Any] = {"value": [b"%d" % (first + at) * 50 for at in range(count)], "timestamp": [NOW] * count}
    return kts.encode(rows, magic=magic, base_offset=first)


def write(path: Path, *chosen: int, segment_bytes: int = 2**20) -> None:
    """A log of a follower with a set of each magic, closed after the clock has moved on from its last write."""
    with kts.Log(path, {"segment.bytes": segment_bytes}) as log:
        for magic in chosen:
            log.append_as_follower(records(magic, log.log_end_offset))
        log.flush()
        wait_for_later_changes(Path(log.segments[-1].path))


def known(log: kts.Log) -> list[int]:
    """What the log knows of each entry's magic without reading it, up to the first that is newer."""
    found = []
    for segment in log.segments:
        for entry in walk(Path(segment.path).read_bytes()):
            lent = segment.lend(entry.position, entry.size)
            found.append(segment.newest_magic(lent, UNREAD))
            lent.close()
    return found


def noted(directory: Path) -> dict[int, NotedMagics]:
    return MagicCheckpoint(str(directory)).of("t", 0)


# --- the file -------------------------------------------------------------------------------------


def test_what_was_noted_is_read_and_replaced_once_it_is_older_than_the_file(tmp_path: Path) -> None:
    before = {
        0: NotedMagics((7, 100, 1), ((0, 0), (40, 1))),
        2**63 - 1: NotedMagics((2**64 - 1, 5, 2), ((0, 3), (3, 0))),
    }
    file = MagicCheckpoint(str(tmp_path))
    file.replace("t", 0, before)
    assert file.of("t", 0) == {}, "nothing is on disk yet"
    file.write()
    assert file.of("t", 0) == noted(tmp_path) == before
    later = {0: NotedMagics((7, 100, time.time_ns() + 10**12), ((0, 0),))}
    file.replace("t", 0, later)
    file.write()
    assert noted(tmp_path) == {}
    file.forget("t", 0)
    file.write()
    assert MagicCheckpoint(str(tmp_path)).fault is None and not MagicCheckpoint(str(tmp_path))._blocks


def test_runs_that_do_not_rise_are_not_believed(tmp_path: Path) -> None:
    file = MagicCheckpoint(str(tmp_path))
    file.replace("t", 0, {0: NotedMagics((1, 2, 3), ((0, 2), (9, 0), (5, 1)))})
    file.write()
    assert MagicCheckpoint(str(tmp_path)).fault is None and noted(tmp_path) == {}


# --- a log ----------------------------------------------------------------------------------------


def test_a_clean_stop_notes_each_segments_magics_and_the_next_start_knows_them(tmp_path: Path) -> None:
    chosen = [0, 0, 1, 1, 0, 2, 1, 0] * 3
    write(tmp_path / "t-0", *chosen, segment_bytes=1500)
    for _ in range(2):
        with kts.Log(tmp_path / "t-0", {"segment.bytes": 1500}) as log:
            assert len(log.segments) > 3
            stored = [[entry.magic for entry in walk(Path(one.path).read_bytes())] for one in log.segments]
            assert known(log) == [magic if set(one) - {2} else UNREAD for one in stored for magic in one]
    assert list(verify(tmp_path)) == []


def test_a_log_without_old_messages_notes_nothing(tmp_path: Path) -> None:
    write(tmp_path / "t-0", 2, 2)
    assert not (tmp_path / MagicCheckpoint.file).exists()


def test_what_a_start_did_not_know_is_not_noted(tmp_path: Path) -> None:
    """Only a part of it was fetched."""
    write(tmp_path / "t-0", 1, 1, 1, 1)
    (tmp_path / MagicCheckpoint.file).unlink()
    with kts.Log(tmp_path / "t-0") as log:
        entries = walk(Path(log.segments[0].path).read_bytes())
        lent = log.segments[0].lend(0, entries[1].position)
        log.segments[0].read_magics(lent, 1)
        lent.close()
        before = known(log)
        assert before[0] == 1 and before[-1] == UNREAD
    with kts.Log(tmp_path / "t-0") as log:
        assert known(log) == before


def in_place(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(kts.encode({"value": [b"v" * 20], "timestamp": [NOW]}, magic=2))


def beside(path: Path) -> None:
    """Another file of the same size and the same modification time, as a copy of a backup has them."""
    status, other = path.stat(), path.with_suffix(".other")
    data = path.read_bytes()
    in_place(path)
    other.write_bytes(path.read_bytes())
    assert other.stat().st_size == len(data)
    os.utime(other, ns=(status.st_atime_ns, status.st_mtime_ns))
    other.replace(path)


def with_its_time(path: Path) -> None:
    status = path.stat()
    in_place(path)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.mark.parametrize("change", [in_place, beside, with_its_time])
def test_a_log_that_was_changed_after_the_stop_is_read(tmp_path: Path, change: Callable[[Path], None]) -> None:
    """Whatever its size and modification time say. A client of magic 0 would get what it cannot read."""
    write(tmp_path / "t-0", 0, 0)
    change(tmp_path / "t-0" / f"{0:020d}.log")
    with kts.Log(tmp_path / "t-0") as log:
        assert log.clean_start and known(log)[0] == UNREAD


def test_a_copy_of_the_directory_is_read(tmp_path: Path) -> None:
    write(tmp_path / "a" / "t-0", 1, 1)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    with kts.Log(tmp_path / "b" / "t-0") as log:
        assert log.clean_start and set(known(log)) == {UNREAD}


@pytest.mark.parametrize("how", ["abandoned", "marker lost"])
def test_after_a_crash_all_is_read_again(tmp_path: Path, how: str) -> None:
    write(tmp_path / "t-0", *[1] * 6, segment_bytes=1500)
    if how == "abandoned":
        kts.Log(tmp_path / "t-0").abandon()
    else:
        (tmp_path / ".kafka_cleanshutdown").unlink()
    assert [one.runs for one in noted(tmp_path).values()] == [((0, 1),)] * len([*(tmp_path / "t-0").glob("*.log")])
    assert len(noted(tmp_path)) > 2, "recovery reads only the last one"
    with kts.Log(tmp_path / "t-0") as log:
        assert not log.clean_start and set(known(log)) == {UNREAD}


def test_a_truncation_and_other_records_of_the_same_size_leave_no_wrong_note(tmp_path: Path) -> None:
    """Stopped cleanly or not, and with either file lost."""
    write(tmp_path / "t-0", 0, 0)
    size = (tmp_path / "t-0" / f"{0:020d}.log").stat().st_size
    with kts.Log(tmp_path / "t-0") as log:
        log.truncate_to(5)
        room = size - log.size_bytes
        rows = {"value": [bytes(room - 70)], "timestamp": [NOW], "offset": [5]}
        data = kts.encode(rows, magic=2)
        rows["value"] = [bytes(room - 70 + room - len(data))]
        log.append_as_follower(kts.encode(rows, magic=2))
        assert log.size_bytes == size
        log.flush()
        wait_for_later_changes(Path(log.segments[0].path))
    with kts.Log(tmp_path / "t-0") as log:
        assert known(log) == [entry.magic for entry in walk(Path(log.segments[0].path).read_bytes())]
        assert known(log)[-1] == 2


def test_a_topic_that_was_deleted_and_made_again_has_no_note(tmp_path: Path) -> None:
    write(tmp_path / "t-0", 0, 0)
    shutil.rmtree(tmp_path / "t-0")
    write(tmp_path / "t-0", 2)
    assert noted(tmp_path) == {}


def test_verify_finds_an_entry_that_is_newer_than_noted(tmp_path: Path) -> None:
    write(tmp_path / "t-0", 1, 0)
    file = MagicCheckpoint(str(tmp_path))
    [(base, one)] = file.of("t", 0).items()
    assert [magic for _, magic in one.runs] == [1, 0]
    file.replace("t", 0, {base: one._replace(runs=((0, 0),))})
    file.write()
    found = list(verify(tmp_path))
    assert {(violation.kind, violation.position) for violation in found} == {("magic", 0)} | {
        ("magic", entry.position) for entry in walk((tmp_path / "t-0" / f"{0:020d}.log").read_bytes()) if entry.magic
    }


@pytest.mark.slow
def test_noted_magics_are_never_less_than_there_are(tmp_path: Path, rng: random.Random) -> None:
    """Over appends, truncations, rolls, reads, clean stops and crashes."""
    path, settings = tmp_path / "t-0", {"segment.bytes": 3000}
    believed = 0
    for _ in range(60):
        log = kts.Log(path, settings)
        for segment in log.segments:
            for entry in walk(Path(segment.path).read_bytes()):
                lent = segment.lend(entry.position, entry.size)
                told = segment.newest_magic(lent, UNREAD)
                assert told >= entry.magic
                believed += told < UNREAD and entry.magic < 2
                lent.close()
        for _ in range(rng.randrange(4)):
            match rng.randrange(4):
                case 0:
                    log.truncate_to(rng.randrange(log.log_start_offset, log.log_end_offset + 1))
                case 1:
                    segment = rng.choice(log.segments)
                    lent = segment.lend(0, segment.size)
                    segment.read_magics(lent, rng.randrange(3))
                    lent.close()
                case _:
                    with suppress(kts.KtsError):
                        log.append_as_follower(records(rng.randrange(3), log.log_end_offset, rng.randrange(1, 9)))
        log.abandon() if rng.randrange(5) == 0 else log.close()
        assert [one.kind for one in verify(tmp_path) if one.kind == "magic"] == []
        assert all(len(one.runs) <= magics.MOST_RUNS for one in noted(tmp_path).values())
    assert believed > 100
