"""Exact dumps: a partition as rows that carry all of its batches, and the batches of such rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kts import _codec
from kts.arguments import INT32_MAX
from kts.codec.columns import STORED_COLUMNS, decode, record_schema
from kts.codec.encode import encode, int64s
from kts.codec.layout import Entries, Entry
from kts.errors import CorruptRecordError, KtsError
from kts.segment.entries import Batches, Slices, at
from kts.segment.rereading import unless_deleted

from .convert import tail_fault

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow as pa

    from kts.dataset.partition import PartitionLog
    from kts.log.log import Log
    from kts.segment.segment import Segment

# Of a batch, the same in all of its rows. The first three are where it lies, and how many records it has.
OF_THE_BATCH = (
    *("segment", "position", "records"),
    *("magic", "attributes", "baseOffset", "lastOffsetDelta", "baseTimestamp", "maxTimestamp"),
    *("partitionLeaderEpoch", "producerId", "producerEpoch"),
)
OF_THE_RECORD = ("sequence", "offset", "timestamp", "createTimestamp", "key", "value", "headers")
EXACT_COLUMNS = ("topic", "partition", *OF_THE_BATCH, *OF_THE_RECORD)
NEVER_NULL = ("magic", "attributes", "partitionLeaderEpoch", "producerId", "producerEpoch", "sequence")
FOLLOWING = tuple(name for name in STORED_COLUMNS if name not in EXACT_COLUMNS)  # from the attributes
SET_BYTES = 2**20  # of batches that are appended at a time


class NotExactError(ValueError):
    """Rows are not those of an exact dump; ``row`` is the first one, from 1."""

    def __init__(self, row: int, reason: str) -> None:
        super().__init__(reason)
        self.row = row


@cache
def exact_schema() -> pa.Schema:
    """Arrow schema of an exact dump. Times are integers, because other types do not hold all of them."""
    import pyarrow as pa

    own = {"segment": pa.int64(), "records": pa.int32(), "timestamp": pa.int64(), "createTimestamp": pa.int64()}
    return pa.schema([(name, own.get(name) or record_schema((name,), False).field(0).type) for name in EXACT_COLUMNS])


# --- a partition as rows --------------------------------------------------------------------------


def exact_rows(
    log: PartitionLog, progress: Callable[[int], None] | None = None, left_out: Callable[[str, int], None] | None = None
) -> Iterator[pa.RecordBatch]:
    """All batches of a partition, also those before its log start offset.

    A record has a row, and so have a batch without records (its ``offset`` is null) and a segment without batches (its
    ``position`` is null).

    Parameters
    ----------
    progress : callable, optional
        Called with the number of ``.log`` bytes that were just read.
    left_out : callable, optional
        Called with the path of the last segment and the bytes of an incomplete tail, which no row has.

    Raises
    ------
    CorruptRecordError
        The log is damaged. Only an incomplete or zero tail of the last segment is left out.
    KtsError
        An entry that its rows would not bring back, as one wrapper around messages of several magics.
    """
    segments = log.listed(exact=True).segments
    for segment in segments:
        with unless_deleted(segment.path, segment.source), segment.open() as source:
            slices, next_offset = Slices(source, segment.span.start, source.size()), segment.base_offset
            for part in slices:
                yield _exact(log, segment, part)
                next_offset = part.last_offset + 1
                if progress is not None:
                    progress(len(part.records()))
            is_last = segment is segments[-1]
            why = tail_fault(slices, source, segment, next_offset)
            if slices.position < slices.end and not is_last:
                why = why or slices.reason or "bytes after the last entry"
            if why is not None:
                raise CorruptRecordError(why, path=segment.path, position=slices.position)
            if slices.position < slices.end and left_out is not None:
                left_out(segment.path, slices.end - slices.position)
            if slices.position == segment.span.start:
                yield _table({"segment": [segment.base_offset]}, log)


def _exact(log: PartitionLog, segment: Segment, part: Batches) -> pa.RecordBatch:
    """The rows of a slice, after a proof that they bring it back."""
    if not part.all_sound:
        position = int(part.column("position")[int(part.column("crc_ok").argmin())])
        raise CorruptRecordError("CRC is wrong", path=segment.path, position=position)
    try:
        decoded = decode(part.records(), list(STORED_COLUMNS))
        rows = _rows(log, segment, part, decoded)
        made = encoded(rows)
    except CorruptRecordError as error:
        raise at(error, segment.path, part.start) from error.__cause__
    except ValueError as error:  # a wrapper around several magics
        raise KtsError(f"no exact dump: {error}", path=segment.path, position=part.start) from error
    if made != part.records():
        _check(segment, part, decoded, made)
    return rows


def _rows(log: PartitionLog, segment: Segment, part: Batches, decoded: pa.RecordBatch) -> pa.RecordBatch:
    """The rows of the records, and in between those of batches without records."""
    import pyarrow as pa

    starts = part.column("position").astype(np.int64)
    of_rows = int64s(decoded.column("position"), "position") + part.start
    entries = np.searchsorted(starts, of_rows, "right") - 1
    counts = np.bincount(entries, minlength=len(starts))
    columns = {name: decoded.column(name) for name in EXACT_COLUMNS if name in decoded.schema.names}
    times = {name: decoded.column(name).cast(pa.int64()) for name in ("timestamp", "createTimestamp")}
    own = {"segment": pa.repeat(segment.base_offset, len(of_rows)), "position": of_rows, "records": counts[entries]}
    rows = _table(columns | times | own, log)
    empty = np.flatnonzero(counts == 0)
    if not len(empty):
        return rows
    without = [_without_records(part[int(entry)]) | {"segment": segment.base_offset} for entry in empty]
    others = _table({name: [one.get(name) for one in without] for name in OF_THE_BATCH + ("sequence",)}, log)
    order = np.argsort(np.concatenate([of_rows, starts[empty]]), kind="stable")
    return pa.Table.from_batches([rows, others]).combine_chunks().to_batches()[0].take(pa.array(order))


def _without_records(entry: Entry) -> dict[str, int]:
    return {
        "position": entry.position,
        "records": 0,
        "magic": entry.magic,
        "attributes": entry.attributes,
        "baseOffset": entry.base_offset,
        "lastOffsetDelta": entry.last_offset - entry.base_offset,
        "baseTimestamp": entry.base_timestamp,
        "maxTimestamp": entry.max_timestamp,
        "partitionLeaderEpoch": entry.leader_epoch,
        "producerId": entry.producer_id,
        "producerEpoch": entry.producer_epoch,
        "sequence": entry.base_sequence,
    }


def _table(columns: dict[str, Any], log: PartitionLog) -> pa.RecordBatch:
    """Columns as rows of the schema; those that are not there are null."""
    import pyarrow as pa

    schema, count = exact_schema(), len(next(iter(columns.values())))
    columns = columns | {"topic": [log.topic] * count, "partition": [log.partition] * count}
    made = []
    for field in schema:
        found = columns.get(field.name)
        made.append(pa.nulls(count, field.type) if found is None else pa.array(found, field.type))
    return pa.RecordBatch.from_arrays(made, schema=schema)


def _check(segment: Segment, part: Batches, decoded: pa.RecordBatch, made: bytes) -> None:
    """Raise unless the entries made are those of the slice: the bytes, or of compressed ones the header and records."""
    again = Entries(made)
    position = part.start
    alike = len(again) == len(part)
    for number in range(len(part)) if alike else ():
        one, other = part[number], again[number]
        position = one.position
        alike = _header(one) == _header(other)
        if alike and not one.codec:
            alike = part.entry(number) == made[other.position : other.end]
        if not alike:
            break
    if alike:
        there, here = (rows.drop_columns(["position"]) for rows in (decode(made, list(STORED_COLUMNS)), decoded))
        alike = there.equals(here)
    if not alike:
        why = "no exact dump: this entry is spelled in a way that kts reads but does not write"
        raise KtsError(why, path=segment.path, position=position)


def _header(entry: Entry) -> tuple[Any, ...]:
    """What a codec's own choices leave as it is."""
    offsets = (entry.magic, entry.attributes, entry.base_offset, entry.last_offset, entry.count)
    times = (entry.base_timestamp, entry.max_timestamp)
    return (*offsets, *times, entry.leader_epoch, entry.producer_id, entry.producer_epoch, entry.base_sequence)


