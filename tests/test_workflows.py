"""The workflows build and test what the project says it runs on."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
TAGS = {"POSIX :: Linux": "manylinux", "MacOS": "macosx", "Microsoft :: Windows": "win"}


def classified(prefix: str) -> list[str]:
    """The rest of each classifier that begins so."""
    return [name.removeprefix(prefix) for name in PYPROJECT["project"]["classifiers"] if name.startswith(prefix)]


def workflow(path: Path) -> dict[str, Any]:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


@cache
def wheel_tags() -> dict[str, set[str]]:
    """The Pythons for which cibuildwheel builds, by platform tag, over all rows of the workflow's matrix."""
    tags: dict[str, set[str]] = {}
    for row in workflow(ROOT / ".github/workflows/wheels.yml")["jobs"]["wheels"]["strategy"]["matrix"]["include"]:
        command = [sys.executable, "-m", "cibuildwheel", "--print-build-identifiers", str(ROOT)]
        env = os.environ | {"CIBW_PLATFORM": row["platform"], "CIBW_ARCHS": row["archs"]}
        done = subprocess.run(command, env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        for identifier in done.stdout.split():
            python, _, platform = identifier.partition("-")
            tags.setdefault(platform, set()).add(python)
    return tags


def test_wheels_are_built_for_every_classified_system_and_python() -> None:
    versions = [name for name in classified("Programming Language :: Python :: ") if re.fullmatch(r"3\.\d+", name)]
    assert f">={versions[0]}" == PYPROJECT["project"]["requires-python"]
    pythons = {"cp" + version.replace(".", "") for version in versions}
    if classified("Programming Language :: Python :: Free Threading"):
        pythons.add(f"cp{versions[-1].replace('.', '')}t")
    assert all(found == pythons for found in wheel_tags().values()), wheel_tags()
    architectures = {"manylinux_x86_64", "manylinux_aarch64", "macosx_x86_64", "macosx_arm64", "win_amd64"}
    assert set(wheel_tags()) == architectures
    assert {platform.split("_")[0] for platform in wheel_tags()} == {
        TAGS[system] for system in classified("Operating System :: ")
    }


def test_the_wheels_tests_are_there_and_need_no_java() -> None:
    settings = PYPROJECT["tool"]["cibuildwheel"]
    files = [word for word in shlex.split(settings["test-command"]) if word.endswith(".py")]
    assert "tests/codec/test_threads.py" in files
    required = {re.split("[>=<]", name)[0] for name in settings["test-requires"]}
    blocked = {"jvm", "guard", "pyspark", "crc32c", "aiokafka"} - required
    code = f"import sys; sys.modules |= dict.fromkeys({blocked!r}); import pytest; sys.exit(pytest.main({files!r}))"
    env = os.environ | {"PYTEST_ADDOPTS": "--collect-only -q"}
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for name in files:  # inside functions, too
        found = re.search(rf"^\s+(?:from|import) (?:{'|'.join(blocked)})\b", (ROOT / name).read_text(), re.MULTILINE)
        assert found is None, f"{name}: {found}"


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_pinned_and_jobs_may_read_only(path: Path) -> None:
    loaded = workflow(path)
    assert loaded["permissions"] == {"contents": "read"}
    for name, job in loaded["jobs"].items():
        assert job["timeout-minutes"], name
        assert job.get("permissions") in (None, {"id-token": "write"}), name
        assert ("permissions" in job) == (name == "publish")
        for step in job["steps"]:
            assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", step.get("uses", "a@" + "0" * 40)), step


def test_only_a_tag_is_published_behind_an_environment() -> None:
    job = workflow(ROOT / ".github/workflows/wheels.yml")["jobs"]["publish"]
    assert job["if"] == "github.event_name == 'push' && startsWith(github.ref, 'refs/tags/v')"
    assert job["environment"]["name"] == "pypi"
    assert set(job["needs"]) == {"wheels", "sdist", "sdist-tests"}
