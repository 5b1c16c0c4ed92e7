"""Producer snapshots: the file's bytes, and the snapshots of a directory."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import pytest
from support.golden import data_root

from kts._codec import crc32c
from kts.errors import CorruptIndexError
from kts.segment.producers import ProducerStateEntry, Sent
from kts.segment.snapshots import Snapshots, read_snapshot, read_snapshot_entries, snapshot_bytes, snapshot_paths
from kts.store.source import files

TRANSACTIONS = data_root() / "golden" / "3.9.2" / "txn-none"


def base_of(path: Path) -> int:
    return int(path.name[:20])


def test_a_snapshot_lies_in_its_file_as_kafka_writes_it(tmp_path: Path) -> None:
    """Version, CRC, count, and 58 bytes for each producer; only an open transaction has a first offset."""
    silent = ProducerStateEntry(7, 2, (Sent(3, 9, 4, 1000),), 1000, 5)
    busy = ProducerStateEntry(8, 0, (Sent(0, 11, 0, 2000),), 2000, -1, 10)
    body = struct.pack(">i", 2)
    body += struct.pack(">qhiqiqiq", 7, 2, 3, 9, 4, 1000, 5, -1) + struct.pack(
        ">qhiqiqiq", 8, 0, 0, 11, 0, 2000, -1, 10
    )
    expected = struct.pack(">hI", 1, crc32c(body)) + body
    assert snapshot_bytes([silent, busy]) == expected
    path = tmp_path / f"{12:020}.snapshot"
    path.write_bytes(expected)
    assert read_snapshot(str(path)) == (12, {8: 10})


@pytest.mark.parametrize(
    ("position", "damage", "says"),
    [
        (0, b"\0\2", "expected snapshot version 1, found 2"),
        (2, b"\0\0\0\0", "expected the stored 00000000"),
        (70, b"", "CRC"),
        (5, None, "expected at least 10 bytes, found 5"),
    ],
)
def test_a_damaged_snapshot_is_refused_with_the_reason(
    position: int, damage: bytes | None, says: str, tmp_path: Path
) -> None:
    whole = snapshot_bytes(
        [ProducerStateEntry(7, 2, (Sent(3, 9, 4, 1000),), 1000, 5), ProducerStateEntry(8, 0, (Sent(0, 1, 0, 5),), 5)]
    )
    path = tmp_path / f"{12:020}.snapshot"
    changed = whole[:position] + damage + whole[position + len(damage) :] if damage else whole[:position]
    path.write_bytes(changed)
    with pytest.raises(CorruptIndexError, match=says) as error:
        read_snapshot_entries(str(path))
    assert error.value.path == str(path)


def test_the_live_snapshots_of_a_directory_come_newest_first(tmp_path: Path) -> None:
    for name in (f"{5:020}.snapshot", f"{70:020}.snapshot", f"{9:020}.snapshot.deleted", f"{5:020}.log", "x.snapshot"):
        (tmp_path / name).touch()
    entries = files.list_directory(str(tmp_path))
    assert snapshot_paths(entries) == [(at, str(tmp_path / f"{at:020}.snapshot")) for at in (70, 5)]


def test_snapshots_are_found_loaded_and_rebuilt_from_the_batches_behind_them(tmp_path: Path) -> None:
    source = next(path for path in TRANSACTIONS.iterdir() if path.is_dir())
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
    first.producers.add(ProducerStateEntry(1, 0, (Sent(5, 9, 0, 1000),), 1000))
    first.producers.add(ProducerStateEntry(2, 0, (Sent(5, 9, 0, 1001),), 1001))
    first.producers.add(ProducerStateEntry(3, 0, (Sent(5, 9, 0, 1000),), 1000, -1, 4))
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
