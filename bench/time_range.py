"""Bytes of `.log` files that an exact range of times opens: planned as for Spark, read to the end, counted."""

from __future__ import annotations

import statistics
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import kts

from .corpora import START_MS, Corpus

INDEX_INTERVAL = 4096  # Kafka's default
RANGES = 20


def write_segments(partition: Path, corpus: Corpus, segments: int) -> None:
    """A partition directory with so many segments and both indexes of each, an entry a batch as in a broker's."""
    partition.mkdir()
    cuts = [round(len(corpus.entries) * part / segments) for part in range(segments + 1)]
    for start, end in zip(cuts, cuts[1:], strict=False):
        entries = corpus.entries[start:end]
        first, last = entries[0][0], sum(entries[-1])
        base = base_offset(corpus, first)
        stem = partition / f"{base:020d}"
        stem.with_suffix(".log").write_bytes(corpus.data[first:last])
        offsets, times = bytearray(), bytearray()
        for position, _ in entries:
            last_offset = base_offset(corpus, position) + int.from_bytes(
                corpus.data[position + 23 : position + 27], "big"
            )
            if position != first:
                offsets += struct.pack(">ii", last_offset - base, position - first)
            times += struct.pack(">qi", START_MS + last_offset, last_offset - base)
        stem.with_suffix(".index").write_bytes(offsets)
        stem.with_suffix(".timeindex").write_bytes(times)


def base_offset(corpus: Corpus, position: int) -> int:
    """The first offset of the batch there."""
    return int.from_bytes(corpus.data[position : position + 8], "big")


@contextmanager
def counting_log_bytes() -> Iterator[list[int]]:
    """The size of every read of a `.log` file in this process, one number a read."""
    from kts.store.local import File

    sizes: list[int] = []
    real = {name: getattr(File, name) for name in ("read", "read_into")}

    def counted(name: str) -> Any:
        def read(self: File, *arguments: Any) -> Any:
            found = real[name](self, *arguments)
            if self.path.endswith(".log"):
                sizes.append(found if isinstance(found, int) else len(found))
            return found

        return read

    for name in real:
        setattr(File, name, counted(name))
    try:
        yield sizes
    finally:
        for name, method in real.items():
            setattr(File, name, method)


def most_opened(partition: Path, records: int) -> int:
    """The most bytes that 1 % of the time opens, of ranges all over the log; the rows are checked."""
    from kts.dataset.reader import read_range
    from kts.spark.options import parse_options
    from kts.spark.planning import plan_tasks

    length, most = records // 100, 0
    for number in range(RANGES):
        first = (records - length) * number // (RANGES - 1)
        times = {"startingTimestamp": str(START_MS + first), "endingTimestamp": str(START_MS + first + length)}
        times["allowedLateness"] = str(records // 2400)  # as an hour of 100 days: records of a corpus are 1 ms apart
        with counting_log_bytes() as sizes:
            tasks = plan_tasks(parse_options({"path": str(partition), **times}))
            pieces = [piece for task in tasks for piece in task.ranges]
            within = tasks[0].within
            read = (read_range(piece, columns=["offset"], within=within) for piece in pieces)
            rows = sum(batch.num_rows for batches in read for batch in batches)
        if rows != length:
            raise ValueError(f"expected {length} rows of the range from offset {first}, found {rows}")
        most = max(most, sum(sizes))
    return most


def seconds_of_later_data(partition: Path, records: int, rounds: int) -> float:
    """CPU time of the first hundredth of the time if a record may come any time later, so that all is read; warm."""
    length, taken = records // 100, []
    for _ in range(rounds):
        begun = time.process_time()
        times = {"starting_timestamp": START_MS, "ending_timestamp": START_MS + length}
        rows = sum(batch.num_rows for batch in kts.scan(partition, allowed_lateness=None, **times))
        taken.append(time.process_time() - begun)
        if rows != length:
            raise ValueError(f"expected {length} rows, found {rows}")
    return statistics.median(taken)
