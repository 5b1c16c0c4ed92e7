"""Decode buffers into Arrow record columns, with the names, order and types of these columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Self

import numpy as np

from kts import _codec
from kts.arguments import DEFAULT_MAX_DECOMPRESSED_BYTES, integer
from kts.codec.layout import HAS_TIMESTAMP
from kts.compression import CODEC_NAMES
from kts.model import NO_TIMESTAMP, MaxTimestamp

if TYPE_CHECKING:
    import pyarrow as pa
    from typing_extensions import Buffer

ROWS_AT_ONCE = 1 << 14  # of a derived column: what is computed on the way stays small
LARGEST_BOUND, LARGEST_SLICE = 2**62 - 1, 2**48 - 1  # bytes; their sums still fit 64 bits
STORED_COLUMNS = _codec.STORED_COLUMNS  # the compiled core fills them; native/columns.h has them
DERIVED_COLUMNS = {"codecName": ("codec",), "hasTimestamp": ("timestamp", "attributes", "magic")}  # and from which
ALL_COLUMNS = (*STORED_COLUMNS, *DERIVED_COLUMNS)
DEFAULT_COLUMNS = ALL_COLUMNS[:6]
SCAN_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
BATCH_COLUMNS = (
    "position",
    "sizeInBytes",
    "magic",
    "baseOffset",
    "lastOffset",
    "count",
    "baseTimestamp",
    "maxTimestamp",
    "timestampType",
    "codec",
    "partitionLeaderEpoch",
    "producerId",
    "producerEpoch",
    "baseSequence",
    "transactional",
    "control",
    "crcOk",
)


def check_columns(columns: Sequence[str] | None, default: tuple[str, ...], known: tuple[str, ...]) -> tuple[str, ...]:
    """Check a list of column names.

    Returns
    -------
    tuple of str
        ``default`` for None, otherwise the names in the given order.

    Raises
    ------
    TypeError, ValueError
        Not a list of str; an unknown or repeated name.
    """
    if columns is None:
        return default
    if isinstance(columns, (str, bytes)) or not isinstance(columns, Iterable):
        raise TypeError(f"columns: expected a list of names, found {columns!r}")
    names = tuple(columns)
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"columns: expected names, found {name!r}")
        if name not in known:
            raise ValueError(f"columns: unknown column {name!r}; known are {', '.join(known)}")
    if len(set(names)) != len(names):
        raise ValueError(f"columns: a name is repeated in {names!r}")
    return names


@lru_cache(maxsize=256)
def record_schema(names: tuple[str, ...], views: bool) -> pa.Schema:
    """Arrow schema of decoded records with these columns, which may include ``topic`` and ``partition``."""
    import pyarrow as pa

    binary = pa.binary_view() if views else pa.binary()
    time = pa.timestamp("ms", tz="UTC")
    types = {
        "offset": pa.int64(),
        "timestamp": time,
        "timestampType": pa.int32(),
        "key": binary,
        "value": binary,
        "headers": pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
        "magic": pa.int8(),
        "codec": pa.int8(),
        "producerId": pa.int64(),
        "producerEpoch": pa.int16(),
        "sequence": pa.int32(),
        "partitionLeaderEpoch": pa.int32(),
        "transactional": pa.bool_(),
        "control": pa.bool_(),
        "position": pa.int64(),
        "createTimestamp": time,
        "baseOffset": pa.int64(),
        "lastOffsetDelta": pa.int32(),
        "attributes": pa.int16(),
        "baseTimestamp": pa.int64(),
        "maxTimestamp": pa.int64(),
        "codecName": pa.dictionary(pa.int8(), pa.string()),
        "hasTimestamp": pa.bool_(),
        "topic": pa.string(),
        "partition": pa.int32(),
    }
    return pa.schema([(name, types[name]) for name in names])


@lru_cache(maxsize=1)
def batch_schema() -> pa.Schema:
    """Arrow schema of ``kts.scan_batches``."""
    import pyarrow as pa

    time = pa.timestamp("ms", tz="UTC")
    types = [
        pa.int64(),
        pa.int32(),
        pa.int8(),
        pa.int64(),
        pa.int64(),
        pa.int32(),
        time,
        time,
        pa.int32(),
        pa.int8(),
        pa.int32(),
        pa.int64(),
        pa.int16(),
        pa.int32(),
        pa.bool_(),
        pa.bool_(),
        pa.bool_(),
    ]
    return pa.schema(list(zip(BATCH_COLUMNS, types, strict=True)))


def _import(address: int, schema: pa.Schema) -> pa.RecordBatch:
    import pyarrow as pa

    return pa.RecordBatch._import_from_c(address, schema)


def _decoder(
    buf: Buffer, names: tuple[str, ...], views: bool, verify_crc: bool, max_decompressed_bytes: int
) -> _codec.Decoder:
    integer("max_decompressed_bytes", max_decompressed_bytes, 0, LARGEST_BOUND)
    return _codec.Decoder(buf, _column_ids(_stored(names)), bool(views), bool(verify_crc), max_decompressed_bytes)


@lru_cache(maxsize=256)
def _column_ids(names: tuple[str, ...]) -> bytes:
    return bytes(STORED_COLUMNS.index(name) for name in names)


@lru_cache(maxsize=256)
def _stored(names: tuple[str, ...]) -> tuple[str, ...]:
    """The columns that the core decodes for these."""
    return tuple(dict.fromkeys(one for name in names for one in DERIVED_COLUMNS.get(name, (name,))))


def _decoded(address: int, names: tuple[str, ...], views: bool) -> pa.RecordBatch:
    """A batch from the core with these columns."""
    stored = _stored(names)
    batch = _import(address, record_schema(stored, views))
    return batch if stored == names else _with_derived(batch, names, views)


@cache
def _codec_names() -> pa.StringArray:
    import pyarrow as pa

    return pa.array(CODEC_NAMES, pa.string())


def _with_derived(batch: pa.RecordBatch, names: tuple[str, ...], views: bool) -> pa.RecordBatch:
    """The batch with columns that follow from stored ones; for ``codecName``, ``codec`` is a dictionary's indexes."""
    import pyarrow as pa

    columns = {name: batch.column(name) for name in batch.schema.names}
    if "codecName" in names:
        columns["codecName"] = pa.DictionaryArray.from_arrays(columns["codec"], _codec_names(), safe=False)
    if "hasTimestamp" in names:
        columns["hasTimestamp"] = _has_timestamp(columns)
    return pa.RecordBatch.from_arrays([columns[name] for name in names], schema=record_schema(names, views))


