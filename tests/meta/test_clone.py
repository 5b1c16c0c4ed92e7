"""What a run of the tests needs lies in git, and a run leaves nothing behind that the next one would stumble over."""

from __future__ import annotations

import ast
import functools
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support import ROOT, TESTS
from support.golden import PATIENCE_S, golden, goldens
from support.kafka.jvm import TARGET

DATA = ["tests/data", "tests/regressions", "tests/fuzz/corpus"]


def git(*arguments: str) -> str:
    """What git says of this checkout; skips where it is none, as in an unpacked sdist."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout of git")
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def test_git_has_every_file_of_the_data() -> None:
    # Not only the ones that nothing ignores: a global ignore file would keep a clone from having them.
    assert git("ls-files", "--others", "--", *DATA) == ""
    assert git("ls-files", "--deleted", "--", *DATA) == ""


def test_every_scenario_is_whole() -> None:
    for scenario in goldens():
        for name in scenario.partitions:
            assert {log.name for log in scenario.logs(name)} == set(scenario.meta["partitions"][name]["logModifiedMs"])
            offsets = [row.offset for row in scenario.expected(name)]
            assert offsets == sorted(set(offsets))
        killed = scenario.log_dir.name == "recovered"
        assert (scenario.path / "killed.tar.gz").exists() == killed, scenario


@functools.cache
def named_scenarios() -> set[tuple[str, str]]:
    """The scenarios that tests name in a call of `golden`."""
    found = set()
    for path in TESTS.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if "golden(" in text else ():
            if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "golden":
                match node.args:
                    case [ast.Constant(value=str(version)), ast.Constant(value=str(name))]:
                        found.add((version, name))
    return found


def test_every_scenario_that_a_test_names_is_carried() -> None:
    assert len(named_scenarios()) >= 10
    for version, name in named_scenarios():
        assert golden(version, name)
        assert (TESTS / "data/golden" / version / name / "meta.json").exists(), (version, name)


def test_what_tests_fetch_and_compile_is_no_test(request: pytest.FixtureRequest) -> None:
    for folder in request.config.getini("testpaths"):
        assert not TARGET.is_relative_to(ROOT / folder)
    assert git("check-ignore", str(TARGET / "x")) == f"{TARGET / 'x'}\n"
    # Nothing else is made among the tests: what git ignores there is Python's own cache.
    ignored = git("ls-files", "--others", "--ignored", "--exclude-standard", "--", "tests").splitlines()
    assert [path for path in ignored if "/__pycache__/" not in path] == []


SIGINT_CHECK = """
import signal, subprocess, sys
def test_ctrl_c():
    try:
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("Ctrl-C went by here")
    except KeyboardInterrupt:
        pass
    child = "import signal; signal.raise_signal(signal.SIGINT)"
    assert subprocess.run([sys.executable, "-c", child], stderr=subprocess.PIPE).returncode == -signal.SIGINT
"""


@pytest.mark.slow
@pytest.mark.parametrize("workers", [[], ["-n", "1"]], ids=["alone", "worker"])
def test_ctrl_c_reaches_the_tests_of_a_run_in_the_background(workers: list[str], tmp_path: Path) -> None:
    """Two seconds each: a whole run as a shell starts it with `&`."""
    (tmp_path / "test_it.py").write_text(SIGINT_CHECK, encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "conftest",
        "-p",
        "no:cacheprovider",
        *workers,
        str(tmp_path),
    ]
    ignoring = f"import os, signal; signal.signal(signal.SIGINT, signal.SIG_IGN); os.execv({command[0]!r}, {command})"
    done = subprocess.run(
        [sys.executable, "-c", ignoring],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(TESTS), "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
