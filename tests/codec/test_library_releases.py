"""The codecs' libraries in their oldest and newest releases: kts calls functions of them that no package promises.

Each case costs five seconds, for an installation and tests of the codec under it, at full length some more, for those
of damage and bombs. It shows that a release has the functions, and that they decompress as the installed one's do.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from support.golden import scaled

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
LIBRARIES = ("lz4", "zstandard", "cramjam", "isal")
FOUND = """
import importlib, json
from kts import compression
where = {name: importlib.import_module(name).__file__ for name in %r}
functions = {row.name: len(compression.addresses(row.number)) for row in compression.CODECS}
print(json.dumps([where, functions]))
"""


def wanted(release: str) -> list[str]:
    """What pip shall install: the libraries as pyproject.toml bounds them, or each in its oldest release there."""
    bounds = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    own = [one for one in bounds if re.match(r"\w+", one)[0] in LIBRARIES]  # type: ignore[index]
    assert len(own) == len(LIBRARIES)
    return [one.replace(">=", "==") for one in own] if release == "oldest" else own


@pytest.mark.parametrize("release", ["oldest", "newest"])
def test_a_release_of_the_libraries_decompresses_as_the_installed_one(release: str, tmp_path: Path) -> None:
    pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps", "--upgrade"]
    done = subprocess.run(
        [*pip, "--only-binary", ":all:", "--target", str(tmp_path), *wanted(release)], capture_output=True, text=True
    )
    if done.returncode:
        pytest.skip(f"pip cannot install {wanted(release)} for this Python: {done.stderr.strip().splitlines()[-1]}")
    environ = os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    shown = subprocess.run(
        [sys.executable, "-c", FOUND % (LIBRARIES,)], env=environ, capture_output=True, text=True, check=True
    )
    where, functions = json.loads(shown.stdout)
    assert all(Path(path).is_relative_to(tmp_path) for path in where.values())
    assert functions == {"none": 0, "gzip": 2, "snappy": functions["snappy"], "lz4": 1, "zstd": 6}
    tests = ["test_vectors.py", "test_roundtrip.py", "test_bombs.py", "test_damage.py"][: scaled(2, 4)]
    run = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-m", "not java and not scaled", "-p", "no:cacheprovider"]
    told = subprocess.run(
        [*run, *(f"tests/codec/{name}" for name in tests)], env=environ, cwd=ROOT, capture_output=True, text=True
    )
    assert told.returncode == 0, told.stdout[-4000:]
