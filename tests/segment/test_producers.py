"""Producer state, snapshots and transaction indexes: byte for byte what brokers 3.9.2 and 4.3.1 left."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.golden import data_root

import kts
from kts.segment.producers import Producers, ProducerStateEntry, Sent, Update
from kts.segment.snapshots import snapshot_bytes
from kts.segment.transactions import TXN_ENTRY

SCENARIOS = [f"3.9.2/{name}" for name in ("idempotent", "txn-none", "txn-lz4-lat", "txn-open")]
SCENARIOS += [f"4.3.1/{name}" for name in ("idempotent", "txn-none", "txn-open")]


def partition(scenario: str) -> Path:
    found = [path for path in (data_root() / "golden" / scenario).iterdir() if path.is_dir()]
    assert len(found) == 1
    return found[0]


def base_of(path: Path) -> int:
    return int(path.name[:20])


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_batches_give_the_snapshots_and_transaction_indexes_that_the_broker_wrote(scenario: str) -> None:
    directory = partition(scenario)
    snapshots = {base_of(path): path.read_bytes() for path in directory.glob("*.snapshot")}
    assert snapshots
    state, checked = Producers(), 0
    for log in sorted(directory.glob("*.log")):
        if base_of(log) in snapshots:
            assert snapshot_bytes(state.in_table_order()) == snapshots[base_of(log)]
            checked += 1
        aborted = b"".join(TXN_ENTRY.pack(0, *entry) for entry in state.follow(log.read_bytes()))
        index = log.with_suffix(".txnindex")
        assert aborted == (index.read_bytes() if index.exists() else b"")
    if max(snapshots) > base_of(log):
        assert snapshot_bytes(state.in_table_order()) == snapshots[max(snapshots)]
        checked += 1
    assert checked == len(snapshots)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_whole_set_gives_the_same_state_as_its_batches_one_by_one(scenario: str) -> None:
    together, alone = Producers(), Producers()
    for log in sorted(partition(scenario).glob("*.log")):
        data = log.read_bytes()
        update = together.prepare(data)
        if isinstance(update, Update):
            together.apply(update)
        alone.follow(data)
    assert (together.known, together.open_transactions) == (alone.known, alone.open_transactions)


def test_an_open_transaction_holds_the_stable_offset_back() -> None:
    directory = partition("3.9.2/txn-open")
    state = Producers()
    for log in sorted(directory.glob("*.log")):
        state.follow(log.read_bytes())
    with kts.open(directory) as log:
        assert state.open_transactions
        assert min(state.open_transactions) == log.last_stable_offset
    state.replicated_to(2**62)
    assert state.first_unstable_offset == min(state.open_transactions)


def test_producers_are_written_in_the_order_of_javas_hash_map() -> None:
    state = Producers()
    ids = [17, 1, 2**33 + 5, 16, 0, 32, 2**40, 7, 9, 11, 12]
    for number in ids:
        state.add(ProducerStateEntry(number, 0, (Sent(0, number % 97, 0, 5),), 5))
    # Worked out by hand: bucket = low 4 bits of h ^ h >> 16 with h = high ^ low 32 bits; ties in order of arrival.
    expected = [16, 0, 32, 2**40, 17, 1, 2**33 + 5, 7, 9, 11, 12]
    assert [one.producer_id for one in state.in_table_order()] == expected
    for number in (100, 101):
        state.add(ProducerStateEntry(number, 0, (Sent(0, 1, 0, 5),), 5))
    # The thirteenth makes the table 32 buckets wide: 100 and 101 are 4 and 5 there, 16 and 17 have their own.
    expected = [0, 32, 2**40, 1, 100, 2**33 + 5, 101, 7, 9, 11, 12, 16, 17]
    expected = sorted(expected, key=lambda number: {2**40: 2**8 % 32, 2**33 + 5: 7}.get(number, number % 32))
    assert [one.producer_id for one in state.in_table_order()] == expected
