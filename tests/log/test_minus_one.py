"""-1 as a real time, 1969-12-31T23:59:59.999Z: the first choice of KIP-228's "NO_TIMESTAMP (-1) problem".

``allow.negative.timestamps=true`` and ``message.timestamp.missing=-1``: all timestamps are numbers, and all of them are
times. Each path is compared with a plain list of the records.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support.broker.asking import Asking
from support.processes.cli_runs import lines, run
from support.reference import reference
from support.sets import generate
from support.sets.appending import GENERATIONS, NOW, START, append, produced, topic
from support.sets.generate import Rec
from support.sets.log_records import Clock

import kts
from kts.broker.broker import Broker
from kts.codec.validate import validate, validate_follower
from kts.config import LogConfig
from kts.errors import InvalidTimestampError

CHOICE = {"allow.negative.timestamps": "true", "message.timestamp.missing": "-1"}
FORMATS = {1: "0.10.2", 2: "3.9"}
MAGIC = pytest.mark.parametrize("magic", [1, 2])
OLD = -386_380_800_000  # 1957-10-04, the KIP's example


def settings(magic: int, **more: Any) -> dict[str, Any]:
    named = {name.replace("_", "."): value for name, value in more.items()}
    return CHOICE | {"message.format.version": FORMATS[magic]} | named


def encoded(*timestamps: int, magic: int = 2, codec: str = "none", **more: Any) -> bytes:
    rows = {"timestamp": np.array(timestamps, np.int64), "value": [b"x" * 30] * len(timestamps)}
    return kts.encode(rows, magic=magic, compression=codec, batch_bytes=2**20, **more)


def stored(path: Path) -> list[tuple[int, int]]:
    """(timestamp, offset) of every record, read slowly."""
    found = [row for log in sorted(path.glob("*.log")) for row in reference.decode(log.read_bytes())]
    return [(row["timestamp"], row["offset"]) for row in found]


def first(records: list[tuple[int, int]], target: int) -> tuple[int, int] | None:
    return next((one for one in records if one[0] >= target), None)


def time_entries(path: Path) -> list[tuple[int, int]]:
    index = kts.TimeIndex(path.read_bytes(), int(path.stem))
    return list(zip(*(column.tolist() for column in index.entries()), strict=True))


@pytest.fixture
def clock() -> Clock:
    return Clock(NOW)


@pytest.mark.parametrize("generation", GENERATIONS)
def test_minus_one_is_the_greatest_time_of_a_set_that_has_it_on_every_path(generation: str, rng: random.Random) -> None:
    records = [Rec(i, time, b"k", b"v") for i, time in enumerate((-10, -1, OLD, -1))]
    for magic in (1,) if generation == "0.10.2" else (1, 2):
        for codec in range(4):
            for compression in ("producer", "uncompressed", "lz4"):
                config = topic(
                    magic,
                    generation=generation,
                    compression_type=compression,
                    allow_negative_timestamps=True,
                    message_timestamp_missing=-1,
                )
                done = append(produced(rng, magic, codec, records), config)
                assert [row["timestamp"] for row in reference.decode(bytes(done.records))] == [-10, -1, OLD, -1]
                assert done.max_timestamp_ms == -1, (magic, codec, compression)
                compressed = compression == "lz4" or (compression == "producer" and codec)
                assert done.offset_of_max_timestamp == START + (3 if compressed or magic == 2 else 1)
                if magic == 2 or compressed:
                    assert kts.scan_batches(done.records)["maxTimestamp"].cast("int64").to_pylist() == [-1]


@MAGIC
def test_the_difference_limit_holds_for_minus_one_too(magic: int) -> None:
    config = LogConfig.of(settings(magic, message_timestamp_difference_max_ms=1000))
    with pytest.raises(InvalidTimestampError, match="timestamp -1 is out of range"):
        append(encoded(-1, magic=magic), config)
    assert append(encoded(-1, magic=magic), config, now_ms=999).max_timestamp_ms == -1


@MAGIC
@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_a_follower_finds_it_behind_headers_that_hide_it(magic: int, codec: str) -> None:
    data = encoded(OLD, -1, magic=magic, codec=codec)
    done = validate_follower(data, end_offset=0, config=LogConfig.of(settings(magic)))
    assert bytes(done.records) == data and done.max_timestamp_ms == -1
    hidden = kts.decode(encoded(OLD, -1), kts.ALL_COLUMNS)  # a leader that took -1 for none wrote the other as greatest
    at = hidden.schema.get_field_index("maxTimestamp")
    hidden = hidden.set_column(at, "maxTimestamp", pa.array([OLD, OLD]))
    data = kts.encode(hidden, preserve_batches=True)
    assert kts.scan_batches(data)["maxTimestamp"].cast("int64").to_pylist() == [OLD]
    assert validate_follower(data, end_offset=0, config=LogConfig.of(settings(2))).max_timestamp_ms == -1


def test_a_batch_without_records_has_no_time_and_its_header_says_minus_one_as_kafka_s(
    tmp_path: Path, clock: Clock
) -> None:
    """A coordinator or the cleaner may leave one. Its -1 is no time, because no record has it."""
    empty = generate.batch(b"", 0, base=1, max_time=NOW)
    config = LogConfig.of(settings(2))
    done = validate(empty, offset=1, now_ms=NOW, config=config, origin="coordinator")
    assert kts.scan_batches(done.records)["maxTimestamp"].cast("int64").to_pylist() == [-1]
    assert (done.entries, done.max_timestamp_ms, done.offset_of_max_timestamp) == (1, -(2**63), -1)
    with kts.Log(tmp_path / "t-0", settings(2, segment_ms=2**62, index_interval_bytes=0), clock=clock) as log:
        log.append(encoded(-9))
        log.append_as_follower(generate.batch(b"", 0, base=1, max_time=-1))
        assert log.log_end_offset == 2
        assert log.max_timestamp() == (-9, 0) and log.offset_for_timestamp(-8) is None
        log.roll()
    assert time_entries(tmp_path / "t-0" / f"{0:020d}.timeindex") == [(-9, 0)]
    assert "OK" in run("verify", tmp_path / "t-0", "--deep", "--minus-one-is-a-time").stdout
    with kts.Log(tmp_path / "t-0", settings(2), clock=clock) as log:
        assert log.max_timestamp() == (-9, 0)


def test_rows_in_several_sets_have_their_greatest_time(tmp_path: Path, clock: Clock) -> None:
    rows = {"timestamp": np.array([-9, OLD, -1, OLD]), "value": [b"x" * 60] * 4}
    greatest = {}
    for name, given in (("time", CHOICE), ("none", {"allow.negative.timestamps": "true"})):
        config = given | {"max.message.bytes": 150, "segment.ms": 2**62}
        with kts.Log(tmp_path / name / "t-0", config, clock=clock) as log:
            done = log.append_rows(rows)
            assert done.entries == 4
            greatest[name] = done.max_timestamp_ms
    assert greatest == {"time": -1, "none": -9}


@MAGIC
def test_the_time_index_has_minus_one_and_a_rebuild_has_it_too(magic: int, tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "t-0"
    with kts.Log(path, settings(magic, index_interval_bytes=0, segment_ms=2**62), clock=clock) as log:
        for stamp in (OLD, -1, OLD + 5, -5, 3):
            log.append(encoded(stamp, magic=magic))
        log.roll()
        log.append(encoded(-1, magic=magic))
    first_index, second_index = path / f"{0:020d}.timeindex", path / f"{5:020d}.timeindex"
    assert time_entries(first_index) == [(-1, 1), (3, 4)]
    assert time_entries(second_index) == [(-1, 5)]
    before = time_entries(first_index)
    assert "OK" in run("verify", path, "--deep", "--minus-one-is-a-time").stdout
    said = run("verify", path, "--allow-negative-timestamps", code=1).stdout
    assert "0.timeindex" in said and "found -1" in said  # the same index is wrong where -1 means no timestamp
    first_index.unlink()
    second_index.unlink()
    run("reindex", path, "--in-place", "--minus-one-is-a-time", "--index-interval-bytes", 0)
    assert set(before) <= set(time_entries(first_index)) and time_entries(second_index) == [(-1, 5)]
    with kts.Log(path, settings(magic), clock=clock) as log:
        assert [one.largest_timestamp_ms for one in log.segments] == [3, -1]


@MAGIC
def test_a_segment_of_minus_ones_has_that_time_and_not_its_file_s(magic: int, tmp_path: Path, clock: Clock) -> None:
    """KIP-33's "largest timestamp": with no time of its own it would be the file's modification time."""
    kept = {}
    for name, given in (("real", settings(magic)), ("none", settings(magic) | {"message.timestamp.missing": "accept"})):
        with kts.Log(tmp_path / name / "t-0", given | {"retention.ms": 1000}, clock=clock) as log:
            log.append(encoded(-1, magic=magic))
            log.roll()
            log.append(encoded(NOW, magic=magic))
            os.utime(log.segments[0].path, ns=(0, NOW * 1_000_000))
            assert (log.segments[0].has_timestamp, log.segments[0].largest_timestamp_ms) == (
                (True, -1) if name == "real" else (False, NOW)
            )
            kept[name] = [one.rule for one in log.delete_old_segments()]
    assert kept == {"real": ["retention.ms"], "none": []}


@MAGIC
def test_a_segment_rolls_by_the_time_of_a_minus_one(magic: int, tmp_path: Path, clock: Clock) -> None:
    for reopened in (False, True):
        path = tmp_path / f"{reopened}" / "t-0"
        log = kts.Log(path, settings(magic, segment_ms=1000), clock=clock)
        log.append(encoded(-1, magic=magic))
        if reopened:  # then the first timestamp is read from the log
            log.close()
            log = kts.Log(path, settings(magic, segment_ms=1000), clock=clock)
        log.append(encoded(999, magic=magic))
        log.append(encoded(1000, magic=magic))
        assert [one.base_offset for one in log.segments] == [0, 2]
        log.append(encoded(-1, magic=magic))
        assert len(log.segments) == 2
        log.close()


def random_sets(rng: random.Random, log: kts.Log, magic: int) -> Iterator[int]:
    for _ in range(rng.randrange(5, 30)):
        stamps = [rng.choice([-1, -1, rng.randrange(-40, 9), OLD]) for _ in range(rng.randrange(1, 5))]
        data = encoded(*stamps, magic=magic, codec=rng.choice(["none", "gzip"]), base_offset=log.log_end_offset)
        if rng.random() < 0.3:
            log.append_as_follower(data)
        else:
            log.append(encoded(*stamps, magic=magic, codec=rng.choice(["none", "gzip"])))
        if rng.random() < 0.2:
            log.roll()
        yield from stamps


@pytest.mark.slow
@MAGIC
@pytest.mark.parametrize("before", ["the same", "only -1 is none", "kafka's"])
def test_every_search_compares_numbers_whatever_setting_wrote_the_log(
    before: str, magic: int, tmp_path: Path, clock: Clock, rng: random.Random
) -> None:
    other = {"the same": CHOICE, "only -1 is none": {"allow.negative.timestamps": "true"}, "kafka's": {}}[before]
    spaced = {"message.format.version": FORMATS[magic], "index.interval.bytes": rng.choice([0, 200])}
    for number in range(4):
        path = tmp_path / str(number) / "t-0"
        with kts.Log(path, spaced | other, clock=clock) as log:
            stamps = list(random_sets(rng, log, magic))
        log = kts.Log(path, spaced | CHOICE, clock=clock)
        for step in ("opened", "appended", "recovered"):
            if step == "appended":
                stamps += random_sets(rng, log, magic)
            elif step == "recovered":
                log.abandon()
                log = kts.Log(path, spaced | CHOICE, clock=clock)
            records = stored(path)
            for target in [rng.choice(stamps) + rng.choice([-1, 0, 1]) for _ in range(15)] + [-3, -2, -1, 0, 1]:
                assert log.offset_for_timestamp(target) == first(records, target), (number, step, target)
            assert log.max_timestamp() == max(records, key=lambda one: (one[0], -one[1]))
            found = [(segment.base_offset, segment.largest_timestamp_ms) for segment in log.segments if segment.size]
            bases = [segment.base_offset for segment in log.segments] + [2**62]
            for (base, largest), end in zip(found, bases[1:], strict=False):
                inside = max(time for time, offset in records if base <= offset < end)
                if before == "the same" or inside >= 0:
                    assert largest == inside, (number, step, base)
        log.close()
        run("reindex", path, "--in-place", "--minus-one-is-a-time")
        assert "OK" in run("verify", path, "--deep", "--minus-one-is-a-time").stdout


@MAGIC
def test_the_setting_changes_while_the_log_is_open(magic: int, tmp_path: Path, clock: Clock) -> None:
    plain = {"message.format.version": FORMATS[magic]}
    with kts.Log(tmp_path / "t-0", plain, clock=clock) as log:
        log.append(encoded(OLD, -1, magic=magic))
        assert not log.segments[0].has_timestamp
        log.reconfigure(plain | {"allow.negative.timestamps": "true"})
        assert log.max_timestamp() == (OLD, 0)
        assert log.offset_for_timestamp(OLD + 1) is None
        log.reconfigure(plain | CHOICE)
        assert log.max_timestamp() == (-1, 1)
        assert log.offset_for_timestamp(OLD + 1) == (-1, 1)
        log.append(encoded(-1, magic=magic))
        assert log.segments[0].largest_timestamp_ms == -1


def test_a_column_shows_it_as_the_last_millisecond_of_1969(tmp_path: Path, clock: Clock) -> None:
    with kts.Log(tmp_path / "t-0", settings(2), clock=clock) as log:
        log.append(encoded(-1))
    [stamp] = kts.scan(tmp_path / "t-0", columns=["timestamp"]).read_all()["timestamp"].to_pylist()
    assert stamp.isoformat() == "1969-12-31T23:59:59.999000+00:00"
    where = "1969-12-31T23:59:59.999Z"
    assert '"offset":0' in run("dump", tmp_path / "t-0", "--from", where, "--format", "jsonl").stdout


def test_over_the_wire_minus_one_is_found_by_an_earlier_time_and_the_special_numbers_stay(tmp_path: Path) -> None:
    """ListOffsets has no room for the times -1 to -6: they are its special values (docs/negative-times.md)."""
    broker = {f"log.{name}": value for name, value in CHOICE.items()}
    with Asking(Broker(tmp_path / "data", broker, clock=lambda: NOW)) as asking:
        asking.create()
        asking.append(OLD, -1)

        def ask(time: int) -> tuple[int, int]:
            row = asking.list_offsets("t", time, version=8)
            assert row["error_code"] == 0
            return row["timestamp"], row["offset"]

        assert ask(OLD + 1) == ask(-7) == (-1, 1)
        assert (ask(-1), ask(-2), ask(-3)) == ((-1, 2), (-1, 0), (-1, 1))


@MAGIC
@pytest.mark.parametrize("others", ["the same", "kafka's"])
def test_kts_retention_tells_what_a_log_of_these_settings_would_delete(
    others: str, magic: int, tmp_path: Path, clock: Clock
) -> None:
    """The command takes the settings as ``--config``, whichever of them wrote the log's indexes."""
    path = tmp_path / "t-0"
    plain = {"message.format.version": FORMATS[magic], "retention.ms": "1000"}
    meanings = [{}, {"allow.negative.timestamps": "true"}, CHOICE]
    for meaning in meanings:
        shutil.rmtree(path, ignore_errors=True)
        with kts.Log(path, plain | (meaning if others == "the same" else {}), clock=clock) as log:
            for stamps in ((OLD, -1), (-1,), (-7,), (NOW,)):
                log.append(encoded(*stamps, magic=magic))
                log.roll()
            for segment in log.segments:
                os.utime(segment.path, ns=(0, NOW * 1_000_000))
        given = [one for name, value in (plain | meaning).items() for one in ("--config", f"{name}={value}")]
        told = lines("retention", path, "--now", str(NOW), *given, "--json")
        with kts.Log(path, plain | meaning, clock=clock) as log:
            gone = [(one.base_offset, one.rule) for one in log.delete_old_segments()]
        assert [(row["segment"], row["rule"]) for row in told if row["rule"]] == gone, meaning
        times = [None if row["fromFileTime"] else row["maxTimestamp"] for row in told][:4]
        wanted = [[None, None, None, NOW], [OLD, None, -7, NOW], [-1, -1, -7, NOW]]
        # Without the setting no index has such times, and a log takes them from its indexes until they are rebuilt.
        assert times == wanted[meanings.index(meaning) if others == "the same" else 0]
