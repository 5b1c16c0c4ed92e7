"""The commands that read give for a bucket what they give for the same files on a disk."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support import TESTS
from support.buckets.s3 import TestBucket
from support.processes.cli_runs import lines, run

pytestmark = pytest.mark.slow  # a real server
DEMO = TESTS / "data/golden/demo"
COMMANDS = [
    ["dump", "--format", "jsonl"],
    ["ls", "--json"],
    ["batches", "--json"],
    ["stats", "--json"],
    ["verify", "--deep"],
    ["offset-for", "--time", "2026-09-02", "--json"],
    ["retention", "--now", "2026-09-20", "--json"],
    ["groups", "--json"],
    ["cluster", "--as-of", "40", "--json"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_a_command_says_of_a_bucket_what_it_says_of_a_disk(bucket: TestBucket, command: list[str]) -> None:
    name = {"groups": "coordinators/4.3.1", "cluster": "cluster/4.3.1"}.get(command[0], "golden/demo/clicks")
    there = bucket.put_folder(TESTS / "data" / name, "logs")
    bucket.forget()
    here = str(TESTS / "data" / name)
    expected, found = (run(command[0], path, *command[1:]).output for path in (here, there))
    assert found.replace(there, here).splitlines() == expected.splitlines()


def test_plots_patterns_recursion_and_options(
    bucket: TestBucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = bucket.put_folder(DEMO, "demo")
    bucket.forget()
    run("plot", f"{there}/clicks/clicks-0", "-o", tmp_path / "a.svg")
    assert "clicks-0" in (tmp_path / "a.svg").read_text()
    for paths in ([f"{there}/*"], ["-r", there], ["-r", f"file://{DEMO}"]):
        assert {line["topic"] for line in lines("ls", "--json", *paths)} == {
            "__consumer_offsets",
            "clicks",
            "legacy",
            "orders",
        }
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    found = run("verify", f"{there}/clicks", "--storage-options", json.dumps(bucket.options)).output
    assert found == run("verify", DEMO / "clicks").output
    said = run("ls", there, "--storage-options", "region", code=2).stderr
    assert 'expected a JSON object such as {"region": "eu-west-1"}, found region' in said


def test_what_is_not_there_and_what_writes_are_told(bucket: TestBucket) -> None:
    said = run("ls", f"{bucket.address}/none", code=2).stderr
    assert f"{bucket.address}/none: no such file or directory" in said
    there = bucket.put_folder(DEMO / "clicks/clicks-0", "clicks-0")
    for command in (
        ["truncate", there, "--to-offset", "3", "--in-place"],
        ["append", there],
        ["reindex", there, "--in-place"],
    ):
        assert "needs a path of this machine" in run(*command, code=3).stderr
    assert "ftp:// is not supported;" in run("ls", "ftp://host/logs", code=3).stderr
