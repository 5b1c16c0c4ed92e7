"""Kafka's own command line tools, run one after the other in one Java process, which dies with the test."""

from __future__ import annotations

import base64
import subprocess
from pathlib import Path
from typing import Self

import pytest
from support.kafka.jvm import JAVA, JavaProcess, Jvm

FOLDER = JAVA / "tools"
TOOLS = "org.apache.kafka.tools."
QUIET = "log4j.rootLogger=OFF\n"


class JavaTools:
    """The tools of one version of Kafka, for one broker."""

    def __init__(self, version: str, bootstrap: str, folder: Path) -> None:
        self.version, self.bootstrap = version, bootstrap
        java = Jvm(FOLDER / f"tools-{version}.xml", FOLDER / "Tools.java")
        logging = folder / "tools-log4j.properties"
        logging.write_text(QUIET, encoding="utf-8")
        options = ["-Xmx256m", f"-Dlog4j.configuration=file:{logging}"]
        self.process = JavaProcess(java, "Tools", options=options, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.close()

    def ask(self, tool: str, *arguments: object, bootstrap: bool = True) -> tuple[int, str]:
        """The exit code of a tool, and all that it printed."""
        where = ["--bootstrap-server", self.bootstrap] if bootstrap else []
        stdin, stdout = self.process.stdin, self.process.stdout
        if stdin is None or stdout is None:
            raise RuntimeError("the tools have no pipes")
        stdin.write("\t".join([tool, *where, *map(str, arguments)]).encode() + b"\n")
        stdin.flush()
        line = stdout.readline().decode()
        if not line:
            pytest.fail(f"the Java process ended in {tool} {arguments}")
        code, said = line.split("\t")
        return int(code), base64.b64decode(said).decode()

    def run(self, tool: str, *arguments: object, bootstrap: bool = True) -> str:
        """What a tool printed, that has to succeed."""
        code, said = self.ask(tool, *arguments, bootstrap=bootstrap)
        if code:
            pytest.fail(f"{tool} {arguments} ended with {code}:\n{said}")
        return said
