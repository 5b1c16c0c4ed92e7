"""The newest value of each key: what counts of transactions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from support.broker.group_play import T, committed

import kts
from kts.coordinator_records.groups import offset_key, offset_value, read_key, read_offset
from kts.dataset.newest import Loader


def test_commits_of_transactions_count_when_they_are_committed(tmp_path: Path) -> None:
    def rows(offset: int, group_id: str, producer_id: int = -1, **more: Any) -> bytes:
        key, value = offset_key(group_id, "t", 0), offset_value(committed(offset))
        columns = {"timestamp": pa.array([T], pa.int64()), "key": [key], "value": [value]}
        if producer_id >= 0:
            more = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": 0} | more
        return kts.encode({name: pa.array(each) for name, each in columns.items()}, **more)

    def end(producer_id: int, *, well: bool) -> bytes:
        key = b"\0\0\0\1" if well else b"\0\0\0\0"
        columns = {"timestamp": pa.array([T], pa.int64()), "key": pa.array([key]), "value": pa.array([bytes(6)])}
        about = {"producer_id": producer_id, "producer_epoch": 0, "transactional": True, "control": True}
        return kts.encode(columns, **about)

    with kts.Log(tmp_path / "__consumer_offsets-0") as log:
        for batch in (
            rows(1, "plain"),
            rows(2, "committed", 7, transactional=True),
            rows(3, "aborted", 8, transactional=True),
            rows(4, "open", 9, transactional=True),
            rows(5, "overtaken", 7, transactional=True, base_sequence=1),
            rows(6, "overtaken"),
        ):
            log.append(batch)
        assert log.log_end_offset == 6
        log.append(end(7, well=True), origin="coordinator")
        log.append(end(8, well=False), origin="coordinator")
        for piece_bytes in (1, 200, 2**20):
            loaded = Loader().read(kts.open(tmp_path / "__consumer_offsets-0"), piece_bytes)
            found = {read_key(key): read_offset(value).offset for key, value in loaded.newest.items()}
            assert {key.group_id: offset for key, offset in found.items() if hasattr(key, "group_id")} == {
                "plain": 1,
                "committed": 2,
                "overtaken": 6,
            }
            assert loaded.unfinished
