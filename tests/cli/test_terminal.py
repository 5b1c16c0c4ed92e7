"""What steers a terminal never reaches one; in files and pipes bytes stay bytes. CSV that a spreadsheet may open."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import pyarrow as pa
import pytest
from support.processes.cli_runs import on_a_terminal, process, run

import kts
from kts.cli.output import harmless

pytestmark = pytest.mark.slow

STEERING = [chr(code) for code in (*range(32), *range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A))]
EVIL = "a" + "".join(STEERING) + "z"
ALLOWED = {"\n", "\r"}  # ours: the lines, which a terminal's driver ends with both


def attack(folder: Path) -> Path:
    """A segment whose directory, key, value and header have every character that steers a terminal."""
    header = pa.array(
        [[{"key": EVIL, "value": EVIL.encode()}]], pa.list_(pa.struct([("key", "string"), ("value", "binary")]))
    )
    row = pa.table({"key": pa.array([EVIL.encode()]), "value": pa.array([EVIL.encode()]), "headers": header})
    made = folder / EVIL.replace("\0", "").replace("/", "")
    made.mkdir()
    path = made / "backup.log"
    path.write_bytes(bytes(kts.encode(row)))
    return path


def steers(shown: str) -> set[str]:
    return set(shown) & set(STEERING) - ALLOWED


@pytest.mark.parametrize("kind", ["table", "jsonl", "csv"])
def test_a_dump_of_hostile_records_leaves_a_terminal_alone(kind: str, tmp_path: Path) -> None:
    """Only a terminal shows what reaches it."""
    path = attack(tmp_path)
    utf8 = ["--keys", "utf8", "--values", "utf8"]
    shown, code = on_a_terminal("dump", path, "--format", kind, *utf8, term="dumb")
    assert code == 0 and not steers(shown), steers(shown)
    assert "\\u001b" in shown or "\\x1b" in shown, "what was there is told"
    if kind == "jsonl":
        assert json.loads(shown)["value"] == EVIL and json.loads(shown)["headers"][0][0] == EVIL
    raw = process("dump", path, "--format", "csv", *utf8).stdout
    assert EVIL.replace("\r", "\n") in raw.replace("\r", "\n"), "a pipe gets the bytes"


@pytest.mark.parametrize(
    "arguments",
    [["ls"], ["ls", "--segments", "--json"], ["stats", "--per", "topic"], ["verify"], ["batches", "--json"]],
)
def test_names_and_errors_leave_a_terminal_alone(arguments: list[str], tmp_path: Path) -> None:
    """As above, with a damaged file beside, so that errors and warnings are among it."""
    path = attack(tmp_path)
    damaged = path.with_name("damaged.log")
    damaged.write_bytes(path.read_bytes()[:-30] + b"\0" * 90)
    shown, _ = on_a_terminal(*arguments, path, damaged, path.with_name("missing\x1b[2J.log"), term="dumb")
    assert not steers(shown), steers(shown)
    shown, _ = on_a_terminal(*arguments, path, damaged, term="dumb")
    assert not steers(shown) and "\\u001b" in shown, shown


FORMULAS = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1"]
PLAIN = ["", "1=1", "a", "'=1", " =1", "x\n=1", None]


def test_disarmed_csv_has_no_cell_that_a_spreadsheet_runs(tmp_path: Path) -> None:
    values = [*FORMULAS, *PLAIN]
    cells = pa.array([None if value is None else value.encode() for value in values], pa.binary())
    (tmp_path / "-t-0").mkdir()
    (tmp_path / "-t-0" / f"{0:020d}.log").write_bytes(
        bytes(kts.encode(pa.table({"key": cells, "value": cells, "timestamp": pa.array([-1] * len(values))})))
    )
    utf8 = ["--keys", "utf8", "--values", "utf8", "--format", "csv", "--columns", "topic,key,value,timestamp"]
    out = tmp_path / "out.csv"
    run("dump", tmp_path / "-t-0", *utf8, "--disarm", "-o", out)
    rows = list(csv.reader(io.StringIO(out.read_bytes().decode(), newline="")))[1:]
    assert [row[2] for row in rows] == [f"'{value}" for value in FORMULAS] + [value or "" for value in PLAIN]
    for topic, key, value, timestamp in rows:
        assert not any(re.match(r"[=+\-@\t\r]", cell) for cell in (topic, key, value))
        assert (topic, timestamp, key) == ("'-t", "-1", value), "a number is no formula"
    run("dump", tmp_path / "-t-0", *utf8, "-o", out)
    rows = list(csv.reader(io.StringIO(out.read_bytes().decode(), newline="")))[1:]
    assert [row[2] for row in rows] == [value or "" for value in values], "not asked, not changed"
    refused = run("dump", tmp_path / "-t-0", "--format", "jsonl", "--disarm", code=2)
    assert "--disarm is for CSV" in refused.stderr


def test_only_what_steers_is_spelled_out() -> None:
    plain = "Käse \u200d\u05d0\u05d1 \U0001f600 x\ny"
    assert harmless(plain) == plain
    spelled = harmless(EVIL)
    assert not steers(spelled) and json.loads('"' + spelled.replace("\n", "\\n") + '"') == EVIL
