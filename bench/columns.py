"""Fewer columns cost less: two fixed ones, and keys and values with and without headers."""

from __future__ import annotations

from collections.abc import Callable

import kts

from .corpora import Corpus, Shape, corpora
from .table import Report, cpu_seconds, medians, reached

CHOICES = {
    "all": ["offset", "timestamp", "timestampType", "key", "value", "headers"],
    "fixed": ["offset", "timestamp"],
    "key, value": ["key", "value"],
    "key, value, headers": ["key", "value", "headers"],
}
FIXED_GOAL, BYTE_GOAL = 2.0, 1.0
FIXED_HEADER = ["corpus", "all columns ns a record", "offset, timestamp", "times", "goal", "reached"]
HEADERS_HEADER = [
    "corpus", "bytes a record", "key, value, headers ns a record", "key, value", "GiB/s", "of the rate without headers",
    "goal", "reached",
]  # fmt: skip


def drain(corpus: Corpus, columns: list[str]) -> Callable[[], None]:
    def work() -> None:
        if sum(batch.num_rows for batch in kts.iter_decode(corpus.data, columns)) != corpus.records:
            raise ValueError(f"{corpus.name}: rows are missing")

    return work


def nanoseconds(corpus: Corpus, rounds: int) -> dict[str, float]:
    """What a record takes, for each choice of columns."""
    contenders = {name: cpu_seconds(drain(corpus, columns)) for name, columns in CHOICES.items()}
    return {name: seconds / corpus.records * 1e9 for name, seconds in medians(contenders, rounds).items()}


def run(report: Report, total_bytes: int, seed: int, rounds: int) -> None:
    fixed, headers = [], []
    for size in ("tiny", "100 B"):
        plain_rate = 0.0
        for title, shape in (("no headers", Shape()), ("2 or 3 headers", Shape(headers=True))):
            [corpus] = corpora(2, size, ["none"], total_bytes, seed, shape)
            taken = nanoseconds(corpus, rounds)
            record_bytes = len(corpus.data) / corpus.records
            rate = record_bytes / taken["key, value"] * 1e9 / 2**30
            line = [f"{corpus.name}, {title}", f"{record_bytes:.0f}"]
            line += [f"{taken['key, value, headers']:.1f}", f"{taken['key, value']:.1f}", f"{rate:.2f}"]
            if shape.headers:
                share = rate / plain_rate
                headers.append([*line, f"{share:.0%}", f"{BYTE_GOAL:.0%}", reached(share, BYTE_GOAL)])
            else:
                plain_rate = rate
                headers.append([*line, "100%", "-", "-"])
                times = taken["all"] / taken["fixed"]
                line = [corpus.name, f"{taken['all']:.1f}", f"{taken['fixed']:.1f}", f"{times:.1f}x"]
                fixed.append([*line, f"{FIXED_GOAL:g}x", reached(times, FIXED_GOAL)])
                report.progress(" ".join(fixed[-1]))
            report.progress(" ".join(headers[-1]))
    report.table("Two fixed columns against all six, copied", FIXED_HEADER, fixed)
    report.table("Keys and values beside headers: a byte is to cost no more than without them", HEADERS_HEADER, headers)
