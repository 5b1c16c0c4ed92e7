"""The latest state of topics: of each key, the record with the greatest offset of its partition."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, fields
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from kts._codec import LatestOffsets
from kts.codec.encode import int64s
from kts.dataset.options import ISOLATIONS, PathScanOptions, ScanOptions, offset_or_time, stream_schema
from kts.dataset.partition import PartitionLog
from kts.dataset.paths import check_named, selected
from kts.dataset.scan import records
from kts.errors import CorruptRecordError, LogStorageError, OffsetOutOfRangeError
from kts.options import FLAG, Choice, Duration, option, takes_only
from kts.times import Length

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow as pa

HASH_BYTES, OFFSET_BYTES = 16, 8
ROW_BYTES = HASH_BYTES + OFFSET_BYTES
MOST_KEYS = 1 << 20  # in memory, 48 bytes each at most; more of them go to a file, by their hash
FEW_BYTES = 1 << 20  # of a set of offsets
PART_BITS = 8  # of a hash: the keys of a part are in memory together
KEYS, WITH_VALUES = ("offset", "key"), ("offset", "value")
PIECE = 1 << 18  # rows that go to the file at once


@dataclass(frozen=True)
class LatestOptions(PathScanOptions):
    """The arguments of ``kts.latest``: those of ``kts.scan``, which select records, and these.

    Parameters
    ----------
    as_of : int, {topic: {partition: int}}, or a time, optional
        The state by the records before this offset, as ``ending_offsets``; or by those with a timestamp before this
        datetime or ISO text, as ``ending_timestamp``.
    tombstones : bool
        Include the records without a value that are the latest of their key: it was deleted.
    isolation : str
        ``read_committed``, the default, leaves out aborted transactions, and ends at the first open one.
    allowed_lateness : timedelta, str or None
        None, the default, reads the whole rest of the log for late records.
    """

    _: KW_ONLY
    as_of: Any = option(None)
    tombstones: bool = option(False, FLAG, spark=True)
    isolation: str = option("read_committed", Choice(ISOLATIONS), spark=True, command=True)
    allowed_lateness: Length = option(None, Duration("LENGTH"), spark=True, command=True)

    def __post_init__(self) -> None:
        as_of = self.as_of
        if self.include_control:
            raise ValueError("include_control: the markers of transactions have no key; leave it out")
        if as_of is not None:
            as_of = offset_or_time("as_of", as_of)
            name = "ending_offsets" if isinstance(as_of, (int, Mapping)) else "ending_timestamp"
            if getattr(self, name) is not None:
                raise ValueError(f"as_of: {name} says the same; give one of them")
            object.__setattr__(self, name, as_of)
        super().__post_init__()


@takes_only(LatestOptions)
def latest(asked: LatestOptions) -> pa.RecordBatchReader:
    """The latest state of topics: of each key of a partition, the record with the greatest offset, without tombstones.

    Offsets decide, never times. Records without a key do not count. The log is read twice: first its keys, then the
    columns of the records that were found.

    Returns
    -------
    pyarrow.RecordBatchReader
        Ordered by topic, partition, offset.

    Raises
    ------
    FileNotFoundError, TypeError, ValueError, UnknownTopicOrPartitionError, OffsetOutOfRangeError
        A wrong argument; raised at once.
    CorruptRecordError
        Damage, or offsets that do not rise; raised while reading, with ``.path`` and ``.position``.
    LogStorageError
        Records of the state were deleted while they were read, or the temporary file cannot be written.

    Notes
    -----
    Memory is one bit for each offset between the first and the last record of a partition, or 8 bytes a record if that
    is less, and up to 64 MiB for keys; what does not fit goes to a temporary file of 24 bytes a record. The state
    equals what Kafka's cleaner leaves of the log, with tombstones applied.

    Examples
    --------
    >>> import kts
    >>> state = kts.latest("demo/orders", partitions=[0], columns=["key", "offset"]).read_all()
    >>> state.num_rows, state.slice(0, 1).to_pylist()
    (234, [{'key': b'C0573', 'offset': 1834}])
    """
    import pyarrow as pa

    _, logs = selected(asked.path, asked, asked.log_start_offset, decoder=asked.decoder)
    check_named(asked, logs)
    if isinstance(asked.ending_offsets, int) and asked.as_of is not None:
        ends = [log.log_end_offset for log in logs]
        if ends and asked.ending_offsets > max(ends):
            raise OffsetOutOfRangeError(
                f"as_of: offset {asked.as_of} is beyond the end of every partition, at most {max(ends)}; "
                "a time is a datetime or text"
            )
    ordered = sorted(logs, key=lambda log: (log.topic, log.partition))
    schema = stream_schema(asked.names, asked.views)
    return pa.RecordBatchReader.from_batches(schema, chain.from_iterable(latest_of(log, asked) for log in ordered))


def latest_of(log: PartitionLog, asked: LatestOptions) -> Iterator[pa.RecordBatch]:
    """The latest state of a partition; see :func:`latest`."""
    state = LatestState(records([log], _reading(asked, KEYS)), log.path, tombstones=asked.tombstones)
    for rows in records([log], _reading(asked, state.columns(asked.names)), end_offset=state.end_offset):
        if (found := state.rows(rows)).num_rows:
            yield found.select(list(asked.names))
    state.check_found()


def _reading(asked: LatestOptions, names: Sequence[str]) -> ScanOptions:
    """The options of a scan of these columns."""
    own = {one.name: getattr(asked, one.name) for one in fields(ScanOptions) if one.init}
    return ScanOptions(**own | {"columns": names, "views": asked.views and names != KEYS})


class LatestState:
    """The latest state of a partition, whose records are read twice: its keys, then what is asked of those chosen.

    Parameters
    ----------
    keys : iterable of pyarrow.RecordBatch
        The columns ``KEYS`` of the records, in order.
    path : str
        The partition, for messages.
    tombstones : bool
        Include the records without a value.
    """

    def __init__(self, keys: Iterable[pa.RecordBatch], path: str, *, tombstones: bool) -> None:
        self.path, self.tombstones, self.found = path, tombstones, 0
        with Latest() as latest:
            for rows in keys:
                try:
                    latest.take(rows.column("key"), int64s(rows.column("offset"), "offset"))
                except CorruptRecordError as error:
                    error.path = path
                    raise
            self.end_offset = latest.last + 1
            self._chosen = None if latest.first < 0 else latest.chosen()

    @staticmethod
    def columns(names: Sequence[str]) -> tuple[str, ...]:
        """The columns to read for these."""
        return tuple(dict.fromkeys((*names, *WITH_VALUES)))

    def rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Those of these records that are of the state; it has the columns ``WITH_VALUES``."""
        import pyarrow as pa

        if self._chosen is None:
            return batch.slice(0, 0)
        mask = self._chosen.of(int64s(batch.column("offset"), "offset"))
        self.found += int(mask.sum())
        if not self.tombstones:
            mask &= np.asarray(batch.column("value").is_valid())
        return batch.filter(pa.array(mask))

    def check_found(self) -> None:
        """Raise LogStorageError if the second reading did not find what the first one did."""
        expected = 0 if self._chosen is None else self._chosen.count
        if self.found < expected:
            raise LogStorageError(
                f"expected {expected} keys, found {self.found}: records of the state were deleted while they were "
                "read; ask again",
                path=self.path,
            )


