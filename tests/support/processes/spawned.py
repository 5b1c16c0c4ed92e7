"""What a process of a pool does that was started anew, and so has nothing but what was pickled for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

import kts


def facts(log: kts.PartitionLog) -> list[Any]:
    """Answers of every kind of a partition."""
    table = log.scan().read_all()
    return [
        (log.topic, log.partition, log.log_start_offset, log.log_end_offset, log.max_timestamp()),
        [log.offset_for_timestamp(time) for time in (-1, 1_788_300_000_000, 2**62)],
        [(each.base_offset, each.size_bytes, len(each.time_index())) for each in log.segments],
        table.select(["offset", "timestamp", "value"]).to_pydict(),
        pa.Table.from_batches(log.batches()).num_rows,
    ]


def facts_of_all(logs: kts.LogDirs) -> dict[tuple[str, int], list[Any]]:
    return {of: facts(log) for of, log in logs.items()}


def described(schema: pa.Schema, config: kts.LogConfig) -> tuple[pa.Schema, kts.LogConfig]:
    return schema, config


def fails(how: str, folder: str) -> None:
    """An error as the library raises it there."""
    if how == "damage":
        data = bytearray(kts.encode({"value": [b"a", b"b"]}))
        data[-1] = 7
        kts.decode(data, verify_crc=False)
    elif how == "policy":
        with kts.Log(Path(folder) / "t-0", {"message.timestamp.after.max.ms": 1}, clock=lambda: 0) as log:
            log.append(kts.encode({"timestamp": [0, 5, 7]}))
    elif how == "locked":
        kts.Log(Path(folder) / "t-1", {})
    else:
        kts.open(Path(folder) / "none")
