"""The record loop of Kafka's own Java classes, where a JDK and Maven are at hand."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import IO

from .corpora import Corpus
from .table import Report, Seconds

ROOT = Path(__file__).parent.parent
BUILD = ROOT / "build" / "bench-java"
WARM_UP_SECONDS, WARM_UP_STEPS = 0.6, 8  # of CPU time a step; at most so many steps


def tool(name: str) -> str:
    home = os.environ.get("JAVA_HOME")
    return str(Path(home, "bin", name)) if home else name


@cache
def class_path(program: str, pom: Path) -> str | None:
    """The compiled loop and the jars that the pom names; None without the tools."""
    if not all(shutil.which(name) for name in (tool("java"), tool("javac"), "mvn")):
        return None
    BUILD.mkdir(parents=True, exist_ok=True)
    jars = BUILD / f"{program}.class-path"
    command = ["mvn", "-q", "-B", "-f", str(pom), "dependency:build-classpath", f"-Dmdep.outputFile={jars}"]
    subprocess.run(command, check=True, capture_output=True)
    found = f"{jars.read_text().strip()}:{BUILD}"
    subprocess.run([tool("javac"), "-cp", found, "-d", str(BUILD), str(ROOT / "bench" / f"{program}.java")], check=True)
    return found


class JavaLoop:
    """A Java process that reads one corpus as often as it is asked to.

    One process a corpus: a JVM that has seen several codecs compiles for all of them, and no consumer has that.
    """

    def __init__(self, to: IO[str], answers: IO[str]) -> None:
        self.to, self.answers = to, answers

    @staticmethod
    @contextlib.contextmanager
    def on(
        corpus: Corpus,
        report: Report,
        program: str = "DecodeLoop",
        pom: Path = ROOT / "tests" / "java" / "pom.xml",
        arguments: tuple[str, ...] = (),
    ) -> Iterator[Seconds | None]:
        """What gives CPU seconds of Java's working thread, warm; None without the tools."""
        found = class_path(program, pom)
        if found is None:
            report.once("Java's column is left out: it needs a JDK 17 and Maven.")
            yield None
            return
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "set")
            path.write_bytes(corpus.data)
            command = [tool("java"), "-Xmx2g", "-XX:+UseSerialGC", "-cp", found, program, str(path), *arguments]
            pipe = subprocess.PIPE
            with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True) as process:
                if process.stdin is None or process.stdout is None:
                    raise RuntimeError("the Java process has no pipes")
                loop = JavaLoop(process.stdin, process.stdout)
                loop.warm_up(corpus)
                yield loop.once
                process.stdin.close()

    def ask(self) -> tuple[int, float]:
        self.to.write("\n")
        self.to.flush()
        records, nanoseconds = map(int, self.answers.readline().split())
        return records, nanoseconds / 1e9

    def once(self) -> float:
        return self.ask()[1]

    def warm_up(self, corpus: Corpus) -> None:
        """Until the compiler is done: the best round of a step is no better than the best before."""
        records, _ = self.ask()
        if records != corpus.records:
            raise ValueError(f"{corpus.name}: expected {corpus.records} records, Java found {records}")
        best = float("inf")
        for _ in range(WARM_UP_STEPS):
            step: list[float] = []
            while sum(step) < WARM_UP_SECONDS:
                step.append(self.once())
            if min(step) > 0.98 * best:
                break
            best = min(best, *step)
