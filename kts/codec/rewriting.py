"""Sets written anew: recompressed, converted, or with offsets that could not be kept (paths P2 and P4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kts import _codec
from kts.arguments import DEFAULT_MAX_DECOMPRESSED_BYTES, INT32_MAX
from kts.codec.columns import ALL_COLUMNS, record_schema
from kts.codec.encode import LOG_APPEND_TIME, TRANSACTIONAL, Rows
from kts.compression import NONE, compressor

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow as pa

COLUMNS = ("timestamp", "key", "value", "headers")
IDS = bytes(ALL_COLUMNS.index(name) for name in COLUMNS)
WHOLE = INT32_MAX  # bytes of a batch: all records go into one


class Topic(NamedTuple):
    """What decides how a set is written."""

    old: bool
    shipped: bool
    magic: int
    log_append_time: bool
    negative: bool


class Rebuilt(NamedTuple):
    """The bytes, and the pair that goes to the time index."""

    records: bytes
    max_timestamp_ms: int
    offset_of_max_timestamp: int


def rebuild(
    appended: _codec.AppendSet, topic: Topic, *, target: int, converted: bool, now_ms: int, epoch: int
) -> Rebuilt:
    """All records of a set that was looked at, in the topic's format and codec.

    Parameters
    ----------
    appended : AppendSet
        Looked at by ``deep`` and found writable.
    target : int
        Codec to write.
    converted : bool
        Neither side is compressed (P2).
    now_ms, epoch : int
        Of LogAppendTime; leader epoch of a batch.
    """
    start, end, top, *_ = appended.result()
    if start == end:
        return Rebuilt(b"", now_ms if topic.log_append_time else -1, -1)
    if topic.magic == 2:
        records, top = whole_batch(appended, topic, target, now_ms, epoch)
        return Rebuilt(records, top, end - 1 if top != -1 else -1)

    stamped = topic.log_append_time and (target == NONE or (topic.shipped and not topic.old))
    base = start if topic.magic == 1 and target != NONE else 0
    if topic.old:
        fixed = topic.log_append_time and target == NONE and not topic.shipped
        stamp = topic.log_append_time and converted
        records, top, of_top = appended.messages(topic.magic, base, True, fixed, stamp or fixed, not converted)
    else:
        records, top, of_top = appended.messages(topic.magic, base, False, False, stamped, False)
    if target != NONE:
        flags = target | (LOG_APPEND_TIME if topic.log_append_time and topic.magic else 0)
        time = now_ms if topic.log_append_time else top
        packed = compressor(target, topic.magic, None)(records)
        records, of_top = _codec.message(topic.magic, flags, end - 1, time, packed), end - 1
    if topic.log_append_time:
        return Rebuilt(records, now_ms, end - 1 if topic.old or target != NONE else start)
    if top == -1:
        return Rebuilt(records, top, end - 1 if topic.old else -1)
    return Rebuilt(records, top, of_top)


def whole_batch(appended: _codec.AppendSet, topic: Topic, target: int, now_ms: int, epoch: int) -> tuple[bytes, int]:
    """All records as one batch, and its greatest time."""
    magic, attributes, *producer = appended.producer()
    start, end, top, *_ = appended.result()
    compress = compressor(target, 2, None) if target else None
    append_time = now_ms if topic.log_append_time else None
    flags = target | (LOG_APPEND_TIME if topic.log_append_time else 0)
    if magic != 2:
        return appended.converted(flags, append_time, compress)
    flags |= attributes & TRANSACTIONAL
    if not attributes & LOG_APPEND_TIME:
        time = top if append_time is None else append_time
        records = appended.recompressed(flags, time, compress)
        if records is not None:
            return records, time
    columns = decoded(appended.batch())
    if append_time is None:
        top = greatest(milliseconds(columns), topic.negative)
    rows = Rows({**columns, "offset": pa_integers(np.arange(start, end, dtype=np.int64))}, 0, False, False)
    time = top if append_time is None else append_time
    head = (flags, start, None, None, time, epoch, *producer)
    rows.encoder.batch(0, rows.count, WHOLE, head, compress)
    return rows.encoder.result(), time


def decoded(source: bytes) -> dict[str, pa.Array]:
    """Columns of records that were looked at before; CRCs are not checked again."""
    import pyarrow as pa

    decoder = _codec.Decoder(source, IDS, False, False, DEFAULT_MAX_DECOMPRESSED_BYTES)
    batch = pa.RecordBatch._import_from_c(decoder.next(0), record_schema(COLUMNS, False))
    return dict(zip(COLUMNS, batch.columns, strict=True))


def milliseconds(columns: dict[str, pa.Array]) -> npt.NDArray[np.int64]:
    times = columns["timestamp"]
    return np.frombuffer(times.buffers()[1], np.int64, len(times), 8 * times.offset)


def pa_integers(values: npt.NDArray[np.int64]) -> pa.Array:
    import pyarrow as pa

    return pa.array(values)


def greatest(times: npt.NDArray[np.int64], negative: bool) -> int:
    """The greatest time; -1 without one."""
    top = max(times.tolist(), default=-1)  # not times.max(): where memory is short NumPy loses the error
    if not negative:
        return max(top, -1)
    timed = times[times != -1] if top == -1 else times
    return int(timed.max()) if timed.size else -1
