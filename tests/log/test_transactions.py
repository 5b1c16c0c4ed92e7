"""Random transactions beside a slow twin that reads all batches again: stable offset, aborted ones, snapshots."""

from __future__ import annotations

import random
from pathlib import Path
from typing import NamedTuple

import pytest
from support.sets.log_records import NOW, Clock, batch, opened

import kts
from kts.segment.snapshots import read_snapshot_entries
from kts.segment.transactions import TXN_ENTRY

ABORT, COMMIT = 0, 1


class Written(NamedTuple):
    """A batch of the log: its offsets, its producer, and how it ends a transaction if it does."""

    first: int
    last: int
    producer: int
    transactional: bool
    marker: int | None
    next_sequence: int = 0


def marker(producer: int, kind: int) -> bytes:
    row = {"key": [bytes([0, 0, 0, kind])], "value": [bytes([0, 0, 0, 0, 0, 7])], "timestamp": [NOW]}
    return bytes(
        kts.encode(row, producer_id=producer, producer_epoch=0, transactional=True, control=True)  # type: ignore[arg-type]
    )


class Twin(NamedTuple):
    """What the batches say, read from the first one on."""

    still_open: dict[int, int]  # producer -> first offset
    aborted: list[tuple[int, int, int, int]]  # producer, first, last and last stable offset, as the index has them
    last: dict[int, tuple[int, int]]  # producer -> last data offset, and the difference to the batch's first


def twin_of(batches: list[Written]) -> Twin:
    still_open: dict[int, int] = {}
    aborted: list[tuple[int, int, int, int]] = []
    last: dict[int, tuple[int, int]] = {}
    for one in batches:
        if one.producer < 0:
            continue
        if one.marker is None:
            last[one.producer] = one.last, one.last - one.first
            if one.transactional:
                still_open.setdefault(one.producer, one.first)
            continue
        began = still_open.pop(one.producer, None)
        last.setdefault(one.producer, (-1, 0))
        if began is not None and one.marker == ABORT:
            others = min(still_open.values(), default=one.last + 1)
            aborted.append((one.producer, began, one.last, others))
    return Twin(still_open, aborted, last)


def agrees(log: kts.Log, batches: list[Written]) -> None:
    twin = twin_of(batches)
    assert log.last_stable_offset == min(twin.still_open.values(), default=log.log_end_offset)
    listed = []
    for segment in log.segments:
        path = Path(segment.txn_index_path)
        listed += [entry[1:] for entry in TXN_ENTRY.iter_unpack(path.read_bytes())] if path.exists() else []
    assert listed == twin.aborted


@pytest.mark.parametrize("unique", range(4))
def test_a_random_life_of_transactions_agrees_with_its_batches(tmp_path: Path, rng: random.Random, unique: int) -> None:
    rng.seed(rng.random() + unique)
    clock, batches = Clock(), list[Written]()
    log = opened(tmp_path, clock, segment_bytes=rng.choice([500, 1500]))
    for _ in range(70):
        clock.now += 1
        chance, producer = rng.random(), rng.choice([1, 2, 3, 2**33])
        still_open = twin_of(batches).still_open
        if chance < 0.15:
            done = log.append(batch(NOW))
            batches.append(Written(done.first_offset, done.last_offset, -1, False, None))
        elif chance < 0.6:
            count = rng.randint(1, 3)
            transactional = producer in still_open or rng.random() < 0.7
            own_batches = [one for one in batches if one.producer == producer and one.marker is None]
            first = own_batches[-1].next_sequence if own_batches else 0
            own = {"producer_id": producer, "producer_epoch": 0, "base_sequence": first}
            done = log.append(batch(*[clock.now] * count, transactional=transactional, **own))
            offsets = done.first_offset, done.last_offset
            batches.append(Written(*offsets, producer, transactional, None, first + count))
        elif chance < 0.8:
            if still_open:
                producer = rng.choice(sorted(still_open))
            kind = rng.choice([ABORT, COMMIT])
            done = log.append(marker(producer, kind), origin="coordinator")
            batches.append(Written(done.first_offset, done.last_offset, producer, True, kind))
        elif chance < 0.87 and batches:
            hit = rng.choice(batches[-6:])
            target = rng.randint(hit.first, hit.last)
            log.truncate_to(target)
            batches = [one for one in batches if one.last < target]
        else:
            clean = rng.random() < 0.5
            log.close() if clean else log.abandon()
            if rng.random() < 0.3:
                for path in (tmp_path / "t-0").glob("*.snapshot"):
                    path.write_bytes(path.read_bytes()[:-1] + b"?")
                (tmp_path / ".kafka_cleanshutdown").unlink(missing_ok=True)
            log = opened(tmp_path, clock, segment_bytes=rng.choice([500, 1500]))
        agrees(log, batches)
    log.close()
    if log.log_end_offset:
        told = read_snapshot_entries(str(tmp_path / f"t-0/{log.log_end_offset:020d}.snapshot"))
        twin = twin_of(batches)
        assert {entry[0]: (entry[3], entry[4]) for entry in told} == twin.last
        assert {entry[0]: entry[7] for entry in told if entry[7] >= 0} == twin.still_open
