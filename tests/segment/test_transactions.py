"""The ``.txnindex``, and which batches a read_committed reader drops."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from support.golden import golden_partitions

import kts
from kts.errors import CorruptIndexError
from kts.segment.transactions import TXN_ENTRY, append_aborted, read_txn_index, truncate_aborted

TRANSACTIONAL = [(one, name) for one, name in golden_partitions() if list(one.partition_dir(name).glob("*.txnindex"))]


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (bytes(35), "expected entries of 34 bytes, found 1 bytes after the last one"),
        (struct.pack(">hqqqq", 1, 7, 0, 9, 10), "entry 0: expected version 0 and a transaction, found version 1"),
        (struct.pack(">hqqqq", 0, -1, 0, 9, 10), "producer -1"),
        (struct.pack(">hqqqq", 0, 7, 0, 9, 10) + struct.pack(">hqqqq", 0, 7, 9, 8, 10), "entry 1:.* offsets 9 to 8"),
    ],
)
def test_entries_that_cannot_be_are_refused_with_their_number(data: bytes, says: str, tmp_path: Path) -> None:
    path = tmp_path / f"{0:020}.txnindex"
    path.write_bytes(data)
    with pytest.raises(CorruptIndexError, match=says) as error:
        read_txn_index(str(path))
    assert error.value.path == str(path)
    assert error.value.position == (len(data) - 1) // 34 * 34  # where the last entry, or what is left of it, begins


def test_a_brokers_index_lists_each_transaction_up_to_its_abort_marker() -> None:
    checked = 0
    for scenario, name in TRANSACTIONAL:
        directory = scenario.partition_dir(name)
        columns = ["offset", "control", "transactional", "producerId", "key"]
        table = kts.scan(directory, columns=columns, include_control=True, log_start_offset=0).read_all().to_pylist()
        aborts = {(row["producerId"], row["offset"]) for row in table if row["control"] and row["key"] == bytes(4)}
        for path in directory.glob("*.txnindex"):
            for one in read_txn_index(str(path)):
                assert (one.producer_id, one.last_offset) in aborts
                checked += 1
    assert checked > 0


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
