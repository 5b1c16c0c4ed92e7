"""Proposals that a setting switches on and off, in a log that is open."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import crc32c
import pytest
from support.sets.log_records import NOW, Clock, batch

import kts
from kts.proposals.bucket_index import BucketIndexMode

MINUTE = 60_000
T = NOW // MINUTE * MINUTE
SMALL = {"segment.bytes": 600, "index.interval.bytes": 100, "segment.index.bytes": 1200}
BUCKETS = {**SMALL, "proposals": "bucket-index"}


def mode(log: kts.Log, name: str) -> Any:
    assert log.proposals is not None
    return log.proposals[name]


def files_of(path: Path, suffix: str) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(path.glob(f"*{suffix}"))}


def test_time_index_interval_ms_is_the_width_of_a_bucket(tmp_path: Path) -> None:
    for interval, expected in [(1000, [0, 1000, 4000]), (4000, [0, 4000]), (MINUTE, [0])]:
        settings = {**BUCKETS, "time.index.interval.ms": interval, "segment.bytes": 10_000}
        with kts.Log(tmp_path / f"t-{interval}", settings) as log:
            log.append(batch(T + 7))
            log.append(batch(T + 900))
            log.append(batch(T + 1500))
            log.append(batch(T + 4999))
            [entries] = mode(log, "bucket-index").rule.segments.values()
            assert [time - T for time in entries.timestamps] == expected


def test_time_index_interval_ms_has_no_effect_on_kafkas_own_index(tmp_path: Path) -> None:
    written = []
    for number, more in enumerate(
        [{}, {"time.index.interval.ms": 1}, {"proposals": "bucket-index", "time.index.interval.ms": 10**9}]
    ):
        with kts.Log(tmp_path / str(number) / "t-0", SMALL | more) as log:
            for minute in range(20):
                log.append(batch(T + minute * MINUTE))
        written.append({**files_of(tmp_path / str(number) / "t-0", ".timeindex")})
    assert written[0] == written[1] == written[2] and sum(map(len, written[0].values())) > 100


def test_an_index_that_is_switched_on_later_is_the_one_of_a_log_that_always_had_it(tmp_path: Path) -> None:
    clock = Clock(T)
    with (
        kts.Log(tmp_path / "always-0", BUCKETS, clock=clock) as always,
        kts.Log(tmp_path / "t-0", SMALL, clock=clock) as log,
    ):
        for minute in range(30):
            for one in (always, log):
                one.append(batch(T + minute * MINUTE))
            if minute == 10:
                log.reconfigure(BUCKETS)
        assert len(log.segments) > 3
        ours, theirs = (files_of(Path(one.path), ".time.index") for one in (log, always))
        assert ours == theirs
        log.reconfigure(SMALL)
        assert log.proposals is None
        log.append(batch(T + 30 * MINUTE))
        assert files_of(Path(log.path), ".time.index") == theirs  # nobody writes it now
        assert log.offset_for_timestamp(T + 30 * MINUTE) == (T + 30 * MINUTE, 30)
        log.reconfigure(BUCKETS)
        assert log.offset_for_timestamp(T + 30 * MINUTE) == (T + 30 * MINUTE, 30)
        assert len(files_of(Path(log.path), ".time.index")) == len(log.segments)


def test_a_new_interval_counts_from_the_next_entry_on(tmp_path: Path) -> None:
    settings = BUCKETS | {"segment.bytes": 10_000}
    with kts.Log(tmp_path / "t-0", settings) as log:
        for second in range(150):
            if second == 70:
                log.roll()
            if second == 100:
                log.reconfigure({**settings, "time.index.interval.ms": 1000})
            log.append(batch(T + second * 1000))
        first, last = (list(entries.timestamps) for entries in mode(log, "bucket-index").rule.segments.values())
        assert [time - T for time in first] == [0, MINUTE, 69_000]  # as it was; the last one closes the segment
        assert [time - T for time in last] == [second * 1000 for second in range(70, 150)]
        for second in (0, 59, 69, 70, 99, 149):
            assert log.offset_for_timestamp(T + second * 1000) == (T + second * 1000, second)


def test_the_argument_takes_the_place_of_the_setting(tmp_path: Path) -> None:
    with kts.Log(tmp_path / "t-0", proposals=("minute-map",)) as log:
        assert log.proposals is not None and list(log.proposals.modes) == ["minute-map"]
    config = {"proposals": "bucket-index,wall-clock", "time.index.interval.ms": 1000}
    with kts.Log(tmp_path / "t-0", config) as log:
        assert log.proposals is not None and list(log.proposals.modes) == ["bucket-index", "wall-clock"]
    with kts.Log(tmp_path / "t-0", config, proposals=(BucketIndexMode(5000),)) as log:
        assert log.proposals is not None and list(log.proposals.modes) == ["bucket-index"]
        assert mode(log, "bucket-index").rule.interval_ms == 5000
        log.reconfigure({"proposals": "minute-map"})
        assert list(log.proposals.modes) == ["bucket-index"]


def test_a_wrong_name_is_refused_and_nothing_has_changed(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="^proposals: expected some of wall-clock, .* found 'buckets'"):
        kts.Log(tmp_path / "t-0", {"proposals": "buckets"})
    assert not list(tmp_path.iterdir())
    with kts.Log(tmp_path / "t-0", {"proposals": "minute-map"}) as log:
        before = log.proposals
        with pytest.raises(ValueError, match="^proposals: expected one of wall-clock, "):
            log.reconfigure({"proposals": "wall-clock,earliest-timestamp"})
        assert log.proposals is before


def test_a_damaged_log_that_no_index_can_cover_closes_when_one_is_switched_on(tmp_path: Path) -> None:
    with kts.Log(tmp_path / "t-0", SMALL) as log:
        for minute in range(20):
            log.append(batch(T + minute * MINUTE))
    file = tmp_path / "t-0" / f"{0:020d}.log"
    data = bytearray(file.read_bytes())
    data[8:12] = (5).to_bytes(4)  # a size that no batch has
    file.write_bytes(data)
    log = kts.Log(tmp_path / "t-0", SMALL)
    log.append(batch(T))
    with pytest.raises(kts.CorruptRecordError):
        log.reconfigure(BUCKETS)
    assert log.closed
    with pytest.raises(kts.CorruptRecordError):
        kts.Log(tmp_path / "t-0", BUCKETS)
    kts.Log(tmp_path / "t-0", SMALL).close()  # without the proposal it is a log as before


def test_a_log_closes_if_what_it_followed_cannot_be_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it would go on without the rules of its settings."""
    log = kts.Log(tmp_path / "t-0", BUCKETS)
    log.append(batch(T))

    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(log.proposals, "closed", interrupted)
    with pytest.raises(KeyboardInterrupt):
        log.reconfigure({**SMALL, "proposals": "minute-map"})
    assert log.closed
    with pytest.raises(kts.LogClosedError, match="KeyboardInterrupt"):
        log.append(batch(T))
    with kts.Log(tmp_path / "t-0", BUCKETS) as again:
        assert again.offset_for_timestamp(T) == (T, 0)


def test_a_batch_that_cannot_be_decompressed_stops_no_follower_of_a_proposal(tmp_path: Path) -> None:
    data = bytearray(batch(T, T + 7, compression="gzip"))
    data[75:] = bytes(len(data) - 75)
    data[17:21] = struct.pack(">I", crc32c.crc32c(bytes(data[21:])))
    clock = Clock(T)
    settings = {"segment.ms": 1000, "proposals": "earliest-timestamp,bucket-index,minute-map,monotonic-append-time"}
    with kts.Log(tmp_path / "t-0", settings, clock=clock) as log:
        log.append_as_follower(bytes(data))
        with pytest.raises(kts.CorruptRecordError):
            log.scan().read_all()
    for _ in range(2):
        with kts.Log(tmp_path / "t-0", settings, clock=clock) as log:
            clock.now = T + 1007
            assert log.roll_if_due() is None
    clock.now += 1
    with kts.Log(tmp_path / "t-0", settings, clock=clock) as log:
        assert log.roll_if_due() == 2
