"""Random logs of topics whose records have keys."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import kts

T = 1_780_000_000_000
Row = dict[str, Any]


def random_log(path: Path, rng: random.Random, keys: int = 50) -> list[Row]:
    """Several segments, magics and codecs, times out of order, tombstones, records without a key; the rows."""
    rows: list[Row] = []
    with kts.Log(path, {"segment.bytes": 4000, "segment.ms": 2**62}, release="3.9") as log:
        for _ in range(rng.randrange(30, 80)):
            count = rng.randrange(1, 12)
            chosen = {
                "key": [None if rng.random() < 0.05 else b"k%d" % rng.randrange(keys) for _ in range(count)],
                "value": [None if rng.random() < 0.2 else b"v%d" % rng.randrange(10**6) for _ in range(count)],
                "timestamp": [T + rng.randrange(-(10**7), 10**7) for _ in range(count)],
            }
            first = log.log_end_offset + rng.randrange(3)  # as the cleaner leaves it
            log.append_as_follower(
                kts.encode(
                    chosen, magic=rng.randrange(1, 3), compression=rng.choice(["none", "gzip"]), base_offset=first
                )
            )
            rows += [{"offset": first + at} | {name: chosen[name][at] for name in chosen} for at in range(count)]
    return rows
