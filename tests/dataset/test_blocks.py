"""Exact ranges of times: against a filter of the whole log, and what a range opens."""

from __future__ import annotations

import random
import warnings
from pathlib import Path

import pyarrow as pa
import pytest
from support.golden import scaled
from support.processes.cli_runs import lines
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
    for number in range(scaled(5, 120)):
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
                    options = ScanOptions.of(**named)
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
    assert left_out > scaled(20, 1000)
