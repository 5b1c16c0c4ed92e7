"""A real S3 server: versitygw, built once from the registry of Go, over a folder of this machine."""

from __future__ import annotations

import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.buckets.proxy import Proxy
from support.kafka.jvm import TARGET
from support.processes.dying import DIES_TOO
from support.processes.toolchains import go_program
from support.waiting import wait_until

KEY, SECRET, REGION = "testkey", "testsecret", "us-east-1"


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
