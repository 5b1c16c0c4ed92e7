"""Reading a piece: its records as Arrow batches, without what was not asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from kts.arguments import DEFAULT_MAX_DECOMPRESSED_BYTES
from kts.codec.columns import ALL_COLUMNS, SCAN_COLUMNS, check_columns, decode, record_schema
from kts.dataset.plan import BATCH_BYTES, STREAM_COLUMNS, Piece, Range, lost_end
from kts.errors import CorruptIndexError, CorruptRecordError
from kts.segment import transactions
from kts.segment.damage import AFTER_DAMAGE_BYTES, Effort, next_sound_entry
from kts.segment.rereading import Reread, warn
from kts.segment.segment import Segment, at, rebase

MOST_WAITING = 64  # small batches that wait to be put together

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow as pa

    Mask = npt.NDArray[np.bool_]


def read_piece(
    piece: Piece,
    *,
    columns: Sequence[str] | None = None,
    views: bool = False,
    strict_range: Range = (None, None),
    isolation: str = "read_uncommitted",
    include_control: bool = False,
    on_error: str = "raise",
    verify_crc: bool = True,
    batch_bytes: int = BATCH_BYTES,
    max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
) -> Iterator[pa.RecordBatch]:
    """The records of a piece as Arrow batches of about ``batch_bytes``, none of them empty.

    Parameters
    ----------
    columns : list of str, optional
        Record columns, ``topic`` and ``partition``; None is Spark's eight.
    views : bool
        Keys and values as ``binary_view`` over the bytes read, uncopied where they are not compressed.
    strict_range : tuple of (int or None, int or None)
        Only records with start <= timestamp < end, in ms.
    isolation, include_control, on_error, verify_crc, max_decompressed_bytes
        As in ``kts.scan``.

    Raises
    ------
    CorruptRecordError
        With ``.path`` and ``.position`` in the file, after the rows before the damage were given.
    """
    names = check_columns(columns, SCAN_COLUMNS, STREAM_COLUMNS)
    reader = PieceReader(
        piece, names, views, strict_range, isolation == "read_committed", include_control,
        on_error == "skip", verify_crc, batch_bytes, max_decompressed_bytes,
    )  # fmt: skip
    return joined(reader.batches(), batch_bytes)


@dataclass
class PieceReader:
    """The state of reading one piece; see ``read_piece``."""

    piece: Piece
    names: tuple[str, ...]
    views: bool
    strict_range: Range
    committed: bool
    include_control: bool
    skip: bool
    verify_crc: bool
    batch_bytes: int
    max_decompressed_bytes: int

    def __post_init__(self) -> None:
        wanted = {name for name in self.names if name in ALL_COLUMNS} | {"offset"}
        if self.strict_range != (None, None):
            wanted.add("timestamp")
        if not self.include_control:
            wanted.add("control")
        if self.committed:
            wanted |= {"producerId", "transactional", "control", "position"}
        self.needed = [name for name in ALL_COLUMNS if name in wanted]
        self.schema = record_schema(self.names, self.views)
        self.constants: dict[str, pa.Array] = {}
        self.warned = False
        self.left_out = False
        self.effort = Effort()
        self.open_producers: set[int] = set()
        self.markers: transactions.Markers | None = None
        self.reread = Reread(self.piece.path)
        self.last_offset = -1
        self.reached = self.piece.base_offset
        self.segment = Segment(self.piece.path, self.piece.topic, self.piece.partition, self.piece.base_offset)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """What ``read_piece`` returns, where small batches are not put together."""
        return cut(self.decoded(), self.batch_bytes)

    def decoded(self) -> Iterator[pa.RecordBatch]:
        """The wanted rows and columns, slice by slice."""
        position, end = self.piece.start_position, self.piece.end_position
        expected = self.piece.base_offset
        read_bytes, first_bytes = self.batch_bytes, None
        while position < end:
            progress = False
            for start, data in self.segment.slices(position, end, read_bytes, first_bytes):
                progress, first_bytes = True, None
                try:
                    rows = self.decode(start, data)
                    position = start + len(data)
                except CorruptRecordError as error:
                    # What lies before the damage is good, and comes first.
                    if self.reread.differs(start, data):
                        position, expected = self.restart(expected)
                        break
                    relative = error.position or 0
                    rows = self.decode(start, data[:relative])
                    if self.is_past(rows):
                        yield from self.finished(rows)
                        return
                    if not self.skip:
                        yield from self.finished(rows)
                        raise at(error, self.piece.path, start) from error.__cause__
                    expected = self.seen(rows, expected)
                    position = self.skipped(start + relative, end, error.message)
                    first_bytes = AFTER_DAMAGE_BYTES
                    yield from self.finished(rows)
                    break
                if rows.num_rows and rows.column("offset")[0].as_py() != expected and self.reread.differs():
                    position, expected = self.restart(expected)
                    break
                self.reread.note(start, data)
                self.look_at_order(rows, expected)
                if self.committed and not self.piece.by_markers:
                    self.look_at_markers(rows)
                expected = self.seen(rows, expected)
                if self.is_past(rows):
                    yield from self.finished(rows)
                    return
                size = max(rows.nbytes // (2 if self.views else 1), 1)  # keys and values share what they view
                yield from self.finished(rows)
                # Compressed data grows: read less of it at a time, for batches of the size that was asked for.
                fitting = min(self.batch_bytes, max(2**16, len(data) * self.batch_bytes // size))
                if not read_bytes // 2 <= fitting <= read_bytes * 2:
                    read_bytes = fitting
                    break
            if not progress and self.reread.differs():
                position, expected = self.restart(expected)
            elif not progress:
                position = self.tail(position, end)
        self.look_at_end(expected)

    def restart(self, expected: int) -> tuple[int, int]:
        """Read the piece again for what was not given: a writer truncated the segment. Its position and offset."""
        self.piece = replace(self.piece, start_offset=max(self.piece.start_offset, expected))
        self.reached = self.piece.base_offset
        self.reread.forget()
        self.reread.again += 1
        return self.piece.start_position, self.piece.base_offset

    def decode(self, start: int, data: memoryview) -> pa.RecordBatch:
        rows = decode(
            data,
            self.needed,
            views=self.views,
            verify_crc=self.verify_crc,
            max_decompressed_bytes=self.max_decompressed_bytes,
        )
        return rebase(rows, start)

    def seen(self, rows: pa.RecordBatch, expected: int) -> int:
        """The offset behind the last one; ``reached`` is one that no damaged offset is the reason for.

        Offsets are under no CRC: an entry whose offset does not follow is believed once others follow it.
        """
        if rows.num_rows == 0:
            return expected
        offsets = rows.column("offset").to_numpy()
        last, jumps = int(offsets[-1]), np.flatnonzero(np.diff(offsets) != 1)
        if len(jumps):
            self.reached = min(int(offsets[jumps[-1]]) + 1, int(offsets[jumps[-1] + 1]))
        else:
            self.reached = last + 1 if offsets[0] == expected else min(expected, int(offsets[0]))
        if last < self.piece.base_offset + 2**31:
            self.last_offset = min(last, self.piece.end_offset - 1)
        return last + 1

    def is_past(self, rows: pa.RecordBatch) -> bool:
        """True if the last of these rows is the last that can be wanted: what follows needs no reading."""
        if rows.num_rows == 0:
            return False
        offsets = rows.column("offset").to_numpy()
        believed = offsets[-1] < self.piece.base_offset + 2**31 and _rises(offsets)
        return bool(believed and offsets[-1] >= self.piece.end_offset - 1)

    def look_at_order(self, rows: pa.RecordBatch, expected: int) -> None:
        """Warn once where offsets do not rise, or lie outside of the segment: they are under no CRC."""
        offsets = rows.column("offset").to_numpy()
        if self.warned or not len(offsets):
            return
        limit = self.piece.base_offset + 2**31
        if offsets[0] < expected or offsets[-1] >= limit or not _rises(offsets):
            self.warned = True
            before = np.concatenate([[expected - 1], offsets[:-1]])
            i = int(np.flatnonzero((offsets <= before) | (offsets >= limit))[0])
            warn(
                f"{self.piece.path}: offset {offsets[i]} follows {before[i]} in the segment with base offset"
                f" {self.piece.base_offset}: offsets are not in order; `kts verify` says more"
            )

    def aborted_by_markers(self, rows: pa.RecordBatch) -> Mask:
        """Which rows belong to transactions that end with an abort marker."""
        producers, offsets = rows.column("producerId").to_numpy(), rows.column("offset").to_numpy()
        data = _bools(rows, "transactional") & ~_bools(rows, "control")
        aborted = np.zeros(len(data), bool)
        if self.markers is None:
            self.markers = transactions.Markers(self.segment, rows.column("position")[0].as_py(), self.skip)
        for producer in np.unique(producers[data]).tolist():
            places = np.flatnonzero(data & (producers == producer))
            aborted[places] = self.markers.kinds(producer, offsets[places]) == transactions.ABORT
        return aborted

    def look_at_markers(self, rows: pa.RecordBatch) -> None:
        """Raise where an abort marker ends a transaction of this piece that the ``.txnindex`` does not list."""
        transactional, control = _bools(rows, "transactional"), _bools(rows, "control")
        producers, offsets = rows.column("producerId").to_numpy(), rows.column("offset").to_numpy()
        data = transactional & ~control & (offsets >= self.piece.start_offset) & (offsets < self.piece.end_offset)
        positions = rows.column("position").to_numpy()
        begun = 0
        for i in np.flatnonzero(transactional & control).tolist():
            self.open_producers.update(producers[begun:i][data[begun:i]].tolist())
            begun = i
            producer, offset = int(producers[i]), int(offsets[i])
            if producer not in self.open_producers:
                continue
            self.open_producers.discard(producer)
            kinds = transactions.markers_at(self.segment, int(positions[i]), producer)
            listed = any(p == producer and first <= offset <= last for p, first, last in self.piece.aborted)
            if listed or all(marker.kind != transactions.ABORT for marker in kinds):
                continue
            message = (
                f"the transaction of producer {producer} that is aborted at offset {offset} is not in the .txnindex, so"
                " records of it were given; without that file the markers of the log are used"
            )
            if not self.skip:
                raise CorruptIndexError(message, path=self.piece.path, position=int(positions[i]), offset=offset)
            warn(f"{self.piece.path}: {message}")
        self.open_producers.update(producers[begun:][data[begun:]].tolist())

    def look_at_end(self, expected: int) -> None:
        """Raise or warn where a closed segment that was read to its end lacks what its indexes know."""
        if expected >= min(self.piece.following, self.piece.end_offset) or self.left_out or self.reread.again:
            return
        error = lost_end(self.piece)
        if error is None:
            return
        if not self.skip:
            raise error
        warn(str(error))

    def tail(self, position: int, end: int) -> int:
        """What to do with bytes that reach beyond the end: a dead writer's are normal, a wrong size is damage."""
        size = self.segment.size_bytes
        # Complete segments do not change, but by truncation: then this one is written to again.
        if position >= size or self.reread.again or size < end or (size > end and self.piece.closed == 1):
            return self.piece.end_position
        end = min(end, size)
        behind = next_sound_entry(self.segment, position, end, self.reached, self.effort)
        if behind is None and not self.piece.closed:
            return self.piece.end_position
        what = "an entry reaches past the end of its closed segment"
        if behind is not None:
            what = f"an entry reaches past the end of the file, but a sound one starts {behind - position} bytes on"
        if not self.skip:
            raise CorruptRecordError(f"{what}; its size is wrong or bytes are missing", path=self.piece.path,
                                     position=position)  # fmt: skip
        return self.skipped(position, end, what)

    def skipped(self, position: int, end: int, why: str) -> int:
        """Where reading goes on behind damage; warns."""
        self.left_out = True
        end = min(end, self.segment.size_bytes)
        behind = next_sound_entry(self.segment, position, end, self.reached, self.effort)
        stop = end if behind is None else behind
        warn(f"{self.piece.path}: {stop - position} bytes at position {position} are damaged and left out: {why}")
        return self.piece.end_position if behind is None else behind

    def finished(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Rows that were asked for, in the columns that were asked for."""
        rows = self.within(rows)
        mask = self.mask(rows)
        if mask is not None and not mask.all():
            rows = _filter(rows, mask)
        if rows.num_rows:
            yield self.shaped(rows)

    def within(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        offsets = rows.column("offset").to_numpy()
        low, high = self.piece.start_offset, self.piece.end_offset
        if len(offsets) == 0 or (offsets[0] >= low and offsets[-1] < high and _rises(offsets)):
            return rows
        if _rises(offsets):
            first, stop = np.searchsorted(offsets, [low, high]).tolist()
            return rows.slice(first, stop - first)
        return _filter(rows, (offsets >= low) & (offsets < high))

    def mask(self, rows: pa.RecordBatch) -> Mask | None:
        import pyarrow as pa

        keep: Mask | None = None

        def both(more: Mask) -> None:
            nonlocal keep
            keep = more if keep is None else keep & more

        if not self.include_control and rows.column("control").true_count:
            both(~_bools(rows, "control"))
        if self.strict_range != (None, None):
            times = rows.column("timestamp").cast(pa.int64()).to_numpy()
            low, high = self.strict_range
            if low is not None:
                both(times >= low)
            if high is not None:
                both(times < high)
        if self.committed and self.piece.by_markers and rows.column("transactional").true_count:
            both(~self.aborted_by_markers(rows))
        elif self.committed and self.piece.aborted and rows.column("transactional").true_count:
            producers, offsets = rows.column("producerId").to_numpy(), rows.column("offset").to_numpy()
            transactional = _bools(rows, "transactional") & ~_bools(rows, "control")
            for producer, first, last in self.piece.aborted:
                if len(offsets) and first <= offsets[-1] and last >= offsets[0]:
                    hit = transactional & (producers == producer) & (offsets >= first) & (offsets <= last)
                    if hit.any():
                        both(~hit)
        return keep

    def shaped(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        import pyarrow as pa

        columns = [
            self.constant(name, rows.num_rows) if name in ("topic", "partition") else rows.column(name)
            for name in self.names
        ]
        if not columns:  # rows without columns still count
            return pa.RecordBatch.from_struct_array(pa.StructArray.from_buffers(pa.struct([]), rows.num_rows, [None]))
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def constant(self, name: str, count: int) -> pa.Array:
        """The topic or partition as often as needed: made once, sliced for each batch."""
        import pyarrow as pa

        known = self.constants.get(name)
        if known is None or len(known) < count:
            value = pa.scalar(self.piece.topic) if name == "topic" else pa.scalar(self.piece.partition, pa.int32())
            known = self.constants[name] = pa.repeat(value, max(count, 1024))
        return known.slice(0, count)


def cut(batches: Iterator[pa.RecordBatch], batch_bytes: int) -> Iterator[pa.RecordBatch]:
    """Large batches in slices of about that size; small ones as they are."""
    for batch in batches:
        parts = min(max(1, round(batch.nbytes / batch_bytes)), batch.num_rows)
        edges = [batch.num_rows * i // parts for i in range(parts + 1)]
        for start, end in zip(edges, edges[1:], strict=False):
            yield batch.slice(start, end - start) if parts > 1 else batch


def joined(batches: Iterator[pa.RecordBatch], batch_bytes: int) -> Iterator[pa.RecordBatch]:
    """Small batches put together to about that size, in their order.

    Notes
    -----
    Who wants only the first rows does not wait: the first batch comes at once, and each of the next ones is no larger
    than all before it together until they have their size. Rows that were read before an error come before it.
    """
    import pyarrow as pa

    few: list[pa.RecordBatch] = []  # joined whenever there are many: a batch of ten rows takes the memory of thousands
    more: list[pa.RecordBatch] = []
    waiting_bytes = given_bytes = 0

    def taken() -> Iterator[pa.RecordBatch]:
        nonlocal few, more, waiting_bytes, given_bytes
        waiting, few, more = [*more, *few], [], []
        given_bytes, waiting_bytes = given_bytes + waiting_bytes, 0
        if waiting:
            yield waiting[0] if len(waiting) == 1 else pa.concat_batches(waiting)

    try:
        for batch in batches:
            size = batch.nbytes or batch.num_rows  # rows without columns have no bytes
            if waiting_bytes + size > batch_bytes:
                yield from taken()
            few.append(batch)
            waiting_bytes += size
            if len(few) == MOST_WAITING:
                few, more = [], [*more, pa.concat_batches(few)]
            if waiting_bytes >= min(batch_bytes // 2, given_bytes):
                yield from taken()
    except Exception:
        yield from taken()
        raise
    yield from taken()


def _filter(rows: pa.RecordBatch, mask: Mask) -> pa.RecordBatch:
    import pyarrow as pa

    keep = pa.array(mask)
    columns = []
    for column in rows.columns:
        if column.type != pa.binary_view():
            columns.append(column.filter(keep))
            continue
        # Arrow has no filter for views: take the 16 bytes of each that stays; the bytes they point to are shared.
        validity, views, *data = column.buffers()
        start, count = column.offset, len(column)
        chosen = np.frombuffer(views, np.dtype("V16"))[start : start + count][mask]
        if validity is not None:
            validity = pa.array(np.asarray(column.is_valid())[mask]).buffers()[1]
        columns.append(pa.Array.from_buffers(column.type, len(chosen), [validity, pa.py_buffer(chosen), *data]))
    return pa.RecordBatch.from_arrays(columns, schema=rows.schema)


def _rises(offsets: npt.NDArray[np.int64]) -> bool:
    return bool((offsets[1:] > offsets[:-1]).all())


def _bools(rows: pa.RecordBatch, name: str) -> Mask:
    return np.asarray(rows.column(name).to_numpy(zero_copy_only=False), bool)
