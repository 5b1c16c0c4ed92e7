"""The partition that Kafka's producer gives a record by its key."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kts._codec import murmur2, partitions_of_keys

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow as pa


def partition_of(key: bytes, partitions: int) -> int:
    """The partition of a key (BuiltInPartitioner.partitionForKey)."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def partitions_of(keys: pa.Array, partitions: int) -> npt.NDArray[np.int32]:
    """The partition of each key in a column of binary or text; of a null key, which has none, any number."""
    import pyarrow as pa

    keys = keys.cast(pa.binary())
    _, offsets, data = keys.buffers()
    found = np.zeros(len(keys), np.int32)
    if len(keys):
        starts = np.frombuffer(offsets, np.int32, len(keys) + 1, 4 * keys.offset)
        bytes_ = np.frombuffer(b"" if data is None else data, np.uint8)
        partitions_of_keys(starts, bytes_, partitions, found)
    return found