# --- rows as batches ------------------------------------------------------------------------------


def encoded(rows: pa.RecordBatch) -> bytes:
    """The entries of rows of whole batches."""
    import pyarrow as pa

    counts = int64s(rows.column("records"), "records")
    edges = np.flatnonzero((counts[1:] == 0) | (counts[:-1] == 0)) + 1
    parts = []
    for first, last in zip([0, *edges.tolist()], [*edges.tolist(), len(counts)], strict=True):
        some = rows.slice(first, last - first)
        if some.num_rows and not counts[first]:
            parts.append(_empty_batch(some.to_pylist()[0]))
        elif some.num_rows:
            columns = {name: some.column(name) for name in STORED_COLUMNS if name in EXACT_COLUMNS}
            columns |= {name: pa.nulls(len(some)) for name in FOLLOWING}
            parts.append(encode(columns, preserve_batches=True))
    return b"".join(parts)


def _empty_batch(row: dict[str, Any]) -> bytes:
    if row["magic"] != 2:
        raise ValueError(f"a batch without records has magic 2, found {row['magic']}")
    head = ("attributes", "baseOffset", "lastOffsetDelta", "baseTimestamp", "maxTimestamp")
    encoder = _codec.Encoder()
    encoder.empty_batch(tuple(row[name] for name in (*head, *OF_THE_BATCH[-3:], "sequence")))
    return encoder.result()


