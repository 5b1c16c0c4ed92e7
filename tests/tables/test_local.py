"""What ``kts sync`` and ``kts.tables.sync`` do with a table of the latest state."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.processes.cli_runs import run

import kts
from kts.tables import sync


def append(folder: Path, keys: str, value: bytes | None) -> None:
    with kts.Log(folder / "logs" / "t-0") as log:
        log.append_rows({"key": [key.encode() for key in keys], "value": [value] * len(keys)})


@pytest.mark.parametrize("catalog", [True, False], ids=["iceberg", "folder"])
def test_the_command_says_what_came_and_what_went(tmp_path: Path, catalog: bool) -> None:
    where = ["lake.db.rows", "--catalog", tmp_path / "c.sqlite"] if catalog else [tmp_path / "rows"]
    command = ["sync", tmp_path / "logs", *where, "--mode", "latest", "--to-end"]
    append(tmp_path, "abc", b"1")
    assert "made" in run(*command).stderr
    append(tmp_path, "ab", b"2")
    append(tmp_path, "c", None)
    told = json.loads(run(*command, "--json").stdout)
    assert (told["records"], told["removed"], told["commits"]) == (2, 3, 1)
    assert "removed" in run(*command).stdout
    refused = run("sync", tmp_path / "logs", *where, "--to-end", code=2).stderr
    assert "found one with a row for each key (mode latest)" in " ".join(refused.split())
    refused = run(*command, "--buckets", "7", code=2).stderr
    assert "was made with 16, found 7" in " ".join(refused.split())


def test_an_open_transaction_holds_a_table_of_the_latest_state_back(tmp_path: Path) -> None:
    owner = {"transactional": True, "producer_id": 1, "producer_epoch": 0}
    append(tmp_path, "a", b"1")
    with kts.Log(tmp_path / "logs" / "t-0") as log:
        log.append_as_follower(kts.encode({"key": [b"a"], "value": [b"2"]}, base_offset=1, base_sequence=0, **owner))
    done = sync(tmp_path / "logs", tmp_path / "rows", mode="latest", to_end=True)
    assert done.tables[0].records == 1 and {*done.held_back.values()} == {1}
    done = sync(tmp_path / "logs", tmp_path / "rows", mode="latest", to_end=True, isolation="read_uncommitted")
    assert (done.tables[0].records, done.tables[0].removed) == (1, 1)


@pytest.mark.parametrize(
    "asked", [{"max_days": 5}, {"commit_bytes": 5}, {"plausible_from": 0}, {"plausible_to": "2030"}]
)
def test_what_a_table_of_the_latest_state_has_no_use_for_is_refused(tmp_path: Path, asked: dict[str, Any]) -> None:
    append(tmp_path, "a", b"1")
    with pytest.raises(ValueError, match=f"{next(iter(asked))}: a table of the latest state .* leave it out"):
        sync(tmp_path / "logs", tmp_path / "rows", mode="latest", **asked)
