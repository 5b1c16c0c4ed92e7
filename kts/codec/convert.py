"""Conversion of message sets and record batches from one magic to another: entry by entry as in Kafka 3.9, or all
entries as one set as in 0.10.2.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kts import arguments
from kts._codec import Encoder, check_buffer
from kts.arguments import DEFAULT_MAX_DECOMPRESSED_BYTES, INT32_MAX, integer
from kts.behaviour import DEFAULT, Behaviour, generation_of_format, one_release
from kts.codec.columns import STORED_COLUMNS, iter_decode
from kts.codec.encode import Rows, encode, int64s
from kts.codec.layout import CODEC_MASK, HAS_TIMESTAMP, LOG_APPEND_TIME, Entries, same_message_header
from kts.codec.refusals import as_shipped
from kts.compression import CODECS, NONE, Compress, codec_id, compressor
from kts.errors import CorruptRecordError, KtsError, UnsupportedCompressionTypeError, UnsupportedForMessageFormatError
from kts.model import NO_TIMESTAMP, TimestampType

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow as pa
    from typing_extensions import Buffer

    Ints = npt.NDArray[np.int64]

SLICE_BYTES = 16 * 2**20
NEEDED = ("offset", "timestamp", "key", "value", "createTimestamp", "position", "magic", "attributes", "timestampType")
COPY, DROP, REWRITE, RECOMPRESS = range(4)


class ConvertOptions(NamedTuple):
    """The arguments of ``convert``: the target magic; a codec of None keeps the codec of each entry."""

    magic: int
    as_released: bool
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
        """Whether record headers are read: to refuse them, or because Kafka reads them when it converts down."""
        return self.magic < 2 and (self.as_released or (self.lossless and not self.drop_headers))


class Sources:
    """The entries to convert, an array for each header field; the first ``end`` entries precede ``error``."""

    def __init__(self, data: memoryview) -> None:
        entries = Entries(data, until_damage=True)
        self.error: KtsError | None = entries.error
        self.position = entries.column("position")
        self.magic = entries.column("magic")
        self.codec = entries.column("codec")
        self.last_offset = entries.column("last_offset")
        self.count = entries.column("count")
        self.transactional = entries.column("transactional")
        self.control = entries.column("control")
        self.stops = self.position + entries.column("size")
        self.end = len(entries)

    def refuse(self, those: npt.NDArray[np.bool_], error: type[KtsError], why: str) -> None:
        """Convert only the entries before the first of ``those``."""
        found = np.flatnonzero(those[: self.end])
        if found.size:
            self.end = int(found[0])
            self.error = error(why, position=int(self.position[self.end]))


def convert(
    buf: Buffer,
    to_magic: int,
    *,
    release: str | None = None,
    generation: str | None = None,
    shipped: bool = False,
    down_only: bool = False,
    first_offset: int = 0,
    compression: str | None = None,
    level: int | None = None,
    batch_bytes: int = 16384,
    lossless: bool = False,
    drop_headers: bool = False,
    allow_negative_timestamps: bool = False,
    has_timestamp: bool = False,
    minus_one_is_a_time: bool = False,
    verify_crc: bool = True,
    max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
) -> bytes:
    """Convert message sets and record batches to one magic. Offsets, keys and values do not change.

    Parameters
    ----------
    buf : buffer
        As in :func:`kts.decode`; an incomplete last entry is left out.
    to_magic : int
        0, 1 or 2.
    release : str, optional
        "3.9" converts entry by entry and keeps the codec and the timestamp type of each; so does "4.3", to magic 2
        alone. "0.10.2" (magic 0 and 1) makes one set of all entries, with the codec of the first, as its fetches do; it
        returns a buffer without a whole entry unchanged. None is "0.10.2" if neither the buffer nor ``to_magic`` has
        magic 2, otherwise "3.9".
    generation : str, optional
        Another word for ``release``.
    shipped : bool
        Act exactly as that release: CRCs are not checked, 3.9 does not up-convert, and errors have the release's codes.
    down_only : bool
        Do not convert entries of a lower magic, as in a fetch.
    first_offset : int
        When 3.9 down-converts: leave out uncompressed records below this offset.
    compression : str, optional
        The codec of all entries; None keeps the codec of each.
    level : int, optional
        Compression level; None is Kafka's default.
    batch_bytes : int
        Approximate number of bytes of uncompressed messages that become one batch or wrapper message.
    lossless : bool
        Refuse headers, transactions and control batches if the target cannot carry them; otherwise they are left out.
    drop_headers : bool
        With ``lossless``: leave out headers only.
    allow_negative_timestamps : bool
        Convert timestamps before 1970; otherwise they are refused.
    has_timestamp : bool
        To magic 2, not in Kafka: mark the batches with times before 1970 as having timestamps, as the migration tool of
        KIP-228 would. Their records with -1 get batches of their own, without the mark. Allows such times.
    minus_one_is_a_time : bool
        With ``has_timestamp``: -1 is a time before 1970, too; otherwise it means no timestamp.
    verify_crc : bool
        Check the CRCs of converted entries.
    max_decompressed_bytes : int
        Bound on the decompressed bytes of each batch.

    Returns
    -------
    bytes

    Raises
    ------
    CorruptRecordError
        Damage, with position, offset and record index where known.
    UnsupportedCompressionTypeError
        zstd below magic 2.
    UnsupportedForMessageFormatError
        ``lossless`` refuses an entry.
    KtsError
        A negative timestamp; its code is -1, as in Kafka.

    Examples
    --------
    >>> import kts
    >>> old = kts.encode({"timestamp": [1000], "value": [b"v"]}, magic=1)
    >>> kts.scan_batches(kts.convert(old, 2))["magic"].to_pylist()
    [2]

    Notes
    -----
    Source: AbstractRecords.toMessageFormat of 0.10.2, RecordsUtil.downConvert of 3.9, LogValidator for up-conversion;
    KIP-31, KIP-32.
    """
    arguments.magic("to_magic", to_magic)
    named = one_release(release, generation)
    behaviour = Behaviour.of(named or DEFAULT.release, shipped)
    options = ConvertOptions(
        magic=to_magic,
        as_released=behaviour.converts_as_released,
        down_only=down_only or behaviour.converts_as_released,
        first_offset=integer("first_offset", first_offset),
        codec=None if compression is None else codec_id(compression, to_magic),
        level=level,
        batch_bytes=integer("batch_bytes", batch_bytes, 1, INT32_MAX),
        lossless=lossless,
        drop_headers=drop_headers,
        negative=allow_negative_timestamps or has_timestamp,
        verify_crc=verify_crc and not behaviour.converts_as_released,
        max_decompressed_bytes=max_decompressed_bytes,
    )
    check_buffer(buf)
    data = memoryview(buf).cast("B") if memoryview(buf).nbytes else memoryview(b"")
    sources = Sources(data)
    if named is None:
        newest = max(to_magic, int(sources.magic.max(initial=0)))
        behaviour = Behaviour.of(generation_of_format(newest), shipped)
    least, greatest = behaviour.least_magic, behaviour.greatest_magic
    if not least <= to_magic <= greatest:
        known = greatest if least == greatest else f"{least} and {greatest}"
        raise ValueError(f"to_magic: {behaviour.release} knows {known}, found {to_magic}")
    if has_timestamp and to_magic < 2:
        raise ValueError(f"has_timestamp: only batches of magic 2 have the mark, found to_magic {to_magic}")
    if minus_one_is_a_time and not has_timestamp:
        raise ValueError("minus_one_is_a_time: goes with has_timestamp, found it alone")
    try:
        made = (entry_by_entry if behaviour.converts_by_entry else as_one_set)(data, sources, options)
        return marked(made, options, 0 if minus_one_is_a_time else NO_TIMESTAMP) if has_timestamp else made
    except CorruptRecordError as error:
        if behaviour.released_codes:
            raise as_shipped(error, behaviour) from error
        raise


# --- 3.9: entry by entry --------------------------------------------------------------------------


def entry_by_entry(data: memoryview, sources: Sources, options: ConvertOptions) -> bytes:
    """Copy, leave out, rewrite or recompress each entry."""
    actions = np.full(sources.end, COPY)
    actions[sources.magic > options.magic] = REWRITE
    if not options.down_only:
        actions[sources.magic < options.magic] = REWRITE
    wanted = sources.codec
    if options.codec is not None:
        wanted = np.full(sources.end, options.codec)
        other = (
            (sources.codec != options.codec)
            & (sources.magic == options.magic)
            & ((options.magic < 2) | (sources.count > 0))
        )
        actions[other] = RECOMPRESS if options.magic == 2 else REWRITE
    if options.magic < 2:
        if options.lossless:
            why = f"magic {options.magic} has neither transactions nor control batches"
            sources.refuse(sources.control | sources.transactional, UnsupportedForMessageFormatError, why)
        actions[sources.control] = DROP
        for codec in CODECS if options.codec is None else ():
            if options.magic < codec.magic:
                why = f"magic {options.magic} has no {codec.name}; name another codec"
                of_codec = sources.codec == codec.number
                sources.refuse(~sources.control & of_codec, UnsupportedCompressionTypeError, why)
    end = sources.end
    changes = (np.diff(actions[:end]) != 0) | (np.diff(wanted[:end]) != 0)
    edges = [0, *(np.flatnonzero(changes) + 1).tolist(), end]
    out: list[bytes | memoryview] = []
    for first, last in pairwise(edges):
        if first == last or actions[first] == DROP:
            continue
        start = int(sources.position[first])
        part = data[start : int(sources.stops[last - 1])]
        if actions[first] == COPY:
            out.append(part)
        elif actions[first] == RECOMPRESS:
            out += [_recompressed(rows, options) for rows in decoded(part, STORED_COLUMNS, start, options)]
        else:
            names = (*NEEDED, "headers") if options.reads_headers else NEEDED
            out += [
                _rewritten(rows, int(wanted[first]), options, start) for rows in decoded(part, names, start, options)
            ]
    if sources.error is not None:
        raise sources.error
    return b"".join(out)


def decoded(
    part: memoryview, names: tuple[str, ...], start: int, options: ConvertOptions, slice_bytes: int = SLICE_BYTES
) -> Iterator[pa.RecordBatch]:
    """The records of some entries, in slices. The position of an error counts from the start of the whole buffer."""
    try:
        yield from iter_decode(
            part,
            names,
            slice_bytes=slice_bytes,
            verify_crc=options.verify_crc,
            max_decompressed_bytes=options.max_decompressed_bytes,
        )
    except CorruptRecordError as error:
        error.position = None if error.position is None else error.position + start
        raise


def _recompressed(rows: pa.RecordBatch, options: ConvertOptions) -> bytes:
    """Record batches with another codec and no other change."""
    import pyarrow as pa

    position = int64s(rows.column("position"), "position")
    _check_rising(int64s(rows.column("offset"), "offset"), position[1:] == position[:-1], options)
    at = rows.schema.get_field_index("attributes")
    field = rows.schema.field(at)
    attributes = int64s(rows.column(at), "attributes") & ~7 | (options.codec or NONE)
    rows = rows.set_column(at, field, pa.array(attributes.astype(np.int16), field.type))
    return encode(rows, preserve_batches=True, level=options.level)


def _rewritten(table: pa.RecordBatch, codec: int, options: ConvertOptions, start: int) -> bytes:
    """Write records of another magic or codec as entries of the target magic."""
    facts = {name: int64s(table.column(name), name) for name in ("attributes", "magic", "offset")}
    plain = facts["attributes"] & CODEC_MASK == NONE
    if options.magic < 2 and options.first_offset > 0:
        late = ~plain | (facts["offset"] >= options.first_offset)
        if not late.all():
            table = table.filter(late)
            return _rewritten(table, codec, options._replace(first_offset=0), start) if len(table) else b""
    if options.reads_headers and not options.as_released:
        heads = table.column("headers")
        if heads.null_count < len(heads):
            why = f"magic {options.magic} has no record headers, drop_headers leaves them out"
            raise UnsupportedForMessageFormatError(why, **_place(table, int(np.argmin(heads.is_null())), start))
    sets = options.magic == 2 or codec != NONE  # otherwise each record becomes one message
    _check_relative(facts["offset"], codec, options, table, start)
    times = int64s(table.column("timestamp"), "timestamp")
    append = int64s(table.column("timestampType"), "timestampType") == TimestampType.LogAppendTime
    alone = ~plain | (facts["magic"] == 2)  # a batch or a wrapper stays one entry
    _check_times(times, options, table, start)
    rows = Rows({name: table.column(name) for name in NEEDED[: 4 + sets]}, 0, sets, True)
    if sets and not options.as_released:
        _check_times(rows.times, options, table, start)

    position = int64s(table.column("position"), "position")
    falls = facts["offset"][1:] <= facts["offset"][:-1]
    begins = np.ones(len(times), np.bool_)
    begins[1:] = (alone[1:] != alone[:-1]) | (append[1:] != append[:-1]) | (position[1:] != position[:-1]) & alone[1:]
    if sets:
        split = (facts["magic"][1:] != facts["magic"][:-1]) | append[1:] & (times[1:] != times[:-1]) | falls
        begins[1:] |= split & ~alone[1:]
    _check_rising(facts["offset"], ~begins[1:] & alone[1:], options)
    compress = compressor(codec, options.magic, options.level) if codec != NONE else None
    for first, last in pairwise([*np.flatnonzero(begins).tolist(), len(times)]):
        append_time = int(times[first]) if append[first] and (alone[first] or sets) else None
        attributes = codec | (LOG_APPEND_TIME if append[first] and options.magic else 0)
        most = INT32_MAX if alone[first] else options.batch_bytes
        _write_group(rows.encoder, first, last, most, attributes, append_time, options.magic, compress)
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
    """Write rows as batches or wrappers of up to ``most_bytes``, or as single messages."""
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
    """Position and offset of a record, for an error."""
    return {"position": start + table.column("position")[row].as_py(), "offset": table.column("offset")[row].as_py()}


def _check_times(times: Ints, options: ConvertOptions, table: pa.RecordBatch, start: int) -> None:
    negative = np.flatnonzero((times < 0) & (times != NO_TIMESTAMP))
    if negative.size and not options.negative:
        why = f"timestamp {int(times[negative[0]])} lies before 1970; expected 0 or more, -1 for none, or "
        raise KtsError(f"{why}allow_negative_timestamps", **_place(table, int(negative[0]), start))


def _check_relative(offsets: Ints, codec: int, options: ConvertOptions, table: pa.RecordBatch, start: int) -> None:
    """Offsets in a wrapper of magic 1 are relative to its first offset; a negative one cannot be read back."""
    negative = np.flatnonzero(offsets < 0)
    if options.magic == 1 and codec != NONE and negative.size and not options.as_released:
        why = f"offset {int(offsets[negative[0]])} is negative, and a wrapper of magic 1 holds none; expected 0 or more"
        raise CorruptRecordError(why, **_place(table, int(negative[0]), start))


def _check_rising(offsets: Ints, before: npt.NDArray[np.bool_], options: ConvertOptions) -> None:
    """Refuse an offset that is not above the previous one; ``before`` marks the pairs to check."""
    falls = np.flatnonzero((offsets[1:] <= offsets[:-1]) & before)
    if falls.size:
        offset = int(offsets[falls[0] + 1])
        why = f"offset {offset} follows {int(offsets[falls[0]])}, expected a greater one"
        raise KtsError(why, offset=offset) if options.as_released else CorruptRecordError(why, offset=offset)


# --- the mark of records with a timestamp (KIP-228) -----------------------------------------------


def marked(data: bytes, options: ConvertOptions, below: int) -> bytes:
    """Record batches with the mark on those that hold times before ``below``; all others are copied.

    Records with -1, if that is not below it, get batches of their own.
    """
    entries = Entries(data)
    facts = {name: entries.column(name) for name in ("attributes", "control", "position", "size")}
    closed = HAS_TIMESTAMP | LOG_APPEND_TIME  # these have timestamps anyway
    hit = np.zeros(len(entries), np.bool_)
    for table in decoded(memoryview(data), ("position", "timestamp"), 0, options):
        early = int64s(table.column("timestamp"), "timestamp") < below
        hit[np.searchsorted(facts["position"], int64s(table.column("position"), "position")[early])] = True
    hit &= (facts["attributes"] & closed == 0) & (facts["control"] == 0)
    out: list[bytes | memoryview] = []
    for first, last in pairwise([0, *(np.flatnonzero(np.diff(hit)) + 1).tolist(), len(entries)]):
        if first == last:
            continue
        start = int(facts["position"][first])
        part = memoryview(data)[start : int(facts["position"][last - 1] + facts["size"][last - 1])]
        if hit[first]:
            out += [_with_mark(table, below, options) for table in decoded(part, STORED_COLUMNS, start, options)]
        else:
            out.append(part)
    return b"".join(out)


def _with_mark(table: pa.RecordBatch, below: int, options: ConvertOptions) -> bytes:
    """Whole batches, written with the mark; a batch is split where records with and without a timestamp meet."""
    import pyarrow as pa

    names = ("timestamp", "offset", "position", "attributes", "baseOffset", "lastOffsetDelta", "maxTimestamp")
    columns = {name: int64s(table.column(name), name) for name in names}
    times, offsets, position = (columns[name] for name in names[:3])
    timed = (times != NO_TIMESTAMP) | (below > NO_TIMESTAMP)
    borders = position[1:] != position[:-1]
    begins = np.flatnonzero(np.concatenate([[True], borders | (timed[1:] != timed[:-1])]))
    ends = np.append(begins[1:], len(times)) - 1
    opens, closes = np.concatenate([[True], borders])[begins], np.concatenate([borders, [True]])[ends]
    first = np.where(opens, columns["baseOffset"][begins], offsets[begins])
    last = np.where(closes, (columns["baseOffset"] + columns["lastOffsetDelta"])[ends], offsets[ends])
    greatest = np.where(opens & closes, columns["maxTimestamp"][begins], np.maximum.reduceat(times, begins))
    length = ends - begins + 1
    made = {
        "attributes": columns["attributes"] | HAS_TIMESTAMP * timed,
        "baseOffset": np.repeat(first, length),
        "lastOffsetDelta": np.repeat(last - first, length),
        "maxTimestamp": np.repeat(greatest, length),
    }
    for name, values in made.items():
        at = table.schema.get_field_index(name)
        field = table.schema.field(at)
        table = table.set_column(at, field, pa.array(values).cast(field.type))
    return encode(table, preserve_batches=True, level=options.level)


# --- 0.10.2: one set of all -----------------------------------------------------------------------


def as_one_set(data: memoryview, sources: Sources, options: ConvertOptions) -> bytes:
    """All entries as one wrapper with the codec of the first, or as single messages if that is uncompressed."""
    sources.refuse(sources.magic == 2, CorruptRecordError, "magic 2 is unknown, expected 0 or 1")
    if not sources.end and sources.error is None:
        return bytes(data)
    codec = int(sources.codec[0]) if options.codec is None and sources.end else options.codec or NONE
    raw = ((sources.codec == NONE) & (sources.magic == options.magic) & (codec == NONE))[: sources.end]
    out: list[bytes | memoryview] = []
    offsets = []
    for first, last in pairwise([0, *(np.flatnonzero(raw[1:] != raw[:-1]) + 1).tolist(), sources.end]):
        start = int(sources.position[first]) if first < last else 0
        part = data[start : int(sources.stops[last - 1]) if first < last else 0]
        if raw[first:last].any():  # Kafka copies these without reading them
            out.append(part)
            offsets.append(sources.last_offset[first:last])
        else:
            for table in decoded(part, NEEDED, start, options, slice_bytes=len(part) + 1):
                rows = Rows({name: table.column(name) for name in NEEDED[:5]}, 0, True, True)
                out.append(_part_of_set(part, table, rows, codec, options, start))
                offsets.append(rows.offsets)
    if sources.error is not None:
        raise sources.error
    every = np.concatenate(offsets)
    _check_rising(every, every[:-1] >= 0, options)
    return b"".join(out)


def _part_of_set(
    part: memoryview, table: pa.RecordBatch, rows: Rows, codec: int, options: ConvertOptions, start: int
) -> bytes | memoryview:
    times, magic, attributes = (int64s(table.column(name), name) for name in ("timestamp", "magic", "attributes"))
    _check_times(np.where(magic != options.magic, times, NO_TIMESTAMP), options, table, start)
    _check_relative(rows.offsets, codec, options, table, start)
    if codec != NONE:
        # messages keep their own timestamps; the new wrapper has the greatest timestamp of the old ones
        greatest = max(NO_TIMESTAMP, int(np.where(magic > 0, times, NO_TIMESTAMP).max())) if options.magic else None
        compress = compressor(codec, options.magic, options.level)
        _write_group(rows.encoder, 0, len(times), INT32_MAX, codec, greatest, options.magic, compress)
        made = rows.encoder.result()
        one = not table.column("position")[-1].as_py() and bool((magic == options.magic).all())
        return part if one and same_message_header(made, part) else made
    appended = np.where(attributes & CODEC_MASK == NONE, attributes & LOG_APPEND_TIME, 0) * options.magic
    for first, last in pairwise([0, *(np.flatnonzero(appended[1:] != appended[:-1]) + 1).tolist(), len(times)]):
        rows.encoder.messages(first, last, options.magic, int(appended[first]), None)
    return rows.encoder.result()
