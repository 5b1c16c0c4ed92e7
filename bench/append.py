"""Leader append: a log against a plain copy of the same bytes, and the validator against Kafka's own."""

from __future__ import annotations

import contextlib
import os
import struct
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import kts
from kts.codec.validate import validate
from kts.config import LogConfig

from .corpora import START_MS, Corpus, corpora
from .java import JavaLoop
from .table import Report, Seconds, cpu_seconds, medians, reached

GOAL = 0.25
NOW_MS = START_MS + 10**7
FORMATS = {0: "0.9.0", 1: "0.10.2", 2: "3.9"}
TYPES = ("CreateTime", "LogAppendTime")
BROKER = Path(__file__).parent / "broker-pom.xml"
LOG_HEADER = [
    "sets of 16 KiB",
    "timestamps",
    "os.write us",
    "append us",
    "of it validate us",
    "share",
    "goal",
    "reached",
]
JAVA_HEADER = [
    "sets of 16 KiB", "timestamps", "written as", "kts MB/s", "LogValidator MB/s", "with its CRC check MB/s",
    "kts / LogValidator", "goal", "reached",
]  # fmt: skip
# magic, size, codec of the sets; message format and compression.type of the topic
COMPARED = [
    (2, "100 B", "none", 2, "producer"),
    (2, "1 KB", "none", 2, "producer"),
    (1, "100 B", "none", 1, "producer"),
    (1, "1 KB", "none", 1, "producer"),
    *((2, "100 B", codec, 2, "producer") for codec in ("gzip", "snappy", "lz4", "zstd")),
    (1, "100 B", "lz4", 1, "producer"),
    (2, "100 B", "none", 2, "lz4"),
    (2, "100 B", "lz4", 2, "uncompressed"),
    (1, "100 B", "none", 2, "producer"),
    (2, "100 B", "none", 1, "producer"),
]


def sets(corpus: Corpus) -> list[bytes]:
    """Each batch, wrapper or run of messages with the offsets that a producer gives them, from 0 on."""
    made = []
    for (position, size), count in zip(corpus.entries, corpus.counts, strict=True):
        one = bytearray(corpus.data[position : position + size])
        if corpus.magic == 2:
            struct.pack_into(">q", one, 0, 0)
        elif corpus.codec != "none":
            struct.pack_into(">q", one, 0, count - 1)
        made.append(bytes(one))
    return made


def topic(magic: int, compression: str, timestamp_type: str, generation: str | None = None) -> LogConfig:
    settings = {
        "message.format.version": FORMATS[magic],
        "compression.type": compression,
        "message.timestamp.type": timestamp_type,
        "segment.bytes": 2**31 - 1,
    }
    return LogConfig.of(settings, generation=generation)


def validating(config: LogConfig, appended: list[bytes], records: int) -> Callable[[], None]:
    def work() -> None:
        offset = 0
        for one in appended:
            offset = validate(one, offset=offset, now_ms=NOW_MS, config=config).next_offset
        if offset != records:
            raise ValueError(f"expected {records} records, found {offset}")

    return work


def copying(appended: list[bytes], folder: Path) -> Seconds:
    """The sets written to a new file, one call each; making the file is not timed."""

    def once() -> float:
        path = folder / "copy"
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            return cpu_seconds(lambda: [os.write(file, one) for one in appended])()
        finally:
            os.close(file)
            path.unlink()

    return once


def appending(config: LogConfig, appended: list[bytes], folder: Path) -> Seconds:
    """The sets appended to a new log; making and closing it is not timed."""

    def once() -> float:
        with tempfile.TemporaryDirectory(dir=folder) as made, contextlib.ExitStack() as stack:
            log = stack.enter_context(kts.Log(Path(made, "bench-0"), config, clock=lambda: NOW_MS))
            return cpu_seconds(lambda: [log.append(one) for one in appended])()

    return once


def log_row(corpus: Corpus, timestamp_type: str, folder: Path, rounds: int) -> list[str]:
    appended, config = sets(corpus), topic(corpus.magic, "producer", timestamp_type)
    contenders = {
        "copy": copying(appended, folder),
        "append": appending(config, appended, folder),
        "validate": cpu_seconds(validating(config, appended, corpus.records)),
    }
    taken = {name: seconds / len(appended) * 1e6 for name, seconds in medians(contenders, rounds).items()}
    share = taken["copy"] / taken["append"]
    cells = [f"{taken[name]:.1f}" for name in ("copy", "append", "validate")]
    return [corpus.name, timestamp_type, *cells, f"{share:.0%}", f"{GOAL:.0%}", reached(share, GOAL)]


def java_row(corpus: Corpus, timestamp_type: str, to: int, compression: str, report: Report, rounds: int) -> list[str]:
    appended, config = sets(corpus), topic(to, compression, timestamp_type, "3.9")
    target = {"producer": corpus.codec, "uncompressed": "none"}.get(compression, compression)
    framed = replace(corpus, data=b"".join(struct.pack(">i", len(one)) + one for one in appended))
    arguments = (str(to), corpus.codec, target, timestamp_type)
    contenders = {"kts": cpu_seconds(validating(config, appended, corpus.records))}
    with contextlib.ExitStack() as stack:
        for name in ("alone", "checked"):
            java = stack.enter_context(JavaLoop.on(framed, report, "AppendLoop", BROKER, (*arguments, name)))
            if java is not None:
                contenders[name] = java
        taken = medians(contenders, rounds)
    megabytes = sum(map(len, appended)) / 1e6
    rates = {name: megabytes / seconds for name, seconds in taken.items()}
    cells = [f"{rates[name]:.0f}" if name in rates else "-" for name in ("kts", "alone", "checked")]
    row = [corpus.name, timestamp_type, f"v{to} {target}", *cells]
    if "alone" not in rates:
        return [*row, "-", "1.0x", "-"]
    times = rates["kts"] / rates["alone"]
    return [*row, f"{times:.1f}x", "1.0x", reached(times, 1)]


def run(report: Report, total_bytes: int, seed: int, rounds: int, scratch: Path) -> None:
    scratch.mkdir(parents=True, exist_ok=True)
    rows = []
    for magic in (2, 1):
        for size in ("100 B", "1 KB"):
            [corpus] = corpora(magic, size, ["none"], total_bytes, seed)
            for timestamp_type in TYPES:
                rows.append(log_row(corpus, timestamp_type, scratch, rounds))
                report.progress(" ".join(rows[-1]))
    report.table("Leader append through kts.Log, against os.write of the same bytes to a new file", LOG_HEADER, rows)
    rows = []
    for magic, size, codec, to, compression in COMPARED:
        [corpus] = corpora(magic, size, [codec], total_bytes // 2, seed)
        for timestamp_type in TYPES if (codec, to, compression) == ("none", magic, "producer") else TYPES[:1]:
            rows.append(java_row(corpus, timestamp_type, to, compression, report, rounds))
            report.progress(" ".join(rows[-1]))
    report.table("The validator, against Kafka 3.9.2's LogValidator, warm", JAVA_HEADER, rows)
