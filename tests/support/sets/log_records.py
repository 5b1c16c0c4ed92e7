"""Sets of records for the tests of logs, and a log with a clock that stands still."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

import kts

NOW = 1_700_000_000_000


def batch(*times: int, value: bytes = b"v" * 40, magic: int = 2, compression: str = "none", **more: Any) -> bytes:
    """A set as a producer sends it: one record for each time."""
    table = pa.table(
        {
            "key": pa.array([b"k%d" % i for i in range(len(times))], pa.binary()),
            "value": pa.array([value] * len(times), pa.binary()),
            "timestamp": pa.array(times, pa.timestamp("ms", "UTC")),
        }
    )
    return bytes(kts.encode(table, magic=magic, compression=compression, **more))


class Clock:
    """A clock that is set."""

    def __init__(self, now: int = NOW) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now


def opened(folder: Path, clock: Clock | None = None, name: str = "t-0", **more: Any) -> kts.Log:
    """A log of small segments; settings with underscores for dots, what `kts.Log` takes with its own names."""
    own = {key: more.pop(key) for key in list(more) if key in OWN}
    settings = {"segment.bytes": 600, "index.interval.bytes": 100, "segment.index.bytes": 1200}
    settings |= {key.replace("_", "."): value for key, value in more.items()}
    return kts.Log(folder / name, settings, clock=clock or Clock(), **own)


OWN = {
    "generation",
    "shipped",
    "create",
    "topic_id",
    "high_watermark",
    "log_start_offset",
    "recovery_point",
    "proposals",
}


def names(folder: Path, name: str = "t-0") -> list[str]:
    return sorted(path.name for path in (folder / name).iterdir())


def offsets(log: kts.Log, **more: Any) -> list[int]:
    """Every offset that the log gives, read in pieces."""
    found: list[int] = []
    at = log.log_start_offset
    while True:
        records = log.read(at, 500, min_one_message=True, **more).records
        if not records:
            return found
        whole = records[: kts.valid_bytes(records)]
        found += [one for one in kts.decode(whole, ["offset"]).column(0).to_pylist() if one >= at]
        at = found[-1] + 1


def bases(log: kts.Log) -> Sequence[int]:
    return [segment.base_offset for segment in log.segments]
