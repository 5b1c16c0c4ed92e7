"""Records or batch headers of open partitions as one Arrow stream."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from kts.arguments import DEFAULT_MAX_DECOMPRESSED_BYTES, boolean, choice, timestamp
from kts.codec.columns import SCAN_COLUMNS, batch_schema, check_columns, record_schema
from kts.dataset import plan as pieces
from kts.dataset import reader as reading
from kts.segment.damage import last_sound_offset
from kts.segment.rereading import settled, unless_deleted, warn
from kts.segment.segment import Lookups, Segment

if TYPE_CHECKING:
    import pyarrow as pa

    from kts.dataset.partition import PartitionLog

Time = int | datetime | None
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
HIGH_WATERMARK = "high_watermark"


@dataclass(frozen=True)
class Options:
    """The arguments of a scan, checked."""

    starting_timestamp: int | None
    ending_timestamp: int | None
    starting_offsets: Any
    ending_offsets: Any
    columns: tuple[str, ...]
    strict_time_range: bool
    isolation: str
    include_control: bool
    on_error: str
    verify_crc: bool
    batch_bytes: int
    max_decompressed_bytes: int
    views: bool


def milliseconds(value: object, name: str) -> int | None:
    """A time argument as ms since the epoch: an int as it is, an aware datetime rounded up to ms."""
    if value is None:
        return None
    if isinstance(value, datetime):
        if value.tzinfo is None or value.utcoffset() is None:
            raise ValueError(f"{name}: expected an aware datetime, found {value!r} without a time zone")
        # Up: a record of the same ms is before a start, and before an end, that lies within it.
        return -((_EPOCH - value) // timedelta(milliseconds=1))
    return timestamp(name, value)


def _offsets(value: object, name: str) -> Any:
    words = {"starting_offsets": ("earliest", "latest"), "ending_offsets": ("latest", HIGH_WATERMARK)}[name]
    if value is None or (isinstance(value, str) and value in words):
        return value
    if isinstance(value, Mapping):
        flat = flat_offsets(value, name)
    elif isinstance(value, int) and not isinstance(value, bool):
        flat = {("", 0): value}
    else:
        known = ", ".join(words)
        raise TypeError(f"{name}: expected an int, {known} or {{topic: {{partition: int}}}}, found {value!r}")
    for offset in flat.values():
        if not -2 <= offset < 2**63:
            raise ValueError(f"{name}: expected an offset, -1 (latest) or -2 (earliest), found {offset}")
    return value if isinstance(value, int) else flat


def flat_offsets(given: Mapping[Any, Any], name: str) -> dict[tuple[str, int], int]:
    """{topic: {partition: offset}} or {(topic, partition): offset} as the latter."""
    flat: dict[tuple[str, int], int] = {}
    for key, value in given.items():
        inner = {(key, one): offset for one, offset in value.items()} if isinstance(value, Mapping) else {key: value}
        for pair, offset in inner.items():
            if not isinstance(pair, tuple) or len(pair) != 2 or not isinstance(pair[0], str):
                raise TypeError(f"{name}: expected {{topic: {{partition: int}}}}, found the key {pair!r}")
            if not isinstance(offset, int) or isinstance(offset, bool) or not str(pair[1]).isdigit():
                raise TypeError(f"{name}: expected {{topic: {{partition: int}}}}, found {pair[1]!r}: {offset!r}")
            flat[pair[0], int(pair[1])] = offset
    return flat


def options(
    *,
    starting_timestamp: Time = None,
    ending_timestamp: Time = None,
    starting_offsets: Any = None,
    ending_offsets: Any = None,
    columns: Sequence[str] | None = None,
    strict_time_range: bool = False,
    isolation: str = "read_uncommitted",
    include_control: bool = False,
    on_error: str = "raise",
    verify_crc: bool = True,
    batch_bytes: int = pieces.BATCH_BYTES,
    max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
    views: bool = False,
) -> Options:
    """Check the arguments of a scan.

    Raises
    ------
    TypeError, ValueError
        A wrong argument, named.
    """
    choice("isolation", isolation, pieces.ISOLATIONS)
    choice("on_error", on_error, pieces.ON_ERROR)
    start = milliseconds(starting_timestamp, "starting_timestamp")
    end = milliseconds(ending_timestamp, "ending_timestamp")
    if start is not None and end is not None and start > end:
        raise ValueError(f"starting_timestamp: {start} is behind ending_timestamp {end}")
    first, last = _offsets(starting_offsets, "starting_offsets"), _offsets(ending_offsets, "ending_offsets")
    if isinstance(first, int) and isinstance(last, int) and 0 <= last < first:
        raise ValueError(f"starting_offsets: {first} is behind ending_offsets {last}")
    return Options(
        starting_timestamp=start,
        ending_timestamp=end,
        starting_offsets=first,
        ending_offsets=last,
        columns=check_columns(columns, SCAN_COLUMNS, pieces.STREAM_COLUMNS),
        strict_time_range=boolean("strict_time_range", strict_time_range),
        isolation=isolation,
        include_control=boolean("include_control", include_control),
        on_error=on_error,
        verify_crc=boolean("verify_crc", verify_crc),
        batch_bytes=pieces.check_bytes(batch_bytes, "batch_bytes"),
        max_decompressed_bytes=pieces.check_bytes(max_decompressed_bytes, "max_decompressed_bytes", 0),
        views=boolean("views", views),
    )


def scan_logs(logs: Sequence[PartitionLog], **given: Any) -> pa.RecordBatchReader:
    """The records of partitions, one after another, by topic and partition; options as ``kts.scan``."""
    import pyarrow as pa

    asked = options(**given)
    ordered = sorted(logs, key=lambda log: (log.topic, log.partition))
    schema = record_schema(asked.columns, asked.views)
    return pa.RecordBatchReader.from_batches(schema, reading.joined(_records(ordered, asked), asked.batch_bytes))


def _records(logs: Sequence[PartitionLog], asked: Options) -> Iterator[pa.RecordBatch]:
    strict = (asked.starting_timestamp, asked.ending_timestamp) if asked.strict_time_range else (None, None)
    for log in logs:
        last_offset, before = -1, Segment(log.path, log.topic, log.partition, 0)
        for piece in settled(partial(_pieces, log, asked)):
            if piece.start_position == 0 and last_offset >= piece.base_offset:
                last_offset = min(last_offset, last_sound_offset(before))
            if piece.start_position == 0 and last_offset >= piece.base_offset:
                warn(
                    f"{piece.path}: the segment starts at offset {piece.base_offset}, but the one before it ends with"
                    f" {last_offset}; what it repeats is left out"
                )
            if piece.start_offset <= last_offset:
                piece = replace(piece, start_offset=last_offset + 1)
            reader = reading.PieceReader(
                piece,
                asked.columns,
                asked.views,
                strict,
                asked.isolation == "read_committed",
                asked.include_control,
                asked.on_error == "skip",
                asked.verify_crc,
                asked.batch_bytes,
                asked.max_decompressed_bytes,
            )
            with unless_deleted(piece.path):
                yield from reader.batches()
            last_offset, before = max(last_offset, reader.last_offset), reader.segment


def _pieces(log: PartitionLog, asked: Options) -> list[pieces.Piece]:
    log = log.listed()
    start, end = pieces.resolve_range(
        log,
        starting_timestamp=asked.starting_timestamp,
        ending_timestamp=asked.ending_timestamp,
        starting_offset=_offset_of(log, asked.starting_offsets),
        ending_offset=_offset_of(log, asked.ending_offsets),
        strict_time_range=asked.strict_time_range,
        skip_damage=asked.on_error == "skip",
        verify_crc=asked.verify_crc,
    )
    return pieces.plan(log, start, end, isolation=asked.isolation, on_error=asked.on_error)


def _offset_of(log: PartitionLog, given: Any) -> int | None:
    if given == HIGH_WATERMARK:
        return log.high_watermark
    if isinstance(given, dict):
        return given.get((log.topic, log.partition))
    return {"earliest": -2, "latest": -1}.get(given) if isinstance(given, str) else given


def batches(log: PartitionLog) -> pa.RecordBatchReader:
    """Headers of all batches of a partition: ``kts.scan_batches`` and ``segment``, the base offset of their segment."""
    import pyarrow as pa

    schema = batch_schema().append(pa.field("segment", pa.int64()))

    def rows() -> Iterator[pa.RecordBatch]:
        for segment, batch in segment_batches(log):
            base = pa.repeat(pa.scalar(segment.base_offset, pa.int64()), batch.num_rows)
            yield pa.RecordBatch.from_arrays([*batch.columns, base], schema=schema)

    return pa.RecordBatchReader.from_batches(schema, rows())


def segment_batches(log: PartitionLog) -> Iterator[tuple[Segment, pa.RecordBatch]]:
    """Header scans of all segments, each with its segment; those that are deleted meanwhile are left out.

    Raises
    ------
    CorruptRecordError
        After the batches before the damage; also where the end of a segment is missing.
    """
    segments = log.segments
    for number, segment in enumerate(segments):
        with unless_deleted(segment.path):
            end = segment.base_offset
            for batch in segment.batches():
                if batch.num_rows:
                    end = batch.column("lastOffset")[-1].as_py() + 1
                yield segment, batch
            following = segments[number + 1].base_offset if number + 1 < len(segments) else end
            lost = Lookups(segment).lost_end(following) if end < following else None
            if lost is not None:
                raise lost
