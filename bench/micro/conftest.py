"""Options of the micro-benchmarks, one pinned core, and one row a contender in pytest-benchmark's tables."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bench.table import pin_to_one_core

from . import all_cases
from .cases import Settings


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("micro-benchmarks of kts")
    group.addoption("--mib", type=float, default=32, help="Size of each corpus.")
    group.addoption("--rounds", type=int, default=5, help="Rounds of each contender.")
    group.addoption("--seed", type=int, default=20161, help="Seed of the data.")
    group.addoption("--only", default="", help="Only cases whose title has this in it, as 'decode: v2 lz4'.")


def pytest_sessionstart() -> None:
    pin_to_one_core()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test for each round of each contender; the contenders of a case take turns."""
    asked = metafunc.config.getoption
    settings = Settings(round(asked("--mib") * 2**20), asked("--seed"))
    tests = [
        pytest.param(case, contender, number, id=f"{case.title}, {contender}, round {number}")
        for case in all_cases(settings, asked("--only"))
        for number in range(1, asked("--rounds") + 1)
        for contender in case.contenders
    ]
    metafunc.parametrize(("case", "contender", "number"), tests)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> Iterator[None]:
    """Join the rounds of each contender before pytest-benchmark compares and saves them."""
    measured = session.config.pluginmanager.get_plugin("pytest-benchmark").benchmarks
    joined = {}
    for one in measured:
        first = joined.setdefault(one.fullname, one)
        if first is not one:
            first.stats.data += one.stats.data
    measured[:] = joined.values()
    return (yield)
