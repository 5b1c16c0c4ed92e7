"""The codec's own checksums against the libraries'."""

from __future__ import annotations

import zlib
from typing import Any

import crc32c

from kts import _codec


def test_crcs_agree_with_the_libraries_at_every_length(rng: Any) -> None:
    data = rng.randbytes(70_000)
    for length in [*range(700), 767, 768, 769, 6143, 6144, 6145, 7000, 16384, 65536, 69_999]:
        for start in (0, 1, 7):
            part = data[start : start + length]
            assert _codec.crc32c(part) == crc32c.crc32c(part), length
            assert _codec.crc32(part) == zlib.crc32(part), length


def test_check_values_of_both_crcs() -> None:
    assert _codec.crc32c(b"123456789") == 0xE3069283
    assert _codec.crc32(b"123456789") == 0xCBF43926
