"""A table of the latest state equals ``kts.latest`` after each run, whatever happens between and within runs."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from support.golden import scaled
from support.processes.sync_runs import Job
from support.sets.keyed import T, random_log
from support.tables import iceberg_table

import kts
from kts.errors import InvalidRequestError, KtsWarning, OffsetOutOfRangeError
from kts.tables import Synced, latest, state_tables, sync

NAMES = ["topic", "partition", "offset", "key", "value"]
BOTH = pytest.mark.parametrize("sink", ["iceberg", "folder"])
ALL = pytest.mark.parametrize("sink", ["iceberg", "folder", "delta"])
pytestmark = pytest.mark.filterwarnings("ignore:records without a key:kts.KtsWarning")


def place(folder: Path, sink: str, name: str = "rows") -> dict[str, Any]:
    """The table, as ``sync`` is told."""
    if sink == "iceberg":
        return {"table": f"lake.db.{name}", "catalog": str(folder / "c.sqlite")}
    return {"table": f"{'delta:' if sink == 'delta' else ''}{folder / name}"}


def synced(folder: Path, sink: str, **more: Any) -> Synced:
    buckets = {} if sink == "delta" else {"buckets": 3}
    return sync(folder / "logs", **{"mode": "latest", "to_end": True} | buckets | place(folder, sink) | more)


def table(folder: Path, sink: str, name: str = "rows") -> pa.Table:
    if sink == "iceberg":
        return iceberg_table(folder / "c.sqlite", f"lake.db.{name}").scan().to_arrow()
    if sink == "folder":
        files = [*(folder / name).glob("bucket=*/*")]
    else:  # delta-rs notes other types of Arrow in files that it merged
        there = DeltaTable(folder / name)
        schema = pa.schema(there.schema().to_arrow())
        merged = [pq.ParquetFile(Path(urlsplit(uri).path)).read().cast(schema) for uri in there.file_uris()]
        return pa.concat_tables(merged or [schema.empty_table()])
    return pa.concat_tables(
        [pq.ParquetFile(one).read() for one in files] or [pa.table({"key": []})], promote_options="default"
    )


def rows(folder: Path, sink: str) -> list[dict[str, Any]]:
    return ordered(table(folder, sink).select(NAMES).to_pylist())


def state(folder: Path) -> list[dict[str, Any]]:
    return ordered(kts.latest(folder / "logs", columns=NAMES).read_all().to_pylist())


def ordered(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(found, key=lambda row: (row["topic"], row["partition"], row["offset"]))


def grow(folder: Path, rng: random.Random, keys: int = 60) -> None:
    """More records of a partition: new keys, old ones, deleted ones, a few aborted."""
    number = rng.randrange(2)
    with kts.Log(folder / "logs" / f"t-{number}", {"segment.bytes": 4000, "segment.ms": 2**62}) as log:
        count = rng.randrange(1, 30)
        chosen = {"key": [b"k%d" % rng.randrange(keys) for _ in range(count)],
                  "value": [rng.choice([None, b"v%d" % rng.randrange(10**6)]) for _ in range(count)]}  # fmt: skip
        if rng.random() < 0.5:
            log.append_rows(chosen)
        else:
            end = log.log_end_offset
            owner = {"transactional": True, "producer_id": end, "producer_epoch": 0}
            kind = rng.randrange(2)  # aborted or committed
            marker = {"key": [bytes([0, 0, 0, kind])], "value": [bytes(6)], "timestamp": [T]}
            sent = kts.encode(chosen | {"timestamp": [T] * count}, base_offset=end, base_sequence=0, **owner)
            log.append_as_follower(sent + kts.encode(marker, base_offset=end + count, control=True, **owner))


@pytest.mark.slow
@ALL
def test_after_each_run_the_table_has_the_latest_state(tmp_path: Path, sink: str, rng: random.Random,
                                                       monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    """Some seconds: each of the random logs has some runs, with changes in memory and in files, by either kind of
    commit of an Iceberg table."""
    for number in range(scaled(6, 40)):
        folder = tmp_path / str(number)
        for partition in range(2):
            random_log(folder / "logs" / f"t-{partition}", rng)
        monkeypatch.setattr(latest, "SPOOL_BYTES", rng.choice([1, 5000, latest.SPOOL_BYTES]))
        monkeypatch.setattr(state_tables, "FEW_ROWS", rng.choice([0, 10_000]))
        monkeypatch.setattr(state_tables, "MOST_DELETED", rng.choice([1, 3]))
        monkeypatch.setattr(state_tables, "MOST_FILES", rng.choice([2, 8]))
        for _ in range(rng.randrange(2, 6)):
            before = len(rows(folder, sink)) if (folder / "rows").exists() or (folder / "c.sqlite").exists() else 0
            [added] = synced(folder, sink).tables
            found = rows(folder, sink)
            assert found == state(folder)
            assert len(found) == before + added.records - (added.removed or 0)
            assert added.commits <= 1
            grow(folder, rng)


@ALL
def test_a_run_without_news_changes_nothing(tmp_path: Path, sink: str, rng: random.Random) -> None:
    random_log(tmp_path / "logs" / "t-0", rng)
    synced(tmp_path, sink)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.parquet")}
    [added] = synced(tmp_path, sink).tables
    assert (added.records, added.removed, added.commits) == (0, 0, 0)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.parquet")} == before


@ALL
def test_a_topic_that_was_created_again_or_cut_is_read_from_its_beginning(
    tmp_path: Path, sink: str, rng: random.Random
) -> None:
    for partition in range(2):
        random_log(tmp_path / "logs" / f"t-{partition}", rng)
    synced(tmp_path, sink)
    shutil.rmtree(tmp_path / "logs" / "t-1")
    with kts.Log(tmp_path / "logs" / "t-1") as log:
        log.append_rows({"key": [b"new"], "value": [b"v"]})
    with pytest.raises(OffsetOutOfRangeError, match="and ends now at offset 1"):
        synced(tmp_path, sink)
    with pytest.warns(KtsWarning, match="and ends now at offset 1"):
        synced(tmp_path, sink, fail_on_data_loss=False)
    assert rows(tmp_path, sink) == state(tmp_path)
    assert [row["key"] for row in rows(tmp_path, sink) if row["partition"] == 1] == [b"new"]


@ALL
def test_a_topic_with_another_id_replaces_the_rows_of_the_one_before(tmp_path: Path, sink: str) -> None:
    for name, topic_id in ((b"old", "0pRNyzbsQCOp2wUfl5aKFA"), (b"new", "1pRNyzbsQCOp2wUfl5aKFA")):
        shutil.rmtree(tmp_path / "logs", ignore_errors=True)
        with kts.Log(tmp_path / "logs" / "t-0") as log:
            log.append_rows({"key": [name, b"k"], "value": [b"v", name]})
        (tmp_path / "logs" / "t-0" / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}\n")
        if name == b"old":
            synced(tmp_path, sink)
        else:
            with pytest.warns(KtsWarning, match="created again, or is another cluster's"):
                synced(tmp_path, sink, fail_on_data_loss=False)
    assert rows(tmp_path, sink) == state(tmp_path)
    assert {row["key"] for row in rows(tmp_path, sink)} == {b"new", b"k"}


@ALL
def test_a_value_that_does_not_decode_takes_the_place_of_one_that_did(tmp_path: Path, sink: str) -> None:
    (tmp_path / "schema.json").write_text('{"type": "object", "properties": {"n": {"type": "integer"}}}')
    asked = {"value_format": "json", "value_schema": tmp_path / "schema.json"}
    expected: list[tuple[dict[bytes, int], set[bytes]]] = [
        ({b"a": 1, b"b": 2}, set()),
        ({b"b": 2}, {b"a"}),
        ({b"a": 3, b"b": 2}, set()),
        ({b"a": 3}, set()),
    ]
    news = [{b"a": b'{"n": 1}', b"b": b'{"n": 2}'}, {b"a": b"{"}, {b"a": b'{"n": 3}'}, {b"b": None}]
    for sent, (there, rejected) in zip(news, expected, strict=True):
        with kts.Log(tmp_path / "logs" / "t-0") as log:
            log.append_rows({"key": [*sent], "value": [*sent.values()]})
        synced(tmp_path, sink, **asked)
        tables = [table(tmp_path, sink, name) for name in ("rows", "rows_rejected")]
        assert {row["key"]: row["value"]["n"] for row in tables[0].to_pylist()} == there
        assert {row["key"] for row in tables[1].to_pylist()} == rejected


@BOTH
def test_a_table_of_all_records_is_another_kind(tmp_path: Path, sink: str, rng: random.Random) -> None:
    random_log(tmp_path / "logs" / "t-0", rng)
    synced(tmp_path, sink)
    with pytest.raises(InvalidRequestError, match="found one with a row for each key"):
        synced(tmp_path, sink, mode="append", buckets=None)
    with pytest.raises(InvalidRequestError, match="was made with 3, found 5"):
        synced(tmp_path, sink, buckets=5)
    assert synced(tmp_path, sink, buckets=None).tables[0].records == 0
    other = place(tmp_path, sink, "all")
    synced(tmp_path, sink, mode="append", buckets=None, **other)
    with pytest.raises(InvalidRequestError, match="expected a table with a row for each key"):
        synced(tmp_path, sink, **other)
    with pytest.raises(ValueError, match="buckets: they are those of a table of the latest state"):
        synced(tmp_path, sink, mode="append")


def test_records_without_a_key_are_told(tmp_path: Path) -> None:
    with kts.Log(tmp_path / "logs" / "t-0") as log:
        log.append_rows({"key": [None, b"k"], "value": [b"1", b"2"]})
    with pytest.warns(KtsWarning, match="records without a key.*: 1$"):
        synced(tmp_path, "folder")


class Stop(BaseException):
    pass


@pytest.mark.slow
@BOTH
def test_a_run_that_ends_before_any_step_is_whole_or_not_there(
    tmp_path: Path, sink: str, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some seconds: a run ends before each file that it writes, renames or removes, and the next one goes on."""
    monkeypatch.setattr(state_tables, "FEW_ROWS", 0)
    for partition in range(2):
        random_log(tmp_path / "first" / "logs" / f"t-{partition}", rng)
    synced(tmp_path / "first", sink)
    old, ended = rows(tmp_path / "first", sink), 0
    grow(tmp_path / "first", rng)
    for step in range(200):
        folder = tmp_path / "first" if sink == "iceberg" else tmp_path / str(step)
        if sink == "folder":
            shutil.copytree(tmp_path / "first", folder)
        with monkeypatch.context() as stopping:
            left = stop_before(step, stopping)
            try:
                synced(folder, sink)
            except Stop:
                ended += 1
        found = rows(folder, sink)
        if sink == "iceberg":
            assert found in (old, state(folder))
        assert len(found) == len({(row["topic"], row["partition"], row["key"]) for row in found})
        if left[0] >= 0:
            break
        if sink == "folder":
            synced(folder, sink)
            assert rows(folder, sink) == state(folder)
    assert rows(folder, sink) == state(folder) and ended > 4


