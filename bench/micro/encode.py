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
from bench.corpora import BATCH_BYTES, CODECS, V2_HEADER
from kts.compression import compressor

from .cases import Case, Pair, Settings, Work, corpus_of

Rows = list[tuple[int, bytes, bytes]]
PIECE = 8192  # rows, about 1 MiB
# Magic, codec, level (None: the codec has none).
ROWS = [
    (2, "none", None),
    (2, "lz4", 0),
    (1, "none", None),
    (1, "lz4", 0),
    (2, "lz4", 9),  # aiokafka's own default, which the compressor dominates
    (2, "zstd", 3),
]
PLAIN_GOAL, LZ4_GOAL = 10.0, 1.0  # times aiokafka's builder; of the compressor alone at the same level


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


def encode_case(magic: int, codec: str, level: int | None, settings: Settings) -> Case:
    name = f"v{magic} {codec} 100 B" + ("" if level is None else f", level {level}")

    def prepare() -> dict[str, Work]:
        corpus = corpus_of(settings._replace(bytes=settings.bytes // 4), 2, "none", "100 B")
        table = pa.Table.from_batches(kts.iter_decode(corpus.data, ["timestamp", "key", "value"]))
        batch = table.combine_chunks().to_batches()[0]
        times = batch.column(0).cast(pa.int64()).to_pylist()
        rows: Rows = list(zip(times, batch.column(1).to_pylist(), batch.column(2).to_pylist(), strict=True))

        def ours() -> bytes:
            return kts.encode(batch, magic=magic, compression=codec, level=level)

        def pieces() -> None:
            for first in range(0, len(rows), PIECE):
                piece = batch.slice(first, PIECE)
                kts.encode(piece, magic=magic, compression=codec, level=level, base_offset=first)

        def theirs() -> bytes:
            with aiokafka_level(codec, level):
                return aiokafka_encode(rows, magic, codec)

        sizes = checked(name, ours, rows), checked(name, theirs, rows)
        if not 0.9 < sizes[0] / sizes[1] < 1.1:  # of zstd, Java's stream is the smaller
            raise ValueError(f"{name}: kts wrote {sizes[0]} bytes, aiokafka {sizes[1]}")
        works = {"one call": ours, "calls of 8,192 rows": pieces, "aiokafka": theirs}
        if codec != "none":
            payloads = [corpus.data[start + V2_HEADER : start + size] for start, size in corpus.entries]
            works["compressor alone"] = compressing(codec, level, payloads)
        return {title: Work(call, len(rows)) for title, call in works.items()}

    goal = PLAIN_GOAL if codec == "none" else None
    pairs = [Pair("one call", "aiokafka", goal), Pair("calls of 8,192 rows", "aiokafka")]
    if codec != "none":
        goal = LZ4_GOAL if level == 0 else None
        pairs.append(Pair("one call", "compressor alone", goal, share=True))
    contenders = tuple(dict.fromkeys(title for pair in pairs for title in (pair.ours, pair.peer)))
    return Case("encode", name, "Mrec/s", contenders, tuple(pairs), prepare)


def cases(settings: Settings) -> Iterator[Case]:
    for magic, codec, level in ROWS:
        yield encode_case(magic, codec, level, settings)
