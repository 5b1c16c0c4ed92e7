"""Decoding to Arrow columns with CRCs checked, against record loops and against the floor."""

from __future__ import annotations

from collections.abc import Iterator

import kts

from .corpora import CODECS, SIZES, Corpus, corpora
from .java import JavaLoop
from .peers import aiokafka_loop, floor, kafka_python_loop
from .table import Report, cpu_seconds, medians

SLOW_PEER_BYTES = 1 << 20
HEADER = [
    "corpus", "aiokafka Mrec/s", "kafka-python", "Java", "kts copied", "kts views", "floor", "copied / floor",
    "views / floor",
]  # fmt: skip


def drain(corpus: Corpus, *, views: bool) -> int:
    return sum(batch.num_rows for batch in kts.iter_decode(corpus.data, views=views))


def all_corpora(total_bytes: int, seed: int) -> Iterator[Corpus]:
    for magic, codecs in ((2, list(CODECS)), (1, list(CODECS[:4])), (0, ["none"])):
        for size in SIZES:
            yield from corpora(magic, size, codecs, total_bytes, seed)


def row(corpus: Corpus, java: JavaLoop | None, rounds: int) -> list[str]:
    """Rates as multiples of aiokafka's; kafka-python walks a part, because it takes too long for the whole."""
    part = corpus.front(SLOW_PEER_BYTES)
    contenders = {
        "aiokafka": cpu_seconds(lambda: aiokafka_loop(corpus)),
        "kafka-python": cpu_seconds(lambda: kafka_python_loop(part)),
        "floor": cpu_seconds(floor(corpus)),
        "copied": cpu_seconds(lambda: drain(corpus, views=False)),
        "views": cpu_seconds(lambda: drain(corpus, views=True)),
    }
    if java is not None:
        contenders["java"] = java.seconds(corpus)
    found = drain(corpus, views=False), aiokafka_loop(corpus)
    if found != (corpus.records, corpus.records):
        raise ValueError(f"{corpus.name}: expected {corpus.records} records, kts and aiokafka found {found}")
    part_records = kafka_python_loop(part)
    taken = medians(contenders, rounds)
    rates = {name: corpus.records / seconds for name, seconds in taken.items()}
    rates["kafka-python"] = part_records / taken["kafka-python"]

    def times(name: str) -> str:
        return f"{rates[name] / rates['aiokafka']:.1f}x" if name in rates else "-"

    return [
        corpus.name,
        f"{rates['aiokafka'] / 1e6:.2f}",
        f"{rates['kafka-python'] / rates['aiokafka']:.2f}x",
        *(times(name) for name in ("java", "copied", "views", "floor")),
        *(f"{rates[name] / rates['floor']:.0%}" for name in ("copied", "views")),
    ]


def run(report: Report, total_bytes: int, seed: int, rounds: int, only: str) -> None:
    with JavaLoop.start(report) as java:
        lines = []
        for corpus in all_corpora(total_bytes, seed):
            if only in corpus.name:
                lines.append(row(corpus, java, rounds))
                report.progress(" ".join(lines[-1]))
        report.table(f"Decode, {total_bytes >> 20} MiB a corpus: multiples of aiokafka's rate", HEADER, lines)
