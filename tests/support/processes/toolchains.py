"""Programs of the registries of Go and npm, fetched and compiled once, and kept."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from support.kafka.jvm import TARGET, missing, one_at_a_time

BUILD_S = 900


def go_program(module: str) -> Path:
    """A program of a Go module, as ``github.com/owner/name@v1.2.3``."""
    path, _, version = module.partition("@")
    folder = TARGET / "go" / version
    program = folder / path.rpartition("/")[2]
    with one_at_a_time():
        if not program.exists():
            _go(["install", module], Path("/"), {"GOBIN": str(folder.resolve()), "GOFLAGS": "-mod=mod"})
    return program


def go_built(sources: Path) -> Path:
    """The program of a folder with a go.mod; Go knows what has changed since."""
    program = TARGET / "go" / sources.name
    with one_at_a_time():
        _go(["build", "-buildvcs=false", "-o", str(program.resolve()), "."], sources, {})
    return program


def _go(arguments: Sequence[str], folder: Path, environ: Mapping[str, str]) -> None:
    if not shutil.which("go"):
        missing("Go", "get it by: sudo apt install golang-go")
    _fetch("Go's modules", ["go", *arguments], folder, {**environ, "CGO_ENABLED": "0"})


def npm_packages(name: str, *packages: str) -> Path:
    """A folder with node_modules that has these packages, each with its version."""
    folder = TARGET / "npm" / name
    with one_at_a_time():
        if not (folder / "node_modules").exists():
            if not shutil.which("npm"):
                missing("npm", "get it by: sudo apt install npm")
            folder.mkdir(parents=True, exist_ok=True)
            _fetch(name, ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", *packages], folder, {})
    return folder


def _fetch(what: str, command: Sequence[str], folder: Path, environ: Mapping[str, str]) -> None:
    pipes = {"capture_output": True, "text": True}
    done = subprocess.run(command, env=os.environ | dict(environ), cwd=folder, timeout=BUILD_S, check=False, **pipes)
    if done.returncode:
        missing(what, f"`{' '.join(command[:2])}` said: {done.stderr[-2000:]}")
