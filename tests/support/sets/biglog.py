"""A log directory of some MiB with rising timestamps and both indexes, written for tests that count bytes and rows."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pyarrow as pa

import kts

FIRST_MS = 1_700_000_000_000
RECORD_BYTES = 100
BATCH_BYTES = 4096


def write_log(
    directory: Path, segments: int, records: int, *, compression: str = "none", batch_bytes: int = BATCH_BYTES
) -> None:
    """Segments of ``records`` records each, one a millisecond, values of 100 bytes; an index entry for each batch."""
    directory.mkdir(parents=True)
    rng = np.random.default_rng(7)
    for number in range(segments):
        base = number * records
        values = rng.integers(32, 127, records * RECORD_BYTES, dtype=np.uint8).tobytes()
        ends = np.arange(0, (records + 1) * RECORD_BYTES, RECORD_BYTES, dtype=np.int32)
        value = pa.Array.from_buffers(pa.binary(), records, [None, pa.py_buffer(ends.tobytes()), pa.py_buffer(values)])
        timestamp = pa.array(np.arange(base, base + records) + FIRST_MS)
        columns = {"timestamp": timestamp, "value": value}
        data = kts.encode(columns, base_offset=base, batch_bytes=batch_bytes, compression=compression)
        headers = kts.scan_batches(data)
        last = (headers.column("lastOffset").to_numpy() - base).tolist()
        position = headers.column("position").to_numpy().tolist()
        latest = headers.column("maxTimestamp").cast(pa.int64()).to_pylist()
        stem = directory / f"{base:020d}"
        stem.with_suffix(".log").write_bytes(data)
        stem.with_suffix(".index").write_bytes(
            b"".join(struct.pack(">ii", *entry) for entry in list(zip(last, position, strict=True))[1:])
        )
        stem.with_suffix(".timeindex").write_bytes(
            b"".join(struct.pack(">qi", *entry) for entry in zip(latest, last, strict=True))
        )
