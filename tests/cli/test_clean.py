"""``kts clean``: what it says goes, and no more; with --dry-run nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.processes.cli_runs import lines, run

import kts

T = 1_700_000_000_000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two partitions that were closed cleanly."""
    for partition in (0, 1):
        with kts.Log(tmp_path / f"state-{partition}", clock=lambda: T) as log:
            for value in range(3):
                log.append_rows({"timestamp": [T] * 2, "key": [b"a", b"b"], "value": [b"%d" % value, None]})
            log.roll()
            log.append_rows({"timestamp": [T], "key": [b"a"], "value": [b"active"]})
    return tmp_path


def offsets(path: Path) -> list[int]:
    return kts.scan(path, columns=["offset"]).read_all()["offset"].to_pylist()


def logs(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.glob("*/*.*")) if path.suffix != ".snapshot"}


def test_a_dry_run_says_what_goes_and_changes_no_segment(folder: Path) -> None:
    before = logs(folder)
    told: list[dict[str, Any]] = lines("clean", folder, "--dry-run", "--json")
    assert logs(folder) == before and not (folder / "cleaner-offset-checkpoint").exists()
    done = lines("clean", folder, "--json")
    for one, other in zip(told, done, strict=True):
        assert other == one | {"done": True, "nextDirtyOffset": 6}
        assert (one["recordsBefore"], one["recordsAfter"], one["segmentsAfter"]) == (6, 2, 1)
        assert one["removed"]["superseded"] == 4
        assert one["kept"]["tombstones"] == 1
    assert offsets(folder / "state-0") == [4, 5, 6]
    assert (folder / "cleaner-offset-checkpoint").read_text() == "0\n2\nstate 0 6\nstate 1 6\n"
    assert (folder / ".kafka_cleanshutdown").exists()
    assert run("verify", folder).exit_code == 0


def test_the_table_says_why_records_went_and_why_others_stay(folder: Path) -> None:
    said = run("clean", folder, "--partition", "1").output
    assert "state-1" in said and "state-0" not in said
    assert "1 to 1" in said and "6 to 2" in said
    assert "gone: 4 superseded by a later record of the key" in said
    assert "kept: 1 tombstone, which go in a pass after their delete horizon" in said
    again = run("clean", folder, "--partition", "1")
    assert (again.exit_code, "state-1: nothing can be cleaned" in again.stderr) == (0, True)


def test_a_setting_holds_and_a_policy_without_compact_is_told(folder: Path) -> None:
    [young] = lines("clean", folder / "state-0", "--json", "--config", f"min.compaction.lag.ms={2**62}")
    assert (young["done"], young["reason"]) == (False, "nothing can be cleaned")
    [other] = lines("clean", folder / "state-0", "--json", "--config", "cleanup.policy=delete")
    assert other["reason"] == "cleanup.policy has no compact"
    assert offsets(folder / "state-0") == list(range(7))


def test_a_log_that_another_program_holds_is_refused(folder: Path) -> None:
    with kts.Log(folder / "state-0"):
        assert "stop the broker" in run("clean", folder / "state-0", code=3).stderr


def test_of_several_topics_the_compacted_ones_must_be_named(folder: Path) -> None:
    with kts.Log(folder / "events-0", clock=lambda: T) as log:
        log.append_rows({"timestamp": [T] * 2, "key": [b"a", b"a"], "value": [b"1", b"2"]})
        log.roll()
    before = logs(folder)
    said = run("clean", folder, code=2).stderr
    assert "--topic" in said and "2 (events, state)" in said and logs(folder) == before
    assert {one["topic"] for one in lines("clean", folder, "--topic", "state", "--json")} == {"state"}
    assert offsets(folder / "events-0") == [0, 1]


def test_records_without_keys_go_only_where_the_policy_is_said(tmp_path: Path) -> None:
    with kts.Log(tmp_path / "events-0", clock=lambda: T) as log:
        log.append_rows({"timestamp": [T] * 3, "key": [b"a", None, None], "value": [b"1", b"2", b"3"]})
        log.roll()
    before = logs(tmp_path)
    [told] = lines("clean", tmp_path, "--dry-run", "--json")
    assert told["removed"]["without_key"] == 2
    assert "2 records without a key" in run("clean", tmp_path, code=2).stderr
    assert logs(tmp_path) == before
    [done] = lines("clean", tmp_path, "--json", "--config", "cleanup.policy=compact")
    assert done["recordsAfter"] == 1 and offsets(tmp_path / "events-0") == [0]
