"""Record batches of a few hundred bytes, with nulls and headers."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

import kts


def batches(count: int = 40, **how: Any) -> bytes:
    columns = {
        "timestamp": pa.array([1_600_000_000_000 + i for i in range(count)], pa.int64()),
        "key": [b"key-%d" % i if i % 3 else None for i in range(count)],
        "value": [b"value of record number %d" % i * (i % 4) for i in range(count)],
        "headers": [[(f"h{i}", b"%d" % i)] if i % 5 == 0 else None for i in range(count)],
    }
    return kts.encode(columns, **{"batch_bytes": 300, **how})
