"""A round of a contender: CPU time of the measuring thread, without Python's garbage collector."""

from __future__ import annotations

import time
from functools import lru_cache
from typing import Any

import pytest

from .cases import Case, Work


@lru_cache(1)
def prepared(case: Case) -> dict[str, Work]:
    """What the contenders of the present case do."""
    return case.prepare()


@pytest.mark.benchmark(timer=time.thread_time, disable_gc=True)
def test_contender(benchmark: Any, case: Case, contender: str, number: int) -> None:
    """The first round is preceded by one that does not count."""
    work = prepared(case)[contender]
    benchmark.group, benchmark.name, benchmark.fullname = case.title, contender, f"{case.title}, {contender}"
    benchmark.extra_info["amount"] = work.amount
    found = benchmark.pedantic(
        work.call,
        setup=lambda: (work.make() if work.make else (), {}),
        teardown=work.drop,
        rounds=1,
        warmup_rounds=int(number == 1),
    )
    assert work.expected in (None, found)
