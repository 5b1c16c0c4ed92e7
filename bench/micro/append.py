"""A leader's appends against plain writes of the same bytes, of rows against their encoding, and the checks of one."""

from __future__ import annotations

import os
import struct
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kts
from bench.corpora import START_MS, Corpus
from bench.floor import Floor
from kts.codec.validate import validate
from kts.config import LogConfig
from kts.segment.log_segment import LogSegment

from .cases import Case, Pair, Settings, Work, corpus_of

LOG_GOAL = 0.25
NOW_MS = START_MS + 10**7
FORMATS = {0: "0.9.0", 1: "0.10.2", 2: "3.9"}
TYPES = ("CreateTime", "LogAppendTime")
# Magic, size and codec of the sets; message format and compression.type of the topic.
VALIDATED = [
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


def validating(config: LogConfig, appended: list[bytes]) -> Callable[[], int]:
    """The checks of every set; gives the end offset."""

    def call() -> int:
        offset = 0
        for one in appended:
            offset = validate(one, offset=offset, now_ms=NOW_MS, config=config).next_offset
        return offset

    return call


def new_folder() -> tempfile.TemporaryDirectory[str]:
    """In memory where that can be had: what waits for a disk is no CPU time, but disturbs what is measured next."""
    return tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)


def copying(appended: list[bytes]) -> Work:
    """The sets written to a new file, one call each."""

    def make() -> tuple[Any, ...]:
        made = new_folder()
        return os.open(Path(made.name, "copy"), os.O_RDWR | os.O_CREAT, 0o600), made

    def call(file: int, made: object) -> None:
        for one in appended:
            os.write(file, one)

    def drop(file: int, made: tempfile.TemporaryDirectory[str]) -> None:
        os.close(file)
        made.cleanup()

    return Work(call, len(appended), None, make, drop)


def appending(config: LogConfig, appended: list[bytes]) -> Work:
    """The sets appended to a new log."""

    def make() -> tuple[Any, ...]:
        made = new_folder()
        return kts.Log(Path(made.name, "bench-0"), config, clock=lambda: NOW_MS), made

    def call(log: kts.Log, made: object) -> None:
        for one in appended:
            log.append(one)

    def drop(log: kts.Log, made: tempfile.TemporaryDirectory[str]) -> None:
        log.close()
        made.cleanup()

    return Work(call, len(appended), None, make, drop)


def writing(config: LogConfig, corpus: Corpus) -> Work:
    """The same sets, checked and with their offsets, written to a new segment and its indexes."""
    given, first = [], 0
    for (position, size), count in zip(corpus.entries, corpus.counts, strict=True):
        last = first + count - 1
        given.append((corpus.data[position : position + size], first, last, START_MS + last, last))
        first = last + 1

    def make() -> tuple[Any, ...]:
        made = new_folder()
        return LogSegment(made.name, 0, config, now_ms=NOW_MS), made

    def call(segment: LogSegment, made: object) -> None:
        for one in given:
            segment.append(*one)

    def drop(segment: LogSegment, made: tempfile.TemporaryDirectory[str]) -> None:
        segment.close()
        made.cleanup()

    return Work(call, len(given), None, make, drop)


def appending_rows(config: LogConfig, rows: Any, codec: str, records: int) -> Work:
    """The rows appended to a new log."""

    def make() -> tuple[Any, ...]:
        made = new_folder()
        return kts.Log(Path(made.name, "bench-0"), config, clock=lambda: NOW_MS), made

    def call(log: kts.Log, made: object) -> None:
        log.append_rows(rows, compression=codec)

    def drop(log: kts.Log, made: tempfile.TemporaryDirectory[str]) -> None:
        log.close()
        made.cleanup()

    return Work(call, records, None, make, drop)


def rows_case(size: str, codec: str, settings: Settings) -> Case:
    def prepare() -> dict[str, Work]:
        corpus = corpus_of(settings, 2, codec, size)
        rows = kts.decode(corpus.data, ["timestamp", "key", "value"])
        return {
            "Log.append_rows": appending_rows(topic(2, "producer", "CreateTime"), rows, codec, corpus.records),
            "kts.encode": Work(lambda: kts.encode(rows, compression=codec, batch_bytes=2**20), corpus.records),
        }

    pairs = (Pair("Log.append_rows", "kts.encode", share=True),)
    return Case("append of rows", f"v2 {codec} {size}", "Mrec/s", ("Log.append_rows", "kts.encode"), pairs, prepare)


def log_case(magic: int, size: str, timestamp_type: str, settings: Settings) -> Case:
    def prepare() -> dict[str, Work]:
        corpus = corpus_of(settings, magic, "none", size)
        appended, config = sets(corpus), topic(magic, "producer", timestamp_type)
        return {
            "Log.append": appending(config, appended),
            "LogSegment.append": writing(config, corpus),
            "os.write": copying(appended),
        }

    pairs = (Pair("Log.append", "os.write", LOG_GOAL, share=True), Pair("LogSegment.append", "os.write", share=True))
    name = f"v{magic} none {size}, {timestamp_type}"
    contenders = ("Log.append", "LogSegment.append", "os.write")
    return Case("append of sets of 16 KiB", name, "us", contenders, pairs, prepare)


def validate_case(
    magic: int, size: str, codec: str, to: int, compression: str, timestamp_type: str, settings: Settings
) -> Case:
    target = {"producer": codec, "uncompressed": "none"}.get(compression, compression)

    def prepare() -> dict[str, Work]:
        corpus = corpus_of(settings._replace(bytes=settings.bytes // 2), magic, codec, size)
        config = topic(to, compression, timestamp_type, "3.9")
        given = len(corpus.data)
        return {
            "validate": Work(validating(config, sets(corpus)), given, corpus.records),
            "CRC in C": Work(Floor(corpus).entry_crcs, given),
        }

    name = f"v{magic} {codec} {size} to v{to} {target}, {timestamp_type}"
    pairs = (Pair("validate", "CRC in C", share=True),)
    return Case("append's checks", name, "GiB/s", ("validate", "CRC in C"), pairs, prepare)


def cases(settings: Settings) -> Iterator[Case]:
    for magic in (2, 1):
        for size in ("100 B", "1 KB"):
            for timestamp_type in TYPES:
                yield log_case(magic, size, timestamp_type, settings)
    for size in ("100 B", "1 KB"):
        for codec in ("none", "lz4"):
            yield rows_case(size, codec, settings)
    for magic, size, codec, to, compression in VALIDATED:
        for timestamp_type in TYPES if (codec, to, compression) == ("none", magic, "producer") else TYPES[:1]:
            yield validate_case(magic, size, codec, to, compression, timestamp_type, settings)
