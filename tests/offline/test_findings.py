"""Of many faults of a kind in a file some are listed, and all are counted, also when they come from several parts."""

from __future__ import annotations

from kts.offline.findings import LISTED, Findings, Listing, Violation, limited


def faults(count: int, path: str = "a.log", kind: str = "crc") -> list[Violation]:
    return [Violation(path, position, None, kind, "wrong") for position in range(count)]


def test_the_rest_of_a_kind_in_a_file_is_counted() -> None:
    found = list(limited(faults(LISTED + 5) + faults(3, kind="offset") + faults(LISTED, "b.log")))
    assert len(found) == LISTED + 3 + LISTED + 1
    assert found[-1].message == "5 more of this kind are not listed" and found[-1].path == "a.log"


def test_findings_of_parts_join_to_those_of_the_whole() -> None:
    first, second = faults(LISTED - 4), faults(LISTED + 7) + faults(2, "b.log")
    listing = Listing()
    joined = [one for part in (first, second) for one in listing.join(Findings.of(part))]
    assert [*joined, *listing.rest()] == list(limited(first + second))
