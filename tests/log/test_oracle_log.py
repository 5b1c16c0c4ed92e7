"""Every recorded verdict on a whole log, from kts.Log as shipped: segments, offsets, answers, errors, files."""

from __future__ import annotations

import pytest
from support.oracle import oracle_log
from support.oracle.oracle_compare import Case, Difference, Known, judge
from support.oracle.oracle_known import compressed_anew, damaged_gzip, far_offset

pytestmark = pytest.mark.slow

ANEW = "snappy, or 0.10.2's lz4, by another release of the library: other bytes, often of another length"
ORDER = "0.10.2 finds a wrong inner magic before it comes to the damage in the compressed data"
FAR = "Kafka splits where a damaged offset leads, or does not open; kts cuts that batch and keeps it aside"
GZIP = "Kafka reads damaged gzip data as far as it goes, and finds another fault there"


def anew_alone(case: Case, differs: list[Difference]) -> bool:
    return compressed_anew(case, differs) and not far_offset(case, differs)


TABLES = {
    "log-0.10.2": [
        Known(ANEW, 4, compressed_anew),
        Known(ORDER, 1, lambda case, differs: case["id"] == "log-0.10.2-20161-167"),
    ],
    "log-3.9": [Known(ANEW, 24, compressed_anew)],
    "log-4.3": [Known(ANEW, 4, anew_alone, carried=1), Known(FAR, 3, far_offset)],
    "log-4.3-defaults": [Known(ANEW, 3, compressed_anew), Known(GZIP, 1, damaged_gzip)],
}


@pytest.mark.parametrize("name", TABLES)
def test_every_recorded_case_of_a_log_agrees_or_is_listed(name: str) -> None:
    judge(name, oracle_log.log, TABLES[name])
