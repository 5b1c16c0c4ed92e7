"""The rules of the house that no general linter knows."""

from __future__ import annotations

import ast
import graphlib
import inspect
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import kts

ROOT = Path(__file__).parent.parent
SINGLE = ["kts_command.py", "kts_pytest.py"]
FOLDERS = ["kts", "pyspark_kts"]
SOURCES = sorted(path for name in FOLDERS for path in (ROOT / name).rglob("*.py")) + [ROOT / name for name in SINGLE]
EXTENSIONS = sorted((ROOT / "kts").glob("*.pyx"))

# A module imports from lower floors and from its own room only. A room is one folder; its floor is a whole number.
ROOMS = [
    ["kts.errors", "kts.model", "kts.arguments", "kts.config", "kts.compression"],
    ["kts._codec", "kts._timeindex"],
    ["kts.codec"],
    ["kts.segment"],
    ["kts.dataset"],
    ["kts.proposals"],
    ["kts.log"],
    ["kts.offline"],
    ["kts"],  # the table of contents
    ["kts.broker"],
    ["kts.server", "kts.spark"],
    ["kts.testing", "pyspark_kts"],
    ["kts.cli", "kts_pytest"],
    ["kts_command"],
    ["kts.cli.__main__"],
]
FLOORS = {room: height for height, rooms in enumerate(ROOMS) for room in rooms}
TOGETHER = set(ROOMS[0])  # single modules of the lowest floor may know one another, without a circle


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def floor(module: str) -> tuple[str, int]:
    """The room that a module is or lies in, and its floor."""
    found = max((name for name in FLOORS if module == name or module.startswith(name + ".")), key=len)
    assert found != "kts" or module == "kts", f"{module} has no floor; give it one in {Path(__file__).name}"
    return found, FLOORS[found]


def imported_modules(path: Path) -> set[str]:
    """Which of our own modules a source imports, also inside functions, and for type hints alone."""
    names: set[str] = set()
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".pyx":  # its imports are Python's own, a line each
        text = "\n".join(line for line in text.splitlines() if re.match(r"(from [\w.]+ )?import ", line))
    waiting: list[ast.AST] = [ast.parse(text)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                package = module_name(path).split(".")
                inside = package if path.name == "__init__.py" else package[:-1]
                base = ".".join(inside[: len(inside) - node.level + 1] + ([node.module] if node.module else []))
            names |= {full if is_module(full := f"{base}.{alias.name}") else base for alias in node.names}
        waiting.extend(ast.iter_child_nodes(node))
    return {name for name in names if name.split(".")[0] in ("kts", "kts_command", "kts_pytest", "pyspark_kts")}


def is_module(name: str) -> bool:
    path = ROOT.joinpath(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").exists() or path.with_suffix(".pyx").exists()


@pytest.mark.parametrize("path", [*SOURCES, *EXTENSIONS], ids=module_name)
def test_a_module_imports_from_lower_floors_only(path: Path) -> None:
    module = module_name(path)
    home, height = floor(module)
    for other in imported_modules(path):
        other_home, other_height = floor(other)
        if module == "kts" or other == module:
            continue
        if home != other_home and not {home, other_home} <= TOGETHER:
            assert other_height < height, f"{module} (floor {height}) imports {other} (floor {other_height})"


def test_no_module_imports_itself_through_others() -> None:
    graph = {module_name(path): imported_modules(path) - {module_name(path), "kts"} for path in SOURCES}
    assert list(graphlib.TopologicalSorter(graph).static_order())


BROKER = [["codes"], ["wire"], ["settings"], ["topics"], ["groups"], [], ["broker"], ["handlers"]]  # [] is all others


def test_the_broker_has_one_direction() -> None:
    heights = {name: height for height, names in enumerate(BROKER) for name in names}
    others = BROKER.index([])
    for path in SOURCES:
        module = module_name(path)
        for other in imported_modules(path):
            if not (module.startswith("kts.broker.") and other.startswith("kts.broker.")):
                continue
            here, there = (name.split(".")[2] for name in (module, other))
            if "following" in (here, there):
                right = here == "following" and there in ("following", "codes", "wire", "settings", "topics")
            else:
                right = heights.get(there, others) <= heights.get(here, others)
            assert right, f"{module} imports {other}"


@pytest.mark.parametrize("path", SOURCES, ids=module_name)
def test_no_assert_no_bare_except_no_open_outside_files(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        where = f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}"
        assert not isinstance(node, ast.Assert), f"{where}: raise an error instead of assert"
        assert not (isinstance(node, ast.ExceptHandler) and node.type is None), f"{where}: name the exceptions"
        if isinstance(node, ast.Call) and path != ROOT / "kts/segment/files.py":
            called = ast.unparse(node.func)
            opens = called in {"open", "os.open", "io.open", "builtins.open", "mmap.mmap"}
            assert not opens, f"{where}: {called}( belongs in kts/segment/files.py"
            shortcuts = {"read_bytes", "read_text", "write_bytes", "write_text"}
            assert called.startswith("files.") or called.rpartition(".")[2] not in shortcuts, f"{where}: {called}("


def make_lint(folder: Path) -> subprocess.CompletedProcess[str]:
    """`make lint` in a folder, with the tools that run this test."""
    tools = [f"BIN={Path(sys.executable).parent}", "INSTALLED=", "BUILT=", f"PYTHON={sys.executable}"]
    return subprocess.run(["make", "lint", *tools], cwd=folder, capture_output=True, text=True)


@pytest.mark.slow
def test_make_lint_passes_and_sees_what_is_wrong(tmp_path: Path) -> None:
    if (ROOT / ".mypy_cache").exists():  # of `make lint`, which has just run: only what is planted is looked at again
        shutil.copytree(ROOT / ".mypy_cache", tmp_path / ".mypy_cache")
    for name in ("kts", "pyspark_kts"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("*.so", "*.c", "__pycache__"))
    for name in ("Makefile", "pyproject.toml", *SINGLE):
        shutil.copy2(ROOT / name, tmp_path / name)
    done = make_lint(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    planted = tmp_path / "kts/planted.py"
    for text, finding in (("import os\n", "F401"), ("def f(x):\n    return x\n", "no-untyped-def")):
        planted.write_text(text, encoding="utf-8")
        done = make_lint(tmp_path)
        assert done.returncode != 0
        assert finding in done.stdout + done.stderr


def test_every_tier_lints_first_and_knows_its_marks() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    marks = re.findall(r'^    "(\w+): ', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)
    for goal in ("check", "test", "test-all"):
        assert re.search(rf"^{goal}:.*\blint\b", makefile, re.MULTILINE)
        commands = subprocess.run(["make", "-n", goal], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        [expression] = re.findall(r'-m "(.*)"$', commands, re.MULTILINE) or [""]
        assert set(expression.replace("not ", "").split(" and ")) - {""} <= set(marks)
        assert bool(expression) == (goal == "check")
        assert ("KTS_LENGTH=full" in commands) == (goal == "test-all")


def test_every_public_name_is_there_and_documented() -> None:
    for name in kts.__all__:
        value = getattr(kts, name)
        if callable(value):
            assert (inspect.getdoc(value) or "").strip(), f"kts.{name} has no docstring"
