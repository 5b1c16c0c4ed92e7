"""Kafka's own command line tools, run one after the other in one Java process, which dies with the test."""

from __future__ import annotations

import base64
import shutil
import subprocess
from pathlib import Path
from typing import Self

import pytest
from support.kafka.jvm import JAVA, TARGET, java_tool, maven_class_path, one_at_a_time

FOLDER = JAVA / "tools"
TOOLS = "org.apache.kafka.tools."
QUIET = "log4j.rootLogger=OFF\n"


class JavaTools:
    """The tools of one version of Kafka, for one broker."""

    def __init__(self, version: str, bootstrap: str, folder: Path) -> None:
        self.version, self.bootstrap = version, bootstrap
        target = TARGET / f"tools-{version}"
        jars = maven_class_path(FOLDER / f"tools-{version}.xml", target)
        compiled = target / "Tools.class"
        with one_at_a_time():
            source = FOLDER / "Tools.java"
            if not compiled.exists() or compiled.stat().st_mtime < source.stat().st_mtime:
                subprocess.run([java_tool("javac"), "-cp", jars, "-d", str(target), str(source)], check=True)
        logging = folder / "tools-log4j.properties"
        logging.write_text(QUIET, encoding="utf-8")
        flags = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", f"-Dlog4j.configuration=file:{logging}"]
        dies_too = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
        self.process = subprocess.Popen(
            [*dies_too, java_tool("java"), *flags, "-cp", f"{jars}:{target}", "Tools"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

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
