"""Every reader beside a cleaner that replaces segments, at every moment between its calls to the operating system."""

from __future__ import annotations

import os
import random
import shutil
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.disk.moments import Moments
from support.golden import PATIENCE_S, scaled
from support.kafka.jvm import require_spark

import kts
from kts.store import local

pytestmark = pytest.mark.slow

T, NAME, RECORDS, MIDDLE = 1_700_000_000_000, "t-0", 120, 50
CONFIG = {
    "cleanup.policy": "compact",
    "segment.bytes": 1200,
    "index.interval.bytes": 0,
    "file.delete.delay.ms": 0,
    "delete.retention.ms": 0,
}
COLUMNS = ["offset", "key", "value"]
Row = tuple[int, bytes, bytes]
Act = Callable[[], None]


def nothing() -> None:
    """No act."""


def put(log: kts.Log, rng: random.Random, count: int) -> None:
    """Batches of a few records, so that a cleaner takes some of a batch, and all of others."""
    for _ in range(count // 4):
        columns = {"key": [b"%d" % rng.randrange(25) for _ in range(4)], "value": [rng.randbytes(30) for _ in range(4)]}
        log.append(kts.encode(columns | {"timestamp": [T + log.log_end_offset + i for i in range(4)]}))


def of(reader: Any) -> list[Row]:
    return [tuple(row.values()) for row in reader.read_all().to_pylist()]


def spark_rows(path: Path, act: Act = nothing, pieces: int | None = None, **given: str) -> list[Row]:
    """The rows of all tasks, planned before the act; of pieces of so many bytes."""
    from pyspark.sql.types import BinaryType, LongType, StructType

    from kts.spark import planning
    from kts.spark.options import parse_options
    from kts.spark.planning import plan_tasks
    from kts.spark.reading import read_task

    options = parse_options({"path": str(path)} | given)
    schema = StructType().add("offset", LongType()).add("key", BinaryType()).add("value", BinaryType())
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(planning, "TASK_BYTES", pieces or planning.TASK_BYTES)
        tasks = plan_tasks(options)
    act()
    return [
        tuple(row.values()) for one in tasks for rows in read_task(one, options, schema) for row in rows.to_pylist()
    ]


def stream_rows(path: Path) -> list[Row]:
    """Micro-batches of 40 offsets, each planned and read by itself."""
    from pyspark.sql.types import BinaryType, LongType, StructType

    from kts.spark.options import STREAM, parse_options
    from kts.spark.reading import read_task
    from kts.spark.streaming import Stream

    options = parse_options({"path": str(path), "startingOffsets": "earliest"}, STREAM)
    schema = StructType().add("offset", LongType()).add("key", BinaryType()).add("value", BinaryType())
    stream, found = Stream(options), list[Row]()
    start = stream.initial()
    while (end := stream.latest(start, 40, None, 0)) != start:
        for task in stream.tasks(start, end):
            found += [tuple(row.values()) for rows in read_task(task, options, schema) for row in rows.to_pylist()]
        start = end
    return found


def synced_rows(path: Path) -> list[Row]:
    import pyarrow.parquet as pq

    from kts.tables import sync

    folder = path.parent.parent / f"table-of-{path.parent.name}"
    sync(str(path.parent), str(folder), to_end=True)
    found = list(folder.rglob("*.parquet"))
    rows = [tuple(row[name] for name in COLUMNS) for file in found for row in pq.read_table(file).to_pylist()]
    shutil.rmtree(folder)
    return sorted(rows)


READERS: dict[str, Callable[..., list[Row]]] = {
    "scan": lambda path: of(kts.scan(path, columns=COLUMNS)),
    "scan, threads": lambda path: of(kts.scan(path, columns=COLUMNS, threads=3)),
    "scan, small batches": lambda path: of(kts.scan(path, columns=COLUMNS, batch_bytes=200)),
    "scan, committed": lambda path: of(kts.scan(path, columns=COLUMNS, isolation="read_committed")),
    "scan from an offset": lambda path: of(kts.scan(path, columns=COLUMNS, starting_offsets=MIDDLE)),
    "scan of times": lambda path: of(
        kts.scan(path, columns=COLUMNS, starting_timestamp=T + MIDDLE, strict_time_range=True)
    ),
    "Spark": spark_rows,
    "Spark, cut": lambda path, act=nothing: spark_rows(path, act, pieces=200),
    "Spark of times": lambda path, act=nothing: spark_rows(
        path, act, startingTimestamp=str(T + MIDDLE), strictTimeRange="true"
    ),
    "Spark from an offset": lambda path: spark_rows(path, startingOffsets=f'{{"t": {{"0": {MIDDLE}}}}}'),
    "stream": stream_rows,
    "sync": synced_rows,
}


@pytest.mark.parametrize("name", READERS)
@pytest.mark.slow
def test_records_that_no_cleaning_removes_are_read_exactly_once(
    name: str, tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cleaner replaces segments before the n-th call of a reader to the operating system, and again some calls later,
    for many n: each record that is left at the end is read once, none twice, none that was never there, in order, and
    no loss told. The old files are removed at once."""
    if name.startswith(("Spark", "stream")):
        require_spark()
    seed = rng.randrange(2**32)
    with kts.Log(tmp_path / "log" / NAME, CONFIG, clock=lambda: T) as log:
        put(log, random.Random(seed), RECORDS)
        before = of(kts.scan(log.path, columns=COLUMNS))
    first = MIDDLE if "offset" in name or "times" in name else 0
    counting = Moments(0)
    monkeypatch.setattr(local, "os", counting)
    READERS[name](tmp_path / "log" / NAME)
    monkeypatch.undo()
    for moment in sorted(rng.sample(range(counting.calls), min(counting.calls, scaled(12, 60)))):
        folder = tmp_path / f"at-{moment}"
        shutil.copytree(tmp_path / "log", folder)
        with kts.Log(folder / NAME, CONFIG, clock=lambda: T) as log:

            def clean(log: kts.Log = log) -> None:
                """The log goes on: what comes supersedes more, and is not judged itself."""
                assert log.clean(force=True).reason in (None, "nothing can be cleaned")
                put(log, rng, 8)
                log.roll()

            waits = [lambda: None] * rng.randrange(6)
            monkeypatch.setattr(local, "os", Moments(moment, clean, *waits, clean))
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                found = [row for row in READERS[name](folder / NAME) if row[0] < RECORDS]
            monkeypatch.undo()
            left = [row for row in of(kts.scan(log.path, columns=COLUMNS)) if row[0] < RECORDS]
        offsets = [row[0] for row in found]
        assert offsets == sorted(set(offsets)), f"before call {moment}"
        assert {row for row in left if row[0] >= first} <= set(found), f"before call {moment}: lost"
        assert set(found) <= {row for row in before if row[0] >= first}, f"before call {moment}"
        assert [str(one.message) for one in told] == [], f"before call {moment}"


@pytest.mark.parametrize("name", ["Spark", "Spark, cut", "Spark of times"])
def test_tasks_read_a_copy_as_what_was_planned(name: str, tmp_path: Path, rng: random.Random) -> None:
    """On another machine, or another mount, the same files have other inodes and times: nothing was replaced there."""
    require_spark()
    with kts.Log(tmp_path / "log" / NAME, CONFIG, clock=lambda: T) as log:
        put(log, rng, RECORDS)
    expected = READERS[name](tmp_path / "log" / NAME)
    moved = False

    def copied() -> None:
        nonlocal moved
        shutil.copytree(tmp_path / "log", tmp_path / "copy")
        shutil.rmtree(tmp_path / "log")
        (tmp_path / "copy").rename(tmp_path / "log")
        moved = True

    assert READERS[name](tmp_path / "log" / NAME, copied) == expected and moved


@pytest.mark.parametrize("name", ["Spark", "Spark, cut", "Spark of times"])
def test_tasks_that_wait_for_long_read_what_many_cleanings_left(name: str, tmp_path: Path, rng: random.Random) -> None:
    """Segments that were planned whole, in pieces or from a time on are gone, or are others of the same name."""
    require_spark()
    with kts.Log(tmp_path / "log" / NAME, CONFIG, clock=lambda: T) as log:
        put(log, rng, RECORDS)

        def cleaned() -> None:
            for _ in range(3):
                log.roll()
                log.clean(force=True)
                put(log, rng, 20)

        found = {row for row in READERS[name](log.path, cleaned) if row[0] < RECORDS}
        left = {row for row in of(kts.scan(log.path, columns=COLUMNS)) if row[0] < RECORDS}
    assert left and found == {row for row in left if row[0] >= (MIDDLE if "times" in name else 0)}


def test_a_segment_that_was_cut_is_no_cleaned_one(tmp_path: Path, rng: random.Random) -> None:
    """A task that finds less than was planned, and no sign of a cleaner, ends the query as before."""
    require_spark()
    with kts.Log(tmp_path / "log" / NAME, CONFIG, clock=lambda: T) as log:
        put(log, rng, RECORDS)
        second = Path(log.segments[1].path)

    def cut() -> None:
        os.truncate(second, second.stat().st_size - 10)

    with pytest.raises(kts.LogStorageError, match="went missing between planning and reading"):
        spark_rows(tmp_path / "log" / NAME, cut)


def test_the_end_of_a_log_stays_where_it_was_when_its_last_records_are_cleaned_away(tmp_path: Path) -> None:
    """A list of segments from before the log rolled, and the file from after it: a stream's end does not go back."""
    with kts.Log(tmp_path / NAME, CONFIG, clock=lambda: T) as log:
        for key in (b"kept", b"key", b"key"):
            log.append(kts.encode({"key": [key], "value": [b"v"], "timestamp": [T]}))
        there = kts.open(tmp_path / NAME)
        assert isinstance(there, kts.PartitionLog)
        listed = there.listed()
        log.roll()
        log.append(kts.encode({"key": [b"key"], "value": [bytes(1100)], "timestamp": [T]}))  # in a segment of its own
        log.roll()
        log.clean(force=True)
        assert of(kts.scan(log.segments[0].path, columns=["offset"])) == [(0,)]
        assert listed.log_end_offset == 3


def test_a_segment_that_is_lost_is_no_cleaned_one(tmp_path: Path, rng: random.Random) -> None:
    """The segment before it does not stand for it: the loss is told, beside a cleaner too."""
    with kts.Log(tmp_path / NAME, CONFIG, clock=lambda: T) as log:
        put(log, rng, RECORDS)
        second = log.segments[1].base_offset
    stream = kts.scan(tmp_path / NAME, columns=COLUMNS, batch_bytes=200)
    next(stream)
    (tmp_path / NAME / f"{second:020d}.log").unlink()
    with pytest.warns(kts.KtsWarning, match="deleted while it was read"):
        assert len(of(stream)) < RECORDS


@pytest.mark.slow
def test_scans_and_syncs_go_on_beside_a_writer_and_a_cleaner(tmp_path: Path, rng: random.Random) -> None:
    """Each walk has every record that is left at the end of all; it buys what the moments cannot: real races."""
    path, done, faults, walks = tmp_path / "log" / NAME, threading.Event(), list[str](), list[set[Row]]()
    with kts.Log(path, CONFIG, clock=lambda: T) as log:
        put(log, rng, RECORDS)

        def reading() -> None:
            while not done.is_set():
                for name in ("scan", "scan, threads", "scan from an offset", "sync"):
                    try:
                        found = READERS[name](path)
                    except Exception as error:
                        faults.append(f"{name}: {error!r}")
                        return
                    if len({row[0] for row in found}) != len(found):
                        faults.append(f"{name}: doubled")
                    walks.append({row for row in found if MIDDLE <= row[0] < RECORDS})

        reader = threading.Thread(target=reading)
        reader.start()
        try:
            for _ in range(scaled(20, 200)):
                put(log, rng, 8)
                log.roll()
                log.clean(force=True)
        finally:
            done.set()
            reader.join(PATIENCE_S)
        left = {row for row in of(kts.scan(path, columns=COLUMNS)) if MIDDLE <= row[0] < RECORDS}
    assert faults == [] and walks
    assert all(left <= one for one in walks)
