"""KIP-32's and KIP-33's tables, measured: their options, rules and indexes play the same streams of messages.

``run`` plays all of it and returns the figures, with the verdict that each table's cell gets from them.
"""

from __future__ import annotations

from kts.study.study import run
from kts.study.workloads import Settings

__all__ = ["Settings", "run"]
