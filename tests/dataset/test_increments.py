"""How far a log reaches, and what is told of offsets that are gone."""

from __future__ import annotations

from pathlib import Path

import pytest

import kts
from kts.dataset.increments import Losses, Reach, from_json, reach_of, to_json
from kts.errors import KtsWarning, OffsetOutOfRangeError
from kts.model import TopicPartition

NAME = TopicPartition("t", 0)
STRICT, LOOSE = Losses(True, "say so"), Losses(False, "say so")


def test_the_high_watermark_bounds_what_is_stable(tmp_path: Path) -> None:
    with kts.Log(tmp_path / "t-0") as log:
        log.append_rows({"value": [b"v"] * 5})
    (tmp_path / "replication-offset-checkpoint").write_text("0\n1\nt 0 3\n")
    there = kts.open_partition(tmp_path / "t-0")
    assert reach_of(there, "read_uncommitted") == Reach(0, 3, 5)
    assert reach_of(there, "read_uncommitted", above_high_watermark=True) == Reach(0, 5, 5)


def test_a_partition_that_is_gone_is_told() -> None:
    STRICT.check_gone({NAME: 3}, [NAME])
    with pytest.raises(OffsetOutOfRangeError, match="t-0, which was read up to offset 3, is gone: .*; say so"):
        STRICT.check_gone({NAME: 3}, [])
    with pytest.warns(KtsWarning, match="is gone"):
        LOOSE.check_gone({NAME: 3}, [])


def test_offsets_that_are_gone_are_told_with_their_ends() -> None:
    STRICT.check_start(NAME, 3, 9, 3)
    with pytest.raises(OffsetOutOfRangeError, match=r"offsets 2 to 3 \(not included\) of t-0 were deleted"):
        STRICT.check_start(NAME, 2, 9, 3)
    STRICT.check_end(NAME, 9, 9)
    with pytest.raises(OffsetOutOfRangeError, match="t-0 was read up to offset 10, and ends now at offset 9"):
        STRICT.check_end(NAME, 10, 9)


def test_offsets_are_written_as_sparks_checkpoints_have_them() -> None:
    offsets = {TopicPartition("t", 10): 1, TopicPartition("t", 2): 5, TopicPartition("a", 0): 7}
    assert str(to_json(offsets)) == "{'a': {'0': 7}, 't': {'2': 5, '10': 1}}"
    assert from_json(to_json(offsets)) == offsets
