"""The cleaner of a log: what it takes, what it leaves, and what may happen meanwhile."""

from __future__ import annotations

import os
import random
import shutil
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from support.disk.crashdisk import write_tree
from support.disk.faultfs import FaultyOs
from support.disk.scripted_lives import in_place_of_os, quick_directory
from support.golden import PATIENCE_S, scaled

import kts
from kts.codec.layout import Entries
from kts.log import cleaner
from kts.offline.copy import copy
from kts.offline.truncate import truncate_in_place
from kts.offline.verify import verify
from kts.segment import checkpoints

T = 1_700_000_000_000
CONFIG = {"cleanup.policy": "compact", "segment.bytes": 600, "index.interval.bytes": 0, "delete.retention.ms": 1000}
COLUMNS = ["offset", "key", "value"]
CHECKPOINT = "cleaner-offset-checkpoint"


class Clock:
    now = T

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def opened(tmp_path: Path, clock: Clock) -> Iterator[Callable[..., kts.Log]]:
    """Opens the partition; what a test leaves open is abandoned."""
    made: list[kts.Log] = []

    def open_log(config: dict[str, Any] | None = None, **options: Any) -> kts.Log:
        made.append(kts.Log(tmp_path / "t-0", CONFIG | (config or {}), clock=clock, **options))
        return made[-1]

    yield open_log
    for log in made:
        log.abandon()


def put(log: kts.Log, *pairs: tuple[bytes, bytes | None], compression: str = "none", **producer: Any) -> None:
    keys, values = zip(*pairs, strict=True)
    table = {"timestamp": [T] * len(pairs), "key": keys, "value": values}
    log.append(kts.encode(table, compression=compression, **producer))


def fill(log: kts.Log, rng: random.Random, count: int, keys: int = 12) -> None:
    for _ in range(count):
        put(log, (b"k%d" % rng.randrange(keys), rng.choice([None, rng.randbytes(40)])))


def rows(log: kts.Log) -> list[tuple[int, bytes, bytes | None]]:
    return [
        (row["offset"], row["key"], row["value"]) for batch in log.scan(columns=COLUMNS) for row in batch.to_pylist()
    ]


def state(records: list[tuple[int, bytes, bytes | None]]) -> dict[bytes, tuple[int, bytes]]:
    """What a reader of the whole topic knows at the end."""
    known: dict[bytes, tuple[int, bytes]] = {}
    for offset, key, value in records:
        known.pop(key, None)
        if value is not None:
            known[key] = offset, value
    return known


def checkpoint(folder: Path) -> int | None:
    return dict(checkpoints.read_checkpoint(str(folder / CHECKPOINT)) or {}).get(("t", 0))


# --- what is cleaned --------------------------------------------------------------------------------


def test_a_pass_keeps_the_last_record_of_each_key_and_every_offset(opened: Any, tmp_path: Path) -> None:
    log = opened()
    put(log, (b"a", b"1"), (b"b", b"1"))
    put(log, (b"a", b"2"), (b"c", None))
    log.roll()
    put(log, (b"a", b"3"))
    done = log.clean()
    assert rows(log) == [(1, b"b", b"1"), (2, b"a", b"2"), (3, b"c", None), (4, b"a", b"3")]
    assert (done.reason, done.first_dirty_offset, done.next_dirty_offset, done.keys) == (None, 0, 4, 3)
    assert (done.segments_before, done.segments_after) == (1, 1)
    assert (done.records_before, done.records_after) == (4, 3)
    assert (done.removed["superseded"], done.kept["tombstones"]) == (1, 1)
    assert done.bytes_after < done.bytes_before
    assert checkpoint(tmp_path) == 4
    assert log.recovered == []


def test_a_tombstone_goes_after_its_delete_horizon_in_a_later_pass(opened: Any, clock: Clock) -> None:
    log = opened()
    put(log, (b"a", b"1"))
    put(log, (b"a", None), (b"b", b"1"))
    log.roll()
    for now, left in ((T, [1, 2]), (T + 999, [1, 2]), (T + 1000, [2])):
        clock.now = now
        put(log, (b"c%d" % now, b"x"))
        log.roll()
        log.clean(force=True)
        assert [offset for offset, key, _ in rows(log) if key in (b"a", b"b")] == left


