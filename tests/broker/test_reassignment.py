"""Retention after a partition moved to a new replica: by timestamps as on the old one, by file times a week later."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import reassignment
from reassignment import KEPT, LAST, MOVED, Day
from support.golden import PATIENCE_S


@pytest.fixture(scope="module")
def days(tmp_path_factory: pytest.TempPathFactory) -> list[Day]:
    return reassignment.tell(tmp_path_factory.mktemp("replicas"))


def test_by_timestamps_both_replicas_hold_the_same_every_day(days: list[Day]) -> None:
    assert [day.number for day in days] == list(range(MOVED, LAST + 1))
    assert [day.old["timed"] for day in days] == [day.new["timed"] for day in days]
    assert [day.new["timed"].segments for day in days] == [7, 6, 5, 4, 3, 2, 1, 0, 0]


def test_by_file_times_the_new_replica_keeps_all_until_its_copy_is_old(days: list[Day]) -> None:
    assert [day.old["untimed"].segments for day in days] == [7, 6, 5, 4, 3, 2, 1, 0, 0]
    kept = [day.new["untimed"] for day in days]
    assert [each.segments for each in kept] == [8] * KEPT + [0, 0]
    last = days[KEPT - 1]  # eight times the disk of the old replica
    assert last.new["untimed"].size_bytes == 8 * last.old["untimed"].size_bytes


@pytest.mark.slow
def test_the_example_prints_both() -> None:
    done = subprocess.run(
        [sys.executable, reassignment.__file__], capture_output=True, text=True, timeout=PATIENCE_S, check=True
    )
    rows = done.stdout.splitlines()[-9:]
    assert rows[0].split()[0] == str(MOVED) and rows[-1].split()[0] == str(LAST)
    assert rows[6] == " 16   1 (101,187)   1 (101,187)   1 (102,600)   8 (820,800)"
    assert Path(reassignment.__file__).parent.name == "examples"
