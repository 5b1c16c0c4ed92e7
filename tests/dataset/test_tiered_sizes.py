"""Copies that the brokers' own sessions lack: larger chunks, many chunks, settings that change between segments."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support.tiering import Copied, copied

import kts
from kts.errors import CorruptRecordError, DamageWarning
from kts.offline.verify import verify_partition
from kts.remote import chunks

T0, ROWS = 1_700_000_000_000, 40_000


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six segments of 1 MiB, with times out of order."""
    path = tmp_path_factory.mktemp("tiered") / "t-0"
    rng = np.random.default_rng(1)
    times = T0 + np.arange(ROWS) * 100 + rng.integers(-5000, 5000, ROWS)
    values = [rng.bytes(50) + bytes(70) for _ in range(97)]
    with kts.Log(path, {"segment.bytes": 1 << 20}) as log:
        for start in range(0, ROWS, 1000):
            rows = range(start, start + 1000)
            log.append_rows(
                {"timestamp": times[start : start + 1000], "value": [values[i % 97] for i in rows]}, batch_bytes=2000
            )
    return path


CODINGS: dict[str, dict[str, Any]] = {
    "chunks of 4 MiB": {"compressed": lambda n: True, "encrypted": lambda n: True},
    "a thousand chunks": {"compressed": lambda n: True, "chunk_bytes": lambda n: 1000},
    "changing": {"compressed": lambda n: n % 3 == 1, "encrypted": lambda n: n % 2 == 1,
                 "chunk_bytes": lambda n: [7919, 1 << 18, 3333, 4096, 1 << 22][n % 5]},
    "older manifests": {"encrypted": lambda n: n == 2, "told": False, "local": 3},
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("coding", CODINGS)
def test_records_and_times_are_those_of_the_directory_before(source: Path, tmp_path: Path, coding: str) -> None:
    made, before = copied(source, tmp_path, **CODINGS[coding]), kts.open_partition(source)
    rows = before.scan(columns=["offset", "timestamp", "key", "value", "headers"]).read_all()
    rng = random.Random(5)
    for log in (made.open(), made.alone()):
        found = log.scan(columns=rows.schema.names).read_all()
        assert found.equals(rows.slice(0, log.log_end_offset)) and found.num_rows > ROWS * 3 // 4
        for _ in range(5):
            query = T0 + rng.randrange(-10_000, log.log_end_offset * 100 - 10_000)
            assert log.offset_for_timestamp(query) == before.offset_for_timestamp(query)
        assert list(verify_partition(log)) == []
    assert made.open().max_timestamp() == before.max_timestamp()


def fetched(log: kts.PartitionLog, monkeypatch: pytest.MonkeyPatch, work: Callable[[], object]) -> int:
    """Bytes of logs in the store that some work fetches."""
    counts: list[int] = []
    real = chunks.RemoteLog._fetched

    def counted(self: chunks.RemoteLog, *args: Any) -> bytes:
        data = real(self, *args)
        counts.append(len(data))
        return data

    with monkeypatch.context() as patch:
        patch.setattr(chunks.RemoteLog, "_fetched", counted)
        work()
    return sum(counts)


def test_a_hundredth_of_the_time_fetches_a_few_chunks(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = 1 << 14
    made = copied(source, tmp_path, encrypted=lambda n: True, chunk_bytes=lambda n: size)
    start = T0 + ROWS * 30
    rows: list[pa.Table] = []
    asked = {"starting_timestamp": start, "ending_timestamp": start + ROWS, "allowed_lateness": "10s"}
    count = fetched(made.alone(), monkeypatch, lambda: rows.append(made.alone().scan(**asked).read_all()))
    assert 300 <= rows[0].num_rows <= 500
    # The records are of three or four chunks; the index entries that are confirmed, of a few more; and the headers of
    # the segments after them, and those between which the range ends, one each.
    assert count <= 20 * size


def test_the_greatest_time_is_read_where_the_time_index_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, size = tmp_path / "t-0", 1 << 12
    times = [*range(T0, T0 + 1600), T0 + 10_000, *range(T0 + 1600, T0 + 2100), *range(T0, T0 + 1000)]
    with kts.Log(source, {"segment.bytes": 1 << 16}) as log:
        log.append_rows({"timestamp": times, "value": [bytes(100)] * len(times)}, batch_bytes=2000)
    made = copied(source, tmp_path / "copied", compressed=lambda n: True, chunk_bytes=lambda n: size)
    [winner] = [one for one in made.open().segments if one.claimed_max_ms == T0 + 10_000]
    assert winner.remote and winner.base_offset < 1200  # so it lies far behind the segment's start
    read: list[int] = []
    real = chunks.RemoteLog._chunks

    def noted(self: chunks.RemoteLog, index: Any, decode: Any, first: int, last: int) -> list[bytes]:
        read.extend(range(first, last + 1))
        return real(self, index, decode, first, last)

    monkeypatch.setattr(chunks.RemoteLog, "_chunks", noted)
    assert made.open().max_timestamp() == kts.TimestampOffset(T0 + 10_000, 1600)
    assert min(read) > winner.size_bytes // size // 2


def damage_all(made: Copied, base: int) -> None:
    path = made.manifests[base].with_suffix(".log")
    data = bytearray(path.read_bytes())
    data[:: 1 << 10] = bytes(byte ^ 1 for byte in data[:: 1 << 10])
    path.write_bytes(data[: len(data) * 2 // 3])


def test_a_log_with_every_chunk_changed_and_its_end_missing_is_left_out(source: Path, tmp_path: Path) -> None:
    made = copied(source, tmp_path, encrypted=lambda n: True, chunk_bytes=lambda n: 1 << 14)
    first, second, third = sorted(made.manifests)[:3]
    damage_all(made, second)
    with pytest.raises(CorruptRecordError, match="chunk 0 of .* they were changed"):
        made.open().scan(columns=["offset"]).read_all()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", DamageWarning)
        found = made.open().scan(columns=["offset"], on_error="skip").read_all()["offset"].to_pylist()
    assert found == [offset for offset in range(first, ROWS) if not second <= offset < third]
    assert any("are damaged and left out" in str(one.message) for one in told)


def test_a_transaction_without_an_end_holds_the_last_stable_offset_in_both_tiers(tmp_path: Path) -> None:
    """Open at a broker's end, in a segment on the disk that is also in the store, or is not."""
    batch: dict[str, Any] = {"value": [b"x" * 100] * 10}
    path = tmp_path / "t-0"
    path.mkdir()
    offset = 0
    for base, open_from in ((0, None), (40, None), (80, 90)):
        data = b""
        for number in range(4):
            is_open = open_from is not None and base + 10 * number == open_from
            more = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0, "transactional": True} if is_open else {}
            data += kts.encode(batch, base_offset=offset, **more)
            offset += 10
        (path / f"{base:020d}.log").write_bytes(data)
    for local in (1, 2):
        log = copied(path, tmp_path / str(local), local=local).open()
        assert (log.last_stable_offset, log.log_end_offset) == (90, 120)
        rows = log.scan(columns=["offset"], isolation="read_committed").read_all()
        assert rows["offset"].to_pylist() == list(range(90))


def test_the_shipped_search_asks_one_segment_of_each_tier(tmp_path: Path) -> None:
    """As 3.9.2 does where DeleteRecords cut the segment with the time: RemoteLogManager.findOffsetByTimestamp."""
    source = tmp_path / "t-0"
    with kts.Log(source, {"segment.bytes": 1 << 12}) as log:
        for _ in range(8):
            times = [T0 + (9000 if row == 3 else row) for row in range(10)]
            log.append_rows({"timestamp": times, "value": [bytes(200)] * 10})
    made = copied(source, tmp_path / "copied", local=2)
    (made.data.parent / "log-start-offset-checkpoint").write_text("0\n1\nt 0 4\n")
    log = made.open()
    second = log.segments[1].base_offset
    local = next(segment.base_offset for segment in log.segments if not segment.remote)
    assert log.offset_for_timestamp(T0 + 100) == kts.TimestampOffset(T0 + 9000, second + 3)
    assert log.offset_for_timestamp(T0 + 100, shipped_search=True) == kts.TimestampOffset(T0 + 9000, local + 3)
