"""Decoding to Arrow columns with CRCs checked, against record loops and against the floor."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import kts

from .corpora import CODECS, SIZES, Corpus, corpora
from .floor import Floor
from .java import JavaLoop
from .peers import aiokafka_loop, aiokafka_to_arrow, kafka_python_loop
from .table import Report, Seconds, cpu_seconds, medians, reached

SLOW_PEER_BYTES = 1 << 20
ARROW_GOAL, FLOOR_GOAL = 28.0, 0.90
# Multiples of aiokafka's rate that are wanted, for tiny, 100 B and 1 KB.
COPIED_GOALS: dict[str, tuple[float | None, float | None, float | None]] = {
    "v2 none": (20, 14, 8),
    "v2 lz4": (11, 6, 3),
    "v2 zstd": (5.5, 3.3, 1.9),
    "v2 snappy": (8, 3.7, 1.8),
    "v2 gzip": (4.6, 3.5, 2.9),
    "v1 none": (25, 15, 6),
    "v0 none": (19, 19, 4),
    "v1 lz4": (8, 5, 2.5),
    "v1 snappy": (None, 2.7, None),
    "v1 gzip": (None, 3.5, None),
}
VIEWS_GOALS: dict[str, tuple[float | None, float | None, float | None]] = {
    "v2 none": (25, 17, 16),
    "v1 none": (27, 17, 15),
    "v0 none": (20, 21, 15),
}
HEADER = [
    "corpus", "aiokafka Mrec/s", "kafka-python", "Java", "kts copied", "kts views", "floor", "copied / floor",
    "views / floor", "copied / floor with inner CRCs",
]  # fmt: skip
GOAL_HEADER = ["corpus", "copied", "goal", "reached", "views", "goal", "reached", "copied / Java", "floor's library"]
SHARE_HEADER = ["compressed corpus", "copied / floor", "goal", "reached", "floor", "CRCs of inner messages"]
ARROW_HEADER = ["corpus", "aiokafka + pyarrow Mrec/s", "kts copied Mrec/s", "times", "goal", "reached"]


@dataclass(frozen=True)
class Result:
    """The median records a second of every contender over one corpus."""

    corpus: Corpus
    rates: dict[str, float]
    decompressor: str

    def times(self, name: str, other: str = "aiokafka") -> float:
        return self.rates[name] / self.rates[other]

    def cell(self, name: str, other: str = "aiokafka", form: str = ".1f") -> str:
        return f"{self.times(name, other):{form}}x" if name in self.rates and other in self.rates else "-"

    def share(self, name: str, floor: str) -> str:
        return f"{self.times(name, floor):.0%}" if floor in self.rates else "-"


def drain(corpus: Corpus, *, views: bool) -> int:
    return sum(batch.num_rows for batch in kts.iter_decode(corpus.data, views=views))


def chosen_corpora(total_bytes: int, seed: int, only: str) -> Iterator[Corpus]:
    for magic, codecs in ((2, CODECS), (1, CODECS[:4]), (0, CODECS[:1])):
        for size in SIZES:
            chosen = [codec for codec in codecs if only in f"v{magic} {codec} {size}"]
            if chosen:
                yield from corpora(magic, size, chosen, total_bytes, seed)


def measure(corpus: Corpus, rounds: int, report: Report) -> Result:
    """kafka-python walks a part, because it takes too long for the whole."""
    part, floor = corpus.front(SLOW_PEER_BYTES), Floor(corpus)
    found = drain(corpus, views=False), aiokafka_loop(corpus)
    if found != (corpus.records, corpus.records):
        raise ValueError(f"{corpus.name}: expected {corpus.records} records, kts and aiokafka found {found}")
    part_records = kafka_python_loop(part)
    contenders: dict[str, Seconds] = {
        "aiokafka": cpu_seconds(lambda: aiokafka_loop(corpus)),
        "kafka-python": cpu_seconds(lambda: kafka_python_loop(part)),
        "floor": cpu_seconds(floor.outer),
        "copied": cpu_seconds(lambda: drain(corpus, views=False)),
        "views": cpu_seconds(lambda: drain(corpus, views=True)),
    }
    if corpus.codec == "none":
        contenders["arrow"] = cpu_seconds(lambda: aiokafka_to_arrow(corpus))
    elif corpus.magic < 2:
        contenders["inner floor"] = cpu_seconds(floor.inner)
    with JavaLoop.on(corpus, report) as java:
        if java is not None:
            contenders["java"] = java
        taken = medians(contenders, rounds)
    rates = {name: corpus.records / seconds for name, seconds in taken.items()}
    rates["kafka-python"] = part_records / taken["kafka-python"]
    return Result(corpus, rates, floor.decompressor)


def rate_row(result: Result) -> list[str]:
    """Everything as multiples of aiokafka's rate, and the shares of the floors."""
    return [
        result.corpus.name,
        f"{result.rates['aiokafka'] / 1e6:.2f}",
        result.cell("kafka-python", form=".2f"),
        *(result.cell(name) for name in ("java", "copied", "views", "floor")),
        *(result.share(name, "floor") for name in ("copied", "views")),
        result.share("copied", "inner floor"),
    ]


