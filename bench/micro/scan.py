"""What needs no record: a scan of the headers against the CRC alone, the greatest timestamp against decompression."""

from __future__ import annotations

from collections.abc import Iterator

import kts
from bench.corpora import CODECS
from bench.floor import Floor

from .cases import Case, Pair, Settings, Work, corpus_of

SCAN_GOAL, MAX_GOAL = 0.80, 0.85


def scan_case(magic: int, codec: str, settings: Settings) -> Case:
    def prepare() -> dict[str, Work]:
        corpus = corpus_of(settings, magic, codec, "100 B")
        size, single = len(corpus.data), magic < 2 and codec == "none"
        rows = corpus.records if single else len(corpus.entries)
        return {
            "scan_batches": Work(lambda: kts.scan_batches(corpus.data).num_rows, size, rows),
            "CRC in C": Work(Floor(corpus).entry_crcs, size),
        }

    goal = SCAN_GOAL if (magic, codec) == (2, "none") else None
    pairs = (Pair("scan_batches", "CRC in C", goal, share=True),)
    return Case("scan", f"v{magic} {codec} 100 B", "GiB/s", ("scan_batches", "CRC in C"), pairs, prepare)


def max_case(magic: int, codec: str, size: str, settings: Settings) -> Case:
    def prepare() -> dict[str, Work]:
        corpus = corpus_of(settings, magic, codec, size)
        floor = Floor(corpus)
        inner, last = sum(floor.sizes), corpus.records - 1  # the corpora's timestamps rise

        def greatest(verify_crc: bool) -> int:
            return kts.max_timestamp(corpus.data, verify_crc=verify_crc).offset

        return {
            "max_timestamp": Work(lambda: greatest(True), inner, last),
            "without CRCs": Work(lambda: greatest(False), inner, last),
            "decompression": Work(floor.decompression, inner),
        }

    pairs = (
        Pair("max_timestamp", "decompression", MAX_GOAL, share=True),
        Pair("without CRCs", "decompression", share=True),
    )
    contenders = ("max_timestamp", "without CRCs", "decompression")
    return Case("max_timestamp", f"v{magic} {codec} {size}", "GiB/s", contenders, pairs, prepare)


def cases(settings: Settings) -> Iterator[Case]:
    for magic in (2, 1):
        for codec in ("none", "lz4"):
            yield scan_case(magic, codec, settings)
    for magic, codecs in ((1, CODECS[1:4]), (2, CODECS[1:])):
        for size in ("100 B", "1 KB"):
            for codec in codecs:
                yield max_case(magic, codec, size, settings)
