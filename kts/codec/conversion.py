"""What ``convert`` does with the entries of a buffer: entry by entry as 3.9, or one set of all as 0.10.2."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kts._codec import Encoder
from kts.arguments import INT32_MAX
from kts.codec.columns import ALL_COLUMNS, iter_decode, scan_batches
from kts.codec.encode import LOG_APPEND_TIME, Rows, encode, int64s
from kts.compression import NONE, ZSTD, Compress, compressor
from kts.errors import CorruptRecordError, KtsError, UnsupportedCompressionTypeError, UnsupportedForMessageFormatError
from kts.model import NO_TIMESTAMP, TimestampType

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow as pa

    Ints = npt.NDArray[np.int64]

SLICE_BYTES = 16 * 2**20
WHOLE = INT32_MAX  # bytes: no limit to a batch but that of its size field
NEEDED = ("offset", "timestamp", "key", "value", "createTimestamp", "position", "magic", "attributes", "timestampType")
COPY, DROP, WRITE, RECODE = range(4)


class How(NamedTuple):
    """The arguments of ``convert``; magic is the wanted one, codec None keeps each entry's."""

    magic: int
    shipped: bool
    down_only: bool
    first_offset: int
    codec: int | None
    level: int | None
    batch_bytes: int
    lossless: bool
    drop_headers: bool
    negative: bool
    verify_crc: bool
    max_decompressed_bytes: int

    @property
    def reads_headers(self) -> bool:
        """Whether records are looked at for headers: to refuse them, or as Kafka does on its way down."""
        return self.magic < 2 and (self.shipped or (self.lossless and not self.drop_headers))


class Entries:
    """What the headers say, an array of each field; ``end`` entries can be converted before ``error`` is met."""

    def __init__(self, data: memoryview) -> None:
        self.error: KtsError | None = None
        try:
            table = scan_batches(data)
        except CorruptRecordError as error:
            self.error = error
            table = scan_batches(data[: error.position])
        self.position = int64s(table.column("position"), "position")
        self.magic = int64s(table.column("magic"), "magic")
        self.codec = int64s(table.column("codec"), "codec")
        self.last_offset = int64s(table.column("lastOffset"), "offset")
        self.count = int64s(table.column("count"), "offset")
        flags = (table.column(name).cast("int8") for name in ("transactional", "control"))
        self.transactional, self.control = (int64s(flag, "magic") == 1 for flag in flags)
        self.stops = self.position + int64s(table.column("sizeInBytes"), "position")
        self.end = len(self.position)

    def refuse(self, those: npt.NDArray[np.bool_], error: type[KtsError], why: str) -> None:
        """Convert only what lies before the first of those."""
        found = np.flatnonzero(those[: self.end])
        if found.size:
            self.end = int(found[0])
            self.error = error(why, position=int(self.position[self.end]))


# --- 3.9: entry by entry --------------------------------------------------------------------------


def each(data: memoryview, entries: Entries, how: How) -> bytes:
    """Every entry by itself: copied, left out, written anew with its records, or compressed with another codec."""
    actions = np.full(entries.end, COPY)
    actions[entries.magic > how.magic] = WRITE
    if not how.down_only:
        actions[entries.magic < how.magic] = WRITE
    wanted = entries.codec
    if how.codec is not None:
        wanted = np.full(entries.end, how.codec)
        other = (entries.codec != how.codec) & (entries.magic == how.magic) & ((how.magic < 2) | (entries.count > 0))
        actions[other] = RECODE if how.magic == 2 else WRITE
    if how.magic < 2:
        if how.lossless:
            why = f"magic {how.magic} has neither transactions nor control batches"
            entries.refuse(entries.control | entries.transactional, UnsupportedForMessageFormatError, why)
        actions[entries.control] = DROP
        if how.codec is None:
            why = f"magic {how.magic} has no zstd; name another codec"
            entries.refuse(~entries.control & (entries.codec == ZSTD), UnsupportedCompressionTypeError, why)
    end = entries.end
    changes = (np.diff(actions[:end]) != 0) | (np.diff(wanted[:end]) != 0)
    edges = [0, *(np.flatnonzero(changes) + 1).tolist(), end]
    out: list[bytes | memoryview] = []
    for first, last in pairwise(edges):
        if first == last or actions[first] == DROP:
            continue
        start = int(entries.position[first])
        part = data[start : int(entries.stops[last - 1])]
        if actions[first] == COPY:
            out.append(part)
        elif actions[first] == RECODE:
            out += [_recoded(rows, how) for rows in decoded(part, ALL_COLUMNS, start, how)]
        else:
            names = (*NEEDED, "headers") if how.reads_headers else NEEDED
            out += [_written(rows, int(wanted[first]), how, start) for rows in decoded(part, names, start, how)]
    if entries.error is not None:
        raise entries.error
    return b"".join(out)


