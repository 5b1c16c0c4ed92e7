"""`kts serve` as a process that a test starts, looks at and ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from support import ROOT
from support.golden import PATIENCE_S


class Serve:
    """The process; `address` is where it listens. It may open as many files as this one, or at most `most_files`."""

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, object],
        listen: str,
        options: tuple[str, ...],
        most_files: int | None = None,
    ) -> None:
        configs = [option for key, value in settings.items() for option in ("--config", f"{key}={value}")]
        command = [sys.executable, "-m", "kts.cli", "serve", str(directory), "--listen", listen, *configs, *options]
        if most_files is not None:
            command = ["sh", "-c", 'ulimit -S -n "$0" && exec "$@"', str(most_files), *command]
        self.errors = directory.with_name(directory.name + ".err")
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen(
                command, cwd=ROOT, stdout=subprocess.PIPE, stderr=errors, text=True, stdin=subprocess.DEVNULL
            )
        stdout = self.process.stdout
        assert stdout is not None
        self.line = stdout.readline().strip()
        assert self.line, f"kts serve ended: {self.said()}"
        listens = json.loads(self.line)["listen"] if self.line.startswith("{") else self.line
        host, _, port = listens.rpartition(":")
        self.address = (host.strip("[]"), int(port))

    def said(self) -> str:
        """What it wrote to stderr."""
        return self.errors.read_text(encoding="utf-8", errors="replace")

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal; its exit code."""
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_S)

    def status(self, name: str) -> int:
        """A size of /proc/PID/status, in bytes: VmRSS, VmHWM, RssAnon."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        [line] = [line for line in text.splitlines() if line.startswith(name + ":")]
        return int(line.split()[1]) * 1024

    def forget_peak(self) -> None:
        """Let VmHWM begin at what is used now."""
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")

    def descriptors(self) -> int:
        """How many files and sockets it has open."""
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def wait_for_descriptors(self, most: int) -> None:
        """Until it has closed what is over."""
        until = time.monotonic() + PATIENCE_S
        while self.descriptors() > most:
            assert time.monotonic() < until, f"{self.descriptors()} descriptors are open, expected {most} at most"
            time.sleep(0.01)


@contextmanager
def serve(
    directory: Path,
    settings: Mapping[str, object] | None = None,
    *options: str,
    listen: str = "127.0.0.1:0",
    most_files: int | None = None,
) -> Iterator[Serve]:
    """A broker over a directory; it is killed at the end if it still runs."""
    found = Serve(directory, settings or {}, listen, options, most_files)
    try:
        yield found
    finally:
        found.process.kill()
        found.process.communicate()
