"""Exact ranges of times: against a filter of the whole log, and what a range opens."""

from __future__ import annotations

import random
import warnings
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.golden import scaled
from support.processes.cli_runs import lines, run
from support.sets.log_records import Clock, batch

import kts
from kts.dataset import blocks
from kts.dataset.options import ScanOptions
from kts.dataset.scan import _planned

NOW, HOUR = 1_788_000_000_000, 3_600_000
FUTURE, ANCIENT = 2_100_000_000_000, 86_400_000
VERSIONS = {0: "0.9.0", 1: "0.10.2", 2: "3.0"}
CODECS = {
    0: ["none", "gzip", "snappy"],
    1: ["none", "gzip", "snappy", "lz4"],
    2: ["none", "gzip", "snappy", "lz4", "zstd"],
}


def random_log(folder: Path, rng: random.Random, name: str, lateness_ms: int) -> tuple[Path, list[tuple[int, int]]]:
    """A partition whose records come up to so long after younger ones; 1 % of its batches have absurd times. Its
    records as (offset, timestamp)."""
    magics = [rng.choice([1, 2, 2])] if rng.random() < 0.6 else rng.sample([0, 1, 2], 2)
    settings = {
        "segment.bytes": rng.choice([8_000, 20_000, 200_000]),
        "index.interval.bytes": rng.choice([100, 1000, 4096]),
        "segment.ms": 2**60,
        "message.timestamp.type": "LogAppendTime" if rng.random() < 0.15 else "CreateTime",
    }
    time, clock = float(NOW), Clock(NOW)
    step = rng.choice([5, 50]) * max(lateness_ms, 1000) / 100
    for magic in sorted(magics):
        settings["message.format.version"] = VERSIONS[magic]
        with kts.Log(folder / name, settings, clock=clock) as log:
            for _ in range(scaled(60, 150)):
                times = list[int]()
                for _ in range(rng.choice([1, 1, 3, 20])):
                    time += rng.random() * step
                    times.append(int(time) - rng.randrange(lateness_ms + 1) * (rng.random() < 0.3))
                if rng.random() < 0.01:
                    absurd = rng.choice([FUTURE, ANCIENT]) + rng.randrange(1000)
                    times = [absurd] * len(times) if rng.random() < 0.5 else [absurd, *times[1:]]
                clock.now = int(time)
                sets = batch(
                    *times,
                    value=rng.randbytes(rng.choice([10, 200])),
                    magic=magic,
                    compression=rng.choice(CODECS[magic]),
                )
                log.append(sets)
            log.flush()
    found = kts.scan(folder / name, columns=["offset", "timestamp"]).read_all()
    return folder / name, list(
        zip(found["offset"].to_pylist(), found["timestamp"].cast(pa.int64()).to_pylist(), strict=True)
    )


