"""``kts verify``: nothing is wrong with what Kafka wrote, and each kind of damage is named."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from support.golden import Golden, golden, goldens
from support.processes.cli_runs import lines, run

ORDERS = golden("demo", "orders")


@pytest.mark.parametrize("scenario", goldens(), ids=str)
def test_verify_finds_nothing_wrong_with_what_kafka_wrote(scenario: Golden) -> None:
    assert run("verify", "--deep", scenario.log_dir).stdout.startswith("OK: ")


def damage(scenario: Golden, kind: str) -> None:
    log = scenario.logs("clicks-0")[0]
    data = bytearray(log.read_bytes())
    if kind == "crc":
        data[100] ^= 1
        log.write_bytes(data)
    elif kind == "time index":
        index = log.with_suffix(".timeindex")
        entries = bytearray(index.read_bytes())
        entries[7] ^= 1
        index.write_bytes(entries)
    elif kind == "offset index":
        index = log.with_suffix(".index")
        entries = bytearray(index.read_bytes())
        entries[7] ^= 1
        index.write_bytes(entries)
    elif kind == "missing index":
        log.with_suffix(".index").unlink()
    elif kind == "checkpoint":
        (scenario.log_dir / "replication-offset-checkpoint").write_text("rubbish\n")


@pytest.mark.parametrize("kind", ["crc", "time index", "offset index", "missing index", "checkpoint"])
def test_verify_names_each_kind_of_damage_and_exits_with_1(kind: str, writable: Callable[[Golden], Golden]) -> None:
    scenario = writable(golden("demo", "clicks"))
    damage(scenario, kind)
    result = run("verify", scenario.log_dir, code=1)
    assert "OK" not in result.stdout and str(scenario.log_dir) in result.stdout
    rows = lines("verify", scenario.log_dir, "--json", code=1)
    assert rows[-1]["ok"] is False and rows[-1]["violations"] == len(rows) - 1 == len(result.stdout.splitlines())
    assert set(rows[0]) == {"path", "position", "offset", "kind", "message"}


@pytest.mark.parametrize("kinds", [("crc",), ("time index", "offset index", "missing index"), ("crc", "checkpoint")])
def test_what_it_says_to_type_next_mends_what_it_found(
    kinds: tuple[str, ...], writable: Callable[[Golden], Golden], tmp_path: Path
) -> None:
    scenario = writable(golden("demo", "clicks"))
    for kind in kinds:
        damage(scenario, kind)
    said = run("verify", scenario.log_dir, code=1).stderr
    steps = lines("verify", scenario.log_dir, "--json", code=1)[-1]["next"]
    assert len(steps) == 1 and f"next: {steps[0]}" in said.splitlines()
    copied = steps[0].startswith("kts copy")
    assert copied == ("crc" in kinds)
    run(*shlex.split(steps[0].replace("DST", str(tmp_path / "DST")))[1:], code=1 if copied else 0)
    assert run("verify", "--deep", tmp_path / "DST" if copied else scenario.log_dir).stdout.startswith("OK: ")
