"""A million batches of one record, and a time index that is full: sizes that a log reaches, and nothing else tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import kts
from kts.offline.verify import verify

pytestmark = pytest.mark.slow

BATCHES = 1_000_000
FULL = 10 * 2**20 // 12 - 1  # entries of `segment.index.bytes` that are given before the closing one
T = 1_700_000_000_000
AT_ONCE = 20_000  # batches in a set
MOST_BYTES = 64 * 2**20  # beside what there is


class Big(NamedTuple):
    path: Path
    data: bytes
    grown_bytes: int


@pytest.fixture(scope="module")
def big(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Big]:
    """A log with an index entry for each of a million batches of one record.

    Five seconds, for which no smaller log stands: the index of `segment.index.bytes` by default, and memory.
    """
    path = tmp_path_factory.mktemp("big") / "t-0"
    data = kts.encode({"timestamp": T + np.arange(BATCHES), "value": [b"x"] * BATCHES}, batch_bytes=1)
    size = len(data) // BATCHES * AT_ONCE
    before = most = anonymous_bytes()
    with kts.Log(path, {"index.interval.bytes": 0, "segment.bytes": 2**30, "retention.ms": -1}) as log:
        for at in range(0, len(data), size):
            log.append_as_follower(memoryview(data)[at : at + size])
            most = max(most, anonymous_bytes())
    yield Big(path, data, most - before)


def anonymous_bytes() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))


def test_a_million_batches_are_read_by_every_way_in_little_memory(big: Big) -> None:
    assert kts.scan_batches(big.data)["count"].to_numpy(zero_copy_only=False).sum() == BATCHES
    before = most = anonymous_bytes()
    offsets = 0
    for piece in kts.scan(big.path, columns=["offset"]):
        assert piece["offset"][0].as_py() == offsets
        offsets += piece.num_rows
        most = max(most, anonymous_bytes())
    assert offsets == BATCHES == sum(piece.num_rows for piece in kts.iter_decode(big.data, ["offset"]))
    assert kts.max_timestamp(big.data)[:2] == (T + BATCHES - 1, BATCHES - 1)
    print(f"{most - before} bytes to read, {big.grown_bytes} to write")
    assert most - before < MOST_BYTES and big.grown_bytes < MOST_BYTES


def test_a_full_index_rolls_and_what_lies_around_its_end_is_found(big: Big) -> None:
    with kts.open(big.path) as log:
        assert isinstance(log, kts.PartitionLog)
        first, second = log.segments
        assert first.base_offset == 0 and FULL <= second.base_offset < FULL + AT_ONCE
        index = kts.TimeIndex((big.path / f"{0:020d}.timeindex").read_bytes(), 0)
        assert len(index) == FULL + 1 and index.check() == []
        assert index.lookup(T + FULL)[1] <= FULL and index.lookup(2**62)[1] == second.base_offset - 1
        around = (0, 1, FULL - 2, FULL - 1, FULL, FULL + 1, second.base_offset - 1, second.base_offset, BATCHES - 1)
        for offset in around:
            assert log.offset_for_timestamp(T + offset) == (T + offset, offset)
            times = {"starting_timestamp": T + offset, "ending_timestamp": T + offset + 2}
            found = kts.scan(big.path, strict_time_range=True, **times).read_all()["offset"].to_pylist()
            assert found == [each for each in (offset, offset + 1) if each < BATCHES]
        assert log.offset_for_timestamp(T + BATCHES) is None


def test_such_a_log_is_sound_and_opens_again_also_after_an_unclean_stop(big: Big) -> None:
    assert list(verify(big.path)) == []
    for name in (".kafka_cleanshutdown", "recovery-point-offset-checkpoint"):
        (big.path.parent / name).unlink()
    indexes = {file: file.read_bytes() for file in big.path.glob("*index")}
    with kts.Log(big.path, {"index.interval.bytes": 0, "segment.bytes": 2**30, "retention.ms": -1}) as log:
        assert log.log_end_offset == BATCHES and all(found.bytes_cut == 0 for found in log.recovered)
    assert {file: file.read_bytes() for file in big.path.glob("*index")} == indexes