def stop_before(place: int, patch: pytest.MonkeyPatch) -> list[int]:
    """End the program at the call of this number that changes a file, of those that commits use."""
    import pyiceberg.io.pyarrow as io

    from kts.store import local, publishing
    from kts.store.source import files

    left = [place]

    def counted(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **more: Any) -> Any:
            left[0] -= 1
            if left[0] < 0:
                raise Stop
            return real(*given, **more)

        return call

    for owner, name in (
        (local, "rename"), (local, "sync_directory"), (publishing, "publish"), (publishing, "sync_file"),
        (files, "remove"), (io.PyArrowFile, "create"),
    ):  # fmt: skip
        patch.setattr(owner, name, counted(getattr(owner, name)))
    return left


@pytest.mark.slow
@ALL
def test_a_program_that_is_killed_leaves_the_state_of_some_moment(
    tmp_path: Path, sink: str, rng: random.Random
) -> None:
    """Some seconds: real kills, at moments that nobody chose."""
    logs, work = tmp_path / "logs", tmp_path
    for partition in range(2):
        random_log(logs / f"t-{partition}", rng)
    asked = {"mode": "latest", "to_end": True}
    job = Job(logs, work, asked | place(tmp_path, sink))
    job.start()
    for _ in range(int(os.environ.get("KTS_KILLS") or scaled(3, 15))):
        grow(tmp_path, rng)
        job.kill_after(0, rng.random() * 2)
        (work / "finish").touch()
        job.start()
        job.finish()
        (work / "finish").unlink()
        assert rows(tmp_path, sink) == state(tmp_path)
        job.start()
    job.process.kill()
    job.process.communicate()


