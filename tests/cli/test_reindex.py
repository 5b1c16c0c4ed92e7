"""``kts reindex``: what it says of the indexes of Kafka's own logs, and what it puts in their places."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.golden import Golden, golden
from support.processes.cli_runs import lines, run
from support.sets.segments import index_bytes, walk

ORDERS = golden("demo", "orders")
BASES = [0, 1122, 2135]


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def index(folder: Path, partition: int, base: int, kind: str) -> Path:
    return folder / f"orders-{partition}" / f"{base:020}.{kind}"


@pytest.fixture
def spoiled(writable: Callable[[Golden], Golden]) -> tuple[Path, dict[str, bytes], dict[str, str]]:
    """A log directory, its files as they should be, and the states of those that were spoiled."""
    folder = writable(ORDERS).log_dir
    sound = tree(folder)
    states = {}
    for path, state, data in (
        (index(folder, 0, 0, "index"), "differs", index(folder, 0, 0, "index").read_bytes()[:50]),
        (index(folder, 1, BASES[1], "timeindex"), "missing", None),
        (index(folder, 1, BASES[2], "index"), "missing", None),
        (index(folder, 2, 0, "timeindex"), "empty", b""),
        (index(folder, 2, 0, "index"), "differs", index(folder, 2, 0, "index").read_bytes()[::-1]),
    ):
        states[str(path)] = state
        path.unlink()
        if data is not None:
            path.write_bytes(data)
    return folder, sound, states


def test_it_says_what_would_change_and_changes_nothing(
    spoiled: tuple[Path, dict[str, bytes], dict[str, str]],
) -> None:
    folder, _, states = spoiled
    before = tree(folder)
    *rows, summary = lines("reindex", folder, "--json", code=1)
    assert {row["path"]: row["state"] for row in rows if row["state"] != "equal"} == states
    assert not any(row["written"] for row in rows)
    assert summary == {
        "segments": 10,
        "equal": 15,
        "missing": 2,
        "empty": 1,
        "differs": 2,
        "sound": 0,
        "written": 0,
        "damaged": 0,
    }
    shown = run("reindex", folder, "--dry-run", code=1).stdout
    for path in states:
        assert path in shown
    assert "10 segments: 15 equal, 2 missing, 1 empty, 2 differs; 0 written" in shown
    assert tree(folder) == before


def test_in_place_it_makes_the_files_that_the_broker_had(
    spoiled: tuple[Path, dict[str, bytes], dict[str, str]],
) -> None:
    folder, sound, states = spoiled
    *rows, summary = lines("reindex", folder, "--in-place", "--json")
    assert {row["path"] for row in rows if row["written"]} == set(states)
    assert summary["written"] == 5
    assert tree(folder) == sound
    assert lines("reindex", folder, "--json")[-1]["equal"] == 20
    assert run("verify", folder).stdout.startswith("OK")


def test_aside_it_writes_all_of_them_and_leaves_the_logs_alone(
    spoiled: tuple[Path, dict[str, bytes], dict[str, str]], tmp_path: Path
) -> None:
    folder, sound, _ = spoiled
    before = tree(folder)
    run("reindex", folder, "--out", tmp_path / "new")
    assert tree(tmp_path / "new") == {name: data for name, data in sound.items() if name.endswith("index")}
    assert tree(folder) == before
    assert "is where the logs are" in run("reindex", folder, "--out", folder, code=2).stderr
    one = folder / "orders-0" / f"{0:020}.log"
    run("reindex", one, "--out", tmp_path / "one")
    first = {name.removeprefix("orders-0/"): data for name, data in sound.items() if f"orders-0/{0:020}." in name}
    assert tree(tmp_path / "one") == {name: data for name, data in first.items() if name.endswith("index")}
    assert "is where the logs are" in run("reindex", one, "--out", folder / "orders-0", code=2).stderr


@pytest.mark.parametrize(
    ("version", "name"), [("0.9.0.1", "ct-gzip"), ("0.10.0.1", "ct-gzip"), ("0.10.0.1", "fmt09-none")]
)
def test_logs_from_before_time_indexes_get_them(version: str, name: str, writable: Callable[[Golden], Golden]) -> None:
    try:
        scenario = writable(golden(version, name))
    except StopIteration:
        pytest.skip("not in this copy of the data")
    partition = scenario.partitions[0]
    log = scenario.logs(partition)[0]
    data = log.read_bytes()
    times = [entry.time for entry in walk(data)]
    said = lines("reindex", scenario.log_dir, "--json", "--index-interval-bytes", 300, code=1)
    assert [row["state"] for row in said[:-1] if row["path"].endswith(".timeindex")] == ["missing"] * len(said[1:-1:2])
    run("reindex", scenario.log_dir, "--in-place", "--index-interval-bytes", 300)
    entries = len(index_bytes(log)[1]) // 12
    assert log.read_bytes() == data
    assert entries == 0 if max(times) < 0 else entries > 1
    assert run("verify", scenario.log_dir).stdout.startswith("OK")


def test_sound_indexes_that_a_rebuild_cannot_give_are_left_alone_unless_all_are_wanted(
    writable: Callable[[Golden], Golden],
) -> None:
    folder = writable(ORDERS).log_dir
    before = tree(folder)
    rows = lines("reindex", folder, "--json", "--index-interval-bytes", 100)
    assert rows[-1]["sound"] > 10
    assert rows[-1]["differs"] == 0
    run("reindex", folder, "--in-place", "--index-interval-bytes", 100)
    assert tree(folder) == before
    run("reindex", folder, "--in-place", "--all", "--index-interval-bytes", 100)
    assert tree(folder) != before
    assert run("verify", folder).stdout.startswith("OK")
    run("reindex", folder, "--in-place", "--all")
    assert tree(folder) == before


def test_aborted_transactions_are_listed_again(writable: Callable[[Golden], Golden]) -> None:
    for version in ("0.11.0.3", "3.9.2", "4.3.1"):
        for name in ("txn-none", "txn-lz4-lat", "txn-open"):
            try:
                scenario = writable(golden(version, name))
            except StopIteration:
                continue
            before = tree(scenario.log_dir)
            listed = [path for path in scenario.log_dir.rglob("*.txnindex") if path.stat().st_size]
            for path in listed:
                path.unlink()
            rows = lines("reindex", scenario.log_dir, "--json", "--in-place")
            assert {row["path"] for row in rows[:-1] if row["written"]} >= set(map(str, listed))
            for path in listed:
                assert path.read_bytes() == before[str(path.relative_to(scenario.log_dir))]
            for path in listed[:1]:
                path.write_bytes(bytes(34))
            assert lines("reindex", scenario.log_dir, "--json", code=int(bool(listed)))[-1]["differs"] == bool(listed)


def test_a_damaged_log_gets_the_indexes_of_its_sound_front_and_is_named(
    writable: Callable[[Golden], Golden],
) -> None:
    log = writable(ORDERS).logs("orders-1")[0]
    entries = walk(log.read_bytes())
    data = bytearray(log.read_bytes())
    data[entries[9].position + 61] ^= 1
    log.write_bytes(data)
    index_path = log.with_suffix(".index")
    index_path.unlink()
    result = run("reindex", log, code=1)
    assert f"{log}: sound up to position {entries[9].position} of {len(data)}: the CRC is wrong" in result.stderr
    run("reindex", log, "--in-place")
    found = [position for _, position in struct.iter_unpack(">ii", index_path.read_bytes())]
    assert found and set(found) <= {entry.position for entry in entries[1:9]}
    assert log.read_bytes() == data


def test_nothing_is_written_while_somebody_else_holds_the_lock(writable: Callable[[Golden], Golden]) -> None:
    folder = writable(ORDERS).log_dir
    index(folder, 0, 0, "index").unlink()
    holder = "from kts.segment.locks import FileLock; import sys; FileLock(sys.argv[1], 'x'); print(1, flush=True)"
    command = [sys.executable, "-c", f"{holder}; sys.stdin.read()", str(folder / ".lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            assert " holds the lock: stop the broker" in run("reindex", folder, "--in-place", code=3).stderr
            assert not index(folder, 0, 0, "index").exists()
            run("reindex", folder, code=1)
        finally:
            process.kill()
    run("reindex", folder, "--in-place")
    assert index(folder, 0, 0, "index").exists()
    assert (folder / ".lock").exists()  # it was there before


def test_options_that_exclude_each_other_are_wrong_use() -> None:
    folder = str(ORDERS.log_dir)
    assert "exclude each other" in run("reindex", folder, "--in-place", "--out", "x", code=2).stderr
    assert "exclude each other" in run("reindex", folder, "--in-place", "--dry-run", code=2).stderr
    assert "--all needs --in-place" in run("reindex", folder, "--all", code=2).stderr


def test_a_preallocated_last_index_is_trimmed_and_one_of_a_closed_segment_is_wrong(
    writable: Callable[[Golden], Golden],
) -> None:
    folder = writable(ORDERS).log_dir
    sound = tree(folder)
    states: dict[str, Any] = {}
    bases = sorted(int(path.stem) for path in (folder / "orders-2").glob("*.log"))
    for base, state in ((bases[-1], "sound"), (bases[0], "differs")):
        path = index(folder, 2, base, "timeindex")
        path.write_bytes(path.read_bytes() + bytes(1200))
        states[str(path)] = state
    rows = [json.loads(line) for line in run("reindex", folder / "orders-2", "--json", code=1).stdout.splitlines()]
    assert {row["path"]: row["state"] for row in rows[:-1] if row["state"] != "equal"} == states
    run("reindex", folder, "--in-place", "--all")
    assert tree(folder) == sound
