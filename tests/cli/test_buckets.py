"""The commands that read give for a bucket what they give for the same files on a disk."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from support import TESTS
from support.buckets.s3 import TestBucket

from kts.cli import main

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
]


def run(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(main, [*arguments])
    return done.exit_code, done.output


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_a_command_says_of_a_bucket_what_it_says_of_a_disk(bucket: TestBucket, command: list[str]) -> None:
    name = "coordinators/4.3.1" if command[0] == "groups" else "golden/demo/clicks"
    there = bucket.put_folder(TESTS / "data" / name, "logs")
    bucket.forget()
    here = str(TESTS / "data" / name)
    expected, found = run(command[0], here, *command[1:]), run(command[0], there, *command[1:])
    assert expected[0] == found[0] == 0, found[1]
    assert found[1].replace(there, here).splitlines() == expected[1].splitlines()


def test_plots_patterns_recursion_and_options(
    bucket: TestBucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = bucket.put_folder(DEMO, "demo")
    bucket.forget()
    assert run("plot", f"{there}/clicks/clicks-0", "-o", str(tmp_path / "a.svg"))[0] == 0
    assert "clicks-0" in (tmp_path / "a.svg").read_text()
    for paths in ([f"{there}/*"], ["-r", there], ["-r", f"file://{DEMO}"]):
        code, said = run("ls", "--json", *paths)
        assert code == 0 and {json.loads(line)["topic"] for line in said.splitlines()} == {"clicks", "orders", "legacy"}
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    options = json.dumps({"endpoint_override": bucket.proxy.endpoint})
    assert run("verify", f"{there}/clicks", "--storage-options", options) == (0, run("verify", str(DEMO / "clicks"))[1])
    code, said = run("ls", there, "--storage-options", "region")
    assert code == 2 and 'expected a JSON object such as {"region": "eu-west-1"}, found region' in said


def test_what_is_not_there_and_what_writes_are_told(bucket: TestBucket) -> None:
    code, said = run("ls", f"{bucket.address}/none")
    assert code == 2 and f"{bucket.address}/none: no such file or directory" in said
    there = bucket.put_folder(DEMO / "clicks/clicks-0", "clicks-0")
    for command in (
        ["truncate", there, "--to-offset", "3", "--in-place"],
        ["append", there],
        ["reindex", there, "--in-place"],
    ):
        code, said = run(*command)
        assert code != 0 and "a bucket is only read" in said, said
    code, said = run("ls", "ftp://host/logs")
    assert code != 0 and "ftp:// is not supported yet" in said
