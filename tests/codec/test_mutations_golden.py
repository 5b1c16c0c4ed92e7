"""15,000 or 150,000 mutations of what brokers wrote. KTS_SEED=<number> replays them."""

from __future__ import annotations

import pytest
from support.damage.mutations import run, seed_of
from support.golden import golden_logs, scaled
from support.reference import reference

PARTS, PER_PART = scaled(2, 6), scaled(7_500, 25_000)


def golden_entries() -> list[bytes]:
    """Up to four entries below 1 KiB of every magic, codec and kind of batch, from all brokers' logs."""
    found: dict[tuple[int, ...], set[bytes]] = {}
    for log in golden_logs():
        data = log.read_bytes()
        for at, size, magic in reference.entries(data):
            entry = data[at : at + size]
            kind = (magic, entry[22] if magic == 2 else entry[17])
            if size < 1024 and len(found.setdefault(kind, set())) < 4:
                found[kind].add(entry)
    return [entry for kind in sorted(found) for entry in sorted(found[kind])]


@pytest.mark.parametrize("part", range(PARTS))
def test_damaged_broker_data_is_refused_or_read_as_the_reference_says(seed: int, part: int) -> None:
    seeds = [seed_of(entry) for entry in golden_entries()]
    assert len(seeds) >= 40
    run(f"KTS_SEED={seed}, golden part {part}", seeds, PER_PART)