def goal_row(result: Result) -> list[str]:
    kind, size = result.corpus.name.removesuffix(f" {result.corpus.size}"), SIZES.index(result.corpus.size)
    cells = [result.corpus.name]
    for name, goals in (("copied", COPIED_GOALS), ("views", VIEWS_GOALS)):
        goal = goals.get(kind, (None, None, None))[size]
        wanted = ["-", "-"] if goal is None else [f"{goal:g}x", reached(result.times(name), goal)]
        cells += [result.cell(name), *wanted]
    return [*cells, result.cell("copied", "java"), result.decompressor]


def share_rows(result: Result) -> Iterator[list[str]]:
    for floor, inner in (("floor", "-" if result.corpus.magic == 2 else "no"), ("inner floor", "yes")):
        if floor in result.rates:
            share = result.times("copied", floor)
            name = result.corpus.name
            yield [name, f"{share:.0%}", f"{FLOOR_GOAL:.0%}", reached(share, FLOOR_GOAL), result.cell(floor), inner]


def arrow_row(result: Result) -> list[str]:
    times = result.times("copied", "arrow")
    rates = [f"{result.rates[name] / 1e6:.2f}" for name in ("arrow", "copied")]
    wanted = ["-", "-"] if result.corpus.size != "100 B" else [f"{ARROW_GOAL:g}x", reached(times, ARROW_GOAL)]
    return [result.corpus.name, *rates, f"{times:.1f}x", *wanted]


def run(report: Report, total_bytes: int, seed: int, rounds: int, only: str) -> None:
    results = []
    for corpus in chosen_corpora(total_bytes, seed, only):
        results.append(measure(corpus, rounds, report))
        report.progress(" ".join(rate_row(results[-1])))
    report.text(
        "Everyone checks CRCs. aiokafka and kafka-python make Python objects, kts makes Arrow columns with all bytes"
        " copied (or views of them). Java runs in a process of its own for each corpus until it gets no faster; it"
        " slices out keys and values and reads their lengths and first bytes, but copies nothing. kts and Java check"
        " the CRC of messages inside wrappers too, aiokafka does not; the second floor has it."
    )
    title = f"Decode, {total_bytes >> 20} MiB a corpus: multiples of aiokafka's rate"
    report.table(title, HEADER, map(rate_row, results))
    report.table("Decode, against the goals: multiples of aiokafka's rate", GOAL_HEADER, map(goal_row, results))
    shares = [row for result in results if result.corpus.codec != "none" for row in share_rows(result)]
    report.table("Decode of compressed sets, as a share of the floor", SHARE_HEADER, shares)
    plain = [result for result in results if result.corpus.codec == "none"]
    report.table("Decode, against aiokafka and an Arrow table made of its records", ARROW_HEADER, map(arrow_row, plain))
