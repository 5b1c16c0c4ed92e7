"""Marks that follow from what a test uses, so that a new test lands in the right tier by itself.

A test gets a mark if its text leads to one of the mark's names: directly, or through functions, fixtures, classes and
constants of its module, or through helper modules.

==========  ==========================  ==============================================================
mark        names                       meaning
==========  ==========================  ==============================================================
kafka_data  `golden.goldens`            reads every scenario; a larger KTS_KAFKA_DATA adds cases
scaled      `golden.scaled`             is longer with KTS_LENGTH=full
java        `jvm.require_java`          needs a JDK; skipped without one
crash       `faultfs.FaultyOs`,         crashes, or fails, at operations of the file system
            `crashdisk.Disk`
==========  ==========================  ==============================================================
"""

from __future__ import annotations

import ast
import functools
from pathlib import Path

import pytest
from support import TESTS
from support.golden import Golden, data_root

CARRIED = TESTS / "data"
LEADS_TO = {
    "kafka_data": {"support/golden.py": {"goldens", "golden_partitions", "golden_logs"}},
    "scaled": {"support/golden.py": {"scaled"}},
    "java": {"support/kafka/jvm.py": {"require_java"}},
    "crash": {"support/disk/faultfs.py": {"FaultyOs"}, "support/disk/crashdisk.py": {"Disk"}},
}


@functools.cache
def leading(mark: str, path: Path) -> frozenset[str]:
    """The names at the top of a module of the tests that lead to a mark's names."""
    found = set(LEADS_TO[mark].get(path.relative_to(TESTS).as_posix(), ()))
    top = parsed(path)
    for node in top:
        if isinstance(node, ast.Import | ast.ImportFrom):
            found |= reached(mark, node, path)
    while True:
        more = {name for node in top for name in defined(node) if used(node) & found} - found
        if not more:
            return frozenset(found)
        found |= more


def reached(mark: str, node: ast.Import | ast.ImportFrom, path: Path) -> set[str]:
    """The names that lead to a mark's names among those that an import brings."""
    module = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
    found: set[str] = set()
    for alias in node.names:
        whole, part_of = (TESTS / f"{name.replace('.', '/')}.py" for name in (module + alias.name, module[:-1]))
        if whole.exists() and whole != path and leading(mark, whole):
            found.add(alias.asname or alias.name)
        if module and part_of.exists() and part_of != path and alias.name in leading(mark, part_of):
            found.add(alias.asname or alias.name)
    return found


@functools.cache
def parsed(path: Path) -> list[ast.stmt]:
    return ast.parse(path.read_text(encoding="utf-8")).body


@functools.cache
def defined(node: ast.stmt) -> list[str]:
    """The names that a statement at the top of a module gives a value."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)]


@functools.cache
def used(node: ast.stmt) -> frozenset[str]:
    """The names in a statement, with the arguments of a function: they may be fixtures."""
    names = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
    return frozenset(names | {part.arg for part in ast.walk(node) if isinstance(part, ast.arg)})


def is_carried(value: object) -> bool:
    """Whether a case's argument is a scenario of `tests/data`, or lies in one."""
    golden = data_root() / "golden"
    path = value.path if isinstance(value, Golden) else golden / value if isinstance(value, Path | str) else golden
    if path == golden or not path.is_relative_to(golden):
        return False
    return (CARRIED / path.relative_to(data_root())).exists()


@functools.cache
def marks_at(path: str, name: str) -> frozenset[str]:
    """The marks to which a name at the top of a module leads."""
    if not path.startswith(f"{TESTS}/"):
        return frozenset()
    return frozenset(mark for mark in LEADS_TO if name in leading(mark, Path(path)))


@functools.cache
def marks_of_fixture(fixture: pytest.FixtureDef[object]) -> frozenset[str]:
    return marks_at(fixture.func.__code__.co_filename, fixture.argname)


def marks_of(item: pytest.Function) -> set[str]:
    """The marks that follow from a test's text and from the fixtures that it takes."""
    found = set(marks_at(str(item.path), item.cls.__name__ if item.cls else item.originalname))
    for fixtures in item._fixtureinfo.name2fixturedefs.values():
        found = found.union(*map(marks_of_fixture, fixtures))
    if "kafka_data" in found and hasattr(item, "callspec") and any(map(is_carried, item.callspec.params.values())):
        found.remove("kafka_data")
    return found
