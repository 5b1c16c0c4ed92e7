"""Java, Maven and Spark for the tests that ask real Kafka and real Spark: found, or skipped with how to get them."""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import json
import os
import re
import secrets
import shutil
import struct
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

import pytest
from support import ROOT, TESTS
from support.processes.dying import DIES_TOO
from support.processes.json_loop import AskedProcess

JAVA = TESTS / "java"
TARGET = ROOT / "build/tests"  # what is fetched and compiled: where pytest looks for no tests
Program = Callable[..., bytes]  # see java_program
Kafka = Callable[..., list[dict[str, Any]]]  # see record_sets
# For what lives for seconds, Maven and the compiler too: little is compiled. A program is started in silence about an
# archive that no longer fits.
QUICK = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"]
FLAGS = [*QUICK, "-Xlog:disable"]
UNVERIFIED = ["-XX:+UnlockDiagnosticVMOptions", "-XX:-BytecodeVerificationRemote"]
ENDED_WELL = (0, 143)  # by themselves, or by SIGTERM
GET_JDK = "get them by: sudo apt install openjdk-17-jdk-headless maven"


def missing(what: str, how: str) -> NoReturn:
    """Skip, or fail where KTS_REQUIRE_JAVA=1 says that everything must be there."""
    if os.environ.get("KTS_REQUIRE_JAVA") == "1":
        pytest.fail(f"{what} is missing and KTS_REQUIRE_JAVA=1 forbids to skip; {how}")
    pytest.skip(f"needs {what}; {how}")


@cache
def _java_says() -> str:
    """What `java -version` says, of the `java` that JAVA_HOME or PATH names; nothing if there is none."""
    try:
        return subprocess.run([java_tool("java"), "-version"], capture_output=True, text=True, check=True).stderr
    except (OSError, subprocess.CalledProcessError):
        return ""


def java_version() -> int:
    """The major version of Java, 0 if there is none."""
    found = re.search(r'version "(\d+)', _java_says())
    return int(found[1]) if found else 0


def java_tool(name: str) -> str:
    """The path of `java` or `javac` under JAVA_HOME, else its bare name."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home, "bin", name)) if home else name


def require_java() -> None:
    """Go on only with a JDK 17 or newer: `java` and `javac`."""
    if java_version() < 17 or not shutil.which(java_tool("javac")):
        missing("a JDK 17 or newer", GET_JDK)


def require_spark() -> Path:
    """Go on only with Java and pyspark 4; where that lies."""
    require_java()
    pyspark = importlib.util.find_spec("pyspark")
    if pyspark is None or pyspark.origin is None:
        missing(
            "pyspark",
            "get it by: pip install 'kafka-timestamps[spark]', or run `make test` again now that a JDK is there",
        )
    return Path(pyspark.origin).parent


def spark_environ(pyspark: Path | None = None) -> dict[str, str]:
    """What is set for a process that starts a Spark session: of `pyspark`, or of the installed one.

    Such a session takes a third less of the processors. Its JVMs compile little and verify no bytecode. Its home is the
    installation without the folder `python`, else each worker would compile pyspark again, out of the archive there.
    """
    pyspark = pyspark or require_spark()
    home = TARGET / "spark" / pyspark.parent.name
    with one_at_a_time():
        home.mkdir(parents=True, exist_ok=True)
        for link, installed in ((home / name, pyspark / name) for name in ("bin", "jars")):
            if link.resolve() != installed.resolve():
                link.unlink(missing_ok=True)
                link.symlink_to(installed)
    return {
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,  # else workers are the first python3 of PATH, without kts
        "JAVA_TOOL_OPTIONS": " ".join([*FLAGS, *UNVERIFIED]),
    }


def require_maven() -> None:
    """Go on only with Java and Maven."""
    require_java()
    if not shutil.which("mvn"):
        missing("Maven", GET_JDK)


@contextlib.contextmanager
def one_at_a_time() -> Iterator[None]:
    """Fetch and compile here: several test processes come at once, and half of a class is none."""
    TARGET.mkdir(parents=True, exist_ok=True)
    with (TARGET / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def folder_of(pom: Path) -> Path:
    """Where everything lies that is fetched and compiled for `pom`."""
    return TARGET / pom.relative_to(JAVA).with_suffix("")


def maven_class_path(pom: Path) -> str:
    """The jars that `pom` asks for, downloaded once; the answer is kept until the pom changes."""
    require_maven()
    answer = folder_of(pom) / "class-path.txt"
    answer.parent.mkdir(parents=True, exist_ok=True)
    with one_at_a_time():
        if is_older(answer, pom):
            mine = answer.with_suffix(".part")
            command = ["mvn", "-q", "-B", "-f", str(pom), "dependency:build-classpath", f"-Dmdep.outputFile={mine}"]
            environ = os.environ | {"MAVEN_OPTS": " ".join([*QUICK, os.environ.get("MAVEN_OPTS", "")])}
            done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
            if done.returncode:
                pytest.fail(f"Maven could not get the jars of {pom}:\n{done.stdout}{done.stderr}")
            mine.replace(answer)
    return answer.read_text(encoding="utf-8").strip()


def is_older(made: Path, *sources: Path) -> bool:
    """Whether something that was made of files has to be made again."""
    return not made.exists() or made.stat().st_mtime < max(source.stat().st_mtime for source in sources)


class Jvm:
    """Java with the jars of a pom, and with programs of ours, which are compiled once.

    Parameters
    ----------
    pom : a file under tests/java
    sources : the programs
    """

    def __init__(self, pom: Path, *sources: Path) -> None:
        self.class_path = maven_class_path(pom)
        self.folder = folder_of(pom)
        if sources:
            programs = self.folder / f"{sources[0].stem}.jar"  # an archive of classes takes no folders
            with one_at_a_time():
                if is_older(programs, self.folder / "class-path.txt", *sources):
                    self._compile(programs, sources)
            self.class_path += f":{programs}"

    def _compile(self, programs: Path, sources: Sequence[Path]) -> None:
        with tempfile.TemporaryDirectory() as classes:
            quick = [f"-J{flag}" for flag in QUICK]
            compiler = [java_tool("javac"), *quick, "-nowarn", "-cp", self.class_path, "-d", classes]
            subprocess.run([*compiler, *map(str, sources)], check=True, capture_output=True)
            mine = programs.with_suffix(".part")
            with zipfile.ZipFile(mine, "w") as jar:
                for each in sorted(Path(classes).rglob("*.class")):
                    jar.write(each, each.relative_to(classes))
            mine.replace(programs)

    def archive(self, main: str) -> Path:
        """Where a program's classes are kept for this Java, as it has loaded and verified them."""
        return self.folder / f"{main}-{zlib.crc32(_java_says().encode()):08x}.jsa"

    def run(self, main: str, *arguments: object, options: Sequence[str] = (), stdin: bytes = b"") -> bytes:
        """What a program prints, that has to succeed."""
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with JavaProcess(self, main, *arguments, options=options, **pipes) as process:
            out, errors = process.communicate(stdin)
        if process.returncode:
            pytest.fail(f"the Java program {main} failed:\n{errors.decode()[-6000:]}")
        return out