def test_changes_that_come_twice_count_once() -> None:
    schema = pa.schema([("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64()),
                        ("timestamp", pa.timestamp("us", tz="UTC")), ("key", pa.binary())])  # fmt: skip
    changes = latest.Changes(lambda keys: pa.repeat(0, len(keys)), schema)
    name = kts.TopicPartition("t", 0)
    for offsets in ((3, 5), (3, 7)):
        changes.begin(name)
        rows = pa.record_batch(
            [["t", "t"], pa.array([0, 0], pa.int32()), [*offsets], pa.nulls(2, schema.field(3).type), [b"a", b"b"]],
            schema=schema,
        )
        changes.add(rows, rows.slice(0, 0))
    found = changes.of(0).select(["key", "offset"]).to_pylist()
    assert sorted(found, key=str) == [{"key": b"a", "offset": 3}, {"key": b"b", "offset": 7}]
    changes.close()


def test_the_changes_of_a_bucket_are_one_piece_however_many_there_are() -> None:
    """Pieces of a row or two took hundreds of MiB with 1,000 buckets."""
    schema = pa.schema([("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64()),
                        ("timestamp", pa.timestamp("us", tz="UTC")), ("key", pa.binary())])  # fmt: skip
    changes = latest.Changes(lambda keys: pa.array(range(len(keys)), pa.int32()), schema)
    changes.begin(kts.TopicPartition("t", 0))
    for first in range(0, 100, 20):
        rows = [{"topic": "t", "partition": 0, "offset": first + at, "key": b"%d" % (first + at)} for at in range(20)]
        batch = pa.RecordBatch.from_pylist(rows, schema=schema)
        changes.add(batch, batch.slice(0, 0))
    assert changes.touched == {*range(20)}
    found = changes.of(7)
    assert found["offset"].to_pylist() == [7, 27, 47, 67, 87] and found["offset"].num_chunks == 1
    changes.close()
