"""Decode to Arrow columns with CRCs checked, against record loops and against the floor."""

from __future__ import annotations

from collections.abc import Iterator

import kts
from bench.corpora import CODECS, SIZES
from bench.floor import Floor
from bench.peers import aiokafka_loop, aiokafka_to_arrow, kafka_python_loop

from .cases import Case, Pair, Settings, Work, corpus_of

TABLE = "decode"
SLOW_PEER_BYTES = 1 << 20  # kafka-python reads no more, because it takes too long for the whole
ARROW_GOAL = 28.0
Goals = dict[str, tuple[float | None, float | None, float | None]]
# Multiples of aiokafka's rate that are wanted, for tiny, 100 B and 1 KB.
COPIED_GOALS: Goals = {
    "v2 none": (20, 14, 8),
    "v2 lz4": (11, 6, 3),
    "v2 zstd": (5.5, 3.3, 1.9),
    "v2 snappy": (8, 3.7, 1.8),
    "v2 gzip": (4.6, 3.5, 2.9),
    "v1 none": (25, 15, 6),
    "v0 none": (19, 19, 4),
    "v1 lz4": (8, 5, 2.5),
    "v1 snappy": (None, 2.7, None),
    "v1 gzip": (None, 3.5, None),
}
VIEWS_GOALS: Goals = {
    "v2 none": (25, 17, 16),
    "v1 none": (27, 17, 15),
    "v0 none": (20, 21, 15),
}


def floor_goal(magic: int, codec: str, size: str) -> float | None:
    """The share of the floor that is wanted."""
    if codec == "none":
        return 0.90 if (magic, size) == (2, "1 KB") else None
    return 0.88 if codec in ("lz4", "snappy") and size != "1 KB" else 0.90


def decode_case(magic: int, codec: str, size: str, settings: Settings) -> Case:
    kind, place = f"v{magic} {codec}", SIZES.index(size)
    copied_goal, views_goal = (goals.get(kind, (None,) * 3)[place] for goals in (COPIED_GOALS, VIEWS_GOALS))
    floor = floor_goal(magic, codec, size)
    pairs = [
        Pair("copied", "aiokafka", copied_goal),
        Pair("views", "aiokafka", views_goal),
        Pair("copied", "kafka-python"),
        Pair("copied", "floor", floor, share=True),
        Pair("views", "floor", share=True),
    ]
    if codec == "none":
        pairs.append(Pair("copied", "aiokafka to Arrow", ARROW_GOAL if size == "100 B" else None))
    elif magic < 2:
        pairs.append(Pair("copied", "floor with inner CRCs", floor, share=True))
    contenders = tuple(dict.fromkeys(name for pair in pairs for name in (pair.ours, pair.peer)))

    def prepare() -> dict[str, Work]:
        corpus = corpus_of(settings, magic, codec, size)
        part = corpus.front(SLOW_PEER_BYTES)

        def drain(views: bool) -> int:
            return sum(batch.num_rows for batch in kts.iter_decode(corpus.data, views=views))

        records = corpus.records
        works = {
            "copied": Work(lambda: drain(False), records, records),
            "views": Work(lambda: drain(True), records, records),
            "aiokafka": Work(lambda: aiokafka_loop(corpus), records, records),
            "kafka-python": Work(lambda: kafka_python_loop(part), part.records, part.records),
            "floor": Work(Floor(corpus).outer, records),
            "aiokafka to Arrow": Work(lambda: aiokafka_to_arrow(corpus), records, records),
        }
        if "floor with inner CRCs" in contenders:
            works["floor with inner CRCs"] = Work(Floor(corpus).inner, records)
        return works

    return Case(TABLE, f"{kind} {size}", "Mrec/s", contenders, tuple(pairs), prepare)


def cases(settings: Settings) -> Iterator[Case]:
    for magic, codecs in ((2, CODECS), (1, CODECS[:4]), (0, CODECS[:1])):
        for size in SIZES:
            for codec in codecs:
                yield decode_case(magic, codec, size, settings)