class JavaProcess(AskedProcess):
    """A Java program in the background, which dies with this process, whatever ends that.

    From an archive of its classes a program starts with half the work, but to make one costs as much as several starts:
    the first one, which may be the only one on a fresh clone, leaves none, and the next that ends well does.
    """

    def __init__(self, jvm: Jvm, main: str, *arguments: object, options: Sequence[str] = (), **popen: Any) -> None:
        self._archive = jvm.archive(main)
        self._part: Path | None = None
        flags = [f"-XX:SharedArchiveFile={self._archive}"]
        jars = [Path(each) for each in jvm.class_path.split(":")]
        if is_older(self._archive, *jars):
            flags, started = [], self._archive.with_suffix(".started")
            if is_older(started, *jars):
                started.touch()
            else:
                self._part = self._archive.with_suffix(f".{secrets.token_hex(8)}.part")
                flags = [f"-XX:ArchiveClassesAtExit={self._part}"]
        java = [java_tool("java"), *FLAGS, *flags, *options, "-cp", jvm.class_path, main]
        super().__init__([*DIES_TOO, *java, *map(str, arguments)], **popen)

    def wait(self, timeout: float | None = None) -> int:
        code = super().wait(timeout)
        part, self._part = self._part, None
        if part is not None and part.exists():
            if code in ENDED_WELL:
                part.replace(self._archive)
            else:
                part.unlink()
        return code


def java_program(name: str) -> Program:
    """`java/<name>.java`: called with its arguments, and `sets=` for its input, each behind its length, it gives what
    it prints."""
    jvm = Jvm(JAVA / "pom.xml", *sorted(JAVA.glob("*.java")))

    def run(*arguments: object, sets: list[bytes] | None = None) -> bytes:
        stdin = b"".join(struct.pack(">i", len(each)) + each for each in sets or [])
        return jvm.run(name, *arguments, options=["-Xmx512m"], stdin=stdin)

    return run


def record_sets() -> Kafka:
    """`java/RecordSets.java`: the lines that it prints, one a set."""
    run = java_program("RecordSets")
    return lambda *arguments, **sets: [json.loads(line) for line in run(*arguments, **sets).splitlines()]
