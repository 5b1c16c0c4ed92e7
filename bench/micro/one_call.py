"""``kts.decode`` of a large set in one call, against ``kts.iter_decode``, which uses memory again piece by piece."""

from __future__ import annotations

from collections.abc import Iterator

import kts

from .cases import Case, Pair, Settings, Work, corpus_of

TIMES = (1, 2, 8, 32)  # the corpus in one set
GOAL = 0.90


def case(times: int, settings: Settings) -> Case:
    def prepare() -> dict[str, Work]:
        corpus = corpus_of(settings, 2, "none", "100 B")
        data, records = corpus.data * times, corpus.records * times
        return {
            "decode": Work(lambda: kts.decode(data).num_rows, records, records),
            "iter_decode": Work(lambda: sum(piece.num_rows for piece in kts.iter_decode(data)), records, records),
        }

    name = f"v2 none 100 B, {times} times"
    return Case(
        "one call", name, "Mrec/s", ("decode", "iter_decode"), (Pair("decode", "iter_decode", GOAL, True),), prepare
    )


def cases(settings: Settings) -> Iterator[Case]:
    for times in TIMES:
        yield case(times, settings)