class ExactSet(NamedTuple):
    """Whole batches of one segment.

    Attributes
    ----------
    segment : int
        Base offset of the segment.
    first_row, end_row : int
        Their rows, from 1; the one after the last.
    first_offset : int
        Where the first batch begins.
    topic, partition
        Where they come from.
    batches, records : int
        How many.
    data : bytes
        Empty for a segment without batches.
    """

    segment: int
    first_row: int
    end_row: int
    first_offset: int
    topic: str
    partition: int
    batches: int
    records: int
    data: bytes


class ExactBatches:
    """Puts the batches of an exact dump together again, from rows in pieces of any size."""

    def __init__(self) -> None:
        self._waiting: pa.RecordBatch | None = None
        self._row = 1

    def add(self, rows: pa.RecordBatch) -> Iterator[ExactSet]:
        """The batches that are whole by now.

        Raises
        ------
        NotExactError
            A row that no exact dump has, or a batch of which rows are missing; what lies before it came out.
        """
        import pyarrow as pa

        if self._waiting is not None:
            rows = pa.Table.from_batches([self._waiting, rows]).combine_chunks().to_batches()[0]
        if rows.num_rows:
            starts = self._starts(rows)
            last = int(starts[-1])
            self._waiting = rows.slice(last)
            yield from self._sets(rows.slice(0, last), starts[:-1])

    def finish(self) -> Iterator[ExactSet]:
        """The last batch."""
        if self._waiting is not None:
            rows, self._waiting = self._waiting, None
            yield from self._sets(rows, np.zeros(1, np.int64))

    def _starts(self, rows: pa.RecordBatch) -> npt.NDArray[np.int64]:
        """The first row of each batch."""
        begins = np.ones(rows.num_rows, np.bool_)
        begins[1:] = False
        for name in ("segment", "position"):
            column = int64s(rows.column(name), name)
            begins[1:] |= column[1:] != column[:-1]
        return np.flatnonzero(begins)

    def _sets(self, rows: pa.RecordBatch, starts: npt.NDArray[np.int64]) -> Iterator[ExactSet]:
        """Runs of batches of one segment, about ``SET_BYTES`` each."""
        if not rows.num_rows:
            return
        ends = np.append(starts[1:], rows.num_rows)
        wrong, reason = self._wrong(rows, starts, ends)
        segments = int64s(rows.column("segment"), "segment")[starts]
        empty = int64s(rows.column("position"), "position")[starts] < 0
        most = max(1, SET_BYTES // max(1, rows.nbytes // len(starts)))
        first = 0
        while first < wrong:
            end = first + 1
            while end < min(wrong, first + most) and segments[end] == segments[first] and not empty[end]:
                end += 1
            yield self._set(rows, int(starts[first]), int(ends[end - 1]), end - first, bool(empty[first]))
            first = end
        if reason is not None:
            raise NotExactError(self._row + int(starts[wrong]), reason)
        self._row += rows.num_rows

    def _set(self, rows: pa.RecordBatch, first: int, end: int, batches: int, is_empty: bool) -> ExactSet:
        some = rows.slice(first, end - first)
        row = some.slice(0, 1).select([*("segment", "topic", "partition", "offset", "baseOffset")]).to_pylist()[0]
        begin = row["offset"] if row["offset"] is not None else row["baseOffset"]
        data, records = b"", 0
        if not is_empty:
            records = int((int64s(some.column("records"), "records") > 0).sum())
            try:
                data = encoded(some)
            except ValueError as error:
                raise NotExactError(self._row + first, str(error)) from error
        return ExactSet(
            row["segment"],
            self._row + first,
            self._row + end,
            row["segment"] if begin is None else begin,
            row["topic"],
            row["partition"],
            0 if is_empty else batches,
            records,
            data,
        )

    def _wrong(
        self, rows: pa.RecordBatch, starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]
    ) -> tuple[int, str | None]:
        """The first batch that is no batch of an exact dump, and why; else their number and None."""
        counts, none = int64s(rows.column("records"), "records"), np.zeros(len(starts), np.bool_)
        valid = {name: rows.column(name).is_valid().to_numpy(zero_copy_only=False) for name in EXACT_COLUMNS}
        alone = ~valid["position"][starts]  # a segment without batches
        missing: list[tuple[npt.NDArray[np.bool_], str]] = []
        for name in ("topic", "partition", "segment"):
            missing.append((~np.logical_and.reduceat(valid[name], starts), f"{name} is missing"))
        for name in (*NEVER_NULL, "records"):
            absent = ~np.logical_and.reduceat(valid[name], starts) & ~alone
            missing.append((absent, f"{name} is missing"))
        has = np.logical_and.reduceat(valid["offset"] & valid["timestamp"], starts)
        missing.append((~has & (counts[starts] > 0) & ~alone, "offset or timestamp is missing"))
        magic = int64s(rows.column("magic"), "magic")[starts]
        for name in ("baseOffset", "lastOffsetDelta", "baseTimestamp", "maxTimestamp"):
            absent = ~np.logical_and.reduceat(valid[name], starts) & (magic == 2) & ~alone
            missing.append((absent, f"{name} is missing"))
        stated = np.maximum(counts[starts], 1)
        missing.append(((stated != ends - starts) & ~alone, "its batch is cut"))
        differ = none.copy()
        for name in ("topic", "partition", *OF_THE_BATCH[2:]):
            column = rows.column(name).dictionary_encode().indices if name == "topic" else rows.column(name)
            values = int64s(column, name)
            differ |= np.logical_or.reduceat(values != np.repeat(values[starts], ends - starts), starts)
        missing.append((differ, "rows of one batch differ in its fields"))
        for absent, reason in sorted(missing, key=lambda one: int(one[0].argmax()) if one[0].any() else INT32_MAX):
            if absent.any():
                batch = int(absent.argmax())
                if reason == "its batch is cut":
                    found = int(ends[batch] - starts[batch])
                    reason = f"expected {int(stated[batch])} rows of its batch, found {found}"
                return batch, reason
        return len(starts), None