class Latest:
    """Finds the offsets of the latest records of a partition; a context manager, which removes its file.

    Notes
    -----
    One bit for each offset between the first and the last record, or 8 bytes a record, and up to 48 bytes for each key
    in memory. Beyond
    ``MOST_KEYS`` the hashes (SipHash of 128 bits, with a random secret) and offsets of all records that follow, 24
    bytes each, lie in a temporary file.
    """

    def __init__(self) -> None:
        self._secret = os.urandom(HASH_BYTES)
        self._map = LatestOffsets(MOST_KEYS, self._secret)
        self._spilled: _Spilled | None = None
        self.first, self.last = -1, -1  # offsets that were seen, with a key
        self.records = 0

    def __enter__(self) -> Latest:
        return self

    def __exit__(self, *_: object) -> None:
        if self._spilled is not None:
            self._spilled.remove()

    def take(self, keys: pa.Array, offsets: npt.NDArray[np.int64]) -> None:
        """Add the next records, whose offsets are greater than all before; those without a key do not count."""
        if keys.null_count:
            valid = np.asarray(keys.is_valid())
            keys, offsets = keys.drop_null(), offsets[valid]
        if not len(offsets):
            return
        risen = np.diff(offsets, prepend=self.last) > 0
        if not risen.all():
            at = int(risen.argmin())
            raise CorruptRecordError(
                "expected offsets that rise, found one again or a lower one: what is the latest is not known; "
                "`kts verify` says more",
                offset=int(offsets[at]),
            )
        if self.first < 0:
            self.first = int(offsets[0])
        self.last = int(offsets[-1])
        self.records += len(offsets)
        _, ends, data = keys.buffers()
        places = memoryview(ends).cast("B").cast("i")[keys.offset : keys.offset + len(keys) + 1]
        hashes = self._map.hashes(places, b"" if data is None else data)
        done = 0 if self._spilled is not None else self._map.put(hashes, offsets.data)
        if done == len(offsets):
            return
        if self._spilled is None:
            entries = self._map.entries()
            self._map = LatestOffsets(1, self._secret)  # from here on only for hashes
            self._spilled = _Spilled()
            self._spilled.add(*entries)
        self._spilled.add(memoryview(hashes)[done * HASH_BYTES :], offsets[done:].tobytes())

    def chosen(self) -> OffsetSet:
        """The offsets of the latest records."""
        chosen = OffsetSet(self.first, self.last, self.records)
        if self._spilled is None:
            chosen.add(np.frombuffer(self._map.entries()[1], np.int64))
            return chosen
        for hashes, offsets in self._spilled.parts():
            part = LatestOffsets(len(offsets) // OFFSET_BYTES or 1, self._secret)
            part.put(hashes, offsets)
            chosen.add(np.frombuffer(part.entries()[1], np.int64))
        return chosen


class OffsetSet:
    """A set of offsets: one bit for each that it may have, or their list, where it may have many and has few.

    Parameters
    ----------
    first, last : int
        The least and the greatest that it may have.
    most : int
        How many it has at most.
    """

    def __init__(self, first: int, last: int, most: int) -> None:
        self.first, self.count = first, 0
        span = last - first
        self._bits = np.zeros(span // 8 + 1, np.uint8) if span // 8 <= max(OFFSET_BYTES * most, FEW_BYTES) else None
        self._listed: list[npt.NDArray[np.int64]] = []
        self._sorted = False

    def add(self, offsets: npt.NDArray[np.int64]) -> None:
        """Add offsets, each once."""
        self.count += len(offsets)
        if self._bits is None:
            self._listed.append(offsets)
            return
        places = offsets - self.first
        np.bitwise_or.at(self._bits, places >> 3, (1 << (places & 7)).astype(np.uint8))

    def of(self, offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Which of these offsets are in it."""
        if self._bits is None:
            if not self._sorted:
                self._listed, self._sorted = [np.sort(np.concatenate(self._listed))], True
            [listed] = self._listed
            places = np.minimum(np.searchsorted(listed, offsets), len(listed) - 1)
            found: npt.NDArray[np.bool_] = listed[places] == offsets
            return found
        places = offsets - self.first
        inside = (places >= 0) & (places >> 3 < len(self._bits))
        places = np.where(inside, places, 0)
        bits: npt.NDArray[np.uint8] = self._bits[places >> 3] >> (places & 7).astype(np.uint8) & 1
        return np.logical_and(inside, bits)


class _Spilled:
    """Hashes and offsets in a temporary file, those of one key in one part, in the order in which they came."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(prefix="kts-latest-")  # noqa: SIM115  # `remove` closes it
        self._waiting: list[npt.NDArray[np.uint64]] = []
        self._rows = 0
        self._ends: list[npt.NDArray[np.intp]] = []  # of the parts in each run of rows, in rows of the file

    def add(self, hashes: Any, offsets: Any) -> None:
        """Add hashes and their offsets."""
        rows = np.empty((len(offsets) // OFFSET_BYTES, 3), np.uint64)
        rows[:, :2] = np.frombuffer(hashes, np.uint64).reshape(-1, 2)
        rows[:, 2] = np.frombuffer(offsets, np.uint64)
        self._waiting.append(rows)
        self._rows += len(rows)
        if self._rows >= PIECE:
            self._write()

    def _write(self) -> None:
        rows = np.concatenate(self._waiting)
        self._waiting, self._rows = [], 0
        part = (rows[:, 1] >> np.uint64(64 - PART_BITS)).astype(np.uint16)
        order = np.argsort(part, kind="stable")
        before = self._ends[-1][-1] if self._ends else 0
        self._ends.append(before + np.searchsorted(part[order], np.arange((1 << PART_BITS) + 1)))
        try:
            rows[order].tofile(self._file)
        except OSError as error:
            raise LogStorageError(f"temporary file in {tempfile.gettempdir()}: {error}") from error

    def parts(self) -> Iterator[tuple[bytes, bytes]]:
        """The hashes and offsets of each part."""
        if self._waiting:
            self._write()
        self._file.flush()
        for number in range(1 << PART_BITS):
            runs = []
            for ends in self._ends:
                self._file.seek(int(ends[number]) * ROW_BYTES)
                runs.append(np.fromfile(self._file, np.uint64, int(ends[number + 1] - ends[number]) * 3))
            rows = np.concatenate(runs).reshape(-1, 3)
            if len(rows):
                yield rows[:, :2].tobytes(), rows[:, 2].tobytes()

    def remove(self) -> None:
        """Remove the file."""
        self._file.close()
