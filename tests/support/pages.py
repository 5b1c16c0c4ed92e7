"""The code blocks of the README and of docs/, where each runs, and what it prints."""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from kts.cli.demo import write_demo
from support import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
# A block of code, and the block of text behind it, which is what it prints; `...` there stands for anything.
FENCE = re.compile(r"^```(python|shell)\n(.*?)^```$(?:\n\n```text\n(.*?)^```$)?", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    place: str  # page:line
    language: str
    code: str
    shown: str | None

    @property
    def in_spark(self) -> bool:
        return self.language == "python" and "SparkSession" in self.code

    @property
    def is_test(self) -> bool:
        return self.language == "python" and "\ndef test_" in self.code

    @property
    def reads_the_repository(self) -> bool:
        return "tests/" in self.code

    @property
    def reads_the_demo(self) -> bool:
        return re.search(r'(?<![\w/.-])demo(?=[/" ])', self.code) is not None

    def check(self, said: str) -> None:
        """A block prints what stands below it, and something in any case."""
        assert said.strip(), f"{self.place}: a block shows something"
        if self.shown is not None:
            checker, example = doctest.OutputChecker(), doctest.Example(self.code, self.shown)
            same = checker.check_output(self.shown.rstrip(), said.rstrip(), doctest.ELLIPSIS)
            difference = checker.output_difference(example, said, doctest.REPORT_UDIFF)
            assert same, f"{self.place}\n{difference}"


def blocks() -> list[Block]:
    """Those of all pages."""
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        name = page.relative_to(ROOT).as_posix()
        for fence in FENCE.finditer(text):
            language, code, shown = fence.groups()
            found.append(Block(f"{name}:{text.count(chr(10), 0, fence.start()) + 2}", language, code, shown))
    return found


def lay(folder: Path, block: Block) -> Path:
    """A new folder with what a block reads and nothing else: the demo, or the repository's `tests/`."""
    folder.mkdir()
    if block.reads_the_repository:
        (folder / "tests").symlink_to(ROOT / "tests")
    if block.reads_the_demo and "kts demo" not in block.code:
        write_demo(str(folder / "demo"))
    return folder


def typed(block: Block, folder: Path, environ: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """What a block of the shell, or a test file, prints; a line that fails ends it."""
    command = ["bash", "-euo", "pipefail", "-c", block.code]
    if block.is_test:
        (folder / "test_block.py").write_text(block.code, encoding="utf-8")
        command = [sys.executable, "-m", "pytest", "-p", "kts_pytest", "test_block.py"]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = os.environ | {"PATH": path} | environ
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=300)
