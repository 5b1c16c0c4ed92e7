"""Shallow entries as the proposals' indexes get them."""

from __future__ import annotations

import numpy as np

import kts
from kts.proposals.shallow import Shallow, shallow_entries

MINUTE = 60_000
T = 1_500_000_000_000 // MINUTE * MINUTE  # the start of a minute


def messages(first_offset: int, *timestamps: int) -> Shallow:
    """Plain messages of magic 1, encoded and looked at as they would be in a log."""
    data = kts.encode({"timestamp": np.array(timestamps)}, magic=1, base_offset=first_offset)
    return shallow_entries(data, first_offset)


def of_entries(first_offset: int, timestamps: list[int]) -> Shallow:
    """Entries of one record each."""
    offsets = np.arange(first_offset, first_offset + len(timestamps))
    return Shallow(offsets, offsets, np.array(timestamps, np.int64))
