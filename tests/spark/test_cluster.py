"""A real standalone cluster with a packed environment: what its executors read and do, and what they say they lack."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.golden import golden, scaled
from support.kafka.jvm import spark_environ
from support.sets.copies import same_files
from support.spark.applications import SETTINGS
from support.spark.standalone import packed_environment, standalone
from support.tables import folder_files, query

ORDERS = golden("demo", "orders")


# A minute of a cluster is for `make test-all`; executors in processes of their own, see test_stream_kills.py.
@pytest.fixture(scope="module", params=["standalone"][: scaled(0, 1)])
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """One run of the application; a cluster, and the archive of an environment, take seconds to make."""
    environ = os.environ | spark_environ() | {"PYSPARK_PYTHON": "./env/bin/python"}
    work = tmp_path_factory.mktemp("cluster")
    logs = work / "logs"
    for name in ORDERS.partitions:
        shutil.copytree(ORDERS.partition_dir(name), logs / name)
    archive = work / "env.tar.gz"
    packed_environment(archive)
    (work / "env").symlink_to(sys.prefix)  # of the driver, which plans
    with standalone(work) as master:
        job = Path(__file__).with_name("cluster_job.py")
        command = [sys.executable, str(job), json.dumps(SETTINGS), master, str(archive), str(logs), str(work)]
        done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False, cwd=work, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found | {"work": work}


def test_two_executors_read_all_records_with_the_packed_environment(seen: dict[str, Any]) -> None:
    expected = [
        ["orders", int(name[-1]), row.offset, row.timestamp]
        for name in ORDERS.partitions
        for row in ORDERS.expected(name)
    ]
    assert seen["rows"] == sorted(expected)
    assert seen["executors"] == 2
    workers = [re.fullmatch(r".*/(worker-\d)/app-[-\d]+/\d/env/bin/python", path) for path in seen["pythons"]]
    assert [found and found[1] for found in workers] == ["worker-0", "worker-1"], seen["pythons"]


def test_commands_on_the_cluster_report_and_write_what_they_do_here(seen: dict[str, Any]) -> None:
    assert len(seen["commands"]) == 5
    for command, here, there in seen["commands"]:
        assert there == here, command
        assert here[2] == 0 and here[0].count("\n") > 5 or command.startswith("verify"), command
    for number in (3, 4):
        assert same_files(*(seen["work"] / f"{number}-{where}" for where in ("here", "there"))) > 10


def test_two_executors_write_a_parquet_folder(seen: dict[str, Any]) -> None:
    assert seen["added"] == [len(seen["rows"]), 0]
    columns = 'topic, partition, "offset", timestampMs'
    found = query(folder_files(seen["work"] / "table"), f"SELECT {columns} FROM rows ORDER BY ALL")
    assert [[*row] for row in found] == seen["rows"]


def test_an_executor_without_the_wheel_says_so(seen: dict[str, Any]) -> None:
    assert "cannot import kts: No module named 'kts'" in seen["without_kts"]
    assert "Install the wheel" in seen["without_kts"]
    stdout, stderr, code = seen["verify_without_kts"]
    assert (stdout, code) == ("", 3)
    assert stderr.count("\n") == 1 and "cannot import kts: No module named 'kts'. Install the wheel" in stderr


def test_an_executor_that_does_not_see_the_path_says_so(seen: dict[str, Any]) -> None:
    assert "LogStorageError: the executor on" in seen["unseen_path"]
    assert "does not see" in seen["unseen_path"]
    assert "orders-" in seen["unseen_path"]
    assert "shared mount" in seen["unseen_path"]
    assert seen["after"] == len(seen["rows"])