def decoded(
    part: memoryview, names: tuple[str, ...], start: int, how: How, slice_bytes: int = SLICE_BYTES
) -> Iterator[pa.RecordBatch]:
    """The records of some entries in pieces; an error has its position in the whole buffer."""
    try:
        yield from iter_decode(
            part,
            names,
            slice_bytes=slice_bytes,
            verify_crc=how.verify_crc,
            max_decompressed_bytes=how.max_decompressed_bytes,
        )
    except CorruptRecordError as error:
        error.position = None if error.position is None else error.position + start
        raise


def _recoded(rows: pa.RecordBatch, how: How) -> bytes:
    """Batches of magic 2 with another codec, and all else as it was."""
    import pyarrow as pa

    position = int64s(rows.column("position"), "position")
    _check_rising(int64s(rows.column("offset"), "offset"), position[1:] == position[:-1], how)
    at = rows.schema.get_field_index("attributes")
    field = rows.schema.field(at)
    attributes = int64s(rows.column(at), "attributes") & ~7 | (how.codec or NONE)
    rows = rows.set_column(at, field, pa.array(attributes.astype(np.int16), field.type))
    return encode(rows, preserve_batches=True, level=how.level)


def _written(table: pa.RecordBatch, codec: int, how: How, start: int) -> bytes:
    """Records of other magics, or to be compressed otherwise, as entries of the wanted magic."""
    facts = {name: int64s(table.column(name), name) for name in ("attributes", "magic", "offset")}
    plain = facts["attributes"] & 7 == NONE
    if how.magic < 2 and how.first_offset > 0:
        late = ~plain | (facts["offset"] >= how.first_offset)
        if not late.all():
            table = table.filter(late)
            return _written(table, codec, how._replace(first_offset=0), start) if len(table) else b""
    if how.reads_headers and not how.shipped:
        heads = table.column("headers")
        if heads.null_count < len(heads):
            why = f"magic {how.magic} has no record headers, drop_headers leaves them out"
            raise UnsupportedForMessageFormatError(why, **_place(table, int(np.argmin(heads.is_null())), start))
    sets = how.magic == 2 or codec != NONE  # else every record becomes a message of its own
    _check_relative(facts["offset"], codec, how, table, start)
    times = int64s(table.column("timestamp"), "timestamp")
    append = int64s(table.column("timestampType"), "timestampType") == TimestampType.LogAppendTime
    alone = ~plain | (facts["magic"] == 2)  # what was a batch or a wrapper stays one
    _check_times(times, how, table, start)
    rows = Rows({name: table.column(name) for name in NEEDED[: 4 + sets]}, 0, sets, True)
    if sets and not how.shipped:
        _check_times(rows.times, how, table, start)

    position = int64s(table.column("position"), "position")
    falls = facts["offset"][1:] <= facts["offset"][:-1]
    begins = np.ones(len(times), np.bool_)
    begins[1:] = (alone[1:] != alone[:-1]) | (append[1:] != append[:-1]) | (position[1:] != position[:-1]) & alone[1:]
    if sets:
        split = (facts["magic"][1:] != facts["magic"][:-1]) | append[1:] & (times[1:] != times[:-1]) | falls
        begins[1:] |= split & ~alone[1:]
    _check_rising(facts["offset"], ~begins[1:] & alone[1:], how)
    compress = compressor(codec, how.magic, how.level) if codec != NONE else None
    for first, last in pairwise([*np.flatnonzero(begins).tolist(), len(times)]):
        append_time = int(times[first]) if append[first] and (alone[first] or sets) else None
        attributes = codec | (LOG_APPEND_TIME if append[first] and how.magic else 0)
        most = WHOLE if alone[first] else how.batch_bytes
        _write_group(rows.encoder, first, last, most, attributes, append_time, how.magic, compress)
    return rows.encoder.result()


def _write_group(
    encoder: Encoder,
    first: int,
    last: int,
    most_bytes: int,
    attributes: int,
    append_time: int | None,
    magic: int,
    compress: Compress | None,
) -> None:
    """Some rows as one batch or wrapper, as many as ``most_bytes`` asks for, or as single messages."""
    if magic == 2:
        head = (attributes, None, None, None, append_time, -1, -1, -1, -1)
        while first < last:
            first = encoder.batch(first, last, most_bytes, head, compress)
    elif compress is None:
        encoder.messages(first, last, magic, attributes, append_time)
    else:
        while first < last:
            first = encoder.wrapper(first, last, most_bytes, magic, attributes, append_time, compress)


