"""What Kafka's `toMessageFormat` (0.10.2) and `downConvert` (3.9) make of 1,000 byte strings, and what kts does.

Bytes are equal where Kafka did not compress, the records where it did; refusals are of the same group. What stays
different is in the table, counted and with a reason.
"""

from __future__ import annotations

from typing import Any

import pytest
from support.oracle.oracle_compare import Difference, Known, judge
from support.oracle.oracle_convert import convert


def says(text: str) -> Any:
    """Whether kts refuses, and with these words."""

    def belongs(case: dict[str, Any], differs: list[Difference]) -> bool:
        return any(isinstance(found.ours, dict) and text in found.ours.get("message", "") for found in differs)

    return belongs


def inner_crc(case: dict[str, Any], differs: list[Difference]) -> bool:
    return all(found.where.endswith("].valid") and found.ours for found in differs)


KNOWN = {
    "0.10.2": [
        Known("0.10.2 reads an unknown magic as 1; refused with code 2", 1, says("is unknown, expected 0 to 2")),
        Known("0.10.2 reads magic 2 as 1; it is a batch, and too short", 2, says("bytes of a record batch header")),
        Known("Kafka ignores what a message holds after its value", 2, says("after the message's value")),
        Known("Kafka copies an inner message with its wrong CRC; the copy here has a right one", 1, inner_crc),
    ],
    "3.9": [],
}


@pytest.mark.slow
@pytest.mark.parametrize("gen", ["0.10.2", "3.9"])
def test_every_conversion_is_kafkas_or_of_a_listed_class(gen: str) -> None:
    judge(f"convert-{gen}", convert, KNOWN[gen])