def _has_timestamp(columns: Mapping[str, pa.Array]) -> pa.Array:
    import pyarrow as pa

    rows = len(columns["timestamp"])
    bits = np.zeros(-(-rows // 8), np.uint8)
    if rows:
        kinds = {"timestamp": np.int64, "attributes": np.int16, "magic": np.int8}
        times, attributes, magic = (np.frombuffer(columns[name].buffers()[1], kind) for name, kind in kinds.items())
    for start in range(0, rows, ROWS_AT_ONCE):
        part = slice(start, min(start + ROWS_AT_ONCE, rows))
        has = (times[part] != NO_TIMESTAMP) | (magic[part] == 2) & (attributes[part] & HAS_TIMESTAMP != 0)
        bits[start // 8 : start // 8 + -(-len(has) // 8)] = np.packbits(has, bitorder="little")
    return pa.Array.from_buffers(pa.bool_(), rows, [None, pa.py_buffer(bits)])


def decode(
    buf: Buffer,
    columns: Sequence[str] | None = None,
    *,
    views: bool = False,
    verify_crc: bool = True,
    max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
) -> pa.RecordBatch:
    """Decode message sets and record batches; the magics may be mixed.

    Parameters
    ----------
    buf : buffer
        Any contiguous buffer. An empty one gives 0 rows. An incomplete last entry is left out.
    columns : list of str, optional
        Names from ``kts.ALL_COLUMNS``; None is the first six.
    views : bool
        Return keys and values as ``binary_view`` into ``buf``, which is kept alive, instead of copies as ``binary``.
    verify_crc : bool
        Check the CRC of every batch, message and inner message.
    max_decompressed_bytes : int
        Bound on the decompressed bytes of each batch.

    Returns
    -------
    pyarrow.RecordBatch
        One row per record, control records included.

    Raises
    ------
    CorruptRecordError
        Any damage, with position, offset and record index where known. DecompressionLimitError: a batch exceeds
        ``max_decompressed_bytes``. Fields after the last one that ``columns`` needs are checked by the CRC only.
    TypeError, ValueError
        A wrong argument; a column that would exceed Arrow's 2 GiB.

    Examples
    --------
    >>> import kts
    >>> data = kts.encode({"timestamp": [1000], "key": [b"k"], "value": [b"v"]})
    >>> kts.decode(data, ["offset", "value"]).to_pylist()
    [{'offset': 0, 'value': b'v'}]

    Notes
    -----
    The memory of the last large result serves the next one, and is given back once several times as much was decoded in
    smaller pieces. Source: Kafka 3.9.2's MemoryRecords; KIP-31, KIP-32, KIP-98.
    """
    names = check_columns(columns, DEFAULT_COLUMNS, ALL_COLUMNS)
    return _decoded(_decoder(buf, names, views, verify_crc, max_decompressed_bytes).next(0), names, bool(views))


def iter_decode(
    buf: Buffer,
    columns: Sequence[str] | None = None,
    *,
    slice_bytes: int = 1048576,
    views: bool = False,
    verify_crc: bool = True,
    max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
) -> Iterator[pa.RecordBatch]:
    """Decode a large buffer in slices of whole batches, each about ``slice_bytes`` of input.

    Parameters
    ----------
    slice_bytes : int
        Input bytes per slice; a slice has at least one batch.
    buf, columns, views, verify_crc, max_decompressed_bytes
        As in :func:`decode`.

    Returns
    -------
    iterator of pyarrow.RecordBatch
        Batches with at least one row. The memory of a batch is reused after it is dropped.

    Raises
    ------
    CorruptRecordError
        As in :func:`decode`, after the batches before the damage.
    """
    integer("slice_bytes", slice_bytes, 1, LARGEST_SLICE)
    names = check_columns(columns, DEFAULT_COLUMNS, ALL_COLUMNS)
    decoder = _decoder(buf, names, views, verify_crc, max_decompressed_bytes)
    return _Pieces(decoder, names, bool(views), slice_bytes)


class _Pieces:
    """The slices of a decoder. Not a generator, so that the decoder itself reports use by two threads at once."""

    def __init__(self, decoder: _codec.Decoder, names: tuple[str, ...], views: bool, slice_bytes: int) -> None:
        self._decoder = decoder
        self._names, self._views = names, views
        self._slice_bytes = slice_bytes

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> pa.RecordBatch:
        address = self._decoder.next(self._slice_bytes)
        if not address:
            raise StopIteration
        return _decoded(address, self._names, self._views)

    def __reduce__(self) -> str:
        raise TypeError("iter_decode holds a buffer and cannot be pickled; send the bytes")


def scan_batches(buf: Buffer) -> pa.RecordBatch:
    """List batches and outermost messages, one row each, using only headers and CRCs.

    Returns
    -------
    pyarrow.RecordBatch
        Columns ``BATCH_COLUMNS``; ``baseOffset`` and ``count`` are null for a compressed wrapper.

    Raises
    ------
    CorruptRecordError
        An impossible size or magic. A wrong CRC only sets ``crcOk`` to false.
    """
    return _import(_codec.scan(buf), batch_schema())


def header_rows(entries: _codec.Entries, count: int) -> pa.RecordBatch:
    """The first of some entries, whose CRCs were verified, as rows of ``scan_batches``."""
    return _import(entries.arrow(count), batch_schema())


def valid_bytes(buf: Buffer) -> int:
    """Bytes of the whole entries at the start of a buffer, by their sizes (MemoryRecords.validBytes).

    Raises
    ------
    CorruptRecordError
        An impossible size or magic.
    """
    return _codec.valid_bytes(buf)


def max_timestamp(
    buf: Buffer, *, verify_crc: bool = True, max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES
) -> MaxTimestamp:
    """Find the greatest timestamp and the first record that has it; control records count.

    Returns
    -------
    MaxTimestamp
        (-1, -1, -1) if no record has a timestamp. As in Kafka, timestamps below -1 never count.

    Raises
    ------
    CorruptRecordError
        Any damage.
    """
    integer("max_decompressed_bytes", max_decompressed_bytes, 0, LARGEST_BOUND)
    return MaxTimestamp(*_codec.max_timestamp(buf, bool(verify_crc), max_decompressed_bytes))
