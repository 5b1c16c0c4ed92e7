"""What the doctor finds: every planted fault, by segment, kind, offset and count, and nothing else."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.golden import goldens

import kts
from kts.offline.doctor import SMALL, STAYS, TIME_INDEX
from kts.offline.time_rules import AHEAD, FUTURE, KINDS, LATE, NONE, PAST, STEPS_BACK

NOW = 1_790_000_000_000
SECOND, HOUR, DAY = 1000, 3_600_000, 86_400_000
RECORDS = 700
PLANTED: dict[str, Callable[[int], int]] = {  # the wrong time of a record by its right one
    "seconds": lambda ms: ms // 1000,
    "microseconds": lambda ms: ms * 1000 + 7,
    "nanoseconds": lambda ms: ms * 1_000_000 + 7,
    FUTURE: lambda ms: NOW + 3 * 365 * DAY,
    PAST: lambda ms: 0,
    NONE: lambda ms: -1,
    AHEAD: lambda ms: ms + 20 * DAY,
    LATE: lambda ms: ms - 20 * DAY,
}
TOO_LATE = {"microseconds", "nanoseconds", FUTURE, AHEAD}


def write(path: Path, times: list[int], batch: int, settings: dict[str, Any] | None = None, **how: Any) -> None:
    """A partition with these times; its files are as old as its last append."""
    offset = 0
    with kts.Log(path, {"segment.ms": 2**60, **(settings or {})}, release="3.9") as log:
        while offset < len(times):
            part = times[offset : offset + batch]
            columns = {"timestamp": part, "key": [b"k"] * len(part), "value": [b"v" * 40] * len(part)}
            log.append_as_follower(kts.encode(columns, base_offset=offset, batch_bytes=2**20, **how))
            offset += len(part)
    for file in path.glob("*.log"):
        os.utime(file, (NOW / 1000, NOW / 1000))


def clean(rng: random.Random, until: int = NOW - 40 * DAY) -> list[int]:
    """Times of a sound topic: they rise, with a disorder of seconds."""
    return [until + at * SECOND + rng.randrange(-20 * SECOND, 20 * SECOND) for at in range(RECORDS)]


def found(path: Path, **how: Any) -> list[dict[str, Any]]:
    return list(kts.doctor(path, now=NOW, **how).to_pylist())


def times_of(rows: list[dict[str, Any]]) -> set[tuple[int, str, int, int]]:
    return {(one["segment"], one["kind"], one["offset"], one["count"]) for one in rows if one["kind"] in KINDS}


def expected(path: Path, planted: dict[int, str]) -> set[tuple[int, str, int, int]]:
    """The findings that planted records give, by segment and kind."""
    bases = [segment.base_offset for segment in kts.open_partition(path).segments]
    kept: dict[tuple[int, str], list[int]] = {}
    for offset, kind in sorted(planted.items()):
        base = max(one for one in bases if one <= offset)
        kept.setdefault((base, kind), []).append(offset)
    return {(base, kind, offsets[0], len(offsets)) for (base, kind), offsets in kept.items()}


@pytest.mark.parametrize("magic", [1, 2])
@pytest.mark.parametrize("compression", ["none", "lz4"])
@pytest.mark.parametrize("batch", [1, 7])
def test_a_sound_log_has_no_findings(
    magic: int, compression: str, batch: int, tmp_path: Path, rng: random.Random
) -> None:
    path = tmp_path / "orders-0"
    write(path, clean(rng), batch, {"segment.bytes": 16_000}, magic=magic, compression=compression)
    assert found(path) == []
    assert found(path, deep=True) == []


@pytest.mark.parametrize("kind", PLANTED)
@pytest.mark.parametrize(("magic", "size"), [(2, 1), (2, 3), (2, 40), (1, 3)])
def test_each_planted_time_is_found_and_no_other(
    kind: str, size: int, magic: int, tmp_path: Path, rng: random.Random
) -> None:
    """Scattered over the log, in batches of several records and several segments: every record is counted."""
    for batch, compression in ((1, "none"), (5, "none"), (5, "lz4")):
        path = tmp_path / f"{compression}-{batch}/orders-0"
        times, planted = clean(rng), dict[int, str]()
        places = rng.sample(range(20, RECORDS - 100, 12), size - size % 2) + [RECORDS // 2 + 2] * (size % 2)
        for place in places:
            times[place], planted[place] = PLANTED[kind](times[place]), kind
        write(path, times, batch, {"segment.bytes": 24_000}, magic=magic, compression=compression)
        rows = found(path, deep=True)
        assert times_of(rows) == expected(path, planted)
        if kind in TOO_LATE or batch == 1:
            assert times_of(found(path)) == expected(path, planted)
        wrong = {one["kind"] for one in rows} - set(KINDS)
        assert TIME_INDEX not in wrong or kind in TOO_LATE
        assert (STAYS in wrong) is (kind in TOO_LATE - {AHEAD})
        # Of a format that 4.3 does not take, no time is judged.
        assert ("refused" in wrong) is (magic == 2 and kind in TOO_LATE - {AHEAD})


@pytest.mark.parametrize("kind", [AHEAD, LATE])
@pytest.mark.parametrize("size", [2, 60, 200])
def test_a_row_of_records_out_of_order_is_told_as_what_it_is(
    kind: str, size: int, tmp_path: Path, rng: random.Random
) -> None:
    path = tmp_path / "orders-0"
    times, planted = clean(rng), dict[int, str]()
    for place in range(200, 200 + size):
        times[place], planted[place] = PLANTED[kind](times[place]), kind
    write(path, times, 5, {"segment.bytes": 24_000})
    assert times_of(found(path, deep=True)) == expected(path, planted)


def test_an_index_that_one_record_spoils_is_told_with_what_a_search_reads(tmp_path: Path, rng: random.Random) -> None:
    path, times = tmp_path / "orders-0", clean(rng)
    times[10] = NOW + 9 * DAY
    write(path, times, 5)
    (row,) = [one for one in found(path) if one["kind"] == TIME_INDEX]
    assert (row["offset"], row["firstTimestamp"], row["count"]) == (10, NOW + 9 * DAY, RECORDS - 15)
    index = kts.open_partition(path).segments[0].time_index()
    assert index.entry(len(index) - 1)[0] == NOW + 9 * DAY
    times[10], times[RECORDS - 1] = times[9], NOW + 9 * DAY
    write(tmp_path / "last/orders-0", times, 5)
    assert TIME_INDEX not in {one["kind"] for one in found(tmp_path / "last/orders-0")}


def test_several_kinds_in_one_log_are_told_apart(tmp_path: Path, rng: random.Random) -> None:
    for number in range(10):
        path = tmp_path / f"orders-{number}"
        times, planted = clean(rng), dict[int, str]()
        for place in rng.sample(range(20, RECORDS - 100, 20), 12):
            kind = rng.choice(list(PLANTED))
            times[place], planted[place] = PLANTED[kind](times[place]), kind
        write(path, times, 4, {"segment.bytes": 24_000})
        assert times_of(found(path, deep=True)) == expected(path, planted)


def test_a_log_that_is_seconds_from_end_to_end_is_found(tmp_path: Path, rng: random.Random) -> None:
    path = tmp_path / "orders-0"
    write(path, [ms // 1000 for ms in clean(rng)], 10)
    assert times_of(found(path)) == {(0, "seconds", 0, RECORDS)}


def test_a_topic_without_any_timestamps_is_no_finding(tmp_path: Path) -> None:
    write(tmp_path / "orders-0", [-1] * 100, 10)
    assert found(tmp_path / "orders-0", deep=True) == []


@pytest.mark.parametrize("step", [1, SECOND, 5 * DAY])
def test_append_times_that_step_back_are_found(step: int, tmp_path: Path, rng: random.Random) -> None:
    path, clock = tmp_path / "orders-0", NOW - DAY * 30
    with kts.Log(path, {"message.timestamp.type": "LogAppendTime"}, clock=lambda: clock) as log:
        for number in range(50):
            clock += 10 if number != 30 else -step
            log.append_rows([{"value": b"v"}] * 2)
    count = sum(1 for number in range(30, 50) if -step + 10 * (number - 30) < 0)
    rows = found(path)
    assert times_of(rows) == {(0, STEPS_BACK, 60, 2 * count)}


def test_a_time_after_the_file_was_written_is_from_the_future(tmp_path: Path, rng: random.Random) -> None:
    """Years later the clock does not show it any more, and the file's time still does."""
    path = tmp_path / "orders-0"
    times = clean(rng)
    times[-1] = NOW + 2 * DAY
    write(path, times, 10)
    later = kts.doctor(path, now=NOW + 900 * DAY).to_pylist()
    assert times_of(later) == {(0, FUTURE, RECORDS - 1, 1)}
    assert "after its file was written" in later[0]["message"]
    for file in path.glob("*.log"):  # a file's time that is none
        os.utime(file, (1, 1))
    assert kts.doctor(path, now=NOW + 900 * DAY).num_rows == 0