def test_segments_are_merged_up_to_their_size(opened: Any, rng: random.Random) -> None:
    log = opened({"segment.bytes": 4000})
    fill(log, rng, 200)
    before = state(rows(log))
    log.clean()
    put(log, (b"x", b"1"))
    log.roll()
    done = log.clean(force=True)
    assert done.segments_after < done.segments_before
    assert {key: one for key, one in state(rows(log)).items() if key != b"x"} == before
    assert all(one.size <= 4000 for one in log.segments)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_a_batch_keeps_its_codec_and_one_that_loses_nothing_its_bytes(opened: Any, codec: str) -> None:
    log = opened()
    put(log, (b"a", b"1" * 50), (b"b", b"1" * 50), compression=codec)
    put(log, (b"c", b"1" * 50), compression=codec)
    whole = log.read(2, 2**20).records
    put(log, (b"a", b"2"))
    log.roll()
    log.clean()
    assert log.read(2, 2**20).records.startswith(whole)
    first = kts.scan_batches(log.read(0, 2**20).records)
    assert first.column("codec").to_pylist()[:2] == [kts.scan_batches(whole).column("codec")[0].as_py()] * 2


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
def test_what_must_not_be_cleaned_stays(opened: Any, clock: Clock, policy: str) -> None:
    log = opened({"cleanup.policy": policy, "min.compaction.lag.ms": 50}, high_watermark=0)
    put(log, (b"a", b"1"))
    put(log, (b"a", b"2"))
    assert log.clean().reason == "nothing can be cleaned"  # the active segment
    log.roll()
    log.advance_high_watermark(1)
    clock.now = T + 100
    assert log.clean(force=True).reason == "nothing can be cleaned"  # below the high watermark
    log.advance_high_watermark(2)
    clock.now = T + 49
    assert log.clean(force=True).reason == "nothing can be cleaned"  # younger than the lag
    clock.now = T + 50
    assert log.clean().reason is None
    assert [offset for offset, *_ in rows(log)] == [1]


def test_an_open_transaction_protects_its_segment(opened: Any) -> None:
    log = opened()
    put(log, (b"a", b"1"))
    put(log, (b"a", b"2"), transactional=True, producer_id=7, producer_epoch=0, base_sequence=0)
    log.roll()
    assert log.clean(force=True).reason == "nothing can be cleaned"
    marker = kts.encode(
        {"timestamp": [T], "key": [b"\0\0\0\1"], "value": [bytes(6)]},
        control=True,
        transactional=True,
        producer_id=7,
        producer_epoch=0,
    )
    log.append(marker, origin="coordinator")
    log.roll()
    assert log.clean(force=True).reason is None
    assert [offset for offset, *_ in rows(log)] == [1]


def test_a_log_is_taken_at_its_dirty_ratio_or_when_it_is_overdue(opened: Any, clock: Clock) -> None:
    log = opened({"min.cleanable.dirty.ratio": 0.5, "max.compaction.lag.ms": 1000})
    for key in (b"a", b"b", b"c", b"d"):
        put(log, (key, b"1" * 20))
    log.roll()
    assert log.clean().reason is None
    put(log, (b"a", b"2" * 20))
    log.roll()
    why = "the dirty ratio 0.200 is not above min.cleanable.dirty.ratio 0.5"
    assert log.clean().reason == why
    clock.now = T + 1000
    assert log.clean().reason == why
    clock.now = T + 1001
    assert log.clean().reason is None
    assert [offset for offset, *_ in rows(log)] == [1, 2, 3, 4]


def test_a_log_without_the_policy_is_left_alone(opened: Any, tmp_path: Path) -> None:
    log = opened({"cleanup.policy": "delete"})
    put(log, (b"a", b"1"), (b"a", b"2"))
    log.roll()
    assert log.clean(force=True).reason == "cleanup.policy has no compact"
    assert checkpoint(tmp_path) is None
    assert len(rows(log)) == 2


