"""Every reader beside a log that deletes segments, at every moment between its calls to the operating system."""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.disk.moments import Moments
from support.golden import scaled
from support.processes.cli_runs import run
from support.sets import log_records

import kts
from kts.cli.picture import gather
from kts.store import local

pytestmark = pytest.mark.slow

BATCHES, FIRST_MS, GONE = 6, 1_700_000_000_000, 2
NAME = "t-0"


def written(folder: Path) -> kts.Log:
    """A log of a batch of three records a segment, the active one too, an hour between them."""
    clock = log_records.Clock(FIRST_MS + BATCHES * 3_600_000)
    config = {"segment.bytes": 300, "retention.ms": 10 * 3_600_000, "index.interval.bytes": 0}
    log = kts.Log(folder / NAME, config, clock=clock)
    for number in range(BATCHES):
        log.append(log_records.batch(*(FIRST_MS + number * 3_600_000 + i for i in range(3))))
    assert len(log.segments) == BATCHES
    return log


# --- the readers -----------------------------------------------------------------------------------------------


def opened(path: Path) -> kts.PartitionLog:
    log = kts.open(path)
    assert isinstance(log, kts.PartitionLog)
    return log


def table(reader: Any) -> list[Any]:
    """All rows of a stream, without where they lie."""
    rows: list[Any] = reader.read_all().to_pylist()
    return rows


def lines(*arguments: object) -> list[Any]:
    """JSON lines of a command, which says nothing on stderr but what was deleted."""
    done = run(*arguments)
    told = [line for line in done.stderr.splitlines() if "was deleted while it was read" not in line]
    assert not told, told
    return [json.loads(line) for line in done.stdout.splitlines()]


def converted(path: Path) -> list[Any]:
    out = path.parent / "converted"
    run("convert", path, "--to-magic", 1, "--out", out)
    made = sorted(name for name in os.listdir(out / NAME) if name.endswith((".log", "index")))
    rows = table(kts.scan(out / NAME, columns=["offset", "timestamp", "value"]))
    shutil.rmtree(out)
    return [made, rows]


def rebuilt(path: Path) -> list[Any]:
    """The index files, of which none would be rebuilt; an open log's have room left."""
    found = lines("reindex", path, "--dry-run", "--json")
    assert all(one.pop("state", "equal") in ("equal", "sound") for one in found), found
    return found[:-1]


def drawn(path: Path) -> list[Any]:
    picture = gather(opened(path), FIRST_MS, lambda amount: None)
    return [picture.batches, picture.future.count, picture.late.count]


def spark_rows(path: Path) -> list[Any]:
    from kts.dataset.reader import read_range
    from kts.spark.options import parse_options
    from kts.spark.planning import plan_tasks

    found = [part for task in plan_tasks(parse_options({"path": str(path)})) for part in task.ranges]
    rows = []
    for part in found:
        try:
            rows += [row for batch in read_range(part, columns=["offset"]) for row in batch.to_pylist()]
        except kts.LogStorageError as error:  # reading what was planned is a matter of failOnDataLoss
            assert error.errno == errno.ENOENT
    return rows


LATE_MS = FIRST_MS + (BATCHES - 1) * 3_600_000
# Those that answer with what is there at one moment, and those that go from segment to segment.
ANSWERS: dict[str, Callable[[Path], Any]] = {
    "log_start_offset": lambda path: opened(path).log_start_offset,
    "log_end_offset": lambda path: opened(path).log_end_offset,
    "last_stable_offset": lambda path: opened(path).last_stable_offset,
    "offset_for_timestamp": lambda path: opened(path).offset_for_timestamp(FIRST_MS + 1),
    "offset_for_timestamp, late": lambda path: opened(path).offset_for_timestamp(LATE_MS),
    "offset_for_timestamp, shipped": lambda path: opened(path).offset_for_timestamp(FIRST_MS, shipped_search=True),
    "explain_offset_for_timestamp": lambda path: opened(path).explain_offset_for_timestamp(FIRST_MS).answer,
    "max_timestamp": lambda path: opened(path).max_timestamp(),
    "kts ls": lambda path: lines("ls", path, "--json"),
    "kts ls --segments": lambda path: lines("ls", path, "--segments", "--json"),
    "kts retention": lambda path: lines("retention", path, "--now", LATE_MS, "--json"),
    "kts offset-for": lambda path: lines("offset-for", path, "--time", FIRST_MS, "--json"),
    "kts verify": lambda path: lines("verify", path, "--json")[:-1],  # nothing is wrong, whatever is read
    "kts truncate": lambda path: lines("truncate", path, "--to-offset", 15, "--json"),
}
STREAMS: dict[str, Callable[[Path], Any]] = {
    "scan": lambda path: table(opened(path).scan()),
    "scan, strict": lambda path: table(
        kts.scan(path, starting_timestamp=FIRST_MS + 1, ending_timestamp=LATE_MS, strict_time_range=True)
    ),
    "scan, committed": lambda path: table(kts.scan(path, isolation="read_committed", columns=["offset", "key"])),
    "scan, columns": lambda path: table(kts.scan(path, columns=["offset"], on_error="skip", views=True)),
    "batches": lambda path: table(opened(path).batches()),
    "Spark": spark_rows,
    "kts dump": lambda path: lines("dump", path, "--json"),
    "kts batches": lambda path: lines("batches", path, "--json"),
    "kts stats": lambda path: lines("stats", path, "--json"),
    "kts plot": drawn,
    "kts convert": converted,
    "kts reindex": rebuilt,
}
READERS = ANSWERS | STREAMS