def _place(table: pa.RecordBatch, row: int, start: int) -> dict[str, Any]:
    """Where a record is, for an error."""
    return {"position": start + table.column("position")[row].as_py(), "offset": table.column("offset")[row].as_py()}


def _check_times(times: Ints, how: How, table: pa.RecordBatch, start: int) -> None:
    negative = np.flatnonzero((times < 0) & (times != NO_TIMESTAMP))
    if negative.size and not how.negative:
        why = f"timestamp {int(times[negative[0]])} lies before 1970; expected 0 or more, -1 for none, or "
        raise KtsError(f"{why}allow_negative_timestamps", **_place(table, int(negative[0]), start))


def _check_relative(offsets: Ints, codec: int, how: How, table: pa.RecordBatch, start: int) -> None:
    """Messages in a wrapper of magic 1 have offsets relative to its first; nobody can read that of a negative one."""
    negative = np.flatnonzero(offsets < 0)
    if how.magic == 1 and codec != NONE and negative.size and not how.shipped:
        why = f"offset {int(offsets[negative[0]])} is negative, and a wrapper of magic 1 holds none; expected 0 or more"
        raise CorruptRecordError(why, **_place(table, int(negative[0]), start))


def _check_rising(offsets: Ints, before: npt.NDArray[np.bool_], how: How) -> None:
    """``before``: which neighbours count, one fewer than offsets."""
    falls = np.flatnonzero((offsets[1:] <= offsets[:-1]) & before)
    if falls.size:
        offset = int(offsets[falls[0] + 1])
        why = f"offset {offset} follows {int(offsets[falls[0]])}, expected a greater one"
        raise KtsError(why, offset=offset) if how.shipped else CorruptRecordError(why, offset=offset)


# --- 0.10.2: one set of all -----------------------------------------------------------------------


def one_set(data: memoryview, entries: Entries, how: How) -> bytes:
    """Everything as one wrapper with the codec of the first entry, or as single messages where that has none."""
    entries.refuse(entries.magic == 2, CorruptRecordError, "magic 2 is unknown, expected 0 or 1")
    if not entries.end and entries.error is None:
        return bytes(data)
    codec = int(entries.codec[0]) if how.codec is None and entries.end else how.codec or NONE
    raw = ((entries.codec == NONE) & (entries.magic == how.magic) & (codec == NONE))[: entries.end]
    out: list[bytes | memoryview] = []
    offsets = []
    for first, last in pairwise([0, *(np.flatnonzero(raw[1:] != raw[:-1]) + 1).tolist(), entries.end]):
        start = int(entries.position[first]) if first < last else 0
        part = data[start : int(entries.stops[last - 1]) if first < last else 0]
        if raw[first:last].any():  # Kafka copies these unread
            out.append(part)
            offsets.append(entries.last_offset[first:last])
        else:
            for table in decoded(part, NEEDED, start, how, slice_bytes=len(part) + 1):
                rows = Rows({name: table.column(name) for name in NEEDED[:5]}, 0, True, True)
                out.append(_of_one_set(part, table, rows, codec, how, start))
                offsets.append(rows.offsets)
    if entries.error is not None:
        raise entries.error
    every = np.concatenate(offsets)
    _check_rising(every, every[:-1] >= 0, how)
    return b"".join(out)


def _of_one_set(
    part: memoryview, table: pa.RecordBatch, rows: Rows, codec: int, how: How, start: int
) -> bytes | memoryview:
    times, magic, attributes = (int64s(table.column(name), name) for name in ("timestamp", "magic", "attributes"))
    _check_times(np.where(magic != how.magic, times, NO_TIMESTAMP), how, table, start)
    _check_relative(rows.offsets, codec, how, table, start)
    if codec != NONE:
        # the messages keep the time they carry, the wrapper has the greatest that their wrappers told
        greatest = max(NO_TIMESTAMP, int(np.where(magic > 0, times, NO_TIMESTAMP).max())) if how.magic else None
        compress = compressor(codec, how.magic, how.level)
        _write_group(rows.encoder, 0, len(times), WHOLE, codec, greatest, how.magic, compress)
        made, end = rows.encoder.result(), 30 if how.magic else 22
        one = not table.column("position")[-1].as_py() and bool((magic == how.magic).all())
        same = made[:8] == part[:8] and made[16:end] == part[16:end]  # offset, and all from the magic to the key
        return part if one and same else made
    appended = np.where(attributes & 7 == NONE, attributes & LOG_APPEND_TIME, 0) * how.magic
    for first, last in pairwise([0, *(np.flatnonzero(appended[1:] != appended[:-1]) + 1).tolist(), len(times)]):
        rows.encoder.messages(first, last, how.magic, int(appended[first]), None)
    return rows.encoder.result()
