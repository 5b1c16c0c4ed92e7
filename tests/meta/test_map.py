"""The map of the tests is whole: every helper stands in it with its own first line, and what it names is there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from support import ROOT, TESTS

MAP = (TESTS / "README.md").read_text(encoding="utf-8")
SUPPORT = TESTS / "support"


def first_line(path: Path) -> str:
    said = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return " ".join(said.partition("\n\n")[0].split())


def test_every_helper_is_listed_with_its_first_line() -> None:
    found = {path: first_line(path) for path in sorted(SUPPORT.rglob("*.py")) if path.name != "__init__.py"}
    assert all(found.values())
    lines = [f"- `{path.relative_to(SUPPORT)}`: {said}" for path, said in found.items()]
    assert MAP.partition("## Every helper")[2].strip().splitlines()[2:] == lines


def test_what_the_map_names_is_there() -> None:
    named = re.findall(r"`([a-z_*]+(?:/[a-z_*]+)*(?:\.py|/))`", MAP)
    assert len(named) > 100
    for name in named:
        assert any(place for top in (SUPPORT, TESTS, ROOT) for place in top.glob(name.rstrip("/"))), name


def test_every_test_that_a_page_names_is_there() -> None:
    pages = [*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md"), TESTS / "data/README.md"]
    found = {name for page in pages for name in re.findall(r"\btests/[\w/]+\.py\b", page.read_text(encoding="utf-8"))}
    assert len(found) > 50
    assert [name for name in sorted(found) if not (ROOT / name).exists()] == []
