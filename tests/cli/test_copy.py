"""``kts copy``: what it prints, its exit codes, and its use of the options of other commands."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.golden import Golden, golden
from support.processes.cli_runs import lines, run

ORDERS = golden("demo", "orders")


@pytest.fixture
def damaged(tmp_path: Path) -> tuple[Golden, Path]:
    """A copy of the demo with a damaged batch, and that file."""
    scenario = ORDERS.copy(tmp_path)
    path = scenario.logs("orders-1")[1]
    data = bytearray(path.read_bytes())
    data[1000] ^= 1
    path.write_bytes(data)
    return scenario, path


def test_the_table_counts_what_was_copied_and_what_was_there(tmp_path: Path) -> None:
    target = tmp_path / "target"
    first = run("copy", ORDERS.log_dir, target, "--partition", 0).stdout.splitlines()
    assert first[0].split() == ["partition", "segments", "copied", "there", "before", "size", "copied"]
    assert first[1].split() == ["orders-0", "4", "4", "0", "264.1", "KiB"]
    assert first[2] == f"4 segments copied to {target}, 264.1 KiB; 0 segments there before"
    again = run("copy", ORDERS.log_dir, target).stdout.splitlines()
    assert [line.split()[:4] for line in again[1:4]] == [
        ["orders-0", "4", "0", "4"],
        ["orders-1", "3", "3", "0"],
        ["orders-2", "3", "3", "0"],
    ]
    assert "OK: 3 partitions, 10 segments" in run("verify", target).stdout


def test_json_has_a_line_a_segment_and_a_summary(tmp_path: Path) -> None:
    target = tmp_path / "target"
    *segments, summary = lines("copy", ORDERS.log_dir, target, "--from", "2026-09-12", "--to", "2026-09-13", "--json")
    assert summary["copied"] == len(segments) == summary["segments"] < 10
    assert summary["copiedSizeInBytes"] == sum(one["sizeInBytes"] for one in segments)
    for one in segments:
        assert Path(one["path"]).read_bytes() == Path(one["source"]).read_bytes()
        assert (one["state"], one["rebuilt"], one["damage"]) == ("copied", [], [])
    ranges = ("--from", "2026-09-12", "--to", "2026-09-13", "--format", "jsonl")
    assert run("dump", target, *ranges).stdout == run("dump", ORDERS.log_dir, *ranges).stdout


def test_damage_is_exit_code_3_and_1_if_it_is_left_out(damaged: tuple[Golden, Path], tmp_path: Path) -> None:
    scenario, path = damaged
    said = run("copy", scenario.log_dir, tmp_path / "target", code=3).stderr
    assert f"{path}" in said and "position" in said and "crc" in said
    done = run("copy", scenario.log_dir, tmp_path / "target", "--on-error", "skip", code=1)
    assert f"{path} at position" in done.stderr and "the copy leaves it out" in done.stderr
    assert "10 segments" in run("verify", tmp_path / "target").stdout


def test_wrong_use_is_exit_code_2(tmp_path: Path) -> None:
    assert "DST" in run("copy", code=2).stderr
    assert "no such file" in run("copy", tmp_path / "none", tmp_path / "target", code=2).stderr
    assert "--strict needs --from or --to" in run("copy", ORDERS.log_dir, tmp_path, "--strict", code=2).stderr
    assert "outside of the source" in run("copy", ORDERS.log_dir, ORDERS.log_dir, code=2).stderr
    assert "there is no topic none" in run("copy", ORDERS.log_dir, tmp_path, "--topic", "none", code=2).stderr
    assert "-1 is not in the range" in run("copy", ORDERS.log_dir, tmp_path, "--partition", -1, code=2).stderr
    turned = run("copy", ORDERS.log_dir, tmp_path, "--from", "2030-01-01", "--to", "2026-01-01", code=2).stderr
    assert "--from: 2030-01-01 is after --to 2026-01-01" in turned
    for target in ("", "s3:/bucket/logs"):  # which would be this directory, and one in it
        assert "an address such as s3://bucket/key" in run("copy", ORDERS.log_dir, target, code=2).stderr
    assert list(tmp_path.iterdir()) == []
