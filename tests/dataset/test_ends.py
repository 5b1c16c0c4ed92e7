"""What a segment has behind its last record is told at every door, whether the segment is closed or not."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.processes.cli_runs import run
from support.sets.partitions import log_of, offsets
from support.tables import folder_files, query

import kts
from kts.errors import CorruptRecordError, DamageWarning
from kts.offline.copy import copy
from kts.tables import sync

ALL = list(range(9))
CLOSED, ACTIVE = 3, 6  # the second of three segments, and the last
STRAY = {
    "part of an entry": kts.encode({"timestamp": [5], "value": [b"stray"]}, base_offset=9)[:40],
    "less than a size": bytes(7) + b"\1\2\3",
    "noise": random.Random(7).randbytes(40),
    "zeros": bytes(40),
    "ones": b"\xff" * 40,
}
INCOMPLETE = ("part of an entry", "less than a size")  # as a crash leaves it in the last segment


def table_of(directory: Path) -> Path:
    return directory.parents[1] / "table"


def rows_of(table: Path) -> list[int]:
    return [offset for (offset,) in query(folder_files(table), 'SELECT "offset" FROM rows ORDER BY 1')]


def synced(directory: Path, **options: Any) -> list[int]:
    sync(directory, table_of(directory), **options)
    return rows_of(table_of(directory))


def copied(directory: Path, **options: Any) -> list[int]:
    copy(directory, directory.parents[1] / "copy", **options)
    return offsets(directory.parents[1] / "copy")


DOORS: dict[str, Callable[..., list[int]]] = {
    "scan": offsets,
    "read_committed": lambda directory, **options: offsets(directory, isolation="read_committed", **options),
    "sync": synced,
    "sync to the end": lambda directory, **options: synced(directory, to_end=True, **options),
    "copy": copied,
}
UP_TO_THE_END: dict[str, Callable[..., list[int]]] = {
    "scan of offsets": lambda directory, **options: offsets(directory, ending_offsets=9, **options),
}
ANSWERS: dict[str, Callable[[kts.PartitionLog], Any]] = {  # of what reads headers
    "batches": lambda log: log.batches().read_all(),
    "search": lambda log: log.offset_for_timestamp(6),
    "greatest": lambda log: log.max_timestamp(),
    "stable": lambda log: log.last_stable_offset,
}


def with_stray(tmp_path: Path, base: int, kind: str) -> tuple[Path, str]:
    """A log of nine records in three segments, one of them longer; and the words that say where."""
    directory = log_of(tmp_path / "logs", [5] * 9)
    path = directory / f"{base:020}.log"
    position = path.stat().st_size
    with path.open("ab") as file:
        file.write(STRAY[kind])
    return directory, f"position {position}"


def warned(ask: Callable[[], Any]) -> tuple[Any, list[warnings.WarningMessage]]:
    """An answer, and the warnings of kts."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        answer = ask()
    return answer, [one for one in found if issubclass(one.category, kts.KtsWarning)]


@pytest.mark.parametrize("kind", STRAY)
@pytest.mark.parametrize("door", [*DOORS, *UP_TO_THE_END, *ANSWERS])
def test_behind_the_last_record_of_a_closed_segment_is_damage(tmp_path: Path, door: str, kind: str) -> None:
    directory, where = with_stray(tmp_path, CLOSED, kind)
    rows = DOORS | UP_TO_THE_END
    with pytest.raises(CorruptRecordError) as error:
        rows[door](directory) if door in rows else ANSWERS[door](kts.open_partition(directory))
    assert where in str(error.value) and error.value.path == str(directory / f"{CLOSED:020}.log")


@pytest.mark.parametrize("kind", STRAY)
@pytest.mark.parametrize(
    ("base", "door"), [(base, door) for base in (CLOSED, ACTIVE) for door in DOORS] + [(CLOSED, "scan of offsets")]
)
def test_what_skip_leaves_out_there_is_told(tmp_path: Path, base: int, door: str, kind: str) -> None:
    directory, where = with_stray(tmp_path, base, kind)
    found, told = warned(lambda: (DOORS | UP_TO_THE_END)[door](directory, on_error="skip"))
    assert found == ALL
    assert told and all(where in str(one.message) and f"{base:020}.log" in str(one.message) for one in told)
    left_by_a_crash = base == ACTIVE and (kind in INCOMPLETE or (door == "copy" and kind == "zeros"))
    assert {one.category for one in told} == {kts.KtsWarning if left_by_a_crash else DamageWarning}


@pytest.mark.parametrize("kind", STRAY)
@pytest.mark.parametrize("door", [*DOORS, *ANSWERS, "end"])
def test_in_the_last_segment_what_a_crash_leaves_is_no_damage(tmp_path: Path, door: str, kind: str) -> None:
    directory, where = with_stray(tmp_path, ACTIVE, kind)
    ask = {"end": lambda log: log.log_end_offset} | ANSWERS

    def answer() -> Any:
        return DOORS[door](directory) if door in DOORS else ask[door](kts.open_partition(directory))

    if kind in INCOMPLETE or (door == "copy" and kind == "zeros"):
        found, told = warned(answer)
        assert told and all(where in str(one.message) and one.category is kts.KtsWarning for one in told)
        assert door not in DOORS or found == ALL
    else:
        with pytest.raises(CorruptRecordError, match=where):
            answer()


def test_a_sync_does_not_go_on_behind_damage(tmp_path: Path) -> None:
    """It reads again what a writer deletes meanwhile, from where it ended: with damage, that would be behind it."""
    directory, where = with_stray(tmp_path, CLOSED, "noise")
    with pytest.raises(CorruptRecordError, match=where):
        synced(directory)
    assert rows_of(table_of(directory)) == ALL[:ACTIVE]


def test_the_command_tells_what_it_leaves_out(tmp_path: Path) -> None:
    directory, where = with_stray(tmp_path, CLOSED, "noise")
    for number, command in enumerate([["dump", directory], ["sync", directory], ["copy", directory]]):
        for code, options in ((3, []), (1, ["--on-error", "skip"])):
            target = [tmp_path / f"{number}-{code}"] * (command[0] != "dump")
            assert where in run(*command, *target, *options, code=code).stderr
