"""Which tests a larger collection of Kafka's data (KTS_KAFKA_DATA) adds something to: the mark `kafka_data`.

A test looks at every scenario if its text leads to `support.goldens`: by name, through functions, fixtures and
constants of its module, or through helper modules. A case that is one scenario counts only if `tests/data` does not
carry it too.
"""

from __future__ import annotations

import ast
import functools
from pathlib import Path

import pytest
from support import Golden, data_root

TESTS = Path(__file__).parent
CARRIED = TESTS / "data"
ALL_SCENARIOS = {"goldens", "golden_partitions", "golden_logs"}


@functools.cache
def looking(path: Path) -> frozenset[str]:
    """The names at the top of a module of the tests that lead to all scenarios."""
    if path == TESTS / "support.py":
        return frozenset(ALL_SCENARIOS)
    top = ast.parse(path.read_text(encoding="utf-8")).body
    found: set[str] = set()
    for node in top:
        if isinstance(node, ast.Import | ast.ImportFrom):
            found |= reached(node, path)
    while True:
        more = {name for node in top for name in defined(node) if used(node) & found} - found
        if not more:
            return frozenset(found)
        found |= more


def reached(node: ast.Import | ast.ImportFrom, path: Path) -> set[str]:
    """The names that lead to all scenarios among those that an import of a module brings."""
    module = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
    found: set[str] = set()
    for alias in node.names:
        whole, part_of = (TESTS / f"{name.replace('.', '/')}.py" for name in (module + alias.name, module[:-1]))
        if whole.exists() and whole != path and looking(whole):
            found.add(alias.asname or alias.name)
        if module and part_of.exists() and part_of != path and alias.name in looking(part_of):
            found.add(alias.asname or alias.name)
    return found


def defined(node: ast.stmt) -> list[str]:
    """The names that a statement at the top of a module gives a value."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)]


def used(node: ast.stmt) -> set[str]:
    """The names in a statement, the arguments of a function with them: fixtures."""
    names = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
    return names | {part.arg for part in ast.walk(node) if isinstance(part, ast.arg)}


def is_carried(value: object) -> bool:
    """Whether a case's argument is a scenario of `tests/data`, or lies in one."""
    golden = data_root() / "golden"
    path = value.path if isinstance(value, Golden) else golden / value if isinstance(value, Path | str) else golden
    if path == golden or not path.is_relative_to(golden):
        return False
    return (CARRIED / path.relative_to(data_root())).exists()


def adds_to(item: pytest.Function) -> bool:
    """Whether a larger collection adds something to a test."""
    given = item.callspec.params.values() if hasattr(item, "callspec") else ()
    return item.originalname in looking(item.path) and not any(map(is_carried, given))
