"""Encode and decode messages of KIP-32's options 1, 2 and 3; ``_messages`` has their layouts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kts.arguments import DEFAULT_MAX_DECOMPRESSED_BYTES, INT32_MAX, INT64_MAX, integer
from kts.codec.columns import LARGEST_BOUND
from kts.compression import NONE, codec_id, compressor
from kts.errors import CorruptRecordError
from kts.model import NO_TIMESTAMP
from kts.proposals.options import _messages

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow as pa
    from typing_extensions import Buffer

MAGICS = {1: 33, 2: 34, 3: 35}  # by option; no Kafka uses them
COLUMNS = ("offset", "createTimestamp", "logAppendTimestamp", "key", "value")


class Entries(NamedTuple):
    """The entries of a set (messages and wrappers) from their headers alone, a row each.

    Attributes
    ----------
    position, size : array of int64
        Where an entry begins, and its bytes.
    base_offset, last_offset : array of int64
        The header of a wrapper states its last offset only: its base offset is -1.
    create_ms, append_ms : array of int64
        CreateTime and LogAppendTime; -1 where the option has none.
    codec : array of int64
        0 for a message that is not compressed.
    end : int
        Bytes of whole, sound entries.
    error : CorruptRecordError or None
        Why the entry after them is damaged; None if there is none, or only a part of one.
    """

    position: npt.NDArray[np.int64]
    size: npt.NDArray[np.int64]
    base_offset: npt.NDArray[np.int64]
    last_offset: npt.NDArray[np.int64]
    create_ms: npt.NDArray[np.int64]
    append_ms: npt.NDArray[np.int64]
    codec: npt.NDArray[np.int64]
    end: int
    error: CorruptRecordError | None

    def part(self, first: int, stop: int, shift: int = 0) -> Entries:
        """Some rows, their positions moved."""
        rows = slice(first, stop)
        return Entries(
            self.position[rows] + shift,
            self.size[rows],
            self.base_offset[rows],
            self.last_offset[rows],
            self.create_ms[rows],
            self.append_ms[rows],
            self.codec[rows],
            self.end + shift,
            self.error,
        )


def checked(option: Any) -> int:
    """An option's number: 1, 2 or 3.

    Raises
    ------
    TypeError, ValueError
        Not an int; another one. Option 4 is what Kafka shipped: ``kts.Log``, ``kts.encode``, ``kts.decode``.
    """
    if integer("option", option) not in MAGICS:
        raise ValueError(
            f"option: expected 1, 2 or 3 (option 4 is Kafka's format: kts.Log, kts.encode), found {option}"
        )
    return int(option)


def option_of(data: Buffer) -> int:
    """The option of the first message; 1 if there is none.

    Raises
    ------
    CorruptRecordError
        Its magic is none of 33 to 35.
    """
    magic = _messages.first_magic(data)
    if magic is None:
        return 1
    for option, own in MAGICS.items():
        if magic == own:
            return option
    words = _messages.WORDS["OPTION_MAGIC"].format(a=magic, b="33 to 35")
    raise CorruptRecordError(words, position=0, reason="OPTION_MAGIC")


def walk(data: Buffer, *, option: int, verify_crc: bool = False) -> Entries:
    """The entries of a set from their headers, up to the first that is damaged or incomplete.

    Parameters
    ----------
    data : buffer
        Messages of one option.
    option : int
        1, 2 or 3.
    verify_crc : bool
        Check each entry's CRC; of a wrapper, that covers its compressed bytes.
    """
    rows, end, error = _messages.entries(memoryview(data), checked(option), verify_crc)
    position, size, base, last, create, append, codec = np.ascontiguousarray(rows.T)
    return Entries(position, size, base, last, create, append, codec, end, error)


def decode(
    data: Buffer,
    *,
    option: int | None = None,
    verify_crc: bool = True,
    max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
) -> pa.Table:
    """Decode messages of one of KIP-32's options.

    Parameters
    ----------
    data : buffer
        Messages of one option. An incomplete message at the end is left out.
    option : int, optional
        1, 2 or 3; None takes it from the first message.
    verify_crc : bool
        Check every message, also those in wrappers.
    max_decompressed_bytes : int
        Bound on each wrapper.

    Returns
    -------
    pyarrow.Table
        ``offset``, ``createTimestamp``, ``logAppendTimestamp``, ``key``, ``value``. A time that the option does not
        have is null; -1 means that nobody set it.

    Raises
    ------
    CorruptRecordError, DecompressionLimitError
        Damage, or another magic, with its position and reason; a wrapper that exceeds the bound.

    Notes
    -----
    The messages of a wrapper share its LogAppendTime. In a compacted wrapper, where relative offsets are missing, each
    has its own.

    Source: KIP-32, rejected options 1 to 3; KIP-31 for relative offsets.
    """
    import pyarrow as pa

    option = option_of(data) if option is None else checked(option)
    integer("max_decompressed_bytes", max_decompressed_bytes, 0, LARGEST_BOUND)
    rows, offsets, creates, appends, *fields = _messages.decode(
        memoryview(data), option, verify_crc, max_decompressed_bytes
    )
    time = pa.timestamp("ms", tz="UTC")

    def int64s(kind: pa.DataType, values: bytes) -> pa.Array:
        return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(values)])

    def strings(ends: bytes, there: bytes, values: bytes) -> pa.Array:
        valid = None
        if 0 in there:
            valid = pa.py_buffer(np.packbits(np.frombuffer(there, np.uint8), bitorder="little").tobytes())
        return pa.Array.from_buffers(pa.binary(), rows, [valid, pa.py_buffer(ends), pa.py_buffer(values)])

    columns = [
        int64s(pa.int64(), offsets),
        pa.nulls(rows, time) if option == 2 else int64s(time, creates),
        pa.nulls(rows, time) if option == 3 else int64s(time, appends),
        strings(*fields[:3]),
        strings(*fields[3:]),
    ]
    return pa.table(columns, names=COLUMNS)


def encode(
    rows: pa.RecordBatch | pa.Table | Mapping[str, Any],
    *,
    option: int,
    compression: str = "none",
    level: int | None = None,
    base_offset: int = 0,
    batch_bytes: int = 16384,
) -> bytes:
    """Encode rows as messages of one of KIP-32's options.

    Parameters
    ----------
    rows : RecordBatch, Table or dict of arrays
        Any of ``decode``'s columns. Absent times are -1, absent keys and values null. Offsets must increase.
    option : int
        1, 2 or 3.
    compression : str
        none, gzip, snappy or lz4.
    level : int, optional
        Compression level; None is Kafka's default.
    base_offset : int
        Offset of the first row if there is no ``offset`` column; 0 for a set that a producer sends.
    batch_bytes : int
        Limit of the uncompressed bytes of a wrapper; a single message may exceed it.

    Raises
    ------
    UnsupportedCompressionTypeError
        zstd, which needs record batches.
    TypeError, ValueError
        A wrong argument or column, or times that the option's messages do not have.

    Notes
    -----
    A wrapper has the CreateTime of its first message in option 1, of its last in option 3, and the LogAppendTime of its
    last message. Rows with consecutive offsets and different LogAppendTimes go into different wrappers.

    Examples
    --------
    >>> from kts.proposals import options
    >>> data = options.encode({"createTimestamp": [1000, 1001], "value": [b"a", b"b"]}, option=3, compression="gzip")
    >>> options.walk(data, option=3).create_ms.tolist()
    [1001]
    """
    checked(option)
    codec = codec_id(compression, 1)
    compress = compressor(codec, 1, level) if codec != NONE else None
    integer("batch_bytes", batch_bytes, 1, INT32_MAX)
    columns = _columns(rows)
    count = len(next(iter(columns.values()))) if columns else 0
    offsets = _int64s(columns, "offset", None)
    if offsets is None:
        offsets = np.arange(count, dtype=np.int64) + integer("base_offset", base_offset, 0, INT64_MAX - count)
    elif (offsets[1:] <= offsets[:-1]).any() or (offsets[:1] < 0).any():
        raise ValueError("offset: expected increasing numbers from 0 on")
    creates, appends = (_int64s(columns, name, count) for name in COLUMNS[1:3])
    for name, times, lacks in ((COLUMNS[1], creates, option == 2), (COLUMNS[2], appends, option == 3)):
        if lacks and (times != NO_TIMESTAMP).any():
            raise ValueError(f"{name}: messages of option {option} do not have it; leave the column out")
    key, value = (_strings(columns, name, count) for name in COLUMNS[3:])

    def written(first: int, last: int, base: int, most_bytes: int) -> tuple[bytes, int]:
        return _messages.messages(option, offsets, creates, appends, key, value, first, last, base, most_bytes)

    parts: list[bytes] = []
    row = 0
    while compress is None and row < count:
        part, row = written(row, count, 0, INT64_MAX)
        parts.append(part)
    changes = np.flatnonzero((appends[1:] != appends[:-1]) & (offsets[1:] == offsets[:-1] + 1)) + 1
    for last in [*changes.tolist(), count] if compress is not None else ():
        while compress is not None and row < last:
            first = row
            part, row = written(first, last, int(offsets[first]), batch_bytes)
            create = creates[first if option == 1 else row - 1]
            parts.append(
                _messages.wrapper(
                    option, codec, int(offsets[row - 1]), int(create), int(appends[row - 1]), compress(part)
                )
            )
    return b"".join(parts)


def _columns(rows: pa.RecordBatch | pa.Table | Mapping[str, Any]) -> dict[str, pa.Array]:
    """The rows' columns, each as one array, of equal length."""
    import pyarrow as pa

    names = rows.keys() if isinstance(rows, Mapping) else rows.schema.names
    columns = {}
    for name in names:
        if name not in COLUMNS:
            raise ValueError(f"rows: unknown column {name!r}; known are {', '.join(COLUMNS)}")
        values = rows[name]
        if isinstance(values, pa.ChunkedArray):
            values = values.combine_chunks() if values.num_chunks != 1 else values.chunk(0)
        columns[name] = values if isinstance(values, pa.Array) else pa.array(values)
    if len({len(column) for column in columns.values()}) > 1:
        raise ValueError(f"rows: columns of different lengths: { {name: len(columns[name]) for name in columns} }")
    return columns


