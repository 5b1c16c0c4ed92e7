"""What searches, transactions and plans ask of a partition, a ``kts.PartitionLog`` answers."""

from __future__ import annotations

import pytest
from support.golden import Golden, golden_partitions

import kts
from kts.segment.partition import ReadablePartition


@pytest.mark.parametrize(("scenario", "name"), golden_partitions()[::5], ids=str)
def test_the_answers_of_a_partition_agree_with_each_other(scenario: Golden, name: str) -> None:
    log: ReadablePartition = kts.open(scenario.partition_dir(name), log_start_offset=scenario.log_start_offset(name))
    bases = [segment.base_offset for segment in log.segments]
    assert f"{log.topic}-{log.partition}" == name and not log.lone
    assert bases == sorted(set(bases))
    assert bases[0] <= log.log_start_offset <= log.log_end_offset
    assert log.log_end_offset >= bases[-1]
    assert log.high_watermark is None or log.high_watermark <= log.log_end_offset
    assert log.sealed_indexes() == {}  # a broker wrote it
    again = log.listed()
    assert (again.path, [segment.path for segment in again.segments]) == (
        log.path,
        [segment.path for segment in log.segments],
    )
