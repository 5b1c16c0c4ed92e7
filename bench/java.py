"""The record loop of Kafka's own Java classes, where a JDK and Maven are at hand."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from .corpora import Corpus
from .table import Report, Seconds

ROOT = Path(__file__).parent.parent
BUILD = ROOT / "build" / "bench-java"
WARM_UP_ROUNDS = 8


def tool(name: str) -> str:
    home = os.environ.get("JAVA_HOME")
    return str(Path(home, "bin", name)) if home else name


def class_path() -> str | None:
    """The compiled loop and Kafka's jars; None without the tools."""
    if not all(shutil.which(name) for name in (tool("java"), tool("javac"), "mvn")):
        return None
    BUILD.mkdir(parents=True, exist_ok=True)
    jars = BUILD / "class-path.txt"
    pom = ROOT / "tests" / "java" / "pom.xml"
    command = ["mvn", "-q", "-B", "-f", str(pom), "dependency:build-classpath", f"-Dmdep.outputFile={jars}"]
    subprocess.run(command, check=True, capture_output=True)
    found = f"{jars.read_text().strip()}:{BUILD}"
    subprocess.run([tool("javac"), "-cp", found, "-d", str(BUILD), str(ROOT / "bench" / "DecodeLoop.java")], check=True)
    return found


class JavaLoop:
    """One Java process that decodes a file as often as it is asked to."""

    def __init__(self, to: IO[str], answers: IO[str], folder: Path) -> None:
        self.to, self.answers, self.folder = to, answers, folder

    @staticmethod
    @contextlib.contextmanager
    def start(report: Report) -> Iterator[JavaLoop | None]:
        found = class_path()
        if found is None:
            report.text("Java's column is left out: it needs a JDK 17 and Maven.")
            yield None
            return
        command = [tool("java"), "-Xmx2g", "-XX:+UseSerialGC", "-cp", found, "DecodeLoop"]
        with (
            tempfile.TemporaryDirectory() as folder,
            subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            ) as process,
        ):
            if process.stdin is None or process.stdout is None:
                raise RuntimeError("the Java process has no pipes")
            yield JavaLoop(process.stdin, process.stdout, Path(folder))
            process.stdin.close()

    def ask(self, line: str) -> tuple[int, float]:
        self.to.write(line + "\n")
        self.to.flush()
        records, nanoseconds = map(int, self.answers.readline().split())
        return records, nanoseconds / 1e9

    def seconds(self, corpus: Corpus) -> Seconds:
        """Warm on this corpus, then CPU seconds of Java's decoding thread."""
        path = self.folder / "set"
        path.write_bytes(corpus.data)
        records, _ = self.ask(str(path))
        if records != corpus.records:
            raise ValueError(f"{corpus.name}: expected {corpus.records} records, Java found {records}")
        for _ in range(WARM_UP_ROUNDS):
            self.ask("")
        return lambda: self.ask("")[1]
