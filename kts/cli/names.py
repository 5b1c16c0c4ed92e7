"""The names that numbers in headers and records have."""

from __future__ import annotations

from kts.model import TimestampType

TYPE_NAMES = {member.value: member.name for member in TimestampType}
CODEC_NAMES = {0: "none", 1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}
