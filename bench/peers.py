"""What kts is compared with: the record loops that one writes around other decoders."""

from __future__ import annotations

from typing import Any

import aiokafka.record.memory_records
import kafka.record
import pyarrow as pa

from .corpora import Corpus

ROWS = 65536  # of an Arrow batch that aiokafka's records are gathered into
TYPES = [pa.int64(), pa.timestamp("ms", "UTC"), pa.int32(), pa.binary(), pa.binary()]
NAMES = ["offset", "timestamp", "timestampType", "key", "value"]


def touch_every_record(memory_records: Any, corpus: Corpus) -> int:
    """The record loop that aiokafka and kafka-python share; CRCs are checked."""
    records = memory_records(corpus.data)
    count = 0
    while records.has_next():
        batch = records.next_batch()
        if not batch.validate_crc():
            raise ValueError(f"{corpus.name}: bad CRC")
        for record in batch:
            _ = record.offset, record.timestamp, record.timestamp_type, record.key, record.value
            count += 1
    return count


def aiokafka_loop(corpus: Corpus) -> int:
    return touch_every_record(aiokafka.record.memory_records.MemoryRecords, corpus)


def kafka_python_loop(corpus: Corpus) -> int:
    return touch_every_record(kafka.record.MemoryRecords, corpus)


def aiokafka_to_arrow(corpus: Corpus) -> int:
    """What one would write today: aiokafka's records into lists, the lists into Arrow batches, those into a table."""
    records = aiokafka.record.memory_records.MemoryRecords(corpus.data)
    batches: list[pa.RecordBatch] = []
    columns: tuple[list[Any], ...] = ([], [], [], [], [])

    def flush() -> None:
        arrays = [pa.array(column, kind) for column, kind in zip(columns, TYPES, strict=True)]
        batches.append(pa.RecordBatch.from_arrays(arrays, NAMES))
        for column in columns:
            column.clear()

    offsets, timestamps, kinds, keys, values = columns
    while records.has_next():
        batch = records.next_batch()
        if not batch.validate_crc():
            raise ValueError(f"{corpus.name}: bad CRC")
        for record in batch:
            offsets.append(record.offset)
            timestamps.append(record.timestamp)
            kinds.append(record.timestamp_type)
            keys.append(record.key)
            values.append(record.value)
        if len(offsets) >= ROWS:
            flush()
    flush()
    return int(pa.Table.from_batches(batches).num_rows)
