"""15,000 or 150,000 mutations of generated entries of every magic and codec. KTS_SEED=<number> replays them."""

from __future__ import annotations

import random

import pytest
from support.damage.fields import codec_of
from support.damage.mutations import run, seed_of
from support.golden import scaled
from support.sets import generate

PARTS, PER_PART = scaled(2, 6), scaled(7_500, 25_000)


def generated_entries(rng: random.Random) -> list[bytes]:
    """Ten small entries of every magic and codec."""
    found: dict[tuple[int, int], list[bytes]] = {}
    while len(found) < 13 or min(map(len, found.values())) < 10:
        make = rng.choice((generate.random_batch, generate.random_wrapper, generate.random_message))
        entry = make(rng)
        kind = found.setdefault((entry[16], codec_of(entry)), [])
        if len(entry) < 1024 and len(kind) < 10:
            kind.append(entry)
    return [entry for entries in found.values() for entry in entries]


@pytest.mark.parametrize("part", range(PARTS))
def test_damaged_generated_data_is_refused_or_read_as_the_reference_says(seed: int, part: int) -> None:
    where = f"KTS_SEED={seed}, generated part {part}"
    run(where, [seed_of(entry) for entry in generated_entries(random.Random(where))], PER_PART)
