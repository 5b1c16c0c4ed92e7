"""The type stubs of the compiled modules say what these modules are."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import kts
from kts import _timeindex

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent
MODULES = ["_codec", "_timeindex"]
MADE_BY_CYTHON = [r"\w+\._\w+\.__test__", r"\w+\._\w+\.__(reduce|setstate)_cython__"]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What mypy's stubtest has against the stubs of the installed package, and of a copy in which both stubs are wrong.

    One run, of five seconds, for both: most of it goes into the stubs of numpy and of Python."""
    folder = tmp_path_factory.mktemp("stubtest")
    shutil.copytree(Path(kts.__file__).parent, folder / "planted", ignore=shutil.ignore_patterns("__pycache__", "*.c"))
    codec, index = folder / "planted/_codec.pyi", folder / "planted/_timeindex.pyi"
    swaps = [(codec, "def scan(buf", "def scan(data"), (codec, "REASONS:", "WORDS:"), (index, "check", "verify")]
    for path, right, wrong in swaps:
        text = path.read_text(encoding="utf-8")
        assert right in text
        path.write_text(text.replace(right, wrong), encoding="utf-8")
    (folder / "allowed.txt").write_text("\n".join(MADE_BY_CYTHON), encoding="utf-8")
    modules = [f"{package}.{name}" for package in ("kts", "planted") for name in MODULES]
    command = [sys.executable, "-m", "mypy.stubtest", *modules, "--concise", "--allowlist", "allowed.txt"]
    command += ["--ignore-unused-allowlist", "--mypy-config-file", str(ROOT / "pyproject.toml")]
    places = os.pathsep.join([str(Path(kts.__file__).parent.parent), str(folder)])
    env = os.environ | {"PYTHONPATH": places, "MYPYPATH": places}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
    lines = done.stdout.splitlines()
    assert done.returncode == 1 and all(line.startswith(("kts.", "planted.")) for line in lines), (lines, done.stderr)
    return {name: [line for line in lines if line.startswith(f"{name}.")] for name in ("kts", "planted")}


def test_stubtest_agrees(found: dict[str, list[str]]) -> None:
    assert found["kts"] == []


def test_stubtest_sees_a_wrong_stub(found: dict[str, list[str]]) -> None:
    lines = found["planted"]
    for wrong in (
        "_codec.scan ",
        "_codec.WORDS ",
        "_codec.REASONS ",
        "_timeindex.TimeIndex.verify ",
        "_timeindex.OffsetIndex.check ",
    ):
        assert any(line.startswith(f"planted.{wrong}") for line in lines), (wrong, lines)


def index_methods() -> list[tuple[str, str, list[ast.arg]]]:
    """Class, name and positional parameters of the index methods, which have no signature that stubtest could read."""
    tree = ast.parse((ROOT / "kts/_timeindex.pyi").read_text(encoding="utf-8"))
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    methods = [(node.name, item) for node in classes for item in node.body if isinstance(item, ast.FunctionDef)]
    return [(owner, item.name, item.args.posonlyargs[1:]) for owner, item in methods if item.args.posonlyargs]


@pytest.mark.parametrize(("owner", "name", "parameters"), index_methods(), ids=lambda value: str(value)[:20])
def test_index_methods_take_what_their_stub_says(owner: str, name: str, parameters: list[ast.arg]) -> None:
    method = getattr(getattr(_timeindex, owner)(b"", 0), name)
    for arguments in ([0] * (len(parameters) + 1), [0] * (len(parameters) - 1)):
        with pytest.raises(TypeError, match=r"argument"):
            method(*arguments)
    with pytest.raises(TypeError, match="keyword"):
        method(**{parameter.arg: 0 for parameter in parameters})
