"""Times before 1970 (KIP-228), each path with ``allow.negative.timestamps`` off and on: docs/negative-times.md.

Off is what Kafka ships: such times are stored where nothing has to be written anew, are refused where it has, and
nothing but a reader sees them. On: they are times like all others; only -1 means "none".
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.processes.cli_runs import lines, run
from support.reference import reference
from support.sets.log_records import Clock

import kts
from kts.codec.validate import validate, validate_follower
from kts.config import LogConfig
from kts.errors import InvalidTimestampError, KtsError
from kts.segment.log_segment import LogSegment

NOW = 1_600_000_000_000
OLD = -5_000_000  # 1969-12-31T22:36:40Z
INT64_MIN = -(2**63)
FORMATS = {1: "0.10.2", 2: "3.9"}
SWITCH = pytest.mark.parametrize("on", [False, True], ids=["off", "on"])
MAGIC = pytest.mark.parametrize("magic", [1, 2])
CODEC = pytest.mark.parametrize("codec", ["none", "gzip"])


def settings(magic: int, on: bool, **more: Any) -> dict[str, Any]:
    given = {name.replace("_", "."): value for name, value in more.items()}
    return {"message.format.version": FORMATS[magic], "allow.negative.timestamps": on} | given


def config(magic: int, on: bool, **more: Any) -> LogConfig:
    return LogConfig.of(settings(magic, on, **more))


def encoded(*timestamps: int, magic: int = 2, codec: str = "none", **more: Any) -> bytes:
    rows = {"timestamp": np.array(timestamps, np.int64), "value": [b"x" * 30] * len(timestamps)}
    return kts.encode(rows, magic=magic, compression=codec, batch_bytes=2**20, **more)


def times(data: bytes | memoryview) -> list[int]:
    """The timestamps of all records, read slowly."""
    return [row["timestamp"] for row in reference.decode(bytes(data))]


@pytest.fixture
def clock() -> Clock:
    return Clock(NOW)


def new_log(tmp_path: Path, clock: Clock, magic: int, on: bool, **more: Any) -> kts.Log:
    return kts.Log(tmp_path / "t-0", settings(magic, on, **more), clock=clock)


# --- append -----------------------------------------------------------------------------------------


@SWITCH
@MAGIC
@CODEC
def test_append_in_place_stores_them_and_only_on_counts_them(on: bool, magic: int, codec: str) -> None:
    for stamps, largest in (((OLD,), OLD), ((OLD, -1), OLD), ((-1, OLD - 5, OLD), OLD), ((OLD, 7), 7), ((-2,), -2)):
        data = encoded(*stamps, magic=magic, codec=codec)
        done = validate(data, offset=10, now_ms=NOW, config=config(magic, on))
        assert times(done.records) == list(stamps)
        assert done.max_timestamp_ms == (largest if on or largest >= 0 else -1)
    none = validate(encoded(-1, -1, magic=magic, codec=codec), offset=10, now_ms=NOW, config=config(magic, on))
    assert none.max_timestamp_ms == -1


@SWITCH
@pytest.mark.parametrize(
    "source, codec, magic, target, kept_when_off",
    [
        (1, "none", 1, "gzip", True),  # 0.10.2 writes v1 anew with the times as they are
        (1, "gzip", 1, "uncompressed", True),
        (2, "none", 2, "gzip", False),
        (2, "lz4", 2, "gzip", False),
        (2, "gzip", 2, "uncompressed", False),
        (1, "none", 2, "producer", False),
        (1, "gzip", 2, "producer", False),
    ],
)
def test_append_that_writes_anew_refuses_them_as_kafka_does_unless_on(
    on: bool, source: int, codec: str, magic: int, target: str, kept_when_off: bool
) -> None:
    data = encoded(OLD, -1, 7, magic=source, codec=codec)
    given = config(magic, on, compression_type=target)
    if on or kept_when_off:
        done = validate(data, offset=0, now_ms=NOW, config=given)
        assert times(done.records) == [OLD, -1, 7] and done.size_maybe_changed
        assert done.max_timestamp_ms == 7
        return
    with pytest.raises(KtsError, match=f"timestamp {OLD} lies before 1970 .* see allow.negative.timestamps") as caught:
        validate(data, offset=0, now_ms=NOW, config=given)
    assert caught.value.code == -1


@SWITCH
@MAGIC
def test_log_append_time_takes_their_place(on: bool, magic: int) -> None:
    given = config(magic, on, message_timestamp_type="LogAppendTime")
    done = validate(encoded(OLD, magic=magic), offset=0, now_ms=NOW, config=given)
    assert times(done.records) == [NOW] and done.max_timestamp_ms == NOW


@SWITCH
@MAGIC
def test_the_difference_limit_holds_for_them_and_never_for_none(on: bool, magic: int) -> None:
    given = config(magic, on, message_timestamp_difference_max_ms=1000)
    for now, stamp, fine in ((0, -1000, True), (0, -1001, False), (NOW, OLD, False), (NOW, INT64_MIN, False)):
        if fine:
            validate(encoded(stamp, magic=magic), offset=0, now_ms=now, config=given)
        else:
            with pytest.raises(InvalidTimestampError):
                validate(encoded(stamp, magic=magic), offset=0, now_ms=now, config=given)
    validate(encoded(-1, magic=magic), offset=0, now_ms=NOW, config=given)


@SWITCH
@MAGIC
@CODEC
def test_a_follower_takes_bytes_as_they_come_and_on_finds_what_a_header_hides(on: bool, magic: int, codec: str) -> None:
    data = encoded(OLD, OLD - 5, magic=magic, codec=codec)  # a client's header says -1 where times are before 1970
    done = validate_follower(data, end_offset=0, config=config(magic, on))
    assert bytes(done.records) == data
    assert done.max_timestamp_ms in ((OLD,) if on else (-1,))


@SWITCH
@MAGIC
@CODEC
def test_a_follower_s_log_knows_them_as_its_leader_does_only_when_on(
    on: bool, magic: int, codec: str, tmp_path: Path, clock: Clock
) -> None:
    with new_log(tmp_path, clock, magic, on) as log:
        log.append_as_follower(encoded(OLD, OLD - 5, magic=magic, codec=codec))
        log.append_as_follower(encoded(-1, OLD - 9, magic=magic, codec=codec, base_offset=2))
        assert log.segments[0].has_timestamp == on
        assert log.offset_for_timestamp(OLD + 1) == (None if on else (-1, 2))
        assert log.offset_for_timestamp(OLD - 5) == (OLD, 0)


# --- segment: index, largest timestamp, rolling, recovery -------------------------------------------


def segment(path: Path, magic: int, on: bool, *sets: tuple[int, ...]) -> tuple[LogSegment, LogConfig]:
    """A segment with one set a tuple of timestamps; every set but the first may get index entries."""
    given = config(magic, on, index_interval_bytes=0)
    path.mkdir()
    made = LogSegment(str(path), 0, given, now_ms=NOW)
    offset = 0
    for stamps in sets:
        done = validate(encoded(*stamps, magic=magic), offset=offset, now_ms=NOW, config=given)
        made.append(
            done.records,
            done.first_offset,
            done.last_offset,
            done.max_timestamp_ms,
            done.offset_of_max_timestamp,
        )
        offset = done.next_offset
    return made, given


@SWITCH
@MAGIC
def test_the_time_index_has_them_only_when_on(on: bool, magic: int, tmp_path: Path) -> None:
    made, _ = segment(tmp_path / "t-0", magic, on, (OLD,), (-1,), (OLD + 9,), (OLD + 3,), (OLD + 20,))
    made.on_become_inactive_segment()
    made.close()
    entries = kts.TimeIndex((tmp_path / "t-0" / f"{0:020d}.timeindex").read_bytes(), 0).entries()
    found = list(zip(entries[0].tolist(), entries[1].tolist(), strict=True))
    assert found == ([(OLD, 0), (OLD + 9, 2), (OLD + 20, 4)] if on else [])


@SWITCH
@MAGIC
def test_the_largest_timestamp_of_a_segment_is_one_of_them_only_when_on(on: bool, magic: int, tmp_path: Path) -> None:
    made, _ = segment(tmp_path / "t-0", magic, on, (OLD,), (-1,), (OLD - 7,))
    os.utime(made.path, ns=(0, 77_000_000))
    assert made.has_timestamp == on
    assert made.largest_timestamp_ms == (OLD if on else 77)
    made.close()
    other, _ = segment(tmp_path / "t-1", magic, on, (-1,))
    os.utime(other.path, ns=(0, 77_000_000))
    assert not other.has_timestamp and other.largest_timestamp_ms == 77
    other.close()


@SWITCH
@MAGIC
def test_a_rebuild_gives_the_same_index_as_the_appends(
    on: bool, magic: int, tmp_path: Path, rng: random.Random
) -> None:
    sets = [tuple(rng.choice([-1, rng.randrange(-9000, 500)]) for _ in range(rng.randrange(1, 4))) for _ in range(40)]
    made, given = segment(tmp_path / "t-0", magic, on, *sets)
    made.on_become_inactive_segment()
    largest = made.max_timestamp_so_far.timestamp_ms
    made.close()
    index = tmp_path / "t-0" / f"{0:020d}.timeindex"
    before = kts.TimeIndex(index.read_bytes(), 0).entries()[0].tolist()
    index.unlink()
    again = LogSegment(str(tmp_path / "t-0"), 0, given, now_ms=NOW)
    again.recover()
    assert again.max_timestamp_so_far.timestamp_ms == largest
    again.close()
    rebuilt = kts.TimeIndex(index.read_bytes(), 0).entries()[0].tolist()
    stamps = [stamp for one in sets for stamp in one if stamp != -1 and (on or stamp >= 0)]
    assert rebuilt[-1:] == before[-1:] == ([max(stamps)] if stamps else [])
    # A rebuild has an entry for each message, an append at most one for a set of messages.
    assert set(before) <= set(rebuilt) and (magic == 1 or before == rebuilt)


@SWITCH
@MAGIC
def test_a_segment_rolls_by_them_only_when_on(on: bool, magic: int, tmp_path: Path, clock: Clock) -> None:
    with new_log(tmp_path, clock, magic, on, segment_ms=1000) as log:
        for stamp in (OLD, OLD + 1000, OLD + 1001):
            log.append(encoded(stamp, magic=magic))
        assert [one.base_offset for one in log.segments] == ([0, 2] if on else [0])
        clock.now += 1001  # by creation, where there is no time
        log.append(encoded(OLD + 1001, magic=magic))
        assert [one.base_offset for one in log.segments] == ([0, 2] if on else [0, 3])


@SWITCH
@MAGIC
def test_retention_goes_by_them_only_when_on(on: bool, magic: int, tmp_path: Path, clock: Clock) -> None:
    with new_log(tmp_path, clock, magic, on, retention_ms=1000) as log:
        log.append(encoded(OLD, magic=magic))
        log.roll()
        log.append(encoded(NOW, magic=magic))
        os.utime(log.segments[0].path, ns=(0, NOW * 1_000_000))
        gone = [(one.base_offset, one.rule) for one in log.delete_old_segments()]
        assert gone == ([(0, "retention.ms")] if on else [])
        clock.now = NOW + 1001
        log.append(encoded(clock.now, magic=magic))
        assert [one.base_offset for one in log.delete_old_segments()] == ([] if on else [0])


# --- search -----------------------------------------------------------------------------------------


def first(records: list[tuple[int, int]], target: int, on: bool) -> tuple[int, int] | None:
    """(timestamp, offset) of the first record at or after a time; with the switch on -1 is no time."""
    return next(((t, o) for o, t in records if t >= target and not (on and t == -1)), None)


def everything(path: Path) -> list[tuple[int, int]]:
    found = [row for log in sorted(path.glob("*.log")) for row in reference.decode(log.read_bytes())]
    return [(row["offset"], row["timestamp"]) for row in found]


def random_log(rng: random.Random, log: kts.Log, magic: int) -> Iterator[int]:
    """Appends sets of times around 1970, rolls now and then; gives the times."""
    for _ in range(rng.randrange(5, 40)):
        stamps = [rng.choice([-1, rng.randrange(-9000, 3000)]) for _ in range(rng.randrange(1, 5))]
        log.append(encoded(*stamps, magic=magic, codec=rng.choice(["none", "gzip"])))
        if rng.random() < 0.2:
            log.roll()
        yield from stamps


@SWITCH
@MAGIC
def test_a_log_finds_them_by_time_and_none_only_when_off(
    on: bool, magic: int, tmp_path: Path, clock: Clock, rng: random.Random
) -> None:
    hits = 0
    for number in range(6):
        path = tmp_path / str(number)
        with new_log(path, clock, magic, on, index_interval_bytes=rng.choice([0, 300])) as log:
            stamps = list(random_log(rng, log, magic))
            for reopened in (False, True):
                records = everything(path / "t-0")
                for target in [rng.choice(stamps) + rng.choice([-1, 0, 1]) for _ in range(20)] + [
                    -5,
                    -4,
                    -3,
                    -2,
                    -1,
                    0,
                ]:
                    found = log.offset_for_timestamp(target)
                    assert found == first(records, target, on), (number, target, reopened)
                    hits += found is not None
                if not reopened:
                    log.abandon()  # and everything is recovered
                    log = new_log(path, clock, magic, on)  # noqa: PLW2901
            log.close()
    assert hits > 70


@SWITCH
@MAGIC
def test_a_log_written_with_the_switch_the_other_way_gives_the_right_answers(
    on: bool, magic: int, tmp_path: Path, clock: Clock, rng: random.Random
) -> None:
    for number in range(4):
        path = tmp_path / str(number)
        with new_log(path, clock, magic, not on, index_interval_bytes=0) as log:
            stamps = list(random_log(rng, log, magic))
        with new_log(path, clock, magic, on, index_interval_bytes=0) as log:
            assert log.clean_start  # so that the indexes are as the other setting made them
            for _ in range(2):
                records = everything(path / "t-0")
                for target in [rng.choice(stamps) + rng.choice([-1, 0, 1]) for _ in range(20)]:
                    assert log.offset_for_timestamp(target) == first(records, target, on), (number, target)
                timed = [one for one in records if not (on and one[1] == -1)] or records
                best = max(timed, key=lambda one: (one[1], -one[0]))
                assert log.max_timestamp() == (best[1], best[0])
                stamps += list(random_log(rng, log, magic))
        flag = ["--allow-negative-timestamps"] * on
        run("reindex", path / "t-0", "--in-place", *flag)
        assert "OK" in run("verify", path / "t-0", *flag).stdout


@SWITCH
@MAGIC
def test_the_greatest_timestamp_of_a_log_of_them(on: bool, magic: int, tmp_path: Path, clock: Clock) -> None:
    with new_log(tmp_path, clock, magic, on) as log:
        log.append(encoded(OLD, OLD + 5, OLD, magic=magic))
        log.append(encoded(OLD - 5, magic=magic))
        assert log.max_timestamp() == (OLD + 5, 1)
        log.append(encoded(-1, magic=magic))
        # As a number -1 is greater; where it is no time, it only counts if there is nothing else.
        assert log.max_timestamp() == ((OLD + 5, 1) if on else (-1, 4))


@pytest.mark.slow
@SWITCH
@MAGIC
def test_a_directory_is_read_by_numbers_whatever_wrote_it_with_and_without_its_indexes(
    on: bool, magic: int, tmp_path: Path, clock: Clock, rng: random.Random
) -> None:
    for number in range(4):
        path = tmp_path / str(number)
        with new_log(path, clock, magic, on, index_interval_bytes=0) as log:
            stamps = list(random_log(rng, log, magic))
        records = everything(path / "t-0")
        targets = [rng.choice(stamps) + rng.choice([-1, 0, 1]) for _ in range(15)] + [INT64_MIN, -5, -2, -1, 0]
        best = max(records, key=lambda one: (one[1], -one[0]))
        for _ in range(2):
            opened = kts.open(path / "t-0")
            assert isinstance(opened, kts.PartitionLog)
            for target in targets:
                assert opened.offset_for_timestamp(target) == first(records, target, False), (number, target)
                start = first(records, target, False)
                for strict, expected in (
                    (False, [offset for offset, _ in records if start is not None and offset >= start[1]]),
                    (True, [offset for offset, time in records if time >= target]),
                ):
                    read = kts.scan(
                        path / "t-0",
                        starting_timestamp=target,
                        unit="ms",
                        columns=["offset"],
                        strict_time_range=strict,
                    ).read_all()
                    assert read["offset"].to_pylist() == expected, (number, target)
            assert opened.max_timestamp() == (best[1], best[0])
            for index in (path / "t-0").glob("*index"):
                index.unlink()


def test_the_command_line_takes_them_as_times(tmp_path: Path, clock: Clock) -> None:
    with new_log(tmp_path, clock, 2, True) as log:
        log.append(encoded(OLD, OLD + 1000))
    [row] = lines("offset-for", tmp_path / "t-0", "--time", "1969-12-31T22:36:40.001Z", "--json")
    assert (row["timestamp"], row["offset"]) == (OLD + 1000, 1)
    shown = run("dump", tmp_path / "t-0", "--format", "jsonl").stdout
    assert f'"timestamp":{OLD},' in shown


@SWITCH
@MAGIC
def test_verify_and_reindex_take_the_switch_too(
    on: bool, magic: int, tmp_path: Path, clock: Clock, rng: random.Random
) -> None:
    for number in range(3):
        path = tmp_path / str(number)
        with new_log(path, clock, magic, on, index_interval_bytes=100) as log:
            log.append(encoded(OLD - 9, magic=magic))
            log.roll()
            list(random_log(rng, log, magic))
            log.append(encoded(OLD, -1, magic=magic))
            log.append_as_follower(encoded(OLD + 1, magic=magic, codec="gzip", base_offset=log.log_end_offset))
            log.append(encoded(OLD - 1, magic=magic))
        flag = ["--allow-negative-timestamps"] * on
        assert "OK" in run("verify", path / "t-0", "--deep", *flag).stdout
        run("reindex", path / "t-0", "--dry-run", *flag)
        if on:  # without it, an index that has them is one that no broker writes
            said = run("verify", path / "t-0", code=1).stdout
            assert "is negative, and such are never indexed" in said
            assert run("reindex", path / "t-0", "--dry-run", code=1).stdout


@pytest.mark.parametrize("spoil", ["earlier", "later"])
def test_verify_names_a_wrong_entry_among_them(spoil: str, tmp_path: Path, clock: Clock) -> None:
    with new_log(tmp_path, clock, 2, True, index_interval_bytes=0) as log:
        for i in range(5):
            log.append(encoded(OLD + 10 * i))
    index = tmp_path / "t-0" / f"{0:020d}.timeindex"
    data = bytearray(index.read_bytes())
    stamp = int.from_bytes(data[12:20], "big", signed=True) + (3 if spoil == "later" else -3)
    data[12:20] = stamp.to_bytes(8, "big", signed=True)
    index.write_bytes(data)
    found = lines("verify", tmp_path / "t-0", "--allow-negative-timestamps", "--json", code=1)[:-1]
    assert {violation["kind"] for violation in found} == {"time-index", "index-checksum"}
    assert sum(f"found {stamp}" in violation["message"] for violation in found) == 1


# --- conversion and encoding ------------------------------------------------------------------------


@SWITCH
@pytest.mark.parametrize("source, target", [(1, 2), (2, 1)])
@CODEC
def test_conversion_refuses_them_unless_on(on: bool, source: int, target: int, codec: str) -> None:
    data = encoded(OLD, -1, INT64_MIN, 7, magic=source, codec=codec)
    if on:
        assert times(kts.convert(data, target, allow_negative_timestamps=True)) == [OLD, -1, INT64_MIN, 7]
        return
    with pytest.raises(KtsError, match=f"timestamp {OLD} lies before 1970"):
        kts.convert(data, target)
    assert times(kts.convert(encoded(-1, 7, magic=source, codec=codec), target)) == [-1, 7]


@pytest.mark.parametrize("magic", [1, 2])
@CODEC
def test_encode_and_decode_know_no_switch(magic: int, codec: str) -> None:
    """They are columns to bytes and back: every number goes, also the least one beside the greatest."""
    stamps = [OLD, -1, -2, INT64_MIN, 2**63 - 1, 0]
    assert times(encoded(*stamps, magic=magic, codec=codec)) == stamps


@SWITCH
def test_the_largest_of_all_numbers_is_a_time_like_any_other(on: bool, tmp_path: Path, clock: Clock) -> None:
    with new_log(tmp_path, clock, 2, on) as log:
        log.append(encoded(INT64_MIN, -7))
        log.append(encoded(2**63 - 1, -9))
        assert log.offset_for_timestamp(INT64_MIN) == (INT64_MIN, 0)
        assert log.offset_for_timestamp(INT64_MIN + 1) == (-7, 1)
        assert log.offset_for_timestamp(8) == (2**63 - 1, 2)
        log.roll()
        assert log.offset_for_timestamp(2**63 - 1) == (2**63 - 1, 2)
