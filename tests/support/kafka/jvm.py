"""Java, Maven and Spark for the tests that ask real Kafka and real Spark: found, or skipped with how to get them."""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import json
import os
import re
import shutil
import struct
import subprocess
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

import pytest
from support import ROOT, TESTS

JAVA = TESTS / "java"
TARGET = ROOT / "build/tests"  # what is fetched and compiled: where pytest looks for no tests
Program = Callable[..., bytes]  # see java_program
Kafka = Callable[..., list[dict[str, Any]]]  # see record_sets
GET_JDK = "get them by: sudo apt install openjdk-17-jdk-headless maven"


def _missing(what: str, how: str) -> NoReturn:
    """Skip, or fail where KTS_REQUIRE_JAVA=1 says that everything must be there."""
    if os.environ.get("KTS_REQUIRE_JAVA") == "1":
        pytest.fail(f"{what} is missing and KTS_REQUIRE_JAVA=1 forbids to skip; {how}")
    pytest.skip(f"needs {what}; {how}")


@cache
def java_version() -> int:
    """The major version of the `java` that JAVA_HOME or PATH names, 0 if there is none."""
    try:
        out = subprocess.run([java_tool("java"), "-version"], capture_output=True, text=True, check=True).stderr
    except (OSError, subprocess.CalledProcessError):
        return 0
    found = re.search(r'version "(\d+)', out)
    return int(found[1]) if found else 0


def java_tool(name: str) -> str:
    """The path of `java` or `javac` under JAVA_HOME, else its bare name."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home, "bin", name)) if home else name


def require_java() -> None:
    """Go on only with a JDK 17 or newer: `java` and `javac`."""
    if java_version() < 17 or not shutil.which(java_tool("javac")):
        _missing("a JDK 17 or newer", GET_JDK)


def require_spark() -> None:
    """Go on only with Java and pyspark 4."""
    require_java()
    if importlib.util.find_spec("pyspark") is None:
        _missing("pyspark", "get it by: pip install 'kts[spark]', or run `make test` again now that a JDK is there")


def require_maven() -> None:
    """Go on only with Java and Maven."""
    require_java()
    if not shutil.which("mvn"):
        _missing("Maven", GET_JDK)


@contextlib.contextmanager
def one_at_a_time() -> Iterator[None]:
    """Fetch and compile here: several test processes come at once, and half of a class is none."""
    TARGET.mkdir(parents=True, exist_ok=True)
    with (TARGET / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def maven_class_path(pom: Path, target: Path) -> str:
    """The jars that `pom` asks for, downloaded once; the answer is kept in `target` until the pom changes."""
    require_maven()
    target.mkdir(parents=True, exist_ok=True)
    answer = target / "class-path.txt"
    with one_at_a_time():
        if not answer.exists() or answer.stat().st_mtime < pom.stat().st_mtime:
            mine = answer.with_suffix(".part")
            command = ["mvn", "-q", "-B", "-f", str(pom), "dependency:build-classpath", f"-Dmdep.outputFile={mine}"]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                pytest.fail(f"Maven could not get the jars of {pom}:\n{done.stdout}{done.stderr}")
            mine.replace(answer)
    return answer.read_text(encoding="utf-8").strip()


def java_program(name: str, target: Path) -> Program:
    """`java/<name>.java` and the classes beside it that it needs, compiled into `target`: called with its arguments,
    and `sets=` for its input, each behind its length, it gives what it prints."""
    require_maven()
    class_path = maven_class_path(JAVA / "pom.xml", TARGET)
    classes = target / "classes"
    compiler = [java_tool("javac"), "-cp", class_path, "-sourcepath", str(JAVA), "-d", str(classes)]
    subprocess.run([*compiler, str(JAVA / f"{name}.java")], check=True)
    program = [java_tool("java"), "-Xmx512m", "-XX:+UseSerialGC", "-cp", f"{class_path}:{classes}", name]

    def run(*arguments: object, sets: list[bytes] | None = None) -> bytes:
        stdin = b"".join(struct.pack(">i", len(each)) + each for each in sets or [])
        done = subprocess.run([*program, *map(str, arguments)], input=stdin, capture_output=True, check=False)
        if done.returncode:
            pytest.fail(f"the Java program failed:\n{done.stderr.decode()}")
        return done.stdout

    return run


def record_sets(target: Path) -> Kafka:
    """`java/RecordSets.java`: the lines that it prints, one a set."""
    run = java_program("RecordSets", target)
    return lambda *arguments, **sets: [json.loads(line) for line in run(*arguments, **sets).splitlines()]
