"""Micro-benchmarks: one call of kts and of each of its peers, in one process.

pytest-benchmark measures them. It runs all rounds of a test before it goes on to the next test, so that a noisy second
hits one contender and not its peers. Here each round of each contender is a test of its own, and the contenders of a
case take turns; ``conftest.py`` joins the rounds before pytest-benchmark prints its tables.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator

from .cases import Case, Settings

MODULES = ("decode", "one_call", "columns", "scan", "rebuild", "checksums", "encode", "append", "requests", "indexes")


def cases_of(module: str, settings: Settings) -> list[Case]:
    """The cases of one module of this folder."""
    return list(importlib.import_module(f"{__name__}.{module}").cases(settings))


def all_cases(settings: Settings, only: str = "") -> Iterator[Case]:
    """Those with ``only`` in their title."""
    for module in MODULES:
        yield from (case for case in cases_of(module, settings) if only in case.title)
