"""Every recorded verdict on a whole log, from kts.Log as shipped: segments, offsets, answers, errors, files."""

from __future__ import annotations

import re

import oracle_log
import pytest
from oracle_compare import Case, Difference, Known, judge


def compressed_anew(case: Case, differs: list[Difference]) -> bool:
    """And nothing differs in the steps before."""
    first = oracle_log.COMPRESSED_ANEW.get(case["id"])
    steps = [re.match(r"out\.answers\[(\d+)\]", one.where) for one in differs]
    return first is not None and all(int(step[1]) >= first for step in steps if step)


ANEW = "snappy, or 0.10.2's lz4, by another release of the library: other bytes, often of another length"
ORDER = "0.10.2 finds a wrong inner magic before it comes to the damage in the compressed data"
TABLES = {
    "log-0.10.2": [
        Known(ANEW, 4, compressed_anew),
        Known(ORDER, 1, lambda case, differs: case["id"] == "log-0.10.2-20161-167"),
    ],
    "log-3.9": [Known(ANEW, 24, compressed_anew)],
}


@pytest.mark.parametrize("name", TABLES)
def test_every_recorded_case_of_a_log_agrees_or_is_listed(name: str) -> None:
    judge(name, oracle_log.log, TABLES[name])
