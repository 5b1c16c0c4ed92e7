"""Runs of the command line as processes, each a fork of one that has imported all of it: none waits for imports.

As a program: a socket is its stdin. A message is JSON, `{"arguments": [...], "directory": ..., "environment": {...}}`,
and carries the three standard descriptors of a run; the answer is the run's exit code, a line of text.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import socket
import subprocess
import sys
from io import BufferedWriter, FileIO, TextIOWrapper
from pathlib import Path

import kts_command

MOST_BYTES = 1 << 16


class Forks:
    """The process that forks. Its outputs are pipes, which Python buffers as a user's, or not at all."""

    def __init__(self, unbuffered: bool) -> None:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
        environment["PYTHONPATH"] = str(Path(kts_command.__file__).parent)
        if unbuffered:
            environment["PYTHONUNBUFFERED"] = "1"
        self._owner = os.getpid()
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, __file__],
                stdin=theirs,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environment,
            )

    def start(
        self, arguments: list[str], descriptors: list[int], directory: Path | None = None, **environment: str
    ) -> None:
        """Start a run whose stdin, stdout and stderr are these."""
        asked = {"arguments": arguments, "directory": str(directory or os.getcwd()), "environment": environment}
        socket.send_fds(self._socket, [json.dumps(asked).encode()], descriptors)

    def exit_code(self) -> int:
        """Wait until the run has ended."""
        answer = b""
        while not answer.endswith(b"\n"):
            part = self._socket.recv(16)
            assert part, f"the process that forks has died: {self._process.communicate()[1].decode()}"
            answer += part
        return int(answer)

    def close(self) -> None:
        """End it; in a fork of its owner, which has a copy of the socket, do nothing."""
        if os.getpid() != self._owner:
            return
        self._socket.close()
        self._process.communicate()


@functools.cache
def forks(unbuffered: bool = False) -> Forks:
    """The one of this process, ended with it."""
    made = Forks(unbuffered)
    atexit.register(made.close)
    return made


def run_in_child(asked: dict[str, object], descriptors: list[int]) -> None:
    """One run, in a fork; ends the process."""
    for target, descriptor in enumerate(descriptors):
        os.dup2(descriptor, target)
    os.closerange(3, 64)
    os.chdir(str(asked["directory"]))
    os.environ.update(asked["environment"])  # type: ignore[call-overload]
    sys.argv = ["kts", *asked["arguments"]]  # type: ignore[misc]
    if os.isatty(1):  # as Python opens a terminal
        for name, number in (("stdout", 1), ("stderr", 2)):
            writer = BufferedWriter(FileIO(number, "w", closefd=False))
            setattr(sys, name, TextIOWrapper(writer, "utf-8", line_buffering=True))
    kts_command.main()
    os._exit(99)  # never: it has ended the process


def serve() -> None:
    """Fork for each message, until the socket is closed."""
    # Behind these imports a run is a few milliseconds. What commands import besides is what few of them need.
    import pyarrow.compute
    import pyarrow.parquet  # noqa: F401

    import kts.dataset.scan
    import kts.offline.verify  # noqa: F401
    from kts.cli.app import COMMANDS, cli

    for name in COMMANDS:
        cli.get_command(None, name)  # type: ignore[arg-type]
    connection = socket.socket(fileno=os.dup(0))
    while True:
        message, descriptors, _, _ = socket.recv_fds(connection, MOST_BYTES, 3)
        if not message:
            return
        child = os.fork()
        if not child:
            run_in_child(json.loads(message), descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        connection.sendall(b"%d\n" % code)


if __name__ == "__main__":
    serve()