def _int64s(columns: Mapping[str, pa.Array], name: str, count: int | None) -> Any:
    """A column of numbers or times as int64, -1 for null; -1 throughout, or None without a count, if it is absent."""
    import pyarrow as pa

    column = columns.get(name)
    if column is None:
        return None if count is None else np.full(count, NO_TIMESTAMP, np.int64)
    try:
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.timestamp("ms", column.type.tz)).cast(pa.int64())
        found = column.cast(pa.int64()).fill_null(NO_TIMESTAMP).to_numpy(zero_copy_only=False)
    except pa.ArrowInvalid as error:
        raise ValueError(f"{name}: {error}") from error
    except pa.ArrowNotImplementedError as error:
        raise TypeError(f"{name}: expected int64 or timestamps, found {column.type}") from error
    return np.ascontiguousarray(found, np.int64)


def _strings(columns: Mapping[str, pa.Array], name: str, count: int) -> Any:
    """A column of bytes as (ends, 0 for null, bytes)."""
    import pyarrow as pa

    column = columns.get(name)
    if column is None or pa.types.is_null(column.type):
        return np.zeros(count + 1, np.int32), np.zeros(count, np.uint8), np.empty(0, np.uint8)
    try:
        column = column.cast(pa.binary())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise TypeError(f"{name}: expected bytes, found {column.type}") from error
    _, ends, values = column.buffers()
    at = column.offset
    found = np.frombuffer(ends, np.int32)[at : at + count + 1] if ends is not None else np.zeros(count + 1, np.int32)
    data = np.frombuffer(values, np.uint8) if values is not None else np.empty(0, np.uint8)
    return found, np.asarray(column.is_valid()).astype(np.uint8), data
