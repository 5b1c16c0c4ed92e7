"""What steers a terminal never reaches one; in files and pipes bytes stay bytes. CSV that a spreadsheet may open."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import sys
import unicodedata
from pathlib import Path

import pyarrow as pa
import pytest
from support.processes.cli_runs import on_a_terminal, process, run

import kts
from kts.cli.output import harmless

pytestmark = pytest.mark.slow

CATEGORIES = {"Cc", "Cf", "Cs", "Zl", "Zp"}  # of Unicode: control, format, half a surrogate pair, separators of lines
STEERING = [char for char in map(chr, range(sys.maxunicode + 1)) if unicodedata.category(char) in CATEGORIES]
EVIL = "a" + "".join(char for char in STEERING if not 0xD800 <= ord(char) < 0xE000) + "z"  # what UTF-8 can hold
SOME = "a\x1b\x7f\x9b\n\r\u061c\u200f\u2028\u202e\u2066\U000e0041z"  # fits a file's name
ALLOWED = {"\n", "\r"}  # ours: the lines, which a terminal's driver ends with both


def attack(folder: Path) -> Path:
    """A segment whose directory, key, value and header have every character that steers a terminal."""
    header = pa.array(
        [[{"key": EVIL, "value": EVIL.encode()}]], pa.list_(pa.struct([("key", "string"), ("value", "binary")]))
    )
    row = pa.table({"key": pa.array([EVIL.encode()]), "value": pa.array([EVIL.encode()]), "headers": header})
    made = folder / SOME
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


def test_what_steers_is_spelled_out_and_nothing_else() -> None:
    plain = "Käse \u05d0\u05d1 \U0001f600 \u00a0\u3000\u0301\ue000 x\ny"
    assert harmless(plain) == plain
    assert harmless(plain, one_line=True) == plain.replace("\n", "\\u000a")
    spelled = harmless(EVIL)
    assert not steers(spelled) and json.loads('"' + spelled.replace("\n", "\\n") + '"') == EVIL
    assert len(STEERING) > 2_000, "all of them, half surrogates too"
    for char in STEERING:
        shown = harmless(char, one_line=True)
        assert shown.isascii() and shown.isprintable() and json.loads(f'"{shown}"') == char


def test_a_name_with_line_breaks_stays_on_its_line_of_a_terminal(tmp_path: Path) -> None:
    """Else a file's name could print a line of its own, as "OK: 1 partition"."""
    path = tmp_path / "a\nOK: 1 partition\n.log"
    path.write_bytes(bytes(kts.encode({"value": [b"v"]}))[:-1] + b"\7")
    for arguments in (["verify", path], ["dump", path], ["dump", "--on-error", "skip", path], ["ls", path]):
        shown, _ = on_a_terminal(*arguments, term="dumb")
        assert not any(line.startswith("OK") for line in shown.splitlines()), shown


def test_bytes_of_a_name_that_are_no_text_reach_no_terminal(tmp_path: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\x9b2J\xff.log"))
    path.write_bytes(bytes(kts.encode({"value": [b"v"]}))[:-1] + b"\7")
    shown, _ = on_a_terminal("verify", path, term="dumb")
    assert "\\udc9b2J\\udcff.log" in shown, shown
