"""What a truncation would take, against a slow look at every entry."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from support.golden import golden, golden_partitions
from support.reference import reference

import kts
from kts.offline.truncate import plan_truncation

ORDERS = golden("demo", "orders")
SMALL = [(scenario, name) for scenario, name in golden_partitions() if scenario.version == "demo"]


def entries(path: Path) -> list[tuple[int, int, list[int]]]:
    """(position, size, offsets of the records) of every entry of a segment, and its last offset as the last one."""
    data = path.read_bytes()
    found = []
    decoded = reference.decode_entries(data)
    for (position, size, _), (last, rows) in zip(reference.entries(data), decoded, strict=True):
        found.append((position, size, [row["offset"] for row in rows] or [last]))
    return found


@pytest.mark.parametrize("scenario, name", SMALL, ids=lambda value: str(value))
def test_a_plan_names_every_segment_batch_record_and_byte_that_goes(scenario, name, rng: random.Random) -> None:  # type: ignore[no-untyped-def]
    log = kts.open(scenario.partition_dir(name))
    logs = scenario.logs(name)
    every = {path: entries(path) for path in logs}
    offsets = [offset for found in every.values() for _, _, offsets in found for offset in offsets]
    bases = [int(path.stem) for path in logs]
    asked = [0, bases[0], bases[-1], bases[-1] + 1, log.log_end_offset - 1, *rng.choices(offsets or [0], k=8)]
    for target in asked:
        if target >= log.log_end_offset:
            continue
        plan = plan_truncation(log, target)
        everything = bases[0] > target
        expected, earlier = [], set()
        for path, found in every.items():
            whole = everything or int(path.stem) > target
            gone = [entry for entry in found if whole or entry[2][-1] >= target]
            # Nothing behind the first entry that goes is kept.
            position = 0 if whole else min((entry[0] for entry in gone), default=path.stat().st_size)
            gone = [entry for entry in found if entry[0] >= position]
            if whole or gone:
                records = sum(len(offsets) for _, _, offsets in gone)
                expected.append((str(path), whole, position, path.stat().st_size - position, len(gone), records))
            if not whole:
                earlier |= {offset for _, _, offsets in gone for offset in offsets if offset < target}
        cuts = [(c.path, c.whole, c.position, c.size_bytes, c.batches, c.records) for c in plan.cuts]
        assert cuts == expected
        assert plan.earlier == ((min(earlier), max(earlier)) if earlier else None)
        assert (plan.size_bytes, plan.batches) == (sum(e[3] for e in expected), sum(e[4] for e in expected))


def test_nothing_goes_from_the_log_end_on() -> None:
    log = kts.open(ORDERS.partition_dir("orders-0"))
    for target in (log.log_end_offset, log.log_end_offset + 5):
        plan = plan_truncation(log, target)
        assert plan.cuts == () and plan.next_offset == log.log_end_offset


def test_an_offset_below_0_is_refused() -> None:
    log = kts.open(ORDERS.partition_dir("orders-0"))
    with pytest.raises(ValueError, match="to_offset: expected 0 or more, found -1"):
        plan_truncation(log, -1)
