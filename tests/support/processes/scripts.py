"""Runs of Python programs as processes, each a fork of one that has imported what they take longest to import."""

from __future__ import annotations

import multiprocessing
import os
import runpy
import subprocess
import tempfile
from collections.abc import Mapping
from functools import cache
from multiprocessing.context import ForkServerContext
from pathlib import Path

from support.golden import PATIENCE_S

IMPORTED = ["kts", "numpy", "pandas", "pyarrow.compute", "pyarrow.parquet"]


@cache
def forks() -> ForkServerContext:
    """What forks, from its first use to the end of this process."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(IMPORTED)
    return context


def run_script(script: Path, folder: Path, environ: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """What a program prints, and its exit code, 1 after an exception."""
    with tempfile.TemporaryDirectory() as beside:
        outs = [Path(beside, name) for name in ("stdout", "stderr")]
        process = forks().Process(target=_run, args=(script, folder, dict(environ), outs))
        process.start()
        process.join(PATIENCE_S)
        if process.exitcode is None:
            process.kill()
            process.join()
        texts = [out.read_text(encoding="utf-8") for out in outs]
    return subprocess.CompletedProcess([str(script)], process.exitcode or 0, *texts)


def _run(script: Path, folder: Path, environ: Mapping[str, str], outs: list[Path]) -> None:
    os.chdir(folder)
    os.environ.update(environ)
    for number, out in enumerate(outs, start=1):
        os.dup2(os.open(out, os.O_WRONLY | os.O_CREAT), number)
    runpy.run_path(str(script), run_name="__main__")
