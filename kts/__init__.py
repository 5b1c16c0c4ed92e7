"""Kafka's notion of time for Python: every public name, nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kts.codec.columns import ALL_COLUMNS, decode, iter_decode, max_timestamp, scan_batches, valid_bytes
from kts.codec.convert import convert
from kts.codec.encode import encode
from kts.dataset.committed import committed_offsets
from kts.dataset.partition import LogDirs, PartitionLog
from kts.dataset.paths import open_path as open
from kts.dataset.paths import scan

from ._timeindex import OffsetIndex, TimeIndex
from .config import LogConfig
from .errors import *  # noqa: F403
from .errors import __all__ as _errors
from .model import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    NO_TIMESTAMP,
    Appended,
    MaxTimestamp,
    TimestampOffset,
    TimestampType,
    TopicPartition,
)

if TYPE_CHECKING:
    from kts.log.log import Log
else:

    def __getattr__(name: str) -> Any:
        """``Log`` is loaded when it is asked for: who only reads, as most commands do, starts sooner without it."""
        if name != "Log":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from kts.log.log import Log

        globals()[name] = Log
        return Log


__version__ = "0.2.0"

__all__ = [
    "ALL_COLUMNS",
    "Appended",
    "EARLIEST",
    "LATEST",
    "Log",
    "MAX_TIMESTAMP",
    "NO_TIMESTAMP",
    "LogConfig",
    "LogDirs",
    "MaxTimestamp",
    "OffsetIndex",
    "PartitionLog",
    "TimeIndex",
    "TimestampOffset",
    "TimestampType",
    "TopicPartition",
    "committed_offsets",
    "convert",
    "decode",
    "encode",
    "iter_decode",
    "max_timestamp",
    "open",
    "scan",
    "scan_batches",
    "valid_bytes",
    *_errors,
]