def test_a_dry_run_counts_and_changes_nothing(opened: Any, tmp_path: Path, rng: random.Random) -> None:
    log = opened()
    fill(log, rng, 60)
    log.flush()
    before = {path.name: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    would = log.clean(dry_run=True)
    assert {path.name: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    did = log.clean()
    assert would.records_after == did.records_after < would.records_before
    assert (would.removed, would.kept, would.bytes_after) == (did.removed, did.kept, did.bytes_after)


def test_a_small_map_needs_more_passes_and_loses_nothing(opened: Any, rng: random.Random) -> None:
    log = opened()
    fill(log, rng, 120, keys=40)
    log.roll()
    before, passes = state(rows(log)), 0
    while (done := log.clean(force=True, dedupe_buffer_bytes=24 * 9)).reason is None:
        assert done.keys <= 8 and done.map_bytes == 24 * 9
        passes += 1
        assert state(rows(log)) == before
    assert passes > 3
    assert len(rows(log)) == len({key for _, key, _ in rows(log)})


def test_progress_tells_every_byte(opened: Any, rng: random.Random) -> None:
    log = opened()
    fill(log, rng, 60)
    told: list[int] = []
    done = log.clean(on_progress=told.append)
    assert sum(told) == 2 * done.bytes_before


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"dedupe_buffer_bytes": 23}, "dedupe_buffer_bytes: expected room for a key, found 23 bytes"),
        ({"load_factor": 0.0}, "dedupe_buffer_bytes: expected room for a key, .* with load_factor 0"),
        ({"now_ms": -1}, "now_ms"),
    ],
)
def test_a_wrong_argument_is_refused(opened: Any, options: dict[str, Any], found: str) -> None:
    log = opened()
    put(log, (b"a", b"1"))
    log.roll()
    with pytest.raises(ValueError, match=found):
        log.clean(force=True, **options)
    assert log.clean().reason is None


def test_damage_ends_a_pass_and_leaves_what_it_lies_in(opened: Any, tmp_path: Path, rng: random.Random) -> None:
    log = opened()
    fill(log, rng, 60)
    damaged = log.segments[3]
    data = bytearray(Path(damaged.path).read_bytes())
    data[80] ^= 1
    Path(damaged.path).write_bytes(data)
    with pytest.raises(kts.CorruptRecordError, match="CRC") as raised:
        log.clean()
    assert raised.value.path == damaged.path
    assert Path(damaged.path).read_bytes() == data
    assert checkpoint(tmp_path) is None
    assert not [name for name in os.listdir(tmp_path / "t-0") if name.endswith((".cleaned", ".swap"))]


# --- the checkpoint is never ahead -----------------------------------------------------------------


def test_a_truncation_lowers_the_checkpoint(opened: Any, tmp_path: Path) -> None:
    log = opened()
    for value in range(9):
        put(log, (b"a", b"%d" % value), (b"b%d" % value, b"1"))
    log.roll()
    log.clean()
    assert checkpoint(tmp_path) == 18
    log.truncate_to(7)
    assert checkpoint(tmp_path) == 7
    log.truncate_fully_and_start_at(3)
    assert checkpoint(tmp_path) == 3


def test_an_offline_truncation_lowers_the_checkpoint(opened: Any, tmp_path: Path) -> None:
    log = opened()
    for value in range(9):
        put(log, (b"a", b"%d" % value), (b"b%d" % value, b"1"))
    log.roll()
    log.clean()
    log.close()
    truncate_in_place(str(tmp_path / "t-0"), 8, CONFIG)
    assert checkpoint(tmp_path) == 8


def test_a_log_that_lost_its_end_is_cleaned_from_the_start(opened: Any, tmp_path: Path) -> None:
    log = opened()
    put(log, (b"a", b"1"))
    put(log, (b"b", b"1"))
    log.roll()
    log.clean()
    log.close()
    (tmp_path / CHECKPOINT).write_text("0\n1\nt 0 99\n")
    log = opened()
    assert checkpoint(tmp_path) is None
    put(log, (b"a", None))
    log.roll()
    assert log.clean().first_dirty_offset == 0
    assert [offset for offset, *_ in rows(log)] == [1, 2]


