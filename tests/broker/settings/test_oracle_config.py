"""What Kafka's LogConfig said of 2,800 configurations of a topic, taken or refused and as read, and what kts says."""

from __future__ import annotations

import pytest
from support.oracle.oracle_compare import Case, Difference, Known, judge
from support.oracle.oracle_config import config


def small_segments(case: Case, differs: list[Difference]) -> bool:
    return "Unknown topic config name: internal.segment.bytes" in case["out"]["error"]["message"]


KNOWN = {
    "3.9": [Known("kts takes Kafka 4's name of small segments in every release", 10, small_segments)],
    "4.3": [],
}


@pytest.mark.slow
@pytest.mark.parametrize("gen", KNOWN)
def test_every_configuration_is_taken_or_refused_as_by_kafka(gen: str) -> None:
    judge(f"config-{gen}", config, KNOWN[gen])
