"""The latest state of topics, against a dict that takes one record after the other."""

from __future__ import annotations

import os
import random
import warnings
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.processes.cli_runs import lines, run
from support.sets.keyed import Row, T, random_log

import kts
from kts.dataset import latest as module
from kts.dataset.latest import Latest


def state_of(rows: list[Row], *, tombstones: bool = False) -> list[tuple[int, bytes, bytes | None]]:
    last: dict[bytes, Row] = {row["key"]: row for row in rows if row["key"] is not None}
    kept = [row for row in last.values() if tombstones or row["value"] is not None]
    return sorted((row["offset"], row["key"], row["value"]) for row in kept)


def read(path: Path, **options: Any) -> list[tuple[int, bytes, bytes | None]]:
    table = kts.latest(path, columns=["offset", "key", "value"], **options).read_all()
    return [(row["offset"], row["key"], row["value"]) for row in table.to_pylist()]


@pytest.mark.parametrize("most_keys", [1, 7, 1000], ids=["on disk", "both", "in memory"])
def test_of_each_key_the_record_with_the_greatest_offset_stays(
    most_keys: int, tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_KEYS", most_keys)
    for number in range(3):
        rows = random_log(tmp_path / f"t-{number}", rng)
        assert read(tmp_path / f"t-{number}") == state_of(rows)
        assert read(tmp_path / f"t-{number}", tombstones=True) == state_of(rows, tombstones=True)


def test_the_state_as_of_an_offset_or_a_time(tmp_path: Path, rng: random.Random) -> None:
    rows = random_log(tmp_path / "t-0", rng)
    for row in rng.sample(rows, 5):
        offset, time = row["offset"], row["timestamp"]
        before = state_of([one for one in rows if one["offset"] < offset])
        assert read(tmp_path / "t-0", as_of=offset) == before == read(tmp_path, as_of={"t": {0: offset}})
        earlier = state_of([one for one in rows if one["timestamp"] < time])
        at = datetime.fromtimestamp(time / 1000, UTC)
        assert read(tmp_path / "t-0", as_of=at) == earlier == read(tmp_path / "t-0", as_of=at.isoformat())
    for wrong, error in ((True, TypeError), ("yesterday", ValueError), (-5, ValueError), ("10", TypeError)):
        with pytest.raises(error):
            kts.latest(tmp_path, as_of=wrong)
    offset = rows[9]["offset"]
    assert read(tmp_path, as_of=np.int64(offset)) == read(tmp_path, as_of=offset) != read(tmp_path)
    with pytest.raises(kts.UnknownTopicOrPartitionError, match="ending_offsets: zz-0 is not among what is read"):
        kts.latest(tmp_path, as_of={"zz": {0: 10}})
    with pytest.raises(kts.OffsetOutOfRangeError, match="beyond the end of every partition.*a time is a datetime"):
        kts.latest(tmp_path, as_of=T)
    with pytest.raises(ValueError, match="ending_offsets says the same"):
        kts.latest(tmp_path, as_of=5, ending_offsets=6)


def test_every_partition_has_a_state_of_its_own_and_columns_are_those_asked_for(tmp_path: Path) -> None:
    for name, value in (("a-0", b"1"), ("a-1", b"2"), ("b-0", b"3")):
        with kts.Log(tmp_path / name) as log:
            log.append_rows({"key": [b"k", b"k"], "value": [b"0", value]})
    table = kts.latest(tmp_path, topics=["a"], columns=["value", "partition"]).read_all()
    assert table.column_names == ["value", "partition"]
    assert table.to_pylist() == [{"value": b"2" if one else b"1", "partition": one} for one in (0, 1)]
    assert kts.latest(tmp_path, topics=["b"]).schema == kts.scan(tmp_path, topics=["b"]).schema
    with pytest.raises(FileNotFoundError):
        kts.latest(tmp_path / "c-0")


@pytest.mark.parametrize("behind", [10**7, 2**44, 2**62])
def test_few_records_far_apart_take_no_memory_for_what_lies_between(behind: int, tmp_path: Path) -> None:
    """No CRC protects offsets: one that is wrong may be anywhere."""
    (tmp_path / "t-0").mkdir()
    data = kts.encode({"key": [b"a", b"b"], "value": [b"1", b"2"]})
    data += kts.encode({"key": [b"a"], "value": [b"3"]}, base_offset=behind)
    (tmp_path / "t-0" / f"{0:020d}.log").write_bytes(data)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", kts.KtsWarning)  # of offsets that a segment cannot have
        assert read(tmp_path) == [(1, b"b", b"2"), (behind, b"a", b"3")]


def test_offsets_that_do_not_rise_are_damage(tmp_path: Path) -> None:
    (tmp_path / "t-0").mkdir()
    data = kts.encode({"key": [b"a"], "value": [b"1"]}, base_offset=7)
    path = tmp_path / "t-0" / f"{0:020d}.log"
    for later in (7, 3):
        path.write_bytes(data + kts.encode({"key": [b"a"], "value": [b"2"]}, base_offset=later))
        with warnings.catch_warnings(), pytest.raises(kts.CorruptRecordError, match="offsets that rise") as caught:
            warnings.simplefilter("ignore", kts.KtsWarning)
            read(tmp_path)
        assert caught.value.path == str(tmp_path / "t-0") and caught.value.offset == later


def test_markers_are_no_keys(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="include_control: the markers of transactions have no key"):
        kts.latest(tmp_path, include_control=True)
    assert "leave out --include-control" in run("dump", tmp_path, "--latest", "--include-control", code=2).stderr


def test_aborted_and_open_transactions_do_not_count_unless_asked_for(tmp_path: Path) -> None:
    def sent(value: bytes, base: int, **of_batch: Any) -> bytes:
        return kts.encode({"key": [b"k"], "value": [value], "timestamp": [T]}, base_offset=base, **of_batch)

    def marker(base: int, kind: int) -> bytes:
        columns = {"key": [bytes([0, 0, 0, kind])], "value": [bytes(6)], "timestamp": [T]}
        return kts.encode(columns, base_offset=base, control=True, transactional=True, producer_id=1, producer_epoch=0)

    of_one = {"transactional": True, "producer_id": 1, "producer_epoch": 0}
    with kts.Log(tmp_path / "t-0") as log:
        log.append_as_follower(sent(b"first", 0))
        log.append_as_follower(sent(b"aborted", 1, base_sequence=0, **of_one) + marker(2, 0))
        log.append_as_follower(sent(b"open", 3, base_sequence=1, **of_one))
    with pytest.warns(kts.KtsWarning, match="is open since offset 3"):
        assert read(tmp_path) == [(0, b"k", b"first")]
    assert read(tmp_path, isolation="read_uncommitted") == [(3, b"k", b"open")]


def test_records_that_are_deleted_between_the_two_reads_are_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with kts.Log(tmp_path / "t-0", {"segment.bytes": 200, "file.delete.delay.ms": 0}) as log:
        for number in range(5):
            log.append_rows({"key": [b"k%d" % number], "value": [b"v" * 100]})
    seen = Latest.chosen

    def deleted_meanwhile(state: Latest) -> Any:
        os.remove(tmp_path / "t-0" / f"{0:020d}.log")
        return seen(state)

    monkeypatch.setattr(Latest, "chosen", deleted_meanwhile)
    with pytest.raises(kts.LogStorageError, match="expected 5 keys, found 4"):
        read(tmp_path)


def test_dump_writes_the_latest_state(tmp_path: Path, rng: random.Random) -> None:
    rows = random_log(tmp_path / "t-0", rng)
    state = state_of(rows)
    assert [row["offset"] for row in lines("dump", tmp_path, "--latest", "--json")] == [one[0] for one in state]
    wanted = [row for row in lines("dump", tmp_path, "--latest", "--json", "--keys", "utf8", "--key", "k7")]
    assert [row["offset"] for row in wanted] == [one[0] for one in state if one[1] == b"k7"]
    end = rows[len(rows) // 2]["offset"]
    until = lines("dump", tmp_path, "--latest", "--json", "--offsets", f":{end}")
    assert [row["offset"] for row in until] == [
        one[0] for one in state_of([row for row in rows if row["offset"] < end])
    ]
    assert "--tail and --latest exclude" in run("dump", tmp_path, "--latest", "--tail", 3, code=2).stderr
