"""The commands that read take the tiered storage of a path, or read it alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support import tiered
from support.processes.cli_runs import lines, run
from support.tiered import Session, session

from kts.offline.copy import copy

NAMES = ["aiven-zstd-encrypted", "local-4"]  # of brokers 3.9.2 and 4.3.1


def remote(one: Session) -> list[str]:
    keys = [part for key_id, path in one.keys.items() for part in ("--remote-key", f"{key_id}={path}")]
    return ["--remote", one.remote, *keys]


@pytest.mark.parametrize("name", NAMES)
def test_dump_gives_the_records_of_both_tiers_or_of_the_store_alone(name: str) -> None:
    one = session(name)
    expected = [row.offset for row in one.expected("txn-0")]
    dumped = lines("dump", one.data / "txn-0", "--format", "jsonl", *remote(one))
    assert [line["offset"] for line in dumped] == expected
    found = [line["offset"] for line in lines("dump", "--format", "jsonl", "--topic", "txn", *remote(one))]
    assert found == expected[: len(found)] and len(found) > 250


@pytest.fixture(scope="module", params=NAMES)
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Session, Path]:
    """A session, and both tiers of a topic of it as one log on the disk."""
    one, target = session(request.param), tmp_path_factory.mktemp("whole")
    copy(one.data, target, topics=["txn"], remote=one.remote, remote_options=one.options)
    return one, target / "txn-0"


def without_paths(told: Any) -> Any:
    """What JSON says, but where files lie."""
    if isinstance(told, dict):
        return {name: without_paths(one) for name, one in told.items() if not str(one).endswith((".log", "txn-0"))}
    return [without_paths(one) for one in told] if isinstance(told, list) else told


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
def test_a_command_says_of_both_tiers_what_it_says_of_one_log(command: list[str], both: tuple[Session, Path]) -> None:
    one, whole = both
    expected = without_paths(lines(command[0], whole, *command[1:]))
    found = without_paths(lines(command[0], one.data / "txn-0", *command[1:], *remote(one)))
    assert found == expected and found


@pytest.mark.slow
@pytest.mark.parametrize("name", tiered.names())
def test_verify_finds_nothing_in_what_brokers_left(name: str) -> None:
    one = session(name)
    assert run("verify", one.data, "--deep", *remote(one)).output.startswith("OK: ")


@pytest.mark.slow
def test_verify_and_plot(tmp_path: Path) -> None:
    one = session("aiven-zstd-encrypted")
    copied = one.copy(tmp_path)
    path = sorted(copied.store.rglob("*.rsm-manifest"))[0]
    path.write_bytes(path.read_bytes().replace(b'"version":"1"', b'"version":"9"'))
    said = run("verify", copied.data, *remote(copied), code=1).output
    assert f"{path}: manifest: the manifest {path} is damaged: version: expected 1, found '9'" in said
    run("plot", one.data / "txn-0", "-o", tmp_path / "a.svg", *remote(one))
    assert "txn-0" in (tmp_path / "a.svg").read_text()


def test_wrong_use_is_told() -> None:
    one = session("aiven-plain")
    for arguments, expected in (
        ([], "Missing argument 'PATH...'"),
        ([one.data, "--remote-layout", "aiven"], "--remote-layout: give --remote URI as well"),
        ([one.data, "--remote", one.remote, "--remote-key", "k1"], "expected ID=FILE, found 'k1'"),
        ([one.data, "--remote", f"{one.path}/no/where"], f"{one.path}/no/where: there is no tiered storage"),
        (["--remote", one.path], f"{one.path}: the tiered storage has no partitions; a prefix of its keys"),
        (["--remote", one.remote, "--remote-metadata", one.store], "there is no __remote_log_metadata-N in it"),
    ):
        assert expected in run("ls", *arguments, code=2).stderr
