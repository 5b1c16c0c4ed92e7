"""Random lives of a log beside a list of batches that does the same: offsets, searches, maxima, restarts."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from support.sets.log_records import NOW, Clock, batch, offsets, opened

import kts

Batch = list[tuple[int, int]]  # offset and timestamp of each record


class Model:
    """What a log holds, as lists."""

    def __init__(self, wrapped: bool) -> None:
        self.batches: list[Batch] = []
        self.start = self.end = 0
        self.wrapped = wrapped  # records of one append are one batch, and go together

    def append(self, times: list[int]) -> None:
        records = [(self.end + number, time) for number, time in enumerate(times)]
        self.batches += [records] if self.wrapped else [[record] for record in records]
        self.end += len(times)

    def truncate(self, offset: int) -> None:
        self.batches = [one for one in self.batches if one[-1][0] < offset]
        self.end = offset

    def reopen(self, base: int) -> None:
        """The end is read from the files: behind the last batch, or where the active segment begins."""
        self.end = max(self.batches[-1][-1][0] + 1 if self.batches else 0, base, self.start)

    @property
    def records(self) -> list[tuple[int, int]]:
        return [record for one in self.batches for record in one if record[0] >= self.start]

    def first_at(self, target: int) -> tuple[int, int] | None:
        return next(((time, offset) for offset, time in self.records if time >= target), None)

    def greatest(self) -> tuple[int, int] | None:
        return max(((time, -offset) for offset, time in self.records), default=None)


def agrees(log: kts.Log, model: Model, rng: random.Random) -> None:
    assert (log.log_start_offset, log.log_end_offset) == (model.start, model.end)
    assert offsets(log) == [offset for offset, _ in model.records]
    greatest = model.greatest()
    assert log.max_timestamp() == (None if greatest is None else (greatest[0], -greatest[1]))
    times = [time for _, time in model.records]
    for target in [rng.randint(NOW - 120, NOW + 120) for _ in range(8)] + rng.sample(times, min(4, len(times))):
        assert log.offset_for_timestamp(target) == model.first_at(target), target


@pytest.mark.parametrize(("generation", "compression"), [("0.10.2", "none"), ("0.10.2", "gzip"), ("3.9", "none")])
def test_a_random_life_agrees_with_a_list(
    tmp_path: Path, rng: random.Random, generation: str, compression: str
) -> None:
    old = generation == "0.10.2"
    for number in range(4):
        model, clock = Model(wrapped=not old or compression != "none"), Clock()
        folder = tmp_path / str(number)
        settings = {
            "generation": generation,
            "segment_bytes": rng.choice([400, 900, 5000]),
            "index_interval_bytes": rng.choice([0, 150, 4096]),
            "segment_index_bytes": rng.choice([60, 10_000]),
            "segment_ms": rng.choice([40, 10**9]),
            "retention_bytes": rng.choice([-1, 3000]),
            "retention_ms": -1,
            "file_delete_delay_ms": rng.choice([0, 5]),
        }
        log = opened(folder, clock, **settings)
        for step in range(60):
            clock.now += rng.randint(0, 2)
            chance = rng.random()
            if chance < 0.65:
                times = [NOW + rng.randint(-100, 100) for _ in range(rng.choice([1, 1, 2, 4]))]
                done = log.append(
                    batch(*times, magic=1 if old else 2, compression=compression, value=b"v" * rng.randint(0, 40))
                )
                assert done.first_offset == model.end
                model.append(times)
            elif chance < 0.72:
                if log.segments[-1].size:
                    log.roll()
            elif chance < 0.78 and model.end > model.start:
                target = rng.randint(model.start, model.end)
                log.truncate_to(target)
                if target < model.end:
                    model.truncate(target)
            elif chance < 0.86:
                gone = log.delete_old_segments()
                if gone:
                    model.start = max(model.start, log.segments[0].base_offset)
                    assert {one.rule for one in gone} <= {"retention.bytes", "log start offset"}
                if old:
                    model.batches = [one for one in model.batches if one[-1][0] >= model.start]
            elif chance < 0.90 and not old:
                target = rng.randint(model.start, model.end)
                assert log.advance_log_start_offset(target) is (target > model.start)
                model.start = max(model.start, target)
            elif chance < 0.95:
                clean = rng.random() < 0.5
                log.close() if clean else log.abandon()
                log = opened(folder, clock, **settings)
                assert log.clean_start is clean
                lost = [one for one in log.recovered if one.bytes_cut and ".deleted" not in one.path]
                assert lost == [] or model.end == model.start, "nothing is lost that counts"
                model.reopen(log.segments[-1].base_offset)
            if step % 6 == 0 or step == 59:
                agrees(log, model, rng)
        log.close()
        with kts.open(folder / "t-0") as reader:
            assert isinstance(reader, kts.PartitionLog)
            for target in (NOW - 100, NOW, NOW + 50):
                assert reader.offset_for_timestamp(target) == model.first_at(target)
