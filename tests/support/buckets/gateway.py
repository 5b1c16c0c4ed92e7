"""A real S3 server: versitygw, built once from the registry of Go, over a folder of this machine."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.buckets.proxy import Proxy
from support.kafka.jvm import TARGET, missing, one_at_a_time
from support.processes.dying import DIES_TOO
from support.waiting import wait_until

KEY, SECRET, REGION = "testkey", "testsecret", "us-east-1"
BUILD_S = 900


def go_program(module: str) -> Path:
    """A program of a Go module, as ``github.com/owner/name@v1.2.3``: fetched and compiled once, and kept."""
    path, _, version = module.partition("@")
    folder = TARGET / "go" / version
    program = folder / path.rpartition("/")[2]
    with one_at_a_time():
        if not program.exists():
            if not shutil.which("go"):
                missing("Go", "get it by: sudo apt install golang-go")
            environ = os.environ | {"GOBIN": str(folder.resolve()), "GOFLAGS": "-mod=mod", "CGO_ENABLED": "0"}
            done = subprocess.run(
                ["go", "install", module], env=environ, cwd="/", capture_output=True, text=True, timeout=BUILD_S
            )
            if done.returncode:
                missing(module, f"`go install` said: {done.stderr[-2000:]}")
    return program


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@contextmanager
def listening(command: list[str], port: int, log: Path) -> Iterator[None]:
    """A server in the background, until the block ends."""
    with log.open("wb") as out, subprocess.Popen([*DIES_TOO, *command], stdout=out, stderr=out) as process:

        def answers() -> bool:
            if process.poll() is not None:
                raise RuntimeError(f"{command[0]} ended: {log.read_text()[-2000:]}")
            with socket.socket() as one:
                return one.connect_ex(("127.0.0.1", port)) == 0

        try:
            wait_until(f"{command[0]} listens", answers)
            yield
        finally:
            process.terminate()
            process.wait()


@contextmanager
def s3_gateway() -> Iterator[Proxy]:
    """An S3 server with a proxy before it, which counts what is asked and can answer otherwise."""
    program = go_program("github.com/versity/versitygw/cmd/versitygw@v1.8.0")
    # Not in memory: tmpfs has no extended attributes, where the server keeps ETags.
    with tempfile.TemporaryDirectory(dir=TARGET) as folder:
        data, port = Path(folder, "data"), free_port()
        data.mkdir()
        command = [str(program), "--access", KEY, "--secret", SECRET, "--region", REGION, "--quiet"]
        command += ["--port", f"127.0.0.1:{port}", "posix", str(data)]
        with listening(command, port, Path(folder, "log")), Proxy(port) as proxy:
            yield proxy
