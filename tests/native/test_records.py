"""Every length and count of entries and records at its extremes: refused in the words of its rule, or read right."""

from __future__ import annotations

import re

import pytest
from support.damage.length_cases import CODECS, READ, all_shapes, cases
from support.reference.agreement import GUARD, check

import kts


def shapes() -> list[object]:
    return [pytest.param(magic, codec, id=f"magic {magic} {CODECS[codec]}") for magic, codec in all_shapes()]


def test_the_cases_are_many_and_most_have_their_verdict_in_the_table() -> None:
    found = [case for shape in all_shapes() for case in cases(*shape)]
    assert len({case.data for case in found}) == len(found) >= 2500
    written = [case.verdict for case in found if case.verdict]
    print(len(found), "cases,", len(written), "in the table,", written.count(READ), "of them read")
    assert len(written) > 0.7 * len(found)


@pytest.mark.slow
@pytest.mark.parametrize(("magic", "codec"), shapes())
def test_a_false_length_is_refused_in_the_words_of_its_rule_or_read_right(magic: int, codec: int) -> None:
    for case in cases(magic, codec):
        damaged = check(case.data, case.name)  # every reader, and exactly what the reference says
        if case.verdict is None:
            continue
        assert damaged == (case.verdict != READ), f"{case.name}: {case.verdict}; {case.data.hex()}"
        if damaged:
            with pytest.raises(kts.CorruptRecordError) as caught:
                kts.decode(GUARD.put_first(case.data))
            words = str(caught.value)
            assert re.fullmatch(case.verdict + ", at position 0", words), f"{case.name}: {words}; {case.data.hex()}"