class ExactAppender:
    """Appends the batches of an exact dump to a log as a follower appends those of its leader, with its segments.

    A log without batches begins where they do. A segment without batches is made at the end of the log, where it can be
    the active one, and left out elsewhere.

    Parameters
    ----------
    log : Log
        Open.

    Attributes
    ----------
    left_out : list of int
        Base offsets of the segments that were left out.
    """

    def __init__(self, log: Log) -> None:
        self.left_out: list[int] = []
        self._log = log
        self._empty: int | None = None

    def append(self, one: ExactSet) -> None:
        """Append batches.

        Raises
        ------
        InvalidOffsetError
            The log has the offsets already.
        """
        log = self._log
        self._leave_out()
        if not one.data:
            self._empty = one.segment
            return
        if not log.size_bytes and log.log_end_offset < one.segment:
            log.truncate_fully_and_start_at(one.segment)
        most, first, end = min(SET_BYTES, log.config.segment_bytes), 0, 0
        for entry in Entries(one.data):
            if end > first and entry.end - first > most:
                log.append_as_follower(one.data[first:end], segment_base=one.segment)
                first = end
            end = entry.end
        log.append_as_follower(one.data[first:end], segment_base=one.segment)

    def finish(self) -> None:
        """Make the last segment, if it has no batches."""
        log = self._log
        if self._empty is None:
            return
        if not log.size_bytes and log.log_end_offset < self._empty:
            log.truncate_fully_and_start_at(self._empty)
        elif self._empty == log.log_end_offset and log.segments[-1].size:
            log.roll()
        if log.segments[-1].base_offset == self._empty:
            self._empty = None
        self._leave_out()

    def _leave_out(self) -> None:
        if self._empty is not None:
            self.left_out.append(self._empty)
            self._empty = None
