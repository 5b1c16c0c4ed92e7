"""Records as kafka-python and aiokafka give them, which agree on that."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from support.clients.client_records import APPEND, CREATE, NONE, Row

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TYPES = {None: NONE, -1: NONE, 0: CREATE, 1: APPEND}


def record_row(record: Any) -> Row:
    timestamp_type = TYPES[record.timestamp_type]
    headers = tuple((name, data) for name, data in record.headers)
    timestamp = -1 if record.timestamp is None else record.timestamp
    return Row(record.partition, record.offset, record.key, record.value, timestamp, timestamp_type, headers)


def record_rows(polled: dict[Any, Iterable[Any]]) -> list[Row]:
    return [record_row(record) for records in polled.values() for record in records]