def test_a_copy_has_no_checkpoint_of_the_cleaner(
    opened: Any, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    log = opened()
    put(log, (b"a", b"1"))
    put(log, (b"a", b"2"))
    log.roll()
    log.clean()
    log.close()
    target = tmp_path_factory.mktemp("copy")
    copy(tmp_path / "t-0", target)
    assert not (target / CHECKPOINT).exists()
    (target / CHECKPOINT).write_text("0\n2\nt 0 2\nu 0 5\n")
    log = opened()
    put(log, (b"a", b"3"))
    log.roll()
    log.close()
    copy(tmp_path / "t-0", target)
    assert dict(checkpoints.read_checkpoint(str(target / CHECKPOINT)) or {}) == {("u", 0): 5}


# --- beside it --------------------------------------------------------------------------------------


def test_a_cleaned_log_opens_as_it_was_closed(opened: Any, clock: Clock, rng: random.Random) -> None:
    log = opened()
    fill(log, rng, 90)
    log.clean()
    clock.now += 60_000
    log.delete_due_files()
    before = rows(log)
    facts = [(one.base_offset, one.size, one.largest_timestamp_ms) for one in log.segments]
    log.close()
    log = opened()
    assert log.recovered == []
    assert rows(log) == before
    assert [(one.base_offset, one.size, one.largest_timestamp_ms) for one in log.segments] == facts
    assert log.clean(force=True).reason == "nothing can be cleaned"


def fetched(log: kts.Log) -> list[tuple[int, bytes, bytes | None]]:
    """What a consumer gets, fetch after fetch, each of which goes on at an offset."""
    found, position = [], log.log_start_offset
    while position < log.log_end_offset:
        data = log.read(position, 2000, min_one_message=True).records
        whole = Entries(data, until_damage=True)
        if not len(whole):
            break
        found += [tuple(row.values()) for row in kts.decode(data[: whole.end], COLUMNS).to_pylist()]
        position = whole[len(whole) - 1].last_offset + 1
    return found


@pytest.mark.slow  # three threads and some hundred new segments
def test_appends_and_readers_go_on_during_a_pass(opened: Any, rng: random.Random) -> None:
    """A consumer has the state of each key after every walk, and so has a scan of the files, without a word."""
    log = opened({"segment.bytes": 3000})
    fill(log, rng, 400, keys=60)
    log.roll()
    before = state(rows(log))
    done = threading.Event()
    faults: list[str] = []
    walks = [0, 0]

    def known(records: list[Any]) -> dict[bytes, tuple[int, bytes]]:
        return state([one for one in records if not one[1].startswith(b"new")])

    def fetching() -> None:
        while not done.is_set():
            walks[0] += 1
            if known(fetched(log)) != before:
                faults.append("a consumer missed records")

    def scanning() -> None:
        while not done.is_set():
            walks[1] += 1
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                found = known(rows(log))
            if found != before or told:
                faults.append(f"a scan missed records, or told {[str(one.message) for one in told]}")

    threads = [threading.Thread(target=one) for one in (fetching, scanning)]
    for thread in threads:
        thread.start()
    try:
        for number in range(scaled(8, 40)):
            put(log, (b"new%d" % number, b"1" * 400))
            assert log.clean(force=True).reason in (None, "nothing can be cleaned")
            log.roll()
    finally:
        done.set()
        for thread in threads:
            thread.join(PATIENCE_S)
    assert faults == [] and all(walks)


@pytest.mark.parametrize("change", ["truncate_to", "delete", "close"])
def test_a_pass_ends_when_its_segments_change(
    opened: Any, tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    log = opened({"segment.bytes": 300})
    fill(log, rng, 60)
    make = cleaner.CleaningPass.make
    calls = []

    def then_changed(self: Any, folder: str, group: Any) -> Any:
        made = make(self, folder, group)
        calls.append(group)
        if len(calls) == 2:
            if change == "truncate_to":
                log.truncate_to(group[0].base_offset)
            elif change == "delete":
                log.advance_log_start_offset(log.log_end_offset)
                log.delete_old_segments()
            else:
                log._closing = True
        return made

    monkeypatch.setattr(cleaner.CleaningPass, "make", then_changed)
    done = log.clean()
    assert done.reason == "the log was closed, or segments were truncated or deleted meanwhile"
    assert done.segments_after == 1
    assert checkpoint(tmp_path) is None
    assert not [name for name in os.listdir(log.path) if name.endswith((".cleaned", ".swap"))]


# --- crashes ----------------------------------------------------------------------------------------


@pytest.mark.slow  # some hundred states of a disk, each started and cleaned
def test_after_any_crash_a_log_has_its_state_and_is_cleaned_on(rng: random.Random) -> None:
    """Moments of two passes, with parts of what was not synced: hundreds of states of a disk."""
    with quick_directory() as folder:
        where = os.path.join(folder, "life")
        os.mkdir(where)
        system = FaultyOs(where)
        clock = Clock()
        path = os.path.join(where, "t-0")
        settings = {**CONFIG, "segment.bytes": 900, "min.cleanable.dirty.ratio": 0}
        with in_place_of_os(system):
            log = kts.Log(path, settings, clock=clock)
            for number in range(24):
                producer = {"producer_id": 7, "producer_epoch": 0, "base_sequence": number, "transactional": True}
                put(log, (b"k%d" % (number % 5), b"%d" % number * 20), **producer)
                if number % 6 == 5:
                    log.append(marker(commit=number % 12 == 11), origin="coordinator")
            put(log, (b"k0", None), (b"k1", b"last"))
            log.roll()
            before = committed(where)
            begin = len(system.trace)
            log.clean()
            clock.now += 2000
            put(log, (b"k9", b"x"))
            log.roll()
            log.clean()
            after = {**before, b"k9": b"x"}
            log.close()
        states = 0
        disk = system.disk()
        for done, op in enumerate([*system.trace, None]):
            if done >= begin and (rng.random() < scaled(0.15, 0.5)):
                for one in disk.states(rng, count=scaled(4, 8)):
                    crashed = os.path.join(folder, "crashed")
                    write_tree(crashed, one.tree)
                    check(crashed, before, after, clock, settings, f"{done}: {one.label}")
                    shutil.rmtree(crashed)
                    states += 1
            if op is not None:
                disk.step(op)
        assert states > scaled(50, 300)


def check(
    folder: str, before: dict[bytes, bytes], after: dict[bytes, bytes], clock: Clock, settings: Any, label: str
) -> None:
    with suppress(kts.CorruptRecordError):  # an append that was not synced may be torn, which a reader says
        assert committed(folder) in (before, after), label
    known = dict(checkpoints.read_checkpoint(os.path.join(folder, CHECKPOINT)) or {}).get(("t", 0), 0)
    with kts.Log(os.path.join(folder, "t-0"), settings, clock=clock) as log:
        assert known <= log.log_end_offset, label
        assert committed(folder) in (before, after), label
        log.roll()
        log.clean(force=True)
        assert committed(folder) in (before, after), label
    assert list(verify(folder)) == [], label


def committed(folder: str) -> dict[bytes, bytes]:
    found = kts.open_partition(os.path.join(folder, "t-0")).scan(columns=COLUMNS, isolation="read_committed")
    return {
        key: value for key, (_, value) in state([tuple(row.values()) for row in found.read_all().to_pylist()]).items()
    }


def marker(*, commit: bool) -> bytes:
    return kts.encode(
        {"timestamp": [T], "key": [b"\0\0\0\1" if commit else bytes(4)], "value": [bytes(6)]},
        control=True,
        transactional=True,
        producer_id=7,
        producer_epoch=0,
    )


@pytest.mark.parametrize("how", ["truncate", "start anew", "delete", "reconfigure", "close"])
def test_a_log_that_changes_under_a_pass_ends_it_and_is_no_fault(
    how: str, opened: Callable[..., kts.Log], rng: random.Random
) -> None:
    log = opened({"cleanup.policy": "compact,delete", "file.delete.delay.ms": 0})
    fill(log, rng, 300)
    log.roll()

    def change() -> None:
        if how == "truncate":
            log.truncate_to(150)
            fill(log, rng, 10)
        elif how == "start anew":
            log.truncate_fully_and_start_at(1000)
        elif how == "delete":
            log.advance_log_start_offset(200)
            log.delete_old_segments()
        elif how == "reconfigure":
            log.reconfigure(CONFIG | {"message.format.version": "0.10.2"})
        else:
            log.close()

    todo = [change]
    done = log.clean(force=True, on_progress=lambda _: todo.pop()() if todo else None)
    assert not todo and done.reason is not None and "meanwhile" in done.reason
    if how == "close":
        return
    assert not [path for path in os.listdir(log.path) if path.endswith((".cleaned", ".swap"))]
    first, end = log.log_start_offset, log.log_end_offset
    assert log.clean(force=True).reason in (None, "nothing can be cleaned")
    assert (log.log_start_offset, log.log_end_offset) == (first, end)
