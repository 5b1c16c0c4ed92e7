"""``kts demo``: what brokers wrote, as they wrote it, in a new directory."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from support.demo import PACKED, content
from support.processes.cli_runs import run

import kts
from kts.cli import demo


def test_it_writes_what_the_brokers_wrote(tmp_path: Path) -> None:
    run("demo", tmp_path / "it")
    paths = [path for path in (tmp_path / "it").rglob("*") if path.is_file()]
    found = {path.relative_to(tmp_path / "it").as_posix(): path for path in paths}
    expected = content()
    assert {name: path.read_bytes() for name, path in found.items()} == {n: data for n, (data, _) in expected.items()}
    assert {name: path.stat().st_mtime for name, path in found.items()} == {
        n: time for n, (_, time) in expected.items()
    }
    assert {path.stat().st_mode & 0o777 for path in paths} == {0o644}
    assert PACKED.stat().st_size < 2**20
    with tarfile.open(PACKED) as packed:
        assert not {member.uname for member in packed} - {""}, "whose machine packed it is nobody's business"


def test_it_is_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each line about a directory is true of it."""
    monkeypatch.chdir(tmp_path)
    said = dict(re.findall(r"^  demo/(\w+)  (.*)$", run("demo").stdout, re.MULTILINE))
    assert set(said) == {path.name for path in Path("demo").iterdir()}
    logs = {name: kts.open_log_dirs(f"demo/{name}") for name in said}
    records = {
        name: sum(log.log_end_offset - log.log_start_offset for log in found.values()) for name, found in logs.items()
    }
    assert {name: len(found) for name, found in logs.items()} == {"orders": 3, "clicks": 1, "legacy": 1, "groups": 1}
    assert said["orders"] == f"3 partitions, {records['orders']:,} records, one of them from the year 2036"
    times = kts.scan("demo/orders", columns=["timestamp"]).read_all()["timestamp"].to_pylist()
    assert [time.year for time in times if time.year > 2027] == [2036]
    assert said["clicks"] == f"1 partition, {records['clicks']:,} records, compressed with zstd"
    assert said["legacy"] == f"1 partition, {records['legacy']:,} messages of magic 1"
    rows = [kts.scan_batches(path.read_bytes()).to_pylist() for path in sorted(Path("demo").glob("[cl]*/*/*.log"))]
    assert {row["codec"] for of_log in rows[:2] for row in of_log} == {4}  # zstd
    assert {row["magic"] for of_log in rows[2:] for row in of_log} == {1}
    committed = kts.committed_offsets(["demo/orders", "demo/clicks", "demo/legacy", "demo/groups"])
    assert said["groups"] == f"the committed offsets of {len(set(committed['group'].to_pylist()))} groups"
    assert all(lag is not None and lag >= 0 for lag in committed["lag"].to_pylist())
    assert f"{sum(records[name] for name in ('orders', 'clicks', 'legacy')):,} records" in run("demo", "more").stdout


def test_what_it_says_to_type_next_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lines = run("demo", "of mine").stdout.partition("Next:\n")[2].splitlines()
    assert len(lines) == 3
    for line in lines:
        words = shlex.split(line)
        last = [str(path) for path in sorted(Path("of mine").iterdir())] if words[-1] == "of mine/*" else words[-1:]
        assert words[0] == "kts"
        assert run(*words[1:-1], *last).stdout


def test_it_overwrites_nothing(tmp_path: Path) -> None:
    full, file, link = tmp_path / "full", tmp_path / "file", tmp_path / "link"
    full.mkdir()
    (full / "mine").write_text("mine")
    file.write_text("mine")
    link.symlink_to(tmp_path / "nowhere")
    for place in (full, file, link):
        said = run("demo", place, code=2).stderr
        assert "expected no such file, or an empty directory" in said and f"found {place}" in said
    assert sorted(tmp_path.rglob("*")) == sorted([full, full / "mine", file, link])
    assert file.read_text() == (full / "mine").read_text() == "mine"
    (tmp_path / "empty").mkdir()
    run("demo", tmp_path / "empty")
    assert (tmp_path / "empty/orders/orders-0").is_dir()


def test_it_writes_all_or_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cut = tmp_path / "cut.tar.gz"
    cut.write_bytes(PACKED.read_bytes()[: PACKED.stat().st_size // 2])
    monkeypatch.setattr(demo, "PACKED", str(cut))
    with pytest.raises(EOFError):
        demo.write_demo(str(tmp_path / "it"))
    assert list(tmp_path.iterdir()) == [cut]


def test_a_bucket_is_refused(tmp_path: Path) -> None:
    assert "s3://" in run("demo", "s3://bucket/demo", code=3).stderr


def test_python_m_kts_is_the_command(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-m", "kts", "--version"], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout == f"kts {kts.__version__}\n"
