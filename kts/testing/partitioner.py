"""Which partition a key belongs to, as Java's producer says."""

from __future__ import annotations

_MULTIPLIER, _SEED, _UINT32 = 0x5BD1E995, 0x9747B28C, 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Kafka's 32-bit murmur2 hash, as an unsigned number (Utils.murmur2)."""
    whole = len(data) & ~3
    result = _SEED ^ len(data)
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * _MULTIPLIER & _UINT32
        word = (word ^ word >> 24) * _MULTIPLIER & _UINT32
        result = result * _MULTIPLIER & _UINT32 ^ word
    if whole < len(data):
        result = (result ^ int.from_bytes(data[whole:], "little")) * _MULTIPLIER & _UINT32
    result = (result ^ result >> 13) * _MULTIPLIER & _UINT32
    return result ^ result >> 15


def partition_of(key: bytes, partitions: int) -> int:
    """The partition of a key (BuiltInPartitioner.partitionForKey)."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions
