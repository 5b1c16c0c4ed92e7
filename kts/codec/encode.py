"""Encoding: Arrow columns to record batches and messages."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from kts import _codec, arguments
from kts.arguments import INT16_MAX, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, integer
from kts.codec.columns import ALL_COLUMNS, STORED_COLUMNS, record_schema
from kts.codec.layout import CODEC_MASK, CONTROL, HAS_TIMESTAMP, LOG_APPEND_TIME, TRANSACTIONAL
from kts.compression import CODECS, NONE, Compress, codec_id, compressor
from kts.config import TIMESTAMP_TYPES
from kts.errors import UnsupportedForMessageFormatError

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow as pa

# Header fields of a batch, in the encoder's order, without the base sequence.
HEAD = (
    "attributes",
    "baseOffset",
    "lastOffsetDelta",
    "baseTimestamp",
    "maxTimestamp",
    "partitionLeaderEpoch",
    "producerId",
    "producerEpoch",
)

# Width in bits of the fields that are narrower than their columns.
BITS = {"attributes": 16, "lastOffsetDelta": 32, "partitionLeaderEpoch": 32, "producerEpoch": 16, "sequence": 32}


def encode(
    batch: pa.RecordBatch | pa.Table | Mapping[str, Any],
    *,
    magic: int = 2,
    compression: str = "none",
    level: int | None = None,
    timestamp_type: str = "CreateTime",
    log_append_time_ms: int | None = None,
    base_offset: int = 0,
    batch_bytes: int = 16384,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    partition_leader_epoch: int = -1,
    transactional: bool = False,
    control: bool = False,
    has_timestamp: bool = False,
    preserve_batches: bool = False,
) -> bytes:
    """Encode rows as record batches (magic 2) or messages (magic 0, 1).

    Parameters
    ----------
    batch : RecordBatch, Table or dict of arrays
        Any of ``timestamp`` (timestamp or int64 ms), ``key``, ``value``, ``headers``, ``offset``. Absent columns are
        null, absent timestamps -1. Offsets must be strictly increasing; gaps are kept.
    magic : int
        0, 1 or 2. Magic 0 carries no timestamps.
    compression : str
        none, gzip, snappy, lz4, zstd (magic 2 only).
    level : int, optional
        Compression level; None is Kafka's default.
    timestamp_type : str
        CreateTime or LogAppendTime. With LogAppendTime, ``log_append_time_ms`` is the timestamp of every batch, wrapper
        or uncompressed message; the records' own timestamps come from ``createTimestamp``, or where that is null or
        not there from ``timestamp``.
    base_offset : int
        Offset of the first row if there is no ``offset`` column.
    batch_bytes : int
        Limit of the uncompressed bytes of a batch or wrapper; a single record may exceed it.
    producer_id, producer_epoch, base_sequence, partition_leader_epoch, transactional, control
        Magic 2 only. Sequences continue from batch to batch.
    has_timestamp : bool
        Magic 2 only, not in Kafka: mark the rows that have a timestamp, -1 too, by an attribute of their batches; rows
        without one (null) get batches of their own. The column ``hasTimestamp`` says which, if it is there.
    preserve_batches : bool
        Write the batches that the rows were decoded from. Needs all of ``kts.ALL_COLUMNS``, which determine magic,
        codec and all other header fields. Batches without records have no row and are not written.

    Returns
    -------
    bytes

    Raises
    ------
    UnsupportedForMessageFormatError
        Headers, producer ids, transactions or control records below magic 2.
    UnsupportedCompressionTypeError
        zstd below magic 2.
    TypeError, ValueError
        A wrong argument or column.

    Examples
    --------
    >>> import kts
    >>> data = kts.encode({"timestamp": [1000, 1001], "value": [b"a", b"b"]}, compression="zstd")
    >>> kts.scan_batches(data)["count"].to_pylist()
    [2]

    Notes
    -----
    ``kts.Log.append`` takes one batch; ``kts.Log.append_rows`` takes rows of any number.

    Source: MemoryRecordsBuilder, DefaultRecordBatch.writeHeader, LegacyRecord.write; KIP-31, KIP-32, KIP-98.
    """
    arguments.magic("magic", magic)
    if timestamp_type not in TIMESTAMP_TYPES:
        raise ValueError(f"timestamp_type: expected {' or '.join(TIMESTAMP_TYPES)}, found {timestamp_type!r}")
    codec = codec_id(compression, magic)
    if level is not None:
        integer("level", level, INT32_MIN, INT32_MAX)
    compress = compressor(codec, magic, level) if codec != NONE else None
    integer("base_offset", base_offset, 0, INT64_MAX)
    integer("batch_bytes", batch_bytes, 1, INT32_MAX)
    integer("producer_id", producer_id, -1, INT64_MAX)
    integer("producer_epoch", producer_epoch, -1, INT16_MAX)
    integer("base_sequence", base_sequence, -1, INT32_MAX)
    integer("partition_leader_epoch", partition_leader_epoch, -1, INT32_MAX)
    append_time = None
    if timestamp_type == "LogAppendTime" and not preserve_batches:
        if log_append_time_ms is None:
            raise ValueError("log_append_time_ms: LogAppendTime needs the time, found None")
        append_time = integer("log_append_time_ms", log_append_time_ms, INT64_MIN, INT64_MAX)

    rows = Rows(_columns(batch), base_offset, append_time is not None or preserve_batches, preserve_batches)
    if preserve_batches:
        return _preserved(rows, level)
    if magic == 2:
        attributes = codec | (LOG_APPEND_TIME if append_time is not None else 0)
        attributes |= (TRANSACTIONAL if transactional else 0) | (CONTROL if control else 0)
        head = (
            *(attributes, None, None, None, append_time),
            *(partition_leader_epoch, producer_id, producer_epoch, base_sequence),
        )
        if has_timestamp:
            return _marked(rows, batch_bytes, attributes, head[1:-1], base_sequence, compress)
        rows.encoder.batches(batch_bytes, head, compress)
        return rows.encoder.result()

    refused = {
        "has_timestamp": has_timestamp,
        "producer_id": producer_id != -1,
        "base_sequence": base_sequence != -1,
        "producer_epoch": producer_epoch != -1,
        "transactional": transactional,
        "control": control,
    }
    for name, present in refused.items():
        if present:
            raise _only_magic_2(name, magic)
    return rows.messages(magic, codec, compress, batch_bytes, append_time)


def _marked(
    rows: Rows,
    batch_bytes: int,
    attributes: int,
    head: tuple[int | None, ...],
    sequence: int,
    compress: Compress | None,
) -> bytes:
    """All rows as batches, those with a timestamp in marked ones."""
    column = rows.columns.get("hasTimestamp", rows.columns.get("timestamp"))
    timed = np.zeros(rows.count, np.bool_)
    if column is not None:
        known = column.is_valid() if "hasTimestamp" not in rows.columns else column.fill_null(False)
        timed = int64s(known.cast("int8"), "hasTimestamp").astype(np.bool_)
    edges = (np.flatnonzero(timed[1:] != timed[:-1]) + 1).tolist()
    for first, last in pairwise([0, *edges, rows.count]):
        mark, done = HAS_TIMESTAMP if first < last and timed[first] else 0, first
        while done < last:
            next_sequence = -1 if sequence == -1 else (sequence + rows.offset_at(done) - rows.offset_at(0)) % 2**31
            done = rows.encoder.batch(done, last, batch_bytes, (attributes | mark, *head, next_sequence), compress)
    return rows.encoder.result()


def encode_as_producer(columns: dict[str, pa.Array], magic: int, compression: str, batch_bytes: int) -> bytes:
    """Encode columns as batches or wrappers whose offsets begin at 0 each, or as messages; see :func:`encode`."""
    codec = codec_id(compression, magic)
    compress = compressor(codec, magic, None) if codec != NONE else None
    rows = Rows(columns, 0, False, False, from_zero=True)
    if magic < 2:
        return rows.messages(magic, codec, compress, batch_bytes, None)
    rows.encoder.batches(batch_bytes, (codec, None, None, None, None, -1, -1, -1, -1), compress)
    return rows.encoder.result()


def _only_magic_2(name: str, magic: int) -> UnsupportedForMessageFormatError:
    return UnsupportedForMessageFormatError(f"{name}: messages of magic {magic} cannot carry it, magic 2 can")


def _columns(batch: Any) -> dict[str, pa.Array]:
    """The columns as Arrow arrays of the same length."""
    import pyarrow as pa

    if isinstance(batch, Mapping):
        columns = {name: array_of(name, values) for name, values in batch.items()}
    elif isinstance(batch, (pa.RecordBatch, pa.Table)):
        columns = {name: batch.column(i) for i, name in enumerate(batch.schema.names)}
    else:
        raise TypeError(f"batch: expected a RecordBatch, a Table or a dict of arrays, found {type(batch).__name__}")
    unknown = [name for name in columns if name not in ALL_COLUMNS and name not in ("topic", "partition")]
    if unknown:
        raise ValueError(f"batch: unknown column {unknown[0]!r}; known are {', '.join(ALL_COLUMNS)}")
    arrays = {name: a.combine_chunks() if isinstance(a, pa.ChunkedArray) else a for name, a in columns.items()}
    if len({len(array) for array in arrays.values()}) > 1:
        raise ValueError(f"batch: columns differ in length: { {n: len(a) for n, a in arrays.items()} }")
    return arrays


def array_of(name: str, values: Any) -> pa.Array | pa.ChunkedArray:
    """A column as Arrow.

    Raises
    ------
    ValueError
        Not a column, or not of this type.
    """
    import pyarrow as pa

    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        return values
    if isinstance(values, (str, bytes, bytearray)):
        raise ValueError(f"batch: column {name!r}: expected a list or an array, found one {type(values).__name__}")
    try:
        if hasattr(values, "__arrow_c_stream__"):
            return pa.chunked_array(values)
        if name in ("key", "value", "headers"):
            if name == "headers":
                _check_dicts(values)
            return pa.array(values, type=record_schema((name,), False).field(0).type)
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, ValueError) as error:
        raise ValueError(f"batch: column {name!r}: {error}") from error


def _check_dicts(rows: Any) -> None:
    """Refuse headers with other fields: Arrow would drop them silently."""
    for row in rows:
        for header in row or ():
            if isinstance(header, dict) and set(header) != {"key", "value"}:
                raise ValueError(f"expected headers with 'key' and 'value', found {header!r}")


class Rows:
    """The columns in the encoder's form. Keeps alive the arrays, because the encoder gets their addresses."""

    def __init__(
        self,
        columns: dict[str, pa.Array],
        base_offset: int,
        own_times: bool,
        own_batches: bool,
        from_zero: bool = False,
    ) -> None:
        self.columns = columns
        self.count = len(next(iter(columns.values()))) if columns else 0
        import pyarrow as pa

        if "offset" not in columns:
            if base_offset > INT64_MAX - self.count + 1:
                raise ValueError(f"base_offset: {self.count} rows from {base_offset} on pass 2^63-1")
            self.offsets = base_offset + np.arange(self.count, dtype=np.int64)
        elif columns["offset"].null_count:
            raise ValueError("batch: column 'offset' has nulls")
        else:
            self.offsets = self.integers("offset")
            if not own_batches:
                self.rising()
        self.times = self.integers("timestamp") if "timestamp" in columns else np.full(self.count, -1, dtype=np.int64)
        if own_times and "createTimestamp" in columns:
            own, shared = columns["createTimestamp"], self.times
            self.times = self.integers("createTimestamp")
            if own.null_count:
                self.times = np.where(int64s(own.is_null().cast("int8"), "createTimestamp"), shared, self.times)
        self.kept: list[Any] = [self.offsets, self.times]
        self.encoder = _codec.Encoder()
        self.encoder.rows(
            self.count,
            pa.py_buffer(self.offsets).address,
            pa.py_buffer(self.times).address,
            self.strings(columns.get("key"), "key"),
            self.strings(columns.get("value"), "value"),
            self.headers(columns.get("headers")),
            from_zero,
        )

    def messages(
        self, magic: int, codec: int, compress: Compress | None, batch_bytes: int, append_time: int | None
    ) -> bytes:
        """All rows as messages, or as wrappers if they are compressed."""
        if self.has_headers:
            raise _only_magic_2("headers", magic)
        attributes = codec | (LOG_APPEND_TIME if append_time is not None and magic == 1 else 0)
        if compress is None:
            self.encoder.messages(0, self.count, magic, attributes, append_time)
            return self.encoder.result()
        first = 0
        while first < self.count:
            first = self.encoder.wrapper(first, self.count, batch_bytes, magic, attributes, append_time, compress)
        return self.encoder.result()

    def offset_at(self, row: int) -> int:
        return int(self.offsets[row])

    def rising(self) -> None:
        if self.count and int(self.offsets[0]) < 0:
            raise ValueError(f"batch: column 'offset' begins at {int(self.offsets[0])}, expected 0 or more")
        falls = np.flatnonzero(self.offsets[1:] <= self.offsets[:-1])
        if falls.size:
            row = int(falls[0]) + 1
            raise ValueError(
                f"batch: column 'offset' must rise strictly, found {self.offset_at(row)} after "
                f"{self.offset_at(row - 1)} at row {row}"
            )

    def integers(self, name: str) -> npt.NDArray[np.int64]:
        return int64s(self.columns[name], name)

    def strings(self, array: pa.Array | None, name: str) -> tuple[int, int, int, int, int] | None:
        import pyarrow as pa

        if array is None or pa.types.is_null(array.type):
            return None
        if not pa.types.is_binary(array.type):
            try:
                array = array.cast(pa.binary())
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                raise ValueError(f"batch: column {name!r}: expected binary, found {array.type}: {error}") from error
        self.kept.append(array)
        valid, offsets, data = array.buffers()
        if offsets is None or not len(array):
            return None
        address = valid.address if valid is not None and array.null_count else 0
        start, size = (data.address, data.size) if data is not None else (0, 0)
        return offsets.address, start, size, address, array.offset

    def headers(self, array: pa.Array | None) -> tuple[int, int, Any, Any] | None:
        import pyarrow as pa

        self.has_headers = False
        if array is None or array.null_count == len(array):
            return None
        kind = array.type
        if pa.types.is_map(kind):
            array = array.take(np.arange(len(array)))  # from_arrays does not take slices
            entries = pa.StructArray.from_arrays([array.keys, array.items], ["key", "value"])
            array = pa.ListArray.from_arrays(array.offsets, entries, mask=array.is_null())
        entry = getattr(array.type, "value_type", kind)
        named = pa.types.is_struct(entry) and sorted(field.name for field in entry)
        if named != ["key", "value"]:
            raise ValueError(f"batch: column 'headers': expected {_wanted('headers')}, found {kind}")
        try:
            array = array.cast(record_schema(("headers",), False).field(0).type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise ValueError(f"batch: column 'headers': expected {_wanted('headers')}: {error}") from error
        # A null list may span entries; filling it drops them, and then the offsets alone select the entries.
        if array.null_count:
            array = array.fill_null(_instead_of_null("headers"))
        entries = array.values
        keys = entries.field("key")
        used = entries.slice(array.offsets[0].as_py(), array.offsets[-1].as_py() - array.offsets[0].as_py())
        self.has_headers = len(used) > 0
        if used.null_count or used.field("key").null_count:
            raise ValueError("batch: column 'headers': a header or its key is null, only its value may be")
        if not self.has_headers:
            return None
        self.kept.append(array)
        return (
            array.buffers()[1].address,
            array.offset,
            self.strings(keys.cast(pa.binary()), "headers"),
            self.strings(entries.field("value"), "headers"),
        )


def int64s(array: pa.Array, name: str) -> npt.NDArray[np.int64]:
    """A column as an int64 array: timestamps in ms, nulls as -1. ``name`` is for the error."""
    import pyarrow as pa

    if not (pa.types.is_integer(array.type) or pa.types.is_timestamp(array.type) or pa.types.is_null(array.type)):
        raise ValueError(f"batch: column {name!r}: expected {_wanted(name)}, found {array.type}")
    try:
        if pa.types.is_timestamp(array.type):
            array = array.cast(pa.timestamp("ms", tz=array.type.tz)).view(pa.int64())
        array = array.cast(pa.int64())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ValueError(f"batch: column {name!r}: expected {_wanted(name)}: {error}") from error
    if array.null_count:
        array = array.fill_null(_instead_of_null("offset"))
    if not len(array):
        return np.empty(0, dtype=np.int64)
    # pyarrow's to_numpy aborts the process when out of memory, so the buffer is read directly.
    return np.frombuffer(array.buffers()[1], np.int64, len(array), 8 * array.offset)


@cache
def _instead_of_null(name: str) -> Any:
    """The Arrow scalar, created once: pyarrow aborts the process if it creates one when out of memory."""
    import pyarrow as pa

    return pa.scalar([] if name == "headers" else -1, record_schema((name,), False).field(0).type)


def _wanted(name: str) -> str:
    return str(record_schema((name,), False).field(0).type)


def _fits(name: str, values: npt.NDArray[np.int64], bits: int) -> None:
    outside = np.flatnonzero((values < -(2 ** (bits - 1))) | (values >= 2 ** (bits - 1)))
    if outside.size:
        row = int(outside[0])
        raise ValueError(f"preserve_batches: column {name!r}: {int(values[row])} at row {row} does not fit {bits} bits")


def _preserved(rows: Rows, level: int | None) -> bytes:
    """Write the batches that the rows came from: adjacent rows with the same position and header."""
    missing = [name for name in STORED_COLUMNS if name not in rows.columns]
    if missing:
        raise ValueError(f"preserve_batches: needs all columns of kts.ALL_COLUMNS, {missing[0]!r} is missing")
    if not rows.count:
        return b""
    data = {name: rows.integers(name) for name in ("position", "magic", "sequence", "timestamp", *HEAD)}
    for name, bits in BITS.items():
        _fits(name, data[name], bits)
    begins = np.zeros(rows.count, dtype=bool)
    begins[0] = True
    for name in ("position", *HEAD):
        begins[1:] |= data[name][1:] != data[name][:-1]
    plain = data["attributes"] & CODEC_MASK == NONE
    begins[1:] |= plain[1:] & (data["magic"][1:] != data["magic"][:-1])
    falls = np.flatnonzero(~begins[1:] & (rows.offsets[1:] <= rows.offsets[:-1]))
    if falls.size:
        fall = int(falls[0]) + 1
        raise ValueError(
            f"preserve_batches: offsets must rise strictly inside a batch, found {rows.offset_at(fall)} after "
            f"{rows.offset_at(fall - 1)} at row {fall}"
        )
    starts = np.flatnonzero(begins)
    ends = np.append(starts[1:], rows.count)
    mixed = np.zeros(rows.count, dtype=bool)  # rows with another magic than the previous row of the same batch
    mixed[1:] = (data["magic"][1:] != data["magic"][:-1]) & ~begins[1:]
    mixes = np.flatnonzero(mixed)
    if mixes.size:
        first = int(starts[np.searchsorted(starts, mixes[0], "right") - 1])
        last = int(ends[np.searchsorted(ends, mixes[0], "right")])
        raise ValueError(
            f"preserve_batches: rows {first} to {last - 1} came from one wrapper with messages of several magics, "
            "which kts reads but does not write; encode them without preserve_batches"
        )
    compressors: dict[tuple[int, int], Compress] = {}
    for first, last in zip(starts.tolist(), ends.tolist(), strict=True):
        row = {name: int(values[first]) for name, values in data.items()}
        magic, codec = row["magic"], row["attributes"] & CODEC_MASK
        if magic not in (0, 1, 2) or codec >= len(CODECS) or magic < CODECS[codec].magic:
            raise ValueError(f"preserve_batches: row {first} has magic {magic} and codec {codec}")
        if codec and (codec, magic) not in compressors:
            compressors[codec, magic] = compressor(codec, magic, level)
        compress = compressors.get((codec, magic)) if codec else None
        if magic == 2:
            sequence = row["sequence"]
            if sequence >= 0:
                sequence = (sequence - (rows.offset_at(first) - row["baseOffset"])) % 2**31
            stated = [row[name] for name in HEAD]
            head = (*stated, sequence)
            written = rows.encoder.batch(first, last, INT32_MAX, head, compress)
        elif compress is None:
            rows.encoder.messages(first, last, magic, row["attributes"], None)
            written = last
        else:
            append_time = row["timestamp"] if row["attributes"] & LOG_APPEND_TIME and magic else None
            written = rows.encoder.wrapper(first, last, INT32_MAX, magic, row["attributes"], append_time, compress)
        if written != last:
            raise ValueError(f"preserve_batches: rows {first} to {last} do not fit one batch")
    return rows.encoder.result()
