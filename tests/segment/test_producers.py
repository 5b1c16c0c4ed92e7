"""Producer state, snapshots and transaction indexes: byte for byte what brokers 3.9.2 and 4.3.1 left."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from support.golden import data_root

import kts
from kts.segment.producers import Producer, Producers, Sent, Update
from kts.segment.snapshots import Snapshots, read_snapshot_entries, snapshot_bytes
from kts.segment.transactions import TXN_ENTRY, append_aborted, truncate_aborted

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
        state.add(Producer(number, 0, (Sent(0, number % 97, 0, 5),), 5))
    # Worked out by hand: bucket = low 4 bits of h ^ h >> 16 with h = high ^ low 32 bits; ties in order of arrival.
    expected = [16, 0, 32, 2**40, 17, 1, 2**33 + 5, 7, 9, 11, 12]
    assert [one.producer_id for one in state.in_table_order()] == expected
    for number in (100, 101):
        state.add(Producer(number, 0, (Sent(0, 1, 0, 5),), 5))
    # The thirteenth makes the table 32 buckets wide: 100 and 101 are 4 and 5 there, 16 and 17 have their own.
    expected = [0, 32, 2**40, 1, 100, 2**33 + 5, 101, 7, 9, 11, 12, 16, 17]
    expected = sorted(expected, key=lambda number: {2**40: 2**8 % 32, 2**33 + 5: 7}.get(number, number % 32))
    assert [one.producer_id for one in state.in_table_order()] == expected


def test_snapshots_are_found_loaded_and_rebuilt_from_the_batches_behind_them(tmp_path: Path) -> None:
    source = partition("3.9.2/txn-none")
    directory = tmp_path / source.name
    shutil.copytree(source, directory)
    logs = sorted(directory.glob("*.log"))
    bases, now = [base_of(path) for path in logs], 1795231313057
    reads = []

    def read(number: int, first: int, end: int) -> list[bytes]:
        reads.append((bases[number], first, end))
        return [logs[number].read_bytes()]

    expected = (directory / f"{58:020d}.snapshot").read_bytes()
    whole = Snapshots(str(directory))
    assert whole.offsets == [7, 58]
    whole.rebuild(bases, 0, 58, now, read)
    assert (reads, snapshot_bytes(whole.producers.in_table_order())) == ([], expected)
    (directory / f"{58:020d}.snapshot").write_bytes(expected[:-1] + b"?")
    broken = Snapshots(str(directory))
    broken.rebuild(bases, 0, 58, now, read)
    assert reads == [(7, 7, 58)]
    assert broken.offsets == [7, 58]
    assert (directory / f"{58:020d}.snapshot").read_bytes() == expected
    broken.clear(3)
    assert not list(directory.glob("*.snapshot"))
    broken.rebuild(bases, 0, 58, now, read)
    assert reads[1:] == [(0, 0, 58), (7, 7, 58)]
    assert (directory / f"{58:020d}.snapshot").read_bytes() == expected


def test_producers_silent_for_a_day_are_forgotten_at_start_unless_a_transaction_is_open(tmp_path: Path) -> None:
    first = Snapshots(str(tmp_path))
    first.producers.add(Producer(1, 0, (Sent(5, 9, 0, 1000),), 1000))
    first.producers.add(Producer(2, 0, (Sent(5, 9, 0, 1001),), 1001))
    first.producers.add(Producer(3, 0, (Sent(5, 9, 0, 1000),), 1000, -1, 4))
    first.producers.end_offset = 10
    first.take()
    again = Snapshots(str(tmp_path))
    again.reload(0, 10, 1000 + 86_400_000)
    assert list(again.producers.known) == [2, 3]
    assert again.producers.open_transactions == {4: 3}


def test_strays_go_except_the_newest_behind_all_segments(tmp_path: Path) -> None:
    snapshots = Snapshots(str(tmp_path))
    for offset in (5, 10, 15, 20, 25):
        snapshots.producers.end_offset = offset
        snapshots.take()
    snapshots.remove_strays([0, 10, 18])
    assert snapshots.offsets == [10, 25]
    snapshots.remove_strays([0, 10, 30])
    assert snapshots.offsets == [10]
    assert read_snapshot_entries(snapshots.path(10)) == []


def test_a_transaction_index_grows_and_is_cut_from_the_first_that_ended_later(tmp_path: Path) -> None:
    path = tmp_path / f"{0:020d}.txnindex"
    truncate_aborted(str(path), 0)
    assert not path.exists()
    entries = [(1, 0, 9, 10), (2, 3, 19, 20), (1, 11, 29, 30)]
    append_aborted(str(path), entries[:1])  # type: ignore[arg-type]
    append_aborted(str(path), entries[1:])  # type: ignore[arg-type]
    whole = b"".join(TXN_ENTRY.pack(0, *entry) for entry in entries)
    assert path.read_bytes() == whole
    truncate_aborted(str(path), 20)
    assert path.read_bytes() == whole[:68]
    truncate_aborted(str(path), 9)
    assert path.read_bytes() == b""
