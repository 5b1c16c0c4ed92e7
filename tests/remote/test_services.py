"""Buckets of Google and Azure, through real servers of their protocols."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest
from support.buckets.checks import CHECKS
from support.buckets.emulators import Emulator, azure, google

pytestmark = pytest.mark.slow  # real servers


@pytest.fixture(scope="module", params=[google, azure], ids=["gs", "abfss"])
def store(request: Any) -> Iterator[Emulator]:
    made: AbstractContextManager[Emulator] = request.param()
    with made as emulator:
        yield emulator


@pytest.mark.parametrize("check", CHECKS)
def test_a_bucket_keeps_what_stores_promise(store: Emulator, check: Callable[[Emulator], None]) -> None:
    check(store)
