"""Kafka's log directories and record sets as tables, by time, without a broker.

Read a log directory, a partition or segment files, whole or between two times (``scan``):

>>> import kts
>>> records = kts.scan("demo/orders", starting_timestamp=1_788_300_000_000).read_all()
>>> records.column_names  # an Arrow table: to_pandas(), polars.from_arrow, Parquet
['key', 'value', 'topic', 'partition', 'offset', 'timestamp', 'timestampType', 'headers']

Find the first record at or after a time (``open_partition``, ``open_log_dirs``):

>>> kts.open_partition("demo/orders/orders-0").offset_for_timestamp(1_788_300_000_000)
TimestampOffset(timestamp_ms=1788300022077, offset=210)

Encode and decode record sets that are in memory (``encode``, ``decode``, ``iter_decode``, ``scan_batches``):

>>> data = kts.encode({"timestamp": [1_788_300_000_000], "value": [b"paid"]}, compression="zstd")
>>> kts.decode(data, ["offset", "value"]).to_pylist()
[{'offset': 0, 'value': b'paid'}]

Write a partition as a broker writes it: append, roll, expire, truncate, recover (``Log``):

>>> import tempfile
>>> with tempfile.TemporaryDirectory() as folder, kts.Log(f"{folder}/orders-0", {"segment.bytes": 1_000_000}) as log:
...     log.append_rows([{"key": b"42", "value": b"paid"}, {"key": b"42", "value": b"sent"}]).last_offset
1

Test a program against a Kafka broker in its own process (``kts.testing``, or the pytest fixture ``kts_broker``):

>>> from kts.testing import KtsBroker
>>> with KtsBroker() as broker:
...     broker.produce("orders", b"paid").offset
0

``kts.spark`` reads the same directories in Spark, and the command ``kts`` reads them in a shell. Times are Kafka's: ms
since the epoch, as 64-bit integers. ``help(kts.scan)`` and so on describe each function.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if find_spec("kts._codec") is None:
    raise ImportError(
        f"expected the compiled kts, found its sources in {__path__[0]}: compile them there with `make ready`, "
        "or start Python in another folder to import the kts that is installed"
    )

from kts.codec.columns import ALL_COLUMNS, decode, iter_decode, max_timestamp, scan_batches, valid_bytes
from kts.codec.convert import convert
from kts.codec.encode import encode
from kts.dataset.committed import committed_offsets
from kts.dataset.partition import LogDirs, PartitionLog
from kts.dataset.paths import open, open_log_dirs, open_partition, scan
from kts.store.addresses import serve_from

from ._timeindex import OffsetIndex, TimeIndex
from .config import Extension, LogConfig, extend
from .errors import *  # noqa: F403
from .errors import __all__ as _errors
from .model import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    NO_TIMESTAMP,
    Appended,
    Cleaned,
    MaxTimestamp,
    TimestampOffset,
    TimestampType,
    TopicPartition,
)

if TYPE_CHECKING:
    from kts.cluster_records.state import ClusterState
    from kts.dataset.cluster import cluster
    from kts.dataset.latest import latest
    from kts.log.log import Log
    from kts.offline.doctor import doctor
    from kts.tables.union import union
else:
    _LATER = {
        "ClusterState": "kts.cluster_records.state",
        "Log": "kts.log.log",
        "cluster": "kts.dataset.cluster",
        "doctor": "kts.offline.doctor",
        "latest": "kts.dataset.latest",
        "union": "kts.tables.union",
    }

    def __getattr__(name: str) -> Any:
        """Some names are loaded when they are asked for: who only reads, as most commands do, starts sooner so."""
        if name not in _LATER:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = found = getattr(import_module(_LATER[name]), name)
        return found


def _proposals() -> Mapping[str, Extension]:
    """What KIPs proposed and Kafka never shipped is loaded when a setting names it."""
    from kts.proposals import EXTENSION

    return EXTENSION


extend({"proposals": "", "time.index.interval.ms": 60_000}, _proposals)
serve_from("kts.remote.tiers")

__version__ = "0.2.0"

# First what people need first, as the reference has it.
__all__ = [
    "scan",
    "latest",
    "union",
    "open",
    "open_partition",
    "open_log_dirs",
    "PartitionLog",
    "LogDirs",
    "committed_offsets",
    "cluster",
    "ClusterState",
    "doctor",
    "decode",
    "iter_decode",
    "encode",
    "convert",
    "scan_batches",
    "max_timestamp",
    "valid_bytes",
    "ALL_COLUMNS",
    "Log",
    "LogConfig",
    "Appended",
    "Cleaned",
    "TimeIndex",
    "OffsetIndex",
    "TimestampOffset",
    "MaxTimestamp",
    "TopicPartition",
    "TimestampType",
    "EARLIEST",
    "LATEST",
    "MAX_TIMESTAMP",
    "NO_TIMESTAMP",
    *_errors,
]


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
