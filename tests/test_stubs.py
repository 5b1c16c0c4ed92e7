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
MODULES = ["kts._codec", "kts._timeindex"]
MADE_BY_CYTHON = [r"kts\._\w+\.__test__", r"kts\._\w+\.__(reduce|setstate)_cython__"]


def stubtest(folder: Path, scratch: Path) -> str:
    """What mypy's stubtest has against the stubs of the package in `folder`; nothing where they agree."""
    allowed = scratch / "allowed.txt"
    allowed.write_text("\n".join(MADE_BY_CYTHON), encoding="utf-8")
    command = [sys.executable, "-m", "mypy.stubtest", *MODULES, "--concise", "--allowlist", str(allowed)]
    command += ["--ignore-unused-allowlist", "--mypy-config-file", str(ROOT / "pyproject.toml")]
    env = os.environ | {"PYTHONPATH": str(folder), "MYPYPATH": str(folder), "MYPY_CACHE_DIR": str(scratch / "cache")}
    done = subprocess.run(command, cwd=scratch, env=env, capture_output=True, text=True)
    assert (done.returncode == 0) == (not done.stdout), done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the installed package in which both stubs are wrong."""
    folder = tmp_path_factory.mktemp("planted")
    shutil.copytree(Path(kts.__file__).parent, folder / "kts", ignore=shutil.ignore_patterns("__pycache__", "*.c"))
    codec, index = folder / "kts/_codec.pyi", folder / "kts/_timeindex.pyi"
    swaps = [(codec, "def scan(buf", "def scan(data"), (codec, "def crc32(", "def crc33("), (index, "check", "verify")]
    for path, right, wrong in swaps:
        text = path.read_text(encoding="utf-8")
        assert right in text
        path.write_text(text.replace(right, wrong), encoding="utf-8")
    return folder


def test_stubtest_agrees(tmp_path: Path) -> None:
    assert stubtest(Path(kts.__file__).parent.parent, tmp_path) == ""


def test_stubtest_sees_a_wrong_stub(planted: Path, tmp_path: Path) -> None:
    found = stubtest(planted, tmp_path)
    for wrong in ("_codec.scan", "_codec.crc33", "_codec.crc32 ", "TimeIndex.verify", "OffsetIndex.check"):
        assert f"kts.{wrong}" in found or f"kts._timeindex.{wrong}" in found, f"{wrong} is not in:\n{found}"


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
