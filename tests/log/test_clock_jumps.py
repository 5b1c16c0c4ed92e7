"""A clock that jumps ahead and back under a log: what waits, what is flushed, what goes, what is found."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest
from support.sets.log_records import NOW, Clock, batch, names, offsets, opened

import kts
from kts.offline.verify import verify

DAY = 86_400_000
BACK = [1, 59_999, 365 * DAY, NOW + 5]  # the last one to before 1970


@pytest.mark.parametrize("back", BACK)
@pytest.mark.parametrize("by", ["append", "flush_if_due"])
def test_flush_ms_holds_by_a_clock_that_was_put_back(tmp_path: Path, by: str, back: int) -> None:
    clock = Clock()
    with opened(tmp_path, clock, flush_ms=1000, segment_bytes=100_000) as log:
        log.append(batch(NOW))
        log.flush()
        clock.now -= back
        for _ in range(3):
            log.append(batch(NOW))
            clock.now += 1000
            if by == "append":
                log.append(batch(NOW))
            else:
                log.flush_if_due(clock.now)
            assert log.recovery_point == log.log_end_offset


def test_a_clock_that_is_put_back_flushes_no_log_that_is_never_flushed_by_time(tmp_path: Path) -> None:
    """An append that its caller takes for one that does not wait for the disk does not."""
    clock = Clock()
    with opened(tmp_path, clock, segment_bytes=100_000) as log:
        log.append(batch(NOW))
        log.flush()
        clock.now -= DAY
        assert log.appends_at_once(100)
        log.append(batch(NOW))
        assert log.recovery_point == 1


def test_what_was_set_aside_is_not_overwritten_at_the_same_time_of_the_clock(tmp_path: Path) -> None:
    kept: dict[str, bytes] = {}
    for number in range(3):
        with opened(tmp_path, Clock(NOW + number % 2)) as log:
            while len(log.segments) < 4:
                log.append(batch(NOW, value=b"%d" % number * 60))
            second = log.segments[1].base_offset
        path = tmp_path / "t-0" / f"{second:020d}.log"
        path.write_bytes(path.read_bytes()[:-1] + b"?")
        (tmp_path / ".kafka_cleanshutdown").unlink()
        (tmp_path / "recovery-point-offset-checkpoint").unlink()
        with opened(tmp_path, Clock(NOW)) as log:
            assert log.recovered
        found = {name: (tmp_path / "t-0" / name).read_bytes() for name in names(tmp_path) if ".log.aside-" in name}
        assert kept.items() < found.items()
        kept = found


class Story:
    """A log whose clock jumps, and what has to be in it."""

    def __init__(self, folder: Path, rng: random.Random, generation: str, append_time: bool) -> None:
        self.folder, self.rng, self.generation = folder, rng, generation
        self.append_time = append_time
        self.clock = Clock()
        self.rows: list[tuple[int, int]] = []  # offset, timestamp
        self.end = 0
        self.log = self.open()

    def open(self) -> kts.Log:
        version = self.generation
        return opened(
            self.folder,
            self.clock,
            generation=self.generation,
            message_format_version=version,
            message_timestamp_type="LogAppendTime" if self.append_time else "CreateTime",
            retention_ms=10 * DAY,
            segment_ms=DAY,
            flush_ms=1000,
        )

    def jump(self) -> None:
        now, rng = self.clock.now, self.rng
        there = (now + rng.randrange(DAY), now - rng.randrange(100 * DAY), NOW, NOW + 10**13, 0, 2**63 - 1)
        self.clock.now = min(max(rng.choice(there[:5] if rng.random() < 0.9 else there), 0), 2**63 - 1)

    def append(self) -> None:
        around = (self.clock.now, NOW, NOW - DAY, self.clock.now + DAY)
        times = [min(self.rng.choice(around), 2**63 - 1) for _ in range(self.rng.randint(1, 3))]
        self.log.append(batch(*times, magic=1 if self.generation == "0.10.2" else 2))
        for time in times:
            self.rows.append((self.end, self.clock.now if self.append_time else time))
            self.end += 1

    def retain(self) -> None:
        """By the clock of this moment and nothing else, as a broker does."""
        count = 0
        for segment in self.log.segments:
            inside = [time for offset, time in self.rows if segment.base_offset <= offset < segment.next_offset()]
            if not inside or self.clock.now - max(inside) <= 10 * DAY:
                break
            count += 1
        bases = [segment.base_offset for segment in self.log.segments[:count]]
        assert [gone.base_offset for gone in self.log.delete_old_segments()] == bases
        self.rows = [row for row in self.rows if row[0] >= self.log.log_start_offset]

    def reopen(self) -> None:
        self.log.close()
        self.log = self.open()
        assert {found.reason for found in self.log.recovered} <= {"left over: a file called .deleted"}

    def check(self) -> None:
        assert offsets(self.log) == [offset for offset, _ in self.rows]
        for time in {0, NOW, self.clock.now, *(time for _, time in self.rows[-3:])}:
            found = self.log.offset_for_timestamp(time)
            first = next((row for row in self.rows if row[1] >= time), None)
            assert (found and (found.offset, found.timestamp_ms)) == first
            end = min(time + DAY, 2**63 - 1)
            strict = kts.scan(
                self.folder / "t-0", starting_timestamp=time, ending_timestamp=end, unit="ms", allowed_lateness=None
            ).read_all()
            rows = zip(strict["offset"].to_pylist(), strict["timestamp"].cast(pa.int64()).to_pylist(), strict=True)
            assert list(rows) == [row for row in self.rows if time <= row[1] < end]


@pytest.mark.slow
@pytest.mark.parametrize("append_time", [False, True])
@pytest.mark.parametrize("generation", ["0.10.2", "3.9"])
def test_jumps_lose_nothing_but_what_retention_takes_by_the_clock_it_finds(
    tmp_path: Path, rng: random.Random, generation: str, append_time: bool
) -> None:
    story = Story(tmp_path, rng, generation, append_time)
    for _ in range(150):
        what = rng.choice([story.jump, story.append, story.append, story.append, story.retain, story.reopen])
        what()
        if rng.random() < 0.1:
            story.check()
    story.check()
    story.log.close()
    assert list(verify(tmp_path / "t-0", deep=True)) == []
