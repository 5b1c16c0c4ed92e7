"""The code blocks of the README do what they say."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.golden import PATIENCE_S
from support.kafka.jvm import FLAGS, JAVA, java_tool, maven_class_path, spark_environ

from kts.testing import KtsBroker

ROOT = Path(__file__).parent.parent
FENCE = re.compile(r"^```(python|shell)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
README = (ROOT / "README.md").read_text(encoding="utf-8")
JAVA_BLOCKS = re.findall(r"^```java\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
BLOCKS = [(found[1], found[2], README.count("\n", 0, found.start()) + 2) for found in FENCE.finditer(README)]


@pytest.mark.parametrize(("language", "code", "line"), BLOCKS, ids=[f"{kind}-{line}" for kind, _, line in BLOCKS])
def test_a_code_block_runs(language: str, code: str, line: int, tmp_path: Path) -> None:
    """Each block runs alone, in a folder that has the same `tests/` and nothing else."""
    if "kcat" in code and shutil.which("kcat") is None:
        pytest.skip("needs kcat; get it by: sudo apt install kcat")
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    command = [sys.executable, "-c", code] if language == "python" else ["bash", "-euo", "pipefail", "-c", code]
    if language == "python" and "\ndef test_" in code:  # a test file
        (tmp_path / "test_block.py").write_text(code, encoding="utf-8")
        command = [sys.executable, "-m", "pytest", "-p", "kts_pytest", "test_block.py"]
    env = os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    if "spark" in code:
        env |= spark_environ()
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"README.md:{line}\n{done.stdout}\n{done.stderr}"
    assert done.stdout.strip(), f"README.md:{line}: a block shows something"


def test_the_readme_shows_python_and_shell() -> None:
    assert {language for language, _, _ in BLOCKS} == {"python", "shell"}


@pytest.mark.parametrize("code", JAVA_BLOCKS)
def test_a_java_program_talks_to_a_broker_for_tests(code: str, tmp_path: Path) -> None:
    jars = maven_class_path(JAVA / "pom.xml")
    (tmp_path / "Orders.java").write_text(code, encoding="utf-8")
    with KtsBroker() as broker:
        command = [java_tool("java"), *FLAGS, "-cp", jars, "Orders.java", broker.bootstrap_servers]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S)
        assert done.returncode == 0, done.stderr
        assert done.stdout.split() == ["1800000000000", "1800000000000", "CreateTime", "paid"]
        assert [record.value for record in broker.consume("orders")] == [b"paid"]
