"""The cost of a record does not depend on how large the data is; what batches of few records cost, and a plot of it."""

from __future__ import annotations

import mmap
import tempfile
from pathlib import Path

import kts

from .corpora import Corpus, Shape, corpora
from .java import corpus_loop
from .peers import aiokafka_loop, kafka_python_loop
from .plot import plot_batch_sizes
from .rss import anonymous_mib
from .table import Report, Seconds, cpu_seconds, medians

SIZE_HEADER = ["v2 none 100 B", "records", "ns a record", "GiB/s", "against the middle", "peak RssAnon added, MiB"]
RECORDS = (1, 10, 100, 1000, 10_000)
BATCH_HEADER = ["records a batch", "bytes a record", "kts Mrec/s", "aiokafka", "kafka-python", "Java", "kts / aiokafka"]
CONTENDERS = ("kts", "aiokafka", "kafka-python", "Java")
LARGEST_BATCH = 16 << 20
SLOW_PEER_BYTES = 1 << 20


def a_time(seconds: Seconds, again: int) -> Seconds:
    return lambda: seconds() / again


def size_rows(corpus: Corpus, folder: Path, repeats: int, rounds: int) -> list[list[str]]:
    """A part, the whole, and the whole over and over, each mapped from a file and decoded in slices of 1 MiB."""
    contenders: dict[str, Seconds] = {}
    records, sizes, peaks = dict[str, int](), dict[str, int](), dict[str, float]()
    for name, part, times in (
        ("part", corpus.front(len(corpus.data) // 32), 1),
        ("whole", corpus, 1),
        ("many", corpus, repeats),
    ):
        path = folder / name
        with path.open("wb") as sink:
            for _ in range(times):
                sink.write(part.data)
        again = max(1, len(corpus.data) // path.stat().st_size)  # small ones several times, for the clock
        with path.open("rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        records[name], sizes[name], peaks[name] = 0, len(mapped), 0.0

        def drain(mapped: mmap.mmap = mapped, again: int = again) -> int:
            return sum(batch.num_rows for _ in range(again) for batch in kts.iter_decode(mapped))

        before = anonymous_mib()
        for batch in kts.iter_decode(mapped):
            records[name] += batch.num_rows
            peaks[name] = max(peaks[name], anonymous_mib() - before)
        if records[name] != times * part.records:
            raise ValueError(f"expected {times * part.records} records, found {records[name]}")
        contenders[name] = a_time(cpu_seconds(drain), again)
    taken = medians(contenders, rounds)
    each = {name: taken[name] / records[name] * 1e9 for name in taken}
    return [
        [
            f"{sizes[name] / 2**20:,.0f} MiB",
            f"{records[name]:,}",
            f"{each[name]:.1f}",
            f"{sizes[name] / taken[name] / 2**30:.2f}",
            f"{each[name] / each['whole']:.2f}x",
            f"{peaks[name]:.1f}",
        ]
        for name in taken
    ]


def batch_rates(corpus: Corpus, rounds: int, report: Report) -> dict[str, float]:
    """Records a second of each."""
    part = corpus.front(SLOW_PEER_BYTES)
    part_records = kafka_python_loop(part)

    def drain() -> None:
        if sum(batch.num_rows for batch in kts.iter_decode(corpus.data)) != corpus.records:
            raise ValueError(f"{corpus.name}: rows are missing")

    contenders: dict[str, Seconds] = {
        "kts": cpu_seconds(drain),
        "aiokafka": cpu_seconds(lambda: aiokafka_loop(corpus)),
        "kafka-python": cpu_seconds(lambda: kafka_python_loop(part)),
    }
    with corpus_loop(corpus, report) as java:
        if java is not None:
            contenders["Java"] = java
        taken = medians(contenders, rounds)
    rates = {name: corpus.records / seconds for name, seconds in taken.items()}
    rates["kafka-python"] = part_records / taken["kafka-python"]
    return rates


def run(report: Report, total_bytes: int, seed: int, rounds: int, repeats: int, plot: Path) -> None:
    [corpus] = corpora(2, "100 B", ["none"], total_bytes, seed)
    with tempfile.TemporaryDirectory() as folder:
        lines = size_rows(corpus, Path(folder), repeats, rounds)
    report.table("Linear in the size: iter_decode of a mapped file, copied", SIZE_HEADER, lines)
    lines, points = [], {}
    for records in RECORDS:
        shape = Shape(batch_bytes=LARGEST_BATCH, batch_records=records)
        [corpus] = corpora(2, "100 B", ["none"], total_bytes, seed, shape)
        points[records] = rates = batch_rates(corpus, rounds, report)
        cells = [f"{rates[name] / 1e6:.2f}" if name in rates else "-" for name in CONTENDERS]
        each = len(corpus.data) / corpus.records
        lines.append([f"{records:,}", f"{each:.0f}", *cells, f"{rates['kts'] / rates['aiokafka']:.1f}x"])
        report.progress(" ".join(lines[-1]))
    report.table("Records a second over the size of a batch, uncompressed, 100 B", BATCH_HEADER, lines)
    plot_batch_sizes(points, plot)
    report.figure("Records a second over the size of a batch", plot)
