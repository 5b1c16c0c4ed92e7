"""Producer ids are never given twice."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from kts.broker.producer_ids import BLOCK, FILE, ProducerIds
from kts.errors import LogStorageError


def test_ids_go_on_behind_the_block_after_a_restart(tmp_path: Path) -> None:
    ids = ProducerIds(str(tmp_path))
    assert [ids.next() for _ in range(3)] == [0, 1, 2]
    block = json.loads((tmp_path / FILE).read_text(encoding="utf-8"))
    assert (block["block_start"], block["block_end"]) == ("0", str(BLOCK - 1))
    assert ProducerIds(str(tmp_path)).next() == BLOCK


def test_a_block_is_written_before_its_first_id_is_given(tmp_path: Path) -> None:
    ids = ProducerIds(str(tmp_path))
    for _ in range(BLOCK):
        ids.next()
    assert ids.left == 0
    (tmp_path / FILE).unlink()
    assert ids.next() == BLOCK
    assert json.loads((tmp_path / FILE).read_text(encoding="utf-8"))["block_start"] == str(BLOCK)


def test_a_directory_of_others_gives_ids_behind_those_its_logs_know(tmp_path: Path) -> None:
    assert ProducerIds(str(tmp_path), lambda: 4711).next() == 4712
    (tmp_path / FILE).write_text("{damaged", encoding="utf-8")
    assert ProducerIds(str(tmp_path), lambda: 9000).next() == 9001
    assert ProducerIds(str(tmp_path), lambda: -1).next() == 9001 + BLOCK


def test_what_cannot_be_written_is_not_given(tmp_path: Path) -> None:
    ids = ProducerIds(str(tmp_path / "missing"))
    for _ in range(2):
        with pytest.raises(LogStorageError):
            ids.next()
    (tmp_path / "missing").mkdir()
    assert ids.next() == 0


def test_threads_get_different_ids(tmp_path: Path) -> None:
    ids, given = ProducerIds(str(tmp_path)), list[int]()

    def take() -> None:
        given.extend([ids.next() for _ in range(700)])

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(given)) == 2800
