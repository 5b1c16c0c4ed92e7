"""Rows to Kafka's bytes, against the builders of aiokafka that are fed from the same rows."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import aiokafka.codec
import aiokafka.record.default_records
import aiokafka.record.legacy_records
import pyarrow as pa

import kts
from kts.compression import compressor

from .corpora import BATCH_BYTES, CODECS, V2_HEADER, corpora
from .table import Report, cpu_seconds, medians, reached

Rows = list[tuple[int, bytes, bytes]]
PIECE = 8192  # rows, about 1 MiB
CONTENDERS = ("aiokafka", "whole", "pieces", "compressor")
HEADER = [
    "rows of 100 B to", "aiokafka Mrec/s", "kts, one call", "kts, calls of 8,192 rows", "the compressor alone",
    "kts at best / aiokafka", "goal", "reached", "compressor / aiokafka",
]  # fmt: skip
# magic, codec, level (None: the codec has none), goal
CASES = [
    (2, "none", None, 10.0),
    (2, "lz4", 0, 5.0),
    (1, "none", None, 10.0),
    (1, "lz4", 0, 5.0),
    (2, "lz4", 9, None),  # aiokafka's own default, which the compressor dominates
    (2, "zstd", 3, None),
]


@contextlib.contextmanager
def aiokafka_level(codec: str, level: int | None) -> Iterator[None]:
    """aiokafka's builders take no level: the function they call for lz4 or zstd gets it here."""
    if level is None:
        yield
        return
    builders = [aiokafka.record.default_records.DefaultRecordBatchBuilder]
    builders += [aiokafka.record.legacy_records.LegacyRecordBatchBuilder]
    modules = {name: __import__(name, fromlist=["*"]) for name in {builder.__module__ for builder in builders}}
    name = f"{codec}_encode"
    patched = [module for module in modules.values() if hasattr(module, name)]
    if not patched:
        raise RuntimeError(f"aiokafka's builders call no {name}")
    for module in patched:
        setattr(module, name, functools.partial(getattr(aiokafka.codec, name), level=level))
    try:
        yield
    finally:
        for module in patched:
            setattr(module, name, getattr(aiokafka.codec, name))


def aiokafka_builder(magic: int, codec: str) -> Any:
    number = CODECS.index(codec)
    if magic == 2:
        return aiokafka.record.default_records.DefaultRecordBatchBuilder(2, number, 0, -1, -1, -1, BATCH_BYTES)
    return aiokafka.record.legacy_records.LegacyRecordBatchBuilder(magic, number, BATCH_BYTES)


def aiokafka_encode(rows: Rows, magic: int, codec: str) -> bytes:
    """Batches one after the other; offsets begin at 0 in each, as a producer has them."""
    made, builder, relative = [], aiokafka_builder(magic, codec), 0
    for timestamp, key, value in rows:
        taken = (
            builder.append(relative, timestamp, key, value, [])
            if magic == 2
            else builder.append(relative, timestamp, key, value)
        )
        if taken is None:
            made.append(bytes(builder.build()))
            builder, relative = aiokafka_builder(magic, codec), 0
            if magic == 2:
                builder.append(0, timestamp, key, value, [])
            else:
                builder.append(0, timestamp, key, value)
        relative += 1
    made.append(bytes(builder.build()))
    return b"".join(made)


def checked(name: str, encode: Callable[[], bytes], rows: Rows) -> int:
    """What was encoded decodes to the same rows; its size."""
    data = encode()
    back = kts.decode(data, columns=["timestamp", "key", "value"])
    columns = (back.column(0).cast(pa.int64()), back.column(1), back.column(2))
    if list(zip(*(column.to_pylist() for column in columns), strict=True)) != rows:
        raise ValueError(f"{name}: other rows come back")
    return len(data)


def compressing(codec: str, level: int | None, payloads: list[bytes]) -> Callable[[], None]:
    """The records of every batch through the compressor that kts takes, and nothing else."""
    compress = compressor(CODECS.index(codec), 2, level)

    def work() -> None:
        for payload in payloads:
            compress(payload)

    return work


def run(report: Report, total_bytes: int, seed: int, rounds: int) -> None:
    [corpus] = corpora(2, "100 B", ["none"], total_bytes, seed)
    table = pa.Table.from_batches(kts.iter_decode(corpus.data, ["timestamp", "key", "value"]))
    batch = table.combine_chunks().to_batches()[0]
    times = batch.column(0).cast(pa.int64()).to_pylist()
    rows: Rows = list(zip(times, batch.column(1).to_pylist(), batch.column(2).to_pylist(), strict=True))
    payloads = [corpus.data[start + V2_HEADER : start + size] for start, size in corpus.entries]
    lines = []
    for magic, codec, level, goal in CASES:
        name = f"v{magic} {codec}" + ("" if level is None else f" level {level}")

        def ours(magic: int = magic, codec: str = codec, level: int | None = level) -> bytes:
            return kts.encode(batch, magic=magic, compression=codec, level=level)

        def pieces(magic: int = magic, codec: str = codec, level: int | None = level) -> None:
            for first in range(0, len(rows), PIECE):
                piece = batch.slice(first, PIECE)
                kts.encode(piece, magic=magic, compression=codec, level=level, base_offset=first)

        def theirs(magic: int = magic, codec: str = codec) -> bytes:
            return aiokafka_encode(rows, magic, codec)

        with aiokafka_level(codec, level):
            sizes = checked(name, ours, rows), checked(name, theirs, rows)
            if not 0.9 < sizes[0] / sizes[1] < 1.1:  # of zstd, Java's stream is the smaller
                raise ValueError(f"{name}: kts wrote {sizes[0]} bytes, aiokafka {sizes[1]}")
            contenders = {"aiokafka": cpu_seconds(theirs), "whole": cpu_seconds(ours), "pieces": cpu_seconds(pieces)}
            if codec != "none":
                contenders["compressor"] = cpu_seconds(compressing(codec, level, payloads))
            taken = medians(contenders, rounds)
        rates = {peer: len(rows) / seconds for peer, seconds in taken.items()}
        times_faster = max(rates["whole"], rates["pieces"]) / rates["aiokafka"]
        wanted = ["-", "-"] if goal is None else [f"{goal:.0f}x", reached(times_faster, goal)]
        cells = [f"{rates[peer] / 1e6:.2f}" if peer in rates else "-" for peer in CONTENDERS]
        ceiling = f"{rates['compressor'] / rates['aiokafka']:.1f}x" if "compressor" in rates else "-"
        lines.append([name, *cells, f"{times_faster:.1f}x", *wanted, ceiling])
        report.progress(" ".join(lines[-1]))
    report.table(f"Encode {len(rows):,} rows in 16 KiB batches, against aiokafka's builders", HEADER, lines)
