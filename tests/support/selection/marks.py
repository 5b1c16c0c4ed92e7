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

What lies in `tests/meta` has the mark `meta`: it is about the tests and their helpers.
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
    more = found
    while more:
        more = {name for node in top for name in defined(node) if used(node) & found} - found
        found |= more
    return frozenset(found)


def reached(mark: str, node: ast.Import | ast.ImportFrom, path: Path) -> set[str]:
    """The names that lead to a mark's names among those that an import brings."""
    module = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
    found: set[str] = set()
    for alias in node.names:
        whole, part_of = file_of(module + alias.name), file_of(module[:-1])
        if whole is not None and whole != path and leading(mark, whole):
            found.add(alias.asname or alias.name)
        if part_of is not None and part_of != path and alias.name in leading(mark, part_of):
            found.add(alias.asname or alias.name)
    return found


@functools.cache
def file_of(module: str) -> Path | None:
    """The file of a module of the tests."""
    path = TESTS / f"{module.replace('.', '/')}.py"
    return path if path.exists() else None


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
    """The names in a statement, with the arguments of a function: they may be fixtures.

    `ast.walk` takes four times as long, seconds of each start of the tests."""
    names: set[str] = set()
    waiting: list[ast.AST] = [node]
    while waiting:
        part = waiting.pop()
        if isinstance(part, ast.Name):
            names.add(part.id)
            continue
        if isinstance(part, ast.arg):
            names.add(part.arg)
        for field in part._fields:
            inside = getattr(part, field, None)
            if isinstance(inside, list):
                waiting += [each for each in inside if isinstance(each, ast.AST)]
            elif isinstance(inside, ast.AST) and field != "ctx":
                waiting.append(inside)
    return frozenset(names)


def is_carried(value: object) -> bool:
    """Whether a case's argument is a scenario of `tests/data`, or lies in one."""
    golden = _root() / "golden"
    path = value.path if isinstance(value, Golden) else golden / value if isinstance(value, Path | str) else golden
    return path != golden and _is_carried(path)


@functools.cache
def _root() -> Path:
    return data_root()


@functools.cache
def _is_carried(path: Path) -> bool:
    return path.is_relative_to(_root() / "golden") and (CARRIED / path.relative_to(_root())).exists()


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
    if item.path.is_relative_to(TESTS / "meta"):
        found.add("meta")
    return found
