"""The workflows build and test what the project says it runs on."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from support import ROOT

pytestmark = pytest.mark.slow

WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
TAGS = {"POSIX :: Linux": "manylinux"}


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
    assert all(found == pythons for found in wheel_tags().values()), wheel_tags()
    assert set(wheel_tags()) == {"manylinux_x86_64", "manylinux_aarch64"}
    assert {platform.split("_")[0] for platform in wheel_tags()} == {
        TAGS[system] for system in classified("Operating System :: ")
    }


def test_nothing_is_claimed_that_has_not_run() -> None:
    """The table of docs/limits.md has a row for each Python of the classifiers and each architecture of the wheels."""
    page = (ROOT / "docs/limits.md").read_text(encoding="utf-8")
    table = page.partition("## Where it has run\n")[2].partition("\n## ")[0]
    rows = [re.split(r" *\| *", line.strip("| ")) for line in table.splitlines() if line.startswith("|")][2:]
    assert all(re.fullmatch(r"20\d\d-\d\d-\d\d", day) for *_, day in rows)
    ran = {(version, machine) for version, _, machine, _, _ in rows}
    versions = [name for name in classified("Programming Language :: Python :: ") if re.fullmatch(r"3\.\d+", name)]
    assert sorted({version for version, _ in ran}) == versions
    assert {f"manylinux_{machine}" for _, machine in ran} == set(wheel_tags())
    assert classified("Programming Language :: Python :: Free Threading") == []


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


def pythons(folder: Path, **given: str) -> subprocess.CompletedProcess[str]:
    """`make test-pythons` in a small folder, where `make` writes down what it is asked and fails for one."""
    (folder / "tests").mkdir(parents=True, exist_ok=True)
    (folder / "bin").mkdir(exist_ok=True)
    (folder / "tests/pythons.sh").write_bytes((ROOT / "tests/pythons.sh").read_bytes())
    (folder / "bin/make").write_text(
        f'#!/bin/sh\necho "make $*" >>"{folder}/asked"\ncase "$*" in *bad*) exit 2; esac\n'
    )
    (folder / "bin/make").chmod(0o755)
    for name in ("good", "bad"):  # an interpreter that is no link: it must find its library
        (folder / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
        (folder / name).chmod(0o755)
    env = os.environ | {"PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}", "DEBIANS": ""} | given
    return subprocess.run(["sh", "tests/pythons.sh"], cwd=folder, env=env, capture_output=True, text=True)


def test_every_python_is_tried_and_those_that_fail_are_named(tmp_path: Path) -> None:
    done = pythons(tmp_path, PYTHONS=f"{tmp_path}/bad {tmp_path}/good", PYTEST_ADDOPTS="-m scaled")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (1, f"== failed: Python {sys.version.split()[0]}")
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    copy = tmp_path / "build/pythons" / version
    expected = [f"make -s -C {copy} PYTHON={tmp_path}/{name} JDK= check" for name in ("bad", "good")]
    assert (tmp_path / "asked").read_text().splitlines() == expected
    assert (copy / "tests/pythons.sh").exists() and not (copy / "build").exists()
    assert pythons(tmp_path, PYTHONS=f"{tmp_path}/good").returncode == 0
    none = pythons(tmp_path, PYTHONS="no-such-python")
    assert (none.returncode, none.stdout) == (1, "expected a Python, found no-such-python\n")


def test_debian_without_root_or_debootstrap_is_said(tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("sh", "id", "dirname", "uname"):
        (tools / name).symlink_to(str(shutil.which(name)))
    done = pythons(tmp_path, PYTHONS="", DEBIANS="sid", PATH=str(tools))
    assert done.returncode == 0
    assert done.stdout.startswith("== the Pythons of Debian are left out: they need root and debootstrap.")


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
