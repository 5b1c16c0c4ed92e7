"""``--spark``: the work of a command on executors gives the report that this process gives."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from support.golden import Golden, golden
from support.processes.cli_runs import run
from support.sets.copies import same_files
from support.tiered import session

from kts.spark import planning

pytestmark = pytest.mark.usefixtures("spark")

MASTER = "local[2]"  # the session that runs already


@pytest.fixture(autouse=True)
def small_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task has so little room that partitions are cut between segments, and small ones share a task."""
    monkeypatch.setattr(planning, "TASK_BYTES", 100 << 10)
    monkeypatch.setattr(planning, "FILE_BYTES", 1 << 10)


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """A log directory with two topics."""
    folder = tmp_path / "logs"
    for source in (golden("demo", "orders"), golden("demo", "clicks")):
        for name in source.partitions:
            shutil.copytree(source.partition_dir(name), folder / name)
    return folder


def damage(folder: Path) -> None:
    """Damage two batches, an index and a checkpoint."""
    for name in ("clicks-0", "orders-1"):
        log = min((folder / name).glob("*.log"))
        log.write_bytes(log.read_bytes()[:-1] + b"!")
    min((folder / "orders-2").glob("*.timeindex")).unlink()
    (folder / "replication-offset-checkpoint").write_text("rubbish\n")


def told(*arguments: object, code: int = 0) -> tuple[str, str]:
    """What a command prints, on stdout and on stderr."""
    result: Result = run(*arguments, code=code)
    return result.stdout, result.stderr


COMMANDS: list[list[object]] = [
    ["verify"],
    ["verify", "--deep", "--json"],
    ["stats"],
    ["stats", "--by", "1d", "--per", "partition", "--json"],
    ["stats", "--timestamps", "--per", "topic"],
    ["reindex", "--json"],
    ["retention", "--now", "2026-09-20"],
    ["retention", "--now", "2026-09-20", "--json"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command))
def test_the_report_of_executors_is_that_of_this_process(command: list[object], logs: Path) -> None:
    assert told(*command, logs, "--spark", MASTER) == told(*command, logs)


CONVERT = ["convert", "--to-magic", "1", "--compression", "gzip", "--drop-headers"]
DAMAGED: list[tuple[int, list[object]]] = [
    (1, ["verify"]),
    (1, ["verify", "--json"]),
    (3, ["stats", "--timestamps"]),
    (1, ["reindex"]),
    (3, [*CONVERT, "--out", "converted"]),
]


@pytest.mark.parametrize(("code", "command"), DAMAGED, ids=lambda part: str(part))
def test_damage_gives_the_same_report_and_exit_code(
    code: int, command: list[object], logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a relative path, which executors do not have as theirs."""
    damage(logs)
    monkeypatch.chdir(logs.parent)
    here = told(*command, "logs", code=code)
    assert "logs/" in "".join(here)
    assert told(*command, "logs", "--spark", MASTER, code=code) == here
    assert not Path("converted").exists()


@pytest.mark.parametrize("command", [["reindex"], CONVERT], ids=lambda command: command[0])
def test_what_executors_write_is_what_this_process_writes(
    command: list[object], logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside the working directory of the driver, which is not that of the executors."""
    monkeypatch.chdir(tmp_path)
    here, there = Path("here"), Path("there")
    assert told(*command, logs, "--out", there, "--spark", MASTER) == told(*command, logs, "--out", here)
    assert same_files(here, there) > 20
    assert [path.name for path in there.iterdir() if path.name.endswith(".part")] == []
    for path in here.rglob("*.log"):
        copy = there / path.relative_to(here)
        assert os.stat(copy).st_mtime_ns == os.stat(path).st_mtime_ns


def test_segments_by_name_are_converted_as_here(logs: Path, tmp_path: Path) -> None:
    segment = min((logs / "orders-0").glob("*.log"))
    here, there = tmp_path / "here", tmp_path / "there"
    arguments = (*CONVERT, segment, "--out")
    assert told(*arguments, there, "--spark", MASTER) == told(*arguments, here)
    assert same_files(here, there) == 3


def test_a_damaged_partition_is_left_out_of_retention(logs: Path) -> None:
    clicks = min((logs / "clicks-0").glob("*.log"))
    clicks.write_bytes(b"\xff" * 100)
    clicks.with_suffix(".timeindex").unlink()
    here = told("retention", logs, "--now", "2026-09-20", code=3)
    assert "clicks-0 is left out" in here[1]
    assert told("retention", logs, "--now", "2026-09-20", "--spark", MASTER, code=3) == here


def test_tiered_storage_is_checked_by_executors() -> None:
    one = session("aiven-zstd-encrypted")
    keys = [part for key_id, path in one.keys.items() for part in ("--remote-key", f"{key_id}={path}")]
    for command in (["verify", one.data], ["verify"], ["stats", one.data / "txn-0"]):
        arguments = (*command, "--remote", one.remote, *keys)
        assert told(*arguments, "--spark", MASTER) == told(*arguments)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["verify", "--jobs", "2", "--spark", "yarn"], "leave out one"),
        (["reindex", "--in-place", "--spark", "yarn"], "write to --out"),
        (["verify", "--spark", "sc://localhost"], "expected a master such as"),
    ],
)
def test_what_cannot_be_spread_says_so(arguments: list[object], expected: str) -> None:
    assert re.search(expected, run(*arguments, golden("demo", "orders").log_dir, code=2).stderr)


def test_an_out_with_logs_of_its_own_is_refused(logs: Path, writable: Callable[[Golden], Golden]) -> None:
    other = writable(golden("demo", "orders")).log_dir
    assert "has logs of its own" in run("reindex", logs, "--out", other, "--spark", MASTER, code=2).stderr


def test_the_reason_of_spark_is_the_error_that_it_ends_with() -> None:
    from kts.spark.jobs import _reason

    said = (
        "An error occurred while calling z:org.apache.spark.api.python.PythonRDD.readRDDFromFile.\n"
        ": java.lang.IllegalStateException: Spark context stopped while waiting for backend\n\tat org.apache.spark\n"
    )
    assert _reason(Exception(said)) == "IllegalStateException: Spark context stopped while waiting for backend"
    worker = (
        ": org.apache.spark.SparkException: Job aborted\nTraceback\n  File x\nImportError: no kts\n\n\tat org.apache\n"
    )
    assert _reason(Exception(worker)) == "ImportError: no kts"
    assert _reason(Exception("[JAVA_GATEWAY_EXITED] Java gateway process exited.")).startswith("[JAVA_GATEWAY")
