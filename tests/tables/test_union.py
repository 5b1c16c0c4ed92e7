"""A table and the log as one: each record once, wherever the seam is and whatever moves it meanwhile."""

from __future__ import annotations

import json
import random
import shutil
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from support.golden import golden, scaled
from support.sets.growing import Writer

import kts
from kts.errors import (
    InvalidRequestError,
    KtsWarning,
    LogStorageError,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
)
from kts.store import local
from kts.tables import sync
from kts.tables.compaction import compact
from kts.tables.expiry import expire
from kts.tables.folder import FolderTable
from kts.tables.upkeep import Upkeep
from kts.times import wall_clock

CONFIG = {"segment.bytes": 1500, "file.delete.delay.ms": 0, "retention.bytes": 3000, "retention.ms": -1}
FIRST_DAY = 1_767_225_600_000  # 2026-01-01
IDS = "A" * 21 + "E", "B" * 21 + "E"
SEAMS = 25
FOLDER, ICEBERG = "rows", "lake.db.rows"


class StoppedError(Exception):
    """Ends a sync anywhere."""


class Scene:
    """Two partitions, a table of them, and what may happen to both."""

    def __init__(self, folder: Path, kind: str, rng: random.Random, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.rng, self.monkeypatch = folder, rng, monkeypatch
        self.paths = folder / "logs"
        self.table = str(folder / kind) if kind == FOLDER else kind
        self.named: dict[str, Any] = {} if kind == FOLDER else {"catalog": folder / "c.sqlite"}
        self.logs = [kts.Log(self.paths / f"t-{number}", CONFIG, topic_id=IDS[0]) for number in range(2)]

    def append(self) -> None:
        log = self.rng.choice(self.logs)
        offsets = range(log.log_end_offset, log.log_end_offset + self.rng.randrange(1, 30))
        times = [FIRST_DAY + self.rng.randrange(2 * 86_400_000) for _ in offsets]
        log.append_rows({"value": [b"%12d:%12d" % (log.partition, at) for at in offsets], "timestamp": times})

    def sync(self, **more: Any) -> None:
        sync(self.paths, self.table, to_end=True, **self.named, **more)

    def sync_and_stop(self) -> None:
        """As a process does that is killed: between two commits, or before the last rename of one."""
        left = self.rng.randrange(1, 12)

        def stop(*_: Any) -> None:
            nonlocal left
            left -= 1
            if not left:
                raise StoppedError

        def rename(*paths: Any) -> None:
            stop()
            real(*paths)

        real = local.rename
        with self.monkeypatch.context() as patched, suppress(StoppedError):
            patched.setattr("kts.tables.folder.local.rename", rename)
            self.sync(commit_bytes=self.rng.randrange(1, 3000), progress=stop)

    def expire(self) -> None:
        """Retention of the log, after a sync."""
        self.sync()
        for log in self.logs:
            log.roll()
            log.delete_old_segments()

    def maintain(self) -> None:
        """Small files become large ones, and all snapshots but one expire, with their files."""
        if self.table == ICEBERG:
            compact(Upkeep(ICEBERG, self.named["catalog"]))
            expire(Upkeep(ICEBERG, self.named["catalog"]), older_than_ms=0, now_ms=wall_clock() + 1000)

    def move(self) -> None:
        """Anything."""
        steps = [self.append, self.append, self.sync, self.sync_and_stop, self.sync_and_stop, self.expire]
        self.rng.choice([*steps, self.maintain])()

    def places(self) -> list[tuple[int, int]]:
        return [(log.partition, offset) for log in self.logs for offset in range(log.log_end_offset)]

    def union(self, **more: Any) -> pa.RecordBatchReader:
        return kts.union(self.table, self.paths, **self.named, **{"to_end": True} | more)

    def check_seam(self) -> None:
        """What a union gives, while the scene goes on: what was there when it was asked for, each once."""
        expected, found, moves = self.places(), list[tuple[int, int]](), self.rng.randrange(3)
        reader = self.union(columns=["value", "offset", "partition"])
        for batch in reader:
            rows = batch.to_pylist()
            assert all(row["value"] == b"%12d:%12d" % (row["partition"], row["offset"]) for row in rows)
            found += [(row["partition"], row["offset"]) for row in rows]
            if moves and self.rng.random() < 0.5:
                moves -= 1
                self.rng.choice([self.append, self.sync, self.expire])()
        assert sorted(found) == expected


@pytest.mark.parametrize(("kind", "scenes"), [(FOLDER, scaled(6, 14)), (ICEBERG, scaled(2, 6))])
@pytest.mark.parametrize("group", range(scaled(1, 20)))
@pytest.mark.slow
def test_each_record_is_there_once_at_any_seam(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch, kind: str, scenes: int, group: int
) -> None:
    # Some seconds: a sync, a kill, retention, compaction or expiry between any two of 200 unions, and within them.
    rng = random.Random(f"{seed} {group}")
    for number in range(scenes):
        scene = Scene(tmp_path / str(number), kind, rng, monkeypatch)
        scene.append()
        scene.sync()
        for _ in range(SEAMS):
            scene.move()
            scene.check_seam()
        for log in scene.logs:
            log.close()


@pytest.mark.parametrize("kind", [FOLDER, ICEBERG])
@pytest.mark.slow
def test_a_union_beside_a_writer_and_a_sync_has_a_whole_beginning_of_each_log(
    tmp_path: Path, rng: random.Random, kind: str
) -> None:
    # Seconds: threads append, sync, and compact the table, while unions are read.
    writer, done, failed = Writer(tmp_path / "logs", rng, {"segment.bytes": 5000}), threading.Event(), list[Exception]()
    named: dict[str, Any] = {} if kind == FOLDER else {"catalog": tmp_path / "c.sqlite"}
    table = str(tmp_path / kind) if kind == FOLDER else kind

    def move() -> None:
        try:
            while not done.wait(0.02):
                sync(tmp_path / "logs", table, to_end=True, commit_bytes=3000, **named)
                if kind == ICEBERG:
                    compact(Upkeep(table, named["catalog"]))
        except Exception as error:
            failed.append(error)

    sync(tmp_path / "logs", table, to_end=True, **named)
    moving = threading.Thread(target=move)
    writer.start()
    moving.start()
    try:
        for _ in range(scaled(10, 200)):
            before = [log.log_end_offset for log in writer.logs]
            found = kts.union(
                table, tmp_path / "logs", to_end=True, columns=["partition", "offset"], **named
            ).read_all()
            for number, end in enumerate(before):
                offsets = sorted(found.filter(pc.field("partition") == number).column("offset").to_pylist())
                assert offsets == [*range(len(offsets))] and len(offsets) >= end
    finally:
        done.set()
        moving.join()
        writer.stop()
    assert not failed, failed


def fill(log: kts.Log, end: int) -> None:
    """Append, ten records a batch."""
    for first in range(log.log_end_offset, end, 10):
        values = [b"%12d:%12d" % (log.partition, at) for at in range(first, first + 10)]
        log.append_rows({"value": values, "timestamp": [FIRST_DAY] * 10})


@pytest.fixture(params=[FOLDER, ICEBERG])
def scene(request: pytest.FixtureRequest, tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch) -> Scene:
    made = Scene(tmp_path, request.param, rng, monkeypatch)
    for log in made.logs:
        fill(log, 40)
    made.sync()
    return made


def test_records_in_neither_are_an_error_that_names_them(scene: Scene) -> None:
    for log in scene.logs:
        fill(log, 200)
    gone = scene.logs[1]
    gone.delete_old_segments()
    assert 40 < gone.log_start_offset < 200
    told = rf"offsets 40 to {gone.log_start_offset} \(not included\) of t-1 were deleted before they were read"
    with pytest.raises(OffsetOutOfRangeError, match=told):
        scene.union()
    with pytest.warns(KtsWarning, match=told):
        reader = scene.union(fail_on_data_loss=False)
    assert reader.read_all().num_rows == 240 + 160 - (gone.log_start_offset - 40)


def test_what_is_lost_while_it_is_read_is_an_error_and_what_a_sync_took_is_not(scene: Scene) -> None:
    for log in scene.logs:
        fill(log, 200)
    taken = scene.union()
    scene.expire()
    assert taken.read_all().num_rows == 400
    for log in scene.logs:
        fill(log, 400)
    later = scene.union()
    for log in scene.logs:
        log.delete_old_segments()
    with pytest.raises(OffsetOutOfRangeError, match="offsets 200 to .* of t-0 were deleted before they were read"):
        later.read_all()


def test_a_topic_that_was_created_again_is_told_apart(scene: Scene) -> None:
    for log in scene.logs:
        log.close()
    shutil.rmtree(scene.paths)
    with kts.Log(scene.paths / "t-0", CONFIG, topic_id=IDS[1]) as log:
        log.append_rows({"value": [b"new"] * 60})
    told = f"the topic t had the id {IDS[0]} when it was read, and has {IDS[1]}: it was created again"
    with pytest.raises(OffsetOutOfRangeError, match=told):
        scene.union()
    with pytest.warns(KtsWarning, match=told):
        rows = scene.union(fail_on_data_loss=False, columns=["value"]).read_all()
    values = rows.column("value").to_pylist()
    assert len(values) == 80 + 60 and values.count(b"new") == 60


def test_partitions_and_topics_are_those_of_the_table_unless_named(scene: Scene) -> None:
    for topic, partition in (("t", 2), ("other", 0), ("u", 0)):
        with kts.Log(scene.paths / f"{topic}-{partition}") as log:
            log.append_rows({"value": [b"n"] * 7})

    def count(**more: Any) -> int:
        return scene.union(**more).read_all().num_rows

    assert count() == count(topics="t") == 87
    assert count(topics=["t", "u"]) == 94 and count(topics="*") == 101
    assert count(topics="u") == count(topics="t", partitions=[2]) == 7
    assert count(partitions=[0]) == count(partitions={"t": [0]}) == 40 and count(partitions={"u": [0]}) == 7
    with pytest.raises(UnknownTopicOrPartitionError, match="there is no topic v"):
        scene.union(topics="v")


def test_times_bound_both_sides_of_the_seam(scene: Scene) -> None:
    times = [FIRST_DAY + at * 3_600_000 for at in range(100)]
    scene.logs[0].append_rows({"value": [b"v"] * 100, "timestamp": times})
    scene.sync()
    scene.logs[0].append_rows({"value": [b"v"] * 100, "timestamp": times})
    between: dict[str, Any] = {"starting_timestamp": times[30], "ending_timestamp": times[50]}
    assert scene.union(**between).read_all().num_rows == 40
    expected = kts.scan(scene.paths, allowed_lateness=None, **between, columns=["offset"]).read_all()
    found = scene.union(**between, columns=["offset"]).read_all()
    assert found.sort_by("offset").equals(expected.sort_by("offset"))


def test_the_rows_are_those_of_a_table_after_the_next_sync(tmp_path: Path) -> None:
    source, order = golden("demo", "orders").log_dir, [(name, "ascending") for name in ("topic", "partition", "offset")]
    some: dict[str, Any] = {"partitions": [0, 1]}
    sync(source, tmp_path / "rows", **some)
    sync(source, "lake.db.rows", catalog=tmp_path / "c.sqlite", **some)
    folder = kts.union(tmp_path / "rows", source).read_all().sort_by(order)
    lake = kts.union("lake.db.rows", source, catalog=tmp_path / "c.sqlite").read_all().sort_by(order)
    sync(source, tmp_path / "rows")
    after = kts.union(tmp_path / "rows", source).read_all().sort_by(order)
    assert folder.num_rows == 9000 and folder.equals(lake) and folder.equals(after)


def test_only_what_is_stable_is_read_unless_to_the_end(scene: Scene) -> None:
    log = scene.logs[0]
    log.checkpoint()
    log.append_rows({"value": [b"v"] * 5})
    assert scene.union(to_end=False).read_all().num_rows == 80 and scene.union().read_all().num_rows == 85


def test_what_is_no_table_is_told(tmp_path: Path, scene: Scene) -> None:
    for table, more in (("lake.db.none", {"catalog": tmp_path / "other.sqlite"}), (tmp_path / "none", {})):
        with pytest.raises(FileNotFoundError, match="there is no"):
            kts.union(table, scene.paths, **more)
        assert not (tmp_path / "other.sqlite").exists() and not (tmp_path / "none").exists()
    text: dict[str, Any] = {"value_format": "text"}
    decoded = scene.table + "2"
    sync(scene.paths, decoded, **scene.named, **text)
    with pytest.raises(InvalidRequestError, match="expected the column value of type binary, found"):
        kts.union(decoded, scene.paths, **scene.named)
    if scene.table != ICEBERG:
        ledger = Path(scene.table, "_kts/ledger.json")
        whole = json.loads(ledger.read_text())
        for text in ("{", json.dumps(whole | {"offsets": {}}), None):
            ledger.unlink() if text is None else ledger.write_text(text)
            with pytest.raises(LogStorageError, match="expected the ledger of the table, found another: "):
                scene.union()
        return
    with pytest.raises(FileNotFoundError, match="there is no such table in the catalog"):
        kts.union("lake.db.none", scene.paths, **scene.named)


def test_a_union_takes_no_lock_and_finishes_nothing(tmp_path: Path, rng: random.Random) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        scene = Scene(tmp_path, FOLDER, rng, monkeypatch)
        scene.append()
        scene.sync()
        table = FolderTable(scene.table, kts.union(scene.table, scene.paths).schema)
        with table._locked():
            before = sorted(Path(scene.table).rglob("*"))
            assert scene.union().read_all().num_rows == len(scene.places())
            assert sorted(Path(scene.table).rglob("*")) == before
