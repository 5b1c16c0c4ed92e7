"""The codes under which damage escaped from Kafka as it shipped; kts itself calls all of it CORRUPT_MESSAGE (2)."""

from __future__ import annotations

import re

from kts.errors import CorruptRecordError, KtsError

# What Java's buffers and streams said, or nobody had foreseen: UNKNOWN_SERVER_ERROR (-1).
_UNFORESEEN = (
    r"(gzip|snappy|lz4|zstd) "  # of compressed data, whatever is wrong with it
    r"|compression codec \d+ is unknown"
    r"|size \d+ exceeds the largest entry"
    r"|(inner message \d+: )?(key|value) length -?\d+ exceeds"
)
_OF = {
    "0.10.2": re.compile(rf"{_UNFORESEEN}|a compressed message (has no value|holds no inner)"),
    "3.9": re.compile(rf"{_UNFORESEEN}|batch length \d+ is below|message size \d+ is below"),
}


def as_shipped(error: CorruptRecordError, generation: str) -> KtsError:
    """The error with Kafka's code: as it is where that is 2 or 87, else a plain KtsError (-1).

    Parameters
    ----------
    generation : str
        "0.10.2" or "3.9".
    """
    if not _OF[generation].match(error.message):
        return error
    told = {name: getattr(error, name) for name in ("path", "position", "offset", "record_index")}
    return KtsError(error.message, **told)
