"""``kts.decode`` of a large set in one call, against ``kts.iter_decode``: all rows held, and piece by piece.

The goal stands for both. Held, the same rows are in memory at the end. Where ``iter_decode`` lets go of each piece, the
next one is written to the same memory, which stays in the processor's cache; a large result does not. The limit there
is a plain copy of the set to one large array, against one to the same small array piece by piece.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

import kts

from .cases import Case, Pair, Settings, Work, corpus_of

TIMES = (1, 2, 8, 32)  # the corpus in one set
GOAL = 0.90
PIECE_BYTES = 2**20  # as of iter_decode


def rows(pieces: Iterable[pa.RecordBatch]) -> int:
    return sum(piece.num_rows for piece in pieces)


def case(times: int, settings: Settings) -> Case:
    def prepare() -> dict[str, Work]:
        corpus = corpus_of(settings, 2, "none", "100 B")
        data, records = corpus.data * times, corpus.records * times
        source = np.frombuffer(data, np.uint8)
        whole, piece = np.zeros(len(data), np.uint8), np.zeros(PIECE_BYTES, np.uint8)

        def copy_whole() -> None:
            for start in range(0, len(source), PIECE_BYTES):
                whole[start : start + PIECE_BYTES] = source[start : start + PIECE_BYTES]

        def copy_pieces() -> None:
            for start in range(0, len(source), PIECE_BYTES):
                part = source[start : start + PIECE_BYTES]
                piece[: len(part)] = part

        return {
            "decode": Work(lambda: kts.decode(data).num_rows, records, records),
            "iter_decode, held": Work(lambda: rows(list(kts.iter_decode(data))), records, records),
            "iter_decode": Work(lambda: rows(kts.iter_decode(data)), records, records),
            "copy": Work(copy_whole, records),
            "copy of pieces": Work(copy_pieces, records),
        }

    name = f"v2 none 100 B, {times} times"
    pairs = (
        Pair("decode", "iter_decode, held", GOAL, True),
        Pair("decode", "iter_decode", GOAL, True),
        Pair("copy", "copy of pieces", None, True),
    )
    names = ("decode", "iter_decode, held", "iter_decode", "copy", "copy of pieces")
    return Case("one call", name, "Mrec/s", names, pairs, prepare)


def cases(settings: Settings) -> Iterator[Case]:
    for times in TIMES:
        yield case(times, settings)
