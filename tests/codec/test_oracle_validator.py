"""What Kafka's LogValidator did with 9,000 sets of records, sound and damaged, and what kts does with `shipped=True`.

Bytes are equal where Kafka did not compress, the records where it did; refusals are of the same group, name the same
records, and leave the offset counter where Kafka's stopped. What stays different is in the table.
"""

from __future__ import annotations

from typing import Any

import pytest
from support.oracle.oracle_compare import Difference, Known, judge
from support.oracle.oracle_known import damaged_gzip, unreadable_but_equal
from support.oracle.oracle_validator import validate

Case = dict[str, Any]


def older_brokers_beside(case: Case, differs: list[Difference]) -> bool:
    return "ibp" in case["in"] and "inter.broker.protocol.version" in case["out"]["error"]["message"]


KNOWN = {
    "0.10.2": [
        Known("Kafka copies messages whose lengths lie: so does kts, and cannot read them", 17, unreadable_but_equal),
    ],
    "3.9": [
        Known("kts has no inter.broker.protocol.version, below 2.1 of which zstd is refused", 5, older_brokers_beside),
        Known("Kafka reads damaged gzip data as far as it goes, and finds another fault there", 1, damaged_gzip),
    ],
    "4.3": [],
}


@pytest.mark.slow
@pytest.mark.parametrize("gen", KNOWN)
def test_every_append_is_kafkas_or_of_a_listed_class(gen: str) -> None:
    judge(f"validator-{gen}", validate, KNOWN[gen])
