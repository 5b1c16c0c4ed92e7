"""``docs/statements.md``: each module and each test that the table of the papers' statements names is there."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import NamedTuple

import pytest
from support import ROOT
from support.golden import PATIENCE_S

PAGE = ROOT / "docs/statements.md"
RESULT = re.compile(r"Kafka\b|proposal\b")


class Row(NamedTuple):
    statement: str
    modules: list[str]
    tests: list[str]
    result: str


def rows() -> list[Row]:
    found = []
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = re.split(r"(?<!\\)\|", line.strip())[1:-1]
        if len(cells) == 4 and not line.startswith(("| statement |", "|---")):
            statement, code, tests, result = (cell.strip() for cell in cells)
            found.append(Row(statement, re.findall(r"`([^`]+)`", code), re.findall(r"`([^`]+)`", tests), result))
    return found


def test_each_statement_names_code_a_test_and_a_result() -> None:
    told = rows()
    assert len(told) > 150
    assert [row for row in told if not (row.statement and row.modules and row.tests)] == []
    assert [row for row in told if not RESULT.match(row.result)] == []


def test_each_module_that_a_statement_names_exists() -> None:
    named = {module for row in rows() for module in row.modules}
    assert sorted(module for module in named if not (ROOT / "kts" / module).exists()) == []


@pytest.mark.slow
def test_each_test_that_a_statement_names_is_collected() -> None:
    """By pytest itself, which ends with an error for a test that it does not find. Costs the import of their files."""
    named = sorted({test for row in rows() for test in row.tests})
    assert all(re.fullmatch(r"[\w/]+\.py::test_\w+", test) for test in named), named
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
    command += [f"tests/{test}" for test in named]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    collected = {line.removeprefix("tests/").partition("[")[0] for line in done.stdout.splitlines() if "::" in line}
    assert set(named) - collected == set()
