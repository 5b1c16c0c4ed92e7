"""The commands that read take the tiered storage of a path, or read it alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.tiered import Session, session

from kts.cli import main


def run(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(main, [*arguments])
    return done.exit_code, done.output


def remote(one: Session) -> list[str]:
    keys = [part for key_id, path in one.keys.items() for part in ("--remote-key", f"{key_id}={path}")]
    return ["--remote", one.remote, *keys]


def test_dump_gives_the_records_of_both_tiers_or_of_the_store_alone() -> None:
    one = session("aiven-zstd-encrypted")
    expected = [row.offset for row in one.expected("txn-0")]
    code, said = run("dump", str(one.data / "txn-0"), "--format", "jsonl", *remote(one))
    assert code == 0 and [json.loads(line)["offset"] for line in said.splitlines()] == expected
    code, said = run("dump", "--format", "jsonl", "--topic", "txn", *remote(one))
    found = [json.loads(line)["offset"] for line in said.splitlines()]
    assert code == 0 and found == expected[: len(found)] and len(found) > 300


@pytest.mark.parametrize(
    "command",
    [
        ["ls", "--json"],
        ["ls", "--segments", "--json"],
        ["batches", "--json"],
        ["stats", "--json"],
        ["offset-for", "--time", "2018-04-27T07:10", "--explain", "--json"],
        ["retention", "--now", "2027-01-01", "--json"],
        ["study", "--json"],
    ],
    ids=lambda command: " ".join(command[:2]),
)
def test_a_command_reads_both_tiers(command: list[str]) -> None:
    one = session("aiven-zstd-encrypted")
    code, said = run(command[0], str(one.data / "txn-0"), *command[1:], *remote(one))
    assert code == 0, said
    lines = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    if command[0] == "ls" and len(command) == 2:
        facts = one.facts("txn-0")
        assert (lines[0]["logStartOffset"], lines[0]["logEndOffset"]) == (facts["beginningOffset"], facts["endOffset"])
        assert lines[0]["segments"] == len(one.log("txn-0").segments)
    if command[0] == "batches":
        assert lines[0]["baseOffset"] == 0


def test_verify_and_plot(tmp_path: Path) -> None:
    one = session("aiven-zstd-encrypted")
    code, said = run("verify", str(one.data), "--deep", *remote(one))
    assert code == 0 and said.startswith("OK: ")
    copy = one.copy(tmp_path)
    path = sorted(copy.store.rglob("*.rsm-manifest"))[0]
    path.write_bytes(path.read_bytes().replace(b'"version":"1"', b'"version":"9"'))
    code, said = run("verify", str(copy.data), *remote(copy))
    assert code == 1 and f"{path}: manifest: the manifest {path} is damaged: version: expected 1, found '9'" in said
    assert run("plot", str(one.data / "txn-0"), "-o", str(tmp_path / "a.svg"), *remote(one))[0] == 0


def test_wrong_use_is_told() -> None:
    one = session("aiven-plain")
    assert "Missing argument 'PATH...'" in run("ls")[1]
    code, said = run("ls", str(one.data), "--remote-layout", "aiven")
    assert code == 2 and "--remote-layout: give --remote URI as well" in said
    code, said = run("ls", str(one.data), "--remote", one.remote, "--remote-key", "k1")
    assert code == 2 and "expected ID=FILE, found 'k1'" in said
    code, said = run("ls", str(one.data), "--remote", f"{one.path}/no/where")
    assert code == 2 and f"{one.path}/no/where: no tiered storage lies there" in said
    code, said = run("ls", "--remote", one.remote, "--remote-metadata", str(one.store))
    assert code == 2 and "there is no __remote_log_metadata-N in it" in said
