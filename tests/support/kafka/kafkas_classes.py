"""Kafka's own classes, asked with cases of the recorded verdicts' form: `java/verdicts`, one program a release."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from typing import Any

import pytest
from support.kafka.jvm import JAVA, TARGET, java_tool, maven_class_path, one_at_a_time

FOLDER = JAVA / "verdicts"
PROGRAMS = {"0.10.2": ("0.10.2.2", "old", "OldVerdicts"), "3.9": ("3.9.2", "new", "NewVerdicts")}
MEMORY = "/dev/shm"  # where the logs of a case lie
FLAGS = ["-Xmx1g", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]


def compiled(gen: str) -> list[str]:
    """The command that starts a program, which is compiled first where it is older than its sources."""
    version, folder, main = PROGRAMS[gen]
    target = TARGET / f"verdicts-{version}"
    jars = maven_class_path(FOLDER / f"verdicts-{version}.xml", target)
    sources = [*(FOLDER / "common").glob("*.java"), *(FOLDER / folder).glob("*.java")]
    made = target / "classes" / f"{main}.class"
    compiler = [java_tool("javac"), "-nowarn", "-cp", jars, "-d", str(made.parent), *map(str, sources)]
    with one_at_a_time():
        if not made.exists() or made.stat().st_mtime < max(source.stat().st_mtime for source in sources):
            made.parent.mkdir(parents=True, exist_ok=True)
            subprocess.run(compiler, check=True)
        (target / "log4j.properties").write_text("log4j.rootLogger=OFF\n", encoding="utf-8")
    logging = f"-Dlog4j.configuration=file:{target / 'log4j.properties'}"
    temporary = [f"-Djava.io.tmpdir={MEMORY}"] if os.path.isdir(MEMORY) else []
    return [java_tool("java"), *FLAGS, logging, *temporary, "-cp", f"{jars}:{made.parent}", main]


def verdicts(gen: str, cases: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """What Kafka does with cases: the `out` of each."""
    asked = b"".join(json.dumps({"family": case["family"], "in": case["in"]}).encode() + b"\n" for case in cases)
    done = subprocess.run(compiled(gen), input=asked, capture_output=True, check=False)
    answers: list[dict[str, Any]] = [json.loads(line) for line in done.stdout.splitlines()]
    if done.returncode or len(answers) != len(cases):
        pytest.fail(f"{len(answers)} answers to {len(cases)} cases:\n{done.stderr.decode()[-3000:]}")
    return answers
