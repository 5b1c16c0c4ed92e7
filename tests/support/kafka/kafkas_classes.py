"""Kafka's own classes, asked with cases of the recorded verdicts' form: `java/verdicts`, one program a release."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

import pytest
from support.kafka.jvm import JAVA, Jvm

FOLDER = JAVA / "verdicts"
PROGRAMS = {"0.10.2": ("0.10.2.2", "old", "OldVerdicts"), "3.9": ("3.9.2", "new", "NewVerdicts")}
MEMORY = "/dev/shm"  # where the logs of a case lie


def verdicts(gen: str, cases: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """What Kafka does with cases: the `out` of each."""
    asked = b"".join(json.dumps({"family": case["family"], "in": case["in"]}).encode() + b"\n" for case in cases)
    version, folder, main = PROGRAMS[gen]
    sources = [*(FOLDER / "common").glob("*.java"), *(FOLDER / folder).glob("*.java")]
    java = Jvm(FOLDER / f"verdicts-{version}.xml", *sources)
    logging = java.folder / "log4j.properties"
    logging.write_text("log4j.rootLogger=OFF\n", encoding="utf-8")
    options = ["-Xmx1g", f"-Dlog4j.configuration=file:{logging}"]
    options += [f"-Djava.io.tmpdir={MEMORY}"] if os.path.isdir(MEMORY) else []
    answers: list[dict[str, Any]] = list(map(json.loads, java.run(main, options=options, stdin=asked).splitlines()))
    if len(answers) != len(cases):
        pytest.fail(f"{len(answers)} answers to {len(cases)} cases")
    return answers
