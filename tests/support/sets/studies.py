"""A small study that tests share: one run in a process."""

from __future__ import annotations

import functools
from typing import Any

from kts.study import Settings, run


@functools.cache
def small_report() -> dict[str, Any]:
    """The report of three partitions of each pattern, of which each verdict is that of many."""
    return run(Settings(partitions=3, index_messages=2000))