def test_the_producer_behind_bad_times_is_named(tmp_path: Path, rng: random.Random) -> None:
    path, times = tmp_path / "orders-0", clean(rng)[:100]
    with kts.Log(path, release="3.9") as log:
        for offset in range(0, 100, 10):
            bad = offset == 50
            part = [ms // 1000 if bad else ms for ms in times[offset : offset + 10]]
            data = kts.encode({"timestamp": part, "value": [b"v"] * 10}, base_offset=offset, producer_id=7 + bad)
            log.append_as_follower(data)
    rows = found(path)
    assert [(one["kind"], one["producerId"], one["count"]) for one in rows] == [("seconds", 8, 10)]
    assert "by producer 8" in rows[0]["message"]


def test_what_does_not_expire_is_named_with_when_it_does(tmp_path: Path, rng: random.Random) -> None:
    path, times = tmp_path / "orders-0", clean(rng)
    times[300] = NOW + 90 * DAY
    write(path, times, 5, {"segment.bytes": 24_000})
    rows = [one for one in found(path, config={"retention.ms": DAY}) if one["kind"] == STAYS]
    bases = [segment.base_offset for segment in kts.open_partition(path).segments]
    assert [(one["segment"], one["offset"], one["deletableAt"]) for one in rows] == [
        (max(base for base in bases if base <= 300), 300, NOW + 91 * DAY + 1)
    ]
    assert rows[0]["count"] == sum(base > 300 for base in bases) + 1
    assert STAYS not in {one["kind"] for one in found(path, config={"retention.ms": -1})}
    assert STAYS not in {one["kind"] for one in found(path, config={"cleanup.policy": "compact"})}
    with kts.Log(path, {"retention.ms": DAY}, clock=lambda: NOW) as log:
        gone = {one.base_offset for one in log.delete_old_segments()}
    assert gone == {base for base in bases if base < rows[0]["segment"]}


@pytest.mark.parametrize("count", [4, 30])
def test_small_segments_are_told_with_the_setting_that_makes_them(count: int, tmp_path: Path) -> None:
    made = {
        "segment.ms": ([NOW - 400 * DAY + at * (HOUR + 1) for at in range(count)], {"segment.ms": HOUR}),
        "segment.bytes": ([NOW - DAY + at for at in range(count)], {"segment.bytes": 130}),
    }
    for cause, (times, settings) in made.items():
        path = tmp_path / cause / "orders-0"
        write(path, times, 1, settings)
        (row,) = [one for one in found(path, config={"retention.ms": -1, **settings}) if one["kind"] == SMALL]
        assert (row["segment"], row["count"]) == (0, count - 1)
        assert cause in row["message"]


def test_segments_that_full_indexes_end_are_told(tmp_path: Path, rng: random.Random) -> None:
    settings = {"segment.index.bytes": 48, "index.interval.bytes": 1}
    path = tmp_path / "orders-0"
    write(path, sorted(clean(rng))[:60], 1, settings)
    rows = found(path, config=settings)
    assert [(one["kind"], "segment.index.bytes" in one["message"]) for one in rows] == [(SMALL, True)]


def test_the_settings_say_how_late_is_too_late(tmp_path: Path) -> None:
    times = [NOW - DAY + at * SECOND for at in range(100)]
    times[50] -= 3 * HOUR
    write(tmp_path / "orders-0", times, 1)
    assert found(tmp_path / "orders-0") == []
    rows = found(tmp_path / "orders-0", config={"segment.ms": HOUR})
    assert times_of(rows) == {(0, LATE, 50, 1)}
    assert "segment.ms (1h)" in rows[0]["message"]


def test_a_bad_time_before_the_log_start_keeps_its_segment_and_is_found(tmp_path: Path, rng: random.Random) -> None:
    """Its record is deleted, and a broker still goes by it."""
    path, times = tmp_path / "orders-0", clean(rng)
    times[7] = NOW + 90 * DAY
    write(path, times, 5)
    (tmp_path / "log-start-offset-checkpoint").write_text("0\n1\norders 0 100\n")
    assert kts.open_partition(path).log_start_offset == 100
    rows = found(path)
    assert {one["kind"] for one in rows} >= {FUTURE, STAYS}
    assert {one["position"] for one in rows if one["kind"] in (FUTURE, STAYS)} == {
        kts.open_partition(path).batches().read_all().column("position")[1].as_py()
    }


def test_damage_is_an_error_and_no_finding(tmp_path: Path, rng: random.Random) -> None:
    path = tmp_path / "orders-0"
    write(path, clean(rng), 5, {"segment.bytes": 24_000})
    first = path / f"{0:020}.log"
    data = bytearray(first.read_bytes())
    data[8:12] = b"\xff\xff\xff\xff"
    first.write_bytes(data)
    with pytest.raises(kts.CorruptRecordError):
        found(path)


def test_the_columns_are_the_same_with_and_without_findings(tmp_path: Path, rng: random.Random) -> None:
    write(tmp_path / "a-0", clean(rng), 5)
    write(tmp_path / "b-0", [0, *clean(rng)], 1)
    none, some = kts.doctor(tmp_path / "a-0", now=NOW), kts.doctor(tmp_path / "b-0", now=NOW)
    assert isinstance(none, pa.Table) and none.num_rows == 0 and some.num_rows == 1
    assert none.schema == some.schema


# Scenarios of brokers that hold bad times on purpose, and the kinds that they are for.
BAD = {
    "extreme-gzip": None,
    "extreme-none": None,
    "future-oneseg": {FUTURE, TIME_INDEX, STAYS, "refused"},
    "old-producer-gzip": {NONE},
    "old-producer-lz4": {NONE},
    "old-producer-none": {NONE},
    "old-producer-snappy": {NONE},
    "rejected": {NONE},
    "retention-ms": {AHEAD, TIME_INDEX},
    "roll-ms": {SMALL},
    "orders": {FUTURE, TIME_INDEX, STAYS, "refused"},  # a record of 2036
}


def test_what_brokers_wrote_has_findings_only_where_bad_times_were_sent() -> None:
    names = set()
    for scenario in goldens():
        kinds = set(kts.doctor(scenario.log_dir, deep=True, now=NOW + 90 * DAY).column("kind").to_pylist())
        allowed = BAD.get(scenario.name, set())
        assert allowed is None or kinds <= allowed, (scenario.version, scenario.name, kinds)
        names |= {scenario.name} if kinds else set()
    assert names >= {"extreme-none", "future-oneseg", "old-producer-none", "orders"}