def judged(answer: Any, path: Path) -> str:
    """An answer to compare: JSON, without the partition's directory."""
    return json.dumps(answer, sort_keys=True, default=str).replace(str(path), "DIR")


def expected(folder: Path, name: str) -> set[str]:
    """What the reader says without the segments that go: before, after, and a stream also in between."""
    wanted = set()
    for gone in [(), (0, 1)] if name in ANSWERS else [(), (0, 1), (0,), (1,)]:
        copy = folder / "-".join(["copy", *map(str, gone)]) / NAME
        if not copy.exists():
            shutil.copytree(folder / "log" / NAME, copy)
            for number in gone:
                for suffix in ("log", "index", "timeindex"):
                    (copy / f"{number * 3:020d}.{suffix}").unlink()
        wanted.add(judged(READERS[name](copy), copy))
    return wanted


@pytest.fixture
def template(tmp_path: Path) -> Iterator[Path]:
    log = written(tmp_path / "log")
    log.close()
    yield tmp_path


@pytest.mark.parametrize("name", READERS)
def test_segments_that_a_log_deletes_meanwhile_are_left_out(
    name: str, template: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log deletes two segments before the n-th call of a reader to the operating system, for many n: what is read
    is what was there before or is there after, whole segments of it, and no finding, error or other warning."""
    wanted = expected(template, name)
    counting = Moments(0)
    monkeypatch.setattr(local, "os", counting)
    READERS[name](template / "log" / NAME)
    moments = range(counting.calls)
    for moment in sorted(rng.sample(moments, min(len(moments), scaled(10, 40)))):
        monkeypatch.undo()
        folder = template / f"at-{moment}"
        shutil.copytree(template / "log", folder)
        clock = log_records.Clock(FIRST_MS + BATCHES * 3_600_000)
        config = {"segment.bytes": 300, "retention.ms": 10 * 3_600_000, "index.interval.bytes": 0}
        with kts.Log(folder / NAME, config, clock=clock) as log:

            def delete(log: kts.Log = log, clock: log_records.Clock = clock) -> None:
                clock.now = FIRST_MS + GONE * 3_600_000 + 10 * 3_600_000
                assert len(log.delete_old_segments()) == GONE

            monkeypatch.setattr(local, "os", Moments(moment, delete))
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                answer = judged(READERS[name](folder / NAME), folder / NAME)
            monkeypatch.undo()
            assert answer in wanted, f"before call {moment}: {answer}"
            assert all("was deleted while it was read" in str(one.message) for one in said), list(map(str, said))


@pytest.mark.parametrize("name", ["scan", "scan, strict", "scan, committed", "scan, columns", "batches"])
def test_a_segment_that_is_away_for_a_moment_is_read_or_left_out(
    name: str, template: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A truncation deletes segments, and the next appends may make one of the same name: for one call of a reader, and
    no longer, a segment is not there. That is no error."""
    path, aside = template / "log" / NAME, template / "aside" / NAME
    names = [f"{GONE * 3:020d}.{suffix}" for suffix in ("log", "index", "timeindex")]
    counting = Moments(0)
    monkeypatch.setattr(local, "os", counting)
    wanted = {judged(READERS[name](path), path)}
    monkeypatch.undo()
    shutil.copytree(path, aside)
    for one in names:
        (aside / one).unlink()
    wanted.add(judged(READERS[name](aside), aside))

    def hide() -> None:
        for one in names:
            os.rename(path / one, aside / f"{one}.hidden")

    def show() -> None:
        for one in names:
            os.rename(aside / f"{one}.hidden", path / one)

    for moment in sorted(rng.sample(range(counting.calls - 1), min(counting.calls - 1, scaled(20, 80)))):
        monkeypatch.setattr(local, "os", Moments(moment, hide, show))
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            answer = judged(READERS[name](path), path)
        monkeypatch.undo()
        if not (path / names[0]).exists():  # the reader asked no more
            show()
        assert answer in wanted, f"around call {moment}: {answer}"
        assert all("was deleted while it was read" in str(one.message) for one in said), list(map(str, said))
