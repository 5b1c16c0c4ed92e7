"""Kafka's notion of time for Python: every public name, nothing else."""

from __future__ import annotations

from ._timeindex import OffsetIndex, TimeIndex
from .columns import ALL_COLUMNS, decode, iter_decode, max_timestamp, scan_batches, valid_bytes
from .encoding import encode
from .errors import *  # noqa: F403
from .errors import __all__ as _errors
from .model import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    NO_TIMESTAMP,
    MaxTimestamp,
    TimestampOffset,
    TimestampType,
    TopicPartition,
)
from .storage.directory import LogDirs, PartitionLog
from .storage.directory import open_path as open
from .storage.scan import scan

__version__ = "0.1.0"

__all__ = [
    "ALL_COLUMNS",
    "EARLIEST",
    "LATEST",
    "MAX_TIMESTAMP",
    "NO_TIMESTAMP",
    "LogDirs",
    "MaxTimestamp",
    "OffsetIndex",
    "PartitionLog",
    "TimeIndex",
    "TimestampOffset",
    "TimestampType",
    "TopicPartition",
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
