"""The reference decoder against Kafka's own classes, on random batches of every magic, codec and shape."""

from __future__ import annotations

import base64
import json
import random
import struct
import subprocess
from pathlib import Path
from typing import Any

import generate
import pytest
import reference
from decoded import difference
from jvm import java_tool, maven_class_path, require_maven
from streams import REFUSED, TABLES, batch_of

JAVA = Path(__file__).parent / "java"
BUFFERS = 2000


def kafka_reads(sets: list[bytes], classes: Path) -> list[dict[str, Any]]:
    """What the Java program ``RecordSets read`` says of every set."""
    class_path = maven_class_path(JAVA / "pom.xml", JAVA / "target")
    compile_it = [java_tool("javac"), "-cp", class_path, "-d", str(classes), str(JAVA / "RecordSets.java")]
    subprocess.run(compile_it, check=True)
    done = subprocess.run(
        [java_tool("java"), "-Xmx512m", "-XX:+UseSerialGC", "-cp", f"{class_path}:{classes}", "RecordSets", "read"],
        input=b"".join(struct.pack(">i", len(each)) + each for each in sets),
        capture_output=True,
        check=False,
    )
    if done.returncode:
        pytest.fail(f"the Java program failed:\n{done.stderr.decode()}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def plain(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def opens_nothing(row: dict[str, Any]) -> bool:
    """A compressed batch without a byte: Kafka's iterator gives no record, its streaming one (used here) fails."""
    return row["count"] == 0 and row["codec"] != 0 and row["sizeInBytes"] == 61


def test_the_reference_reads_random_batches_as_kafka_does(seed: int, tmp_path: Path) -> None:
    require_maven()
    sets = [generate.random_buffer(random.Random(f"{seed}-{i}"))[0] for i in range(BUFFERS)]
    sets = [data for data in sets if not any(opens_nothing(row) for row in reference.scan_batches(data))]
    records = batches = 0
    for i, (data, described) in enumerate(zip(sets, kafka_reads(sets, tmp_path), strict=True)):
        where = f"KTS_SEED={seed}, buffer {i}"
        assert "error" not in described, f"{where}: {plain(described.get('error'))!r}"
        ours = reference.decode(data)
        theirs = [
            {
                "offset": offset,
                "timestamp": timestamp,
                "key": plain(key),
                "value": plain(value),
                "headers": [(base64.b64decode(name).decode(), plain(data)) for name, data in headers] or None,
                "sequence": sequence,
            }
            for offset, timestamp, _, key, value, headers, sequence in described["records"]
        ]
        common = [{name: row[name] for name in kafka} for row, kafka in zip(ours, theirs, strict=False)]
        assert len(ours) == len(theirs), where
        assert difference(common, theirs) is None, f"{where}: {difference(common, theirs)}"
        scanned = [
            [
                row["magic"],
                row["lastOffset"],
                row["count"] if row["magic"] == 2 else None,
                row["codec"],
                row["timestampType"],
                row["maxTimestamp"],
                row["producerId"],
                row["producerEpoch"],
                row["baseSequence"],
                row["partitionLeaderEpoch"],
                row["transactional"],
                row["control"],
            ]
            for row in reference.scan_batches(data)
        ]
        assert scanned == [[batch[0], *batch[2:]] for batch in described["batches"]], where
        records += len(ours)
        batches += len(scanned)
    print(f"{batches} batches and messages, {records} records")


def test_kafka_gives_the_verdicts_on_odd_payloads(tmp_path: Path) -> None:
    require_maven()
    cases = [
        (f"{name}: {case.name}", case.verdict, batch_of(codec, case))
        for name, (codec, table) in TABLES.items()
        for case in table
        if case.name != "chunk length -1"  # a java.lang.Error, which the Java program does not catch
    ]
    for (name, verdict, _), described in zip(cases, kafka_reads([data for *_, data in cases], tmp_path), strict=True):
        assert ("error" in described) == (verdict == REFUSED), name