def ranges(rng: random.Random, rows: list[tuple[int, int]]) -> list[tuple[int | None, int | None]]:
    """Ranges of the log's own times, short and long, and with an end that is open or before 1970."""
    usual = sorted(ms for _, ms in rows if NOW - HOUR * 100 <= ms < FUTURE) or [NOW]
    made: list[tuple[int | None, int | None]] = [
        (None, rng.choice(usual)),
        (rng.choice(usual), None),
        (-1, rng.choice(usual)),
    ]
    for _ in range(8):
        start = rng.choice(usual) + rng.randrange(-1, 2)
        made.append((start, start + rng.choice([1, 1000, (usual[-1] - usual[0]) // 50 + 1, HOUR])))
    return made


@pytest.mark.scaled
def test_every_door_gives_what_a_filter_of_the_whole_log_gives(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Logs of all magics and codecs, disorder up to the lateness, absurd times in 1 % of the batches."""
    left_out = 0
    for number in range(scaled(5, 30)):
        lateness = rng.choice([0, 1000, HOUR, 3 * HOUR])
        monkeypatch.setattr(blocks, "STEP_BYTES", rng.choice([500, 5_000, 2**24]))
        folder = tmp_path / str(number)
        logs = [random_log(folder, rng, f"t-{partition}", lateness) for partition in range(2)]
        for path, rows in logs:
            with kts.Log(path, create=False) if number % 4 == 0 else kts.open(path) as log:
                for start, end in ranges(rng, rows):
                    named = {
                        "starting_timestamp": start,
                        "ending_timestamp": end,
                        "unit": "ms",
                        "allowed_lateness": lateness,
                    }
                    expected = [o for o, ms in rows if (start is None or ms >= start) and (end is None or ms < end)]
                    with warnings.catch_warnings():
                        warnings.simplefilter("error")  # disorder within the lateness is no reason to warn
                        found = log.scan(columns=["offset"], **named).read_all()["offset"].to_pylist()
                    assert found == expected, (number, path, start, end, lateness)
                    options = ScanOptions(**named)
                    read = sum(
                        part.end_position - part.start_position for part in _planned(kts.open(path), options, 2**63 - 1)
                    )
                    left_out += read < sum(one.size_bytes for one in kts.open(path).segments)
        start, end = ranges(rng, logs[0][1])[-1]
        named = {"starting_timestamp": start, "ending_timestamp": end, "unit": "ms", "allowed_lateness": lateness}
        both = kts.scan(folder, columns=["partition", "offset"], threads=rng.choice([1, 2]), **named).read_all()
        expected = [(n, o) for n, (_, rows) in enumerate(logs) for o, ms in rows if start <= ms < end]
        assert list(zip(*both.to_pydict().values(), strict=True)) == expected
        if number % 4 == 0:
            dumped = lines(
                "dump", folder, "--from", start, "--to", end, "--unit", "ms", "--allowed-lateness", f"{lateness}ms"
            )
            assert [(line["partition"], line["offset"]) for line in dumped] == expected
    assert left_out > scaled(20, 200)


# --- what decides -------------------------------------------------------------------------------------


def minutes(*times: int) -> list[int]:
    return [NOW + one * 60_000 for one in times]


def written(folder: Path, times: list[int], per_segment: int = 60, **options: Any) -> Path:
    """A partition of single-record batches with both indexes, an entry a batch."""
    settings = {"segment.bytes": 2**20, "index.interval.bytes": 1, "segment.ms": 2**60}
    with kts.Log(folder / "t-0", settings, clock=Clock(NOW)) as log:
        for number, ms in enumerate(times):
            if number and number % per_segment == 0:
                log.roll()
            log.append(batch(ms, **options))
    return folder / "t-0"


def found(path: Path, start: int | None, end: int | None, **options: Any) -> list[int]:
    table = kts.scan(path, starting_timestamp=start, ending_timestamp=end, columns=["offset"], **options).read_all()
    offsets: list[int] = table["offset"].to_pylist()
    return offsets


def read_of(path: Path, start: int, end: int, **options: Any) -> int:
    """The bytes of the blocks that a range reads."""
    asked = ScanOptions(starting_timestamp=start, ending_timestamp=end, **options)
    return sum(part.end_position - part.start_position for part in _planned(kts.open(path), asked, 2**63 - 1))


@pytest.mark.slow
@pytest.mark.parametrize("absurd", [FUTURE, ANCIENT, -1])
@pytest.mark.parametrize(("magic", "codec"), [(1, "none"), (1, "gzip"), (2, "zstd")])
def test_one_absurd_time_ends_no_range_wherever_it_is(tmp_path: Path, magic: int, codec: str, absurd: int) -> None:
    times = minutes(*range(320))
    for place in (0, 60, 301):
        with_one = [*times[:place], absurd, *times[place + 1 :]]
        folder = tmp_path / str(place)
        settings = {"segment.bytes": 2**20, "index.interval.bytes": 1, "message.format.version": VERSIONS[magic]}
        with kts.Log(folder / "t-0", settings | {"segment.ms": 2**60}, clock=Clock(NOW)) as log:
            for number, ms in enumerate(with_one):
                if number and number % 60 == 0:
                    log.roll()
                log.append(batch(ms, magic=magic, compression=codec))
        for start, end in ((0, 60), (55, 125), (118, 122), (299, 303)):
            low, high = times[start], times[end]
            expected = [number for number, ms in enumerate(with_one) if low <= ms < high]
            assert found(folder / "t-0", low, high, allowed_lateness="5m") == expected, (place, start, end)
            if (magic, codec) != (1, "none"):  # of plain messages, 16 KiB count as one entry
                assert read_of(folder / "t-0", low, high, allowed_lateness="5m") < 320 * 100 / 2


def test_records_without_a_time_are_found_wherever_they_are(tmp_path: Path) -> None:
    times = minutes(*range(300))
    times[250] = -1
    path = written(tmp_path, times)
    assert found(path, None, times[10]) == [*range(10), 250]
    assert found(path, -1, times[10]) == [*range(10), 250]
    assert found(path, 0, times[10]) == [*range(10)]


def test_times_before_1970_are_found_wherever_they_are(tmp_path: Path) -> None:
    times = [-500_000_000_000 + one * 60_000 for one in range(200)] + minutes(*range(100))
    times[290] = times[150]
    with kts.Log(tmp_path / "t-0", {"allow.negative.timestamps": True, "segment.ms": 2**60}, clock=Clock(NOW)) as log:
        for ms in times:
            log.append(batch(ms))
        log.roll()
    for start, end in ((times[100], times[160]), (None, times[160]), (times[199], NOW + 1)):
        expected = [number for number, ms in enumerate(times) if (start is None or start <= ms) and ms < end]
        assert found(tmp_path / "t-0", start, end) == expected


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4"])
def test_a_wrapper_begins_with_its_first_message_not_with_the_greatest_time_of_its_header(
    tmp_path: Path, codec: str
) -> None:
    """Each wrapper spans three hours, in order: the one that holds the end of the range has a later time."""
    path = tmp_path / "t-0"
    settings = {
        "segment.bytes": 2**20,
        "index.interval.bytes": 1,
        "message.format.version": "0.10.2",
        "segment.ms": 2**60,
    }
    with kts.Log(path, settings, clock=Clock(NOW)) as log:
        for start in range(0, 3600, 180):
            log.append(batch(*minutes(*range(start, start + 180)), magic=1, compression=codec))
            log.roll()
    for end in range(170, 1000, 60):
        assert found(path, *minutes(0, end)) == list(range(end))


def test_a_late_record_is_told_with_what_to_pass_and_only_if_something_was_left_out(tmp_path: Path) -> None:
    times = minutes(*range(400))
    times[140] = minutes(70)[0]  # 69 minutes after one of 139
    path = written(tmp_path, times)
    said = "1 record of the range of times came up to 1h7m after younger ones.* allowed_lateness 2h7m, or unlimited"
    with pytest.warns(kts.KtsWarning, match=said):
        assert found(path, *minutes(60, 120)) == [*range(60, 120), 140]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for lateness in ("2h7m", None):
            assert found(path, *minutes(60, 120), allowed_lateness=lateness) == [*range(60, 120), 140]
        assert found(path, *minutes(200, 260)) == list(range(200, 260))
    said = run("dump", path, "--from", "2026-08-29T11:40", "--to", "2026-08-29T12:40", "--format", "jsonl").stderr
    assert "--allowed-lateness 2h7m" in said


def test_old_data_that_were_written_again_are_read_where_their_block_begins(tmp_path: Path) -> None:
    """Two days, then the first again: its segments begin before the end, though younger ones lie before them."""
    path = written(tmp_path, minutes(*range(0, 2880, 10), *range(0, 1440, 10)), per_segment=48)
    with pytest.warns(kts.KtsWarning, match="72 records of the range of times came up to 1d16h"):
        assert found(path, *minutes(0, 720)) == [*range(72), *range(288, 360)]


def test_the_last_records_of_a_range_are_the_last_in_the_log(tmp_path: Path) -> None:
    path = written(tmp_path, minutes(0, 1, 2, 3, 9, 4, 5, 1, 2))
    for options, expected in (
        (["--to", "2026-08-29T10:44"], [3, 7, 8]),
        (["--no-strict", "--to", "2026-08-29T10:44"], [1, 2, 3]),
    ):
        made = lines("dump", path, "--tail", 3, "--columns", "offset", *options)
        assert [line["offset"] for line in made] == expected
