"""Every recorded verdict on segments and their indexes, asked with the rules as they shipped."""

from __future__ import annotations

import pytest
from support.oracle.oracle_compare import judge
from support.oracle.oracle_segment import segment


@pytest.mark.slow
@pytest.mark.parametrize("generation", ["0.10.2", "3.9", "4.3"])
def test_segments_answer_every_step_as_kafka_does(generation: str) -> None:
    judge(f"segment-{generation}", segment, [])
