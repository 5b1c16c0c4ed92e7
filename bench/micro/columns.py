"""Fewer columns cost less: two fixed ones, and keys and values with and without headers."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import kts
from bench.corpora import Corpus, Shape

from .cases import Case, Pair, Settings, Work, corpus_of

ALL = ["offset", "timestamp", "timestampType", "key", "value", "headers"]
WITH_HEADERS = Shape(headers=True)


def drain(corpus: Corpus, columns: list[str]) -> Callable[[], int]:
    return lambda: sum(batch.num_rows for batch in kts.iter_decode(corpus.data, columns))


def fixed_case(size: str, settings: Settings) -> Case:
    def prepare() -> dict[str, Work]:
        corpus = corpus_of(settings, 2, "none", size)
        chosen = {"offset, timestamp": ["offset", "timestamp"], "all columns": ALL}
        records = corpus.records
        return {name: Work(drain(corpus, columns), records, records) for name, columns in chosen.items()}

    pairs = (Pair("offset, timestamp", "all columns", 2.0),)
    return Case("columns", f"v2 none {size}", "ns", ("offset, timestamp", "all columns"), pairs, prepare)


def headers_case(size: str, settings: Settings) -> Case:
    """A byte costs no more where there are headers that nobody asks for."""

    def prepare() -> dict[str, Work]:
        works = {}
        for name, shape, columns in (
            ("key, value beside headers", WITH_HEADERS, ["key", "value"]),
            ("key, value, headers", WITH_HEADERS, ["key", "value", "headers"]),
            ("key, value without headers", Shape(), ["key", "value"]),
        ):
            corpus = corpus_of(settings, 2, "none", size, shape)
            works[name] = Work(drain(corpus, columns), len(corpus.data), corpus.records)
        return works

    pairs = (
        Pair("key, value beside headers", "key, value without headers", 1.0, share=True),
        Pair("key, value, headers", "key, value without headers", share=True),
    )
    contenders = ("key, value beside headers", "key, value, headers", "key, value without headers")
    return Case("columns", f"v2 none {size}, 2 or 3 headers", "GiB/s", contenders, pairs, prepare)


def cases(settings: Settings) -> Iterator[Case]:
    for size in ("tiny", "100 B"):
        yield fixed_case(size, settings)
        yield headers_case(size, settings)
