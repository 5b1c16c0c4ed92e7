"""The page of JSON fields names every field that a command prints with ``--json``, and no other."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from support.broker.served import serve
from support.clusters import cluster_of
from support.coordinators import GROUPS
from support.processes.cli_runs import lines, run

import kts
from kts.cli.demo import write_demo
from kts.cluster_records.layout import write_record
from kts.tables import sync
from kts.testing import KtsBroker

pytestmark = pytest.mark.slow  # twenty commands: a program that reads their output breaks with each name that changes

PAGE = Path(__file__).parents[2] / "docs/reference/json.md"
OF_RECORDS = {"key", "value", "headers"}  # and other columns that are asked for: the page of Python has them
COMMANDS = {
    "append": [["append", "new/legacy-0", "--create", "-i", "rows.jsonl"]],
    "batches": [["batches", "demo/legacy"], ["batches", "demo/orders"]],
    "clean": [["clean", "demo/clicks", "--dry-run"]],
    "cluster": [["cluster", str(cluster_of("4.3.1"))], ["cluster", "tokens"]],
    "convert": [
        ["convert", "demo/legacy", "--to-magic", "2", "--out", "converted"],
        ["convert", "demo/legacy", "--plan"],
    ],
    "copy": [["copy", "demo/orders", "copied"]],
    "dump": [["dump", "demo/orders", "--limit", "5"]],
    "groups": [["groups", str(GROUPS), *rest] for rest in ([], ["--state"], ["--members"])],
    "ls": [["ls", "demo/orders"], ["ls", "demo/legacy", "--segments"]],
    "offset-for": [
        ["offset-for", "demo/orders/orders-0", "--time", "2026-09-08", *rest] for rest in ([], ["--explain"])
    ],
    "plot": [["plot", "demo/orders", "-o", "orders.svg"]],
    "reindex": [["reindex", "demo/clicks"]],
    "retention": [["retention", "demo/orders", "--retention-ms", "7d"]],
    "stats": [["stats", "demo/orders", "--by", "1d"], ["stats", "demo/orders", "--per", "topic"]],
    "study": [["study", "--partitions", "1", "--index-messages", "500", "--duration", "3d"]],
    "study DIR": [["study", "demo/orders"]],
    "sync": [["sync", "demo/orders", "table"]],
    "tables": [
        ["tables", action, "lake.db.orders", "--catalog", "lake.sqlite", *rest]
        for action, *rest in (["check"], ["compact", "--dry-run"], ["expire"], ["orphans"])
    ],
    "truncate": [["truncate", "demo/clicks/clicks-0", "--to-offset", "1000"]],
}


def documented() -> dict[str, set[str]]:
    """The fields of each command."""
    found = dict[str, set[str]]()
    for field, meaning, commands in re.findall(r"^\| `(\w+)` \| (.+) \| ([\w, -]+) \|$", PAGE.read_text("utf-8"), re.M):
        assert meaning.strip()
        for command in commands.split(", "):
            found.setdefault(command, set()).add(field)
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fields")
    write_demo(str(folder / "demo"))
    with kts.Log(folder / "tokens/__cluster_metadata-0") as log:  # no broker of the tests has any
        log.append_rows([{"timestamp": 1, "value": write_record("DelegationToken", 0, {"tokenId": "t"})}])
    sync(folder / "demo/orders", "lake.db.orders", catalog=folder / "lake.sqlite")
    (folder / "rows.jsonl").write_text('{"timestamp":1788300000000,"value":"aGk="}\n', encoding="utf-8")
    return folder


def test_the_page_is_about_these_commands() -> None:
    assert documented().keys() == {*COMMANDS, "verify", "doctor", "serve", "follow"}


@pytest.mark.parametrize("name", COMMANDS)
def test_the_fields_of_a_command(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    found = [row for command in COMMANDS[name] for row in lines(*command, "--json")]
    assert {field for row in found for field in row} - OF_RECORDS == documented()[name]


def test_the_fields_of_verify(tmp_path: Path) -> None:
    write_demo(str(tmp_path))
    (tmp_path / "clicks/clicks-0" / f"{0:020}.timeindex").unlink()
    rows = lines("verify", tmp_path / "clicks", "--json", code=1)
    assert {field for row in rows for field in row} == documented()["verify"]


def test_the_fields_of_doctor(folder: Path) -> None:
    rows = lines("doctor", folder / "demo/orders", "--json", code=1)
    assert {field for row in rows for field in row} == documented()["doctor"]


def test_the_fields_of_serve_and_follow(tmp_path: Path) -> None:
    with serve(tmp_path / "data", {}, "--json") as broker:
        said: dict[str, Any] = json.loads(broker.line)
        assert set(said) == documented()["serve"]
    with KtsBroker() as leader:
        leader.produce("orders", b"paid")
        command = ["follow", "--bootstrap-server", leader.bootstrap_servers, "--topic", "orders", "--once"]
        rows = [json.loads(line) for line in run(*command, "--json", tmp_path / "copy").stdout.splitlines()]
    assert rows and {field for row in rows for field in row} == documented()["follow"]
    assert kts.open_partition(tmp_path / "copy/orders-0").log_end_offset == 1
