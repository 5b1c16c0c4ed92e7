"""Both indexes of a segment rebuilt from its log, against a scan of the same file's headers and CRCs."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from kts.segment.entries import Slices
from kts.segment.rebuild import IndexConfig, rebuild
from kts.store.local import File

from .cases import Case, Pair, Settings, Work, corpus_of


def rebuild_case(magic: int, codec: str, settings: Settings) -> Case:
    def prepare() -> dict[str, Work]:
        corpus = corpus_of(settings, magic, codec, "100 B")
        folder = tempfile.TemporaryDirectory()  # goes with the two calls
        path = Path(folder.name, f"{0:020}.log")
        path.write_bytes(corpus.data)

        def scan(folder: object = folder) -> int:
            with File(str(path)) as file:
                return sum(map(len, Slices(file, 0, file.size())))

        def again(folder: object = folder) -> int:
            with File(str(path)) as file:
                return rebuild(file, file.size(), 0, IndexConfig()).valid_bytes

        size = len(corpus.data)
        return {"rebuild": Work(again, size, size), "scan": Work(scan, size)}

    goal = 0.90 if (magic, codec) == (2, "none") else None
    pairs = (Pair("rebuild", "scan", goal, share=True),)
    return Case("rebuild of both indexes", f"v{magic} {codec} 100 B", "GiB/s", ("rebuild", "scan"), pairs, prepare)


def cases(settings: Settings) -> Iterator[Case]:
    for magic in (2, 1):
        for codec in ("none", "lz4"):
            yield rebuild_case(magic, codec, settings)
