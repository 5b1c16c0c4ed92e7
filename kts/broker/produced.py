"""Record sets as producers send them: what the version of the request, and the format of the topic, ask of them."""

from __future__ import annotations

import struct
from typing import NamedTuple

from kts.codec.convert import convert
from kts.codec.validate import PRODUCER, target_codec
from kts.compression import NONE, ZSTD
from kts.config import LogConfig
from kts.errors import (
    CorruptRecordError,
    InvalidRecordError,
    UnsupportedCompressionTypeError,
    UnsupportedForMessageFormatError,
)

_HEAD = struct.Struct(">qiibIh")  # base offset, length, leader epoch, magic, CRC, attributes
_PRODUCER_ID_AT = 43
_LEAST_BYTES, _OVERHEAD_BYTES, _LEAST_SIZE, _MAGIC_AT = 61, 12, 14, 16
_CODEC, _TRANSACTIONAL = 7, 0x10

# What is done in the event loop rather than in a thread; zstd's ratio has no useful bound.
PLAIN_BYTES, COMPRESSED_BYTES = 128 * 1024, 4 * 1024


class Head(NamedTuple):
    """The first entry of a set, from its header."""

    magic: int
    codec: int
    transactional: bool
    producer_id: int


def head(records: memoryview) -> Head | None:
    """The header of the first entry; None where not even that is there."""
    if len(records) <= _MAGIC_AT:
        return None
    magic = records[_MAGIC_AT]
    if magic >= 2:
        if len(records) < _LEAST_BYTES:
            return None
        attributes = _HEAD.unpack_from(records)[5]
        producer_id = int.from_bytes(records[_PRODUCER_ID_AT : _PRODUCER_ID_AT + 8], "big", signed=True)
        return Head(magic, attributes & _CODEC, bool(attributes & _TRANSACTIONAL), producer_id)
    return Head(magic, records[17] & _CODEC if len(records) > 17 else NONE, False, -1)


def check_one_batch(records: memoryview, version: int) -> None:
    """From version 3 on a partition's set is exactly one batch of magic 2; zstd is known from version 7 on.

    Raises
    ------
    InvalidRecordError, UnsupportedCompressionTypeError, CorruptRecordError

    Notes
    -----
    Source: ProduceRequest.validateRecords (3.9).
    """
    if version < 3:
        return
    size = whole_entry(records, 0)
    found = head(records) if size else None
    if found is None:
        raise InvalidRecordError(f"expected one record batch, as Produce {version} has it, found no whole one")
    if found.magic != 2:
        raise InvalidRecordError(f"expected magic 2, as Produce {version} has it, found {found.magic}")
    if version < 7 and found.codec == ZSTD:
        raise UnsupportedCompressionTypeError(f"expected a codec that Produce {version} has, found zstd")
    if whole_entry(records, size):
        raise InvalidRecordError(f"expected one record batch, as Produce {version} has it, found more")


def whole_entry(records: memoryview, position: int) -> int:
    """The size of the whole entry at a position, 0 if there is none.

    Raises
    ------
    CorruptRecordError
        Its size or its magic cannot be.
    """
    left = len(records) - position
    if left < _OVERHEAD_BYTES:
        return 0
    size = int.from_bytes(records[position + 8 : position + 12], "big", signed=True)
    if size < _LEAST_SIZE:
        text = f"expected an entry of at least {_LEAST_SIZE} bytes, found {size}"
        raise CorruptRecordError(text, position=position)
    if left > _MAGIC_AT and records[position + _MAGIC_AT] > 2:
        text = f"expected magic 0, 1 or 2, found {records[position + _MAGIC_AT]}"
        raise CorruptRecordError(text, position=position)
    return size + _OVERHEAD_BYTES if size + _OVERHEAD_BYTES <= left else 0


def in_topic_format(records: memoryview, config: LogConfig) -> memoryview | bytes:
    """The set as the log takes it: batches of magic 2 come down to the format of a topic that knows less.

    Raises
    ------
    UnsupportedForMessageFormatError
        What that format does not have: headers, idempotent or transactional producers, control batches.
    UnsupportedCompressionTypeError
        zstd.

    Notes
    -----
    The log of such a topic follows 0.10.2, which knows no magic 2; 0.11 and later convert it. Source: LogValidator
    (3.9).
    """
    found = head(records) if config.generation == "0.10.2" else None
    if found is None or found.magic != 2:
        return records
    if found.producer_id >= 0:
        message = f"message format {config.message_format_version} has no idempotent or transactional producers"
        raise UnsupportedForMessageFormatError(message)
    return convert(records, config.magic, generation="3.9", lossless=True)


def takes_long(records: memoryview, config: LogConfig) -> bool:
    """Whether to append a set in a thread: much to read or to decompress, or something to compress."""
    found = head(records)
    if found is None:
        return False
    target = target_codec(config.compression_type)
    recoded = target not in (PRODUCER, found.codec)
    if found.codec == NONE and not recoded:
        return len(records) > PLAIN_BYTES
    return len(records) > COMPRESSED_BYTES or ZSTD in (found.codec, target)
