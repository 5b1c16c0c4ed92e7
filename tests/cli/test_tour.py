"""The tour that `make run` starts."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.golden import data_root, scaled
from support.kafka import jvm
from tour import missing_for_spark

pytestmark = pytest.mark.slow

TOUR = Path(__file__).parent.parent.parent / "examples" / "tour.py"
DEMO = data_root() / "golden" / "demo"


def tour(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(TOUR), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ | environment, timeout=300)


def check(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stdout + done.stderr
    for number in range(1, 8):
        assert f"== {number}. " in done.stdout
    assert "2026-09-08 13:00    63  " in done.stdout
    assert "offset 1,375, its own time is 2036-09-04T10:20:21.245Z" in done.stdout
    assert re.search(r"A broker serves a copy of \S+ on 127\.0\.0\.1:\d+\.", done.stdout)
    assert '1375  2036-09-04 10:20:21  b\'{"order_id":504000' in done.stdout
    last = done.stdout.split("Three commands to try next:")[1].splitlines()
    assert [word in line for word, line in zip(("dump", "stats", "verify"), last[1:4], strict=True)] == [True] * 3


def test_without_java_the_same_job_runs_in_process_and_says_so(tmp_path: Path) -> None:
    done = tour(DEMO, PATH=str(tmp_path), JAVA_HOME="")
    check(done)
    assert "Spark cannot run here: no java was found; get a JDK 17 with: sudo apt install" in done.stdout


def test_an_old_java_is_named_with_the_one_that_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = tmp_path / "java"
    old.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    old.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", "")
    told = missing_for_spark()
    assert told is not None and "needs Java 17 or newer" in told and 'version "11.0.2"' in told
    assert "get one with: sudo apt install" in told


@pytest.mark.parametrize("data", [DEMO][: scaled(0, 1)])  # a session of Spark of its own
def test_with_spark_the_counts_come_from_there(data: Path) -> None:
    done = tour(data, **jvm.spark_environ())
    check(done)
    assert "679 records; kts.scan counts the same in this process." in done.stdout


def test_without_data_it_fails_and_says_what_to_do(tmp_path: Path) -> None:
    done = tour(tmp_path)
    assert done.returncode == 1 and "no Kafka data" in done.stderr and "next: " in done.stderr
