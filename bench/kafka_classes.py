"""Kafka's own Java classes, warm, in a process beside: its record loop and its LogValidator."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import kts

from .corpora import CODECS, SIZES, Corpus, corpora
from .java import corpus_loop
from .micro.append import TYPES, VALIDATED, sets, topic, validating
from .table import Report, cpu_seconds, medians, reached

BROKER = Path(__file__).parent / "broker-pom.xml"
DECODE_HEADER = ["corpus", "kts copied Mrec/s", "Java Mrec/s", "kts / Java"]
VALIDATE_HEADER = [
    "sets of 16 KiB", "timestamps", "written as", "kts MB/s", "LogValidator MB/s", "with its CRC check MB/s",
    "kts / LogValidator", "goal", "reached",
]  # fmt: skip
GOAL = 1.2


def decode_row(corpus: Corpus, report: Report, rounds: int) -> list[str]:
    def drain() -> None:
        if sum(batch.num_rows for batch in kts.iter_decode(corpus.data)) != corpus.records:
            raise ValueError(f"{corpus.name}: rows are missing")

    contenders = {"kts": cpu_seconds(drain)}
    with corpus_loop(corpus, report) as java:
        if java is not None:
            contenders["Java"] = java
        taken = medians(contenders, rounds)
    rates = [f"{corpus.records / taken[name] / 1e6:.2f}" if name in taken else "-" for name in ("kts", "Java")]
    return [corpus.name, *rates, f"{taken['Java'] / taken['kts']:.1f}x" if "Java" in taken else "-"]


def validate_row(
    corpus: Corpus, timestamp_type: str, to: int, compression: str, report: Report, rounds: int
) -> list[str]:
    appended, config = sets(corpus), topic(to, compression, timestamp_type, "3.9")
    target = {"producer": corpus.codec, "uncompressed": "none"}.get(compression, compression)
    framed = replace(corpus, data=b"".join(struct.pack(">i", len(one)) + one for one in appended))
    arguments = (str(to), corpus.codec, target, timestamp_type)
    contenders = {"kts": cpu_seconds(validating(config, appended))}
    with contextlib.ExitStack() as stack:
        for name in ("alone", "checked"):
            java = stack.enter_context(corpus_loop(framed, report, "AppendLoop", BROKER, (*arguments, name)))
            if java is not None:
                contenders[name] = java
        taken = medians(contenders, rounds)
    megabytes = sum(map(len, appended)) / 1e6
    rates = {name: megabytes / seconds for name, seconds in taken.items()}
    cells = [f"{rates[name]:.0f}" if name in rates else "-" for name in ("kts", "alone", "checked")]
    row = [corpus.name, timestamp_type, f"v{to} {target}", *cells]
    if "alone" not in rates:
        return [*row, "-", f"{GOAL}x", "-"]
    times = rates["kts"] / rates["alone"]
    return [*row, f"{times:.1f}x", f"{GOAL}x", reached(times, GOAL)]


def chosen_corpora(total_bytes: int, seed: int) -> Iterator[Corpus]:
    for magic, codecs in ((2, CODECS), (1, CODECS[:4]), (0, CODECS[:1])):
        for size in SIZES:
            yield from corpora(magic, size, list(codecs), total_bytes, seed)


def run(report: Report, total_bytes: int, seed: int, rounds: int) -> None:
    rows = []
    for corpus in chosen_corpora(total_bytes, seed):
        rows.append(decode_row(corpus, report, rounds))
        report.progress(" ".join(rows[-1]))
    report.text(
        "Java runs in a process of its own for each corpus until it gets no faster; it slices out keys and values and"
        " reads their lengths and first bytes, but copies nothing."
    )
    report.table("Decode, against Kafka's Java classes", DECODE_HEADER, rows)
    rows = []
    for magic, size, codec, to, compression in VALIDATED:
        [corpus] = corpora(magic, size, [codec], total_bytes // 2, seed)
        for timestamp_type in TYPES if (codec, to, compression) == ("none", magic, "producer") else TYPES[:1]:
            rows.append(validate_row(corpus, timestamp_type, to, compression, report, rounds))
            report.progress(" ".join(rows[-1]))
    report.table("The validator, against Kafka 3.9.2's LogValidator, warm", VALIDATE_HEADER, rows)
