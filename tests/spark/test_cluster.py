"""Separate executor processes: what they read, and what they say when they lack the path or the wheel."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.golden import golden
from support.kafka.jvm import spark_environ

ORDERS = golden("demo", "orders")


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """One run of the application; a cluster takes seconds to start."""
    environ = os.environ | spark_environ()
    work = tmp_path_factory.mktemp("cluster")
    logs = work / "logs"
    for name in ORDERS.partitions:
        shutil.copytree(ORDERS.partition_dir(name), logs / name)
    command = [sys.executable, str(Path(__file__).with_name("cluster_job.py")), str(logs), str(work)]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False, cwd=work, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_two_executors_read_all_records(seen: dict[str, Any]) -> None:
    expected = [
        ["orders", int(name[-1]), row.offset, row.timestamp]
        for name in ORDERS.partitions
        for row in ORDERS.expected(name)
    ]
    assert seen["rows"] == sorted(expected)
    assert seen["executors"] == 2
    assert seen["folders"] >= 2


def test_an_executor_without_the_wheel_says_so(seen: dict[str, Any]) -> None:
    assert "cannot import kts: No module named 'kts'" in seen["without_kts"]
    assert "Install the wheel" in seen["without_kts"]


def test_an_executor_that_does_not_see_the_path_says_so(seen: dict[str, Any]) -> None:
    assert "LogStorageError: the executor on" in seen["unseen_path"]
    assert "does not see" in seen["unseen_path"]
    assert "orders-" in seen["unseen_path"]
    assert "shared mount" in seen["unseen_path"]
    assert seen["after"] == len(seen["rows"])
