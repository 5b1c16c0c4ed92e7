"""Loops of Kafka's own Java classes, where a JDK and Maven are at hand."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path

from .corpora import Corpus
from .table import Report, Seconds

ROOT = Path(__file__).parent.parent
BUILD = ROOT / "build" / "bench-java"
Ask = Callable[[str], list[int]]  # a line to the program, and the numbers of its answer
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


@contextlib.contextmanager
def program(name: str, pom: Path, arguments: Sequence[str], report: Report) -> Iterator[Ask | None]:
    """A Java program that answers each line with numbers; None without the tools."""
    found = class_path(name, pom)
    if found is None:
        report.once("Java's column is left out: it needs a JDK 17 and Maven.")
        yield None
        return
    command = [tool("java"), "-Xmx2g", "-XX:+UseSerialGC", "-cp", found, name, *arguments]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True) as process:
        to, answers = process.stdin, process.stdout
        if to is None or answers is None:
            raise RuntimeError("the Java process has no pipes")

        def ask(line: str) -> list[int]:
            to.write(f"{line}\n")
            to.flush()
            return [int(word) for word in answers.readline().split()]

        yield ask
        to.close()


def warm_up(once: Seconds) -> None:
    """Until the compiler is done: the best round of a step is no better than the best before."""
    best = float("inf")
    for _ in range(WARM_UP_STEPS):
        step: list[float] = []
        while sum(step) < WARM_UP_SECONDS:
            step.append(once())
        if min(step) > 0.98 * best:
            break
        best = min(best, *step)


@contextlib.contextmanager
def corpus_loop(
    corpus: Corpus,
    report: Report,
    name: str = "DecodeLoop",
    pom: Path = ROOT / "tests" / "java" / "pom.xml",
    arguments: tuple[str, ...] = (),
) -> Iterator[Seconds | None]:
    """What gives CPU seconds of a Java thread that reads one corpus, warm; None without the tools.

    One process a corpus: a JVM that has seen several codecs compiles for all of them, and no consumer has that.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "set")
        path.write_bytes(corpus.data)
        with program(name, pom, (str(path), *arguments), report) as ask:
            if ask is None:
                yield None
                return
            records, _ = ask("")
            if records != corpus.records:
                raise ValueError(f"{corpus.name}: expected {corpus.records} records, Java found {records}")

            def once() -> float:
                return ask("")[1] / 1e9

            warm_up(once)
            yield once
