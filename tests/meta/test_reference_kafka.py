"""The reference decoder against Kafka's own classes, on random batches of every magic, codec and shape."""

from __future__ import annotations

import base64
import random
from typing import Any

import pytest
from support.golden import scaled
from support.kafka.jvm import Kafka, record_sets
from support.reference import reference
from support.reference.decoded import difference
from support.sets import generate
from support.sets.codec_streams import REFUSED, TABLES, batch_of

BUFFERS = scaled(700, 2000)


@pytest.fixture(scope="module")
def kafka() -> Kafka:
    """Kafka's own classes, to be asked."""
    return record_sets()


def plain(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def opens_nothing(row: dict[str, Any]) -> bool:
    """A compressed batch without a byte: Kafka's iterator gives no record, its streaming one (used here) fails."""
    return row["count"] == 0 and row["codec"] != 0 and row["sizeInBytes"] == 61


def test_the_reference_reads_random_batches_as_kafka_does(seed: int, kafka: Kafka) -> None:
    sets = [generate.random_buffer(random.Random(f"{seed}-{i}"))[0] for i in range(BUFFERS)]
    sets = [data for data in sets if not any(opens_nothing(row) for row in reference.scan_batches(data))]
    records = batches = 0
    for i, (data, described) in enumerate(zip(sets, kafka("read", sets=sets), strict=True)):
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


def test_kafka_gives_the_verdicts_on_odd_payloads(kafka: Kafka) -> None:
    cases = [
        (f"{name}: {case.name}", case.verdict, batch_of(codec, case))
        for name, (codec, table) in TABLES.items()
        for case in table
        if case.name != "chunk length -1"  # a java.lang.Error, which the Java program does not catch
    ]
    for (name, verdict, _), described in zip(cases, kafka("read", sets=[data for *_, data in cases]), strict=True):
        assert ("error" in described) == (verdict == REFUSED), name
