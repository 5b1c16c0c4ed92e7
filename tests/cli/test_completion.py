"""``kts completion``: what a shell completes with the script."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.processes.cli_runs import run

BASH = r"""
eval "$(kts completion bash)"
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
_kts_completion kts
printf '%s\n' "${COMPREPLY[@]}"
"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["du"], ["dump"]),
        (["dump", "--val"], ["--values"]),
        (["dump", "--values", ""], ["auto", "base64", "utf8", "hex", "json"]),
        (["completion", "b"], ["bash"]),
    ],
)
def test_bash_completes_commands_options_and_values(words: list[str], expected: list[str], tmp_path: Path) -> None:
    """Three seconds: a shell that runs kts, as a user's."""
    program = tmp_path / "kts"
    root = Path(__file__).parent.parent.parent
    started = f"cd {shlex.quote(str(root))} && exec {shlex.quote(sys.executable)} -m kts.cli"
    program.write_text(f'#!/bin/sh\n{started} "$@"\n')
    program.chmod(0o755)
    script = f"PATH={shlex.quote(str(tmp_path))}:$PATH; {BASH}"
    done = subprocess.run(["bash", "-c", script, "bash", "kts", *words], capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == expected, done.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_a_script_that_asks_kts(shell: str) -> None:
    said = run("completion", shell).stdout
    assert f"_KTS_COMPLETE={shell}_complete" in said and "kts" in said


def test_another_shell_is_wrong_use() -> None:
    assert "'tcsh'" in run("completion", "tcsh", code=2).stderr
