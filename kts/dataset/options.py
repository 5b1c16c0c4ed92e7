"""The options of ``kts.scan``, of what else reads a range of records, and of what opens logs: declared here."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from numbers import Integral
from typing import TYPE_CHECKING, Any, NamedTuple

from kts.arguments import DEFAULT_MAX_DECOMPRESSED_BYTES, INT64_MAX, MOST_THREADS, choice
from kts.codec.columns import ALL_COLUMNS, SCAN_COLUMNS, check_columns, record_schema
from kts.dataset.decoders import DECODERS, column_types
from kts.model import TopicPartition
from kts.options import FLAG, MOMENT, Bytes, Choice, Declared, Duration, Json, Kind, Number, Several, option
from kts.store.addresses import RemoteOptions, StorageOptions
from kts.times import UNITS, Length, Time, length_of, milliseconds

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_BYTES = 4 * 2**20
LARGEST_BATCH_BYTES = 2**30  # in Spark: Arrow's binary columns have 32-bit offsets
ISOLATIONS = ("read_uncommitted", "read_committed")
ON_ERROR = ("raise", "skip")
HIGH_WATERMARK = "high_watermark"
DECODED_WITH = ("topic", "partition", "offset", "timestamp", "key", "value")  # around the decoder's columns
STREAM_COLUMNS = (*SCAN_COLUMNS, *(name for name in ALL_COLUMNS if name not in SCAN_COLUMNS))

Path = str | os.PathLike[str]
PartitionOffsets = Mapping[str, Mapping[int, int]] | Mapping[tuple[str, int], int] | Mapping[TopicPartition, int]
Offsets = int | str | PartitionOffsets | None
LogStartOffsets = int | PartitionOffsets | None


class TimeRange(NamedTuple):
    """The records with start <= timestamp < end, in ms, and how late they may come.

    ``allowed_lateness_ms`` is how long after younger ones a record may come; None is any time.
    """

    start_ms: int | None = None
    end_ms: int | None = None
    allowed_lateness_ms: int | None = None

    @property
    def latest_ms(self) -> int | None:
        """A block that begins then or later has no record of the range; None if such blocks cannot be told.

        A record without a timestamp, -1, may be anywhere. So may one before 1970, of which headers do not tell.
        """
        if self.start_ms is None or self.start_ms < 0 or self.end_ms is None or self.allowed_lateness_ms is None:
            return None
        return self.end_ms + self.allowed_lateness_ms


class _Offsets(Kind):
    """Offsets of one partition or of several."""

    def check(self, name: str, value: Any) -> Any:
        return _offsets(value, name)


@dataclass(frozen=True, kw_only=True)
class RangeOptions(Declared):
    """A range of times.

    Parameters
    ----------
    starting_timestamp : int (ms), aware datetime, date, numpy.datetime64 or text, optional
        Only records with this time or a later one. Times override offsets. Text is ISO 8601, in UTC if it names no
        zone, or ``now``, or ``-1h`` or ``-1d12h`` before now.
    ending_timestamp : int (ms), aware datetime, date, numpy.datetime64 or text, optional
        Only records with an earlier time.
    strict_time_range : bool
        Exactly the records with start <= timestamp < end; else the offsets of Spark's Kafka source. These are, of each
        partition, from the first one with a timestamp >= start (if there is none, nothing is read) up to, but not
        including, the first one with a timestamp >= end (if there is none, the log's end). Other times may lie between
        them, and records of the range behind them.
    allowed_lateness : int (ms), timedelta, text such as "1h", or None
        Do not read what begins this long after the end of an exact range, or later: ``30m``, ``2d``; ``unlimited``
        reads to the log's end. No record may come so long after younger ones. None is unlimited; so is a range without
        a start, or with one before 1970. If records of the range were later in what was read, a warning says how much.
    unit : {"s", "ms", "us", "ns"}, optional
        The unit of integers given as times; without it ms, and an integer that looks like another unit is refused.
    """

    starting_timestamp: Time | None = option(None, MOMENT, command="--from")
    ending_timestamp: Time | None = option(None, MOMENT, command="--to")
    strict_time_range: bool = option(True, FLAG, spark=True, command="--strict")
    allowed_lateness: Length = option("1h", Duration("LENGTH"), spark=True, command=True)
    unit: str | None = option(None, Choice(UNITS), spark="timeUnit", command=True)
    times: TimeRange = field(init=False, repr=False)  # checked

    def __post_init__(self) -> None:
        super().__post_init__()
        start, end = self.starting_timestamp, self.ending_timestamp
        start = None if start is None else milliseconds("starting_timestamp", start, self.unit)
        end = None if end is None else milliseconds("ending_timestamp", end, self.unit)
        if start is not None and end is not None and start > end:
            raise ValueError(f"starting_timestamp: {start} is after ending_timestamp {end}")
        found = TimeRange(start, end, length_of("allowed_lateness", self.allowed_lateness))
        object.__setattr__(self, "times", found)


@dataclass(frozen=True, kw_only=True)
class ScanOptions(RangeOptions):
    """How the records of a partition are read.

    Parameters
    ----------
    starting_offsets : int, str or {topic: {partition: int}}, optional
        The first offset; -2 or ``earliest``, -1 or ``latest``.
    ending_offsets : int, str or {topic: {partition: int}}, optional
        The end offset (exclusive); -1 or ``latest``, or ``high_watermark``, the broker's checkpoint (the log's end if
        there is none). Offsets outside the log select no records.
    columns : list of str, optional
        These columns, in this order. They are ``topic``, ``partition`` and those of ``kts.ALL_COLUMNS``; None is key,
        value, topic, partition, offset, timestamp, timestampType, headers. ``codecName`` is ``codec`` in words, as
        ``lz4`` (a dictionary). ``hasTimestamp`` is false where the timestamp is -1, unless its batch is marked as
        having one.
    isolation : str
        ``read_committed`` leaves out aborted transactions, and ends at the first open one.
    include_control : bool
        Include transaction markers and other control records.
    on_error : str
        On damage: stop; or ``skip``: leave out damaged bytes and warn with file, position and number of bytes. Fields
        of a record after the last one that ``columns`` needs are checked by the CRC only.
    verify_crc : bool
        False skips CRCs only.
    batch_bytes : int
        Approximate size of an Arrow batch.
    max_decompressed_bytes : int
        Bound on the decompressed bytes of a record batch or wrapper message.
    views : bool
        Keys and values as ``binary_view``.
    decoder : str, optional
        Decode the records of ``__consumer_offsets`` (``offsets``), ``__transaction_state`` (``transactions``),
        ``__share_group_state`` (``share``) or ``__cluster_metadata`` (``metadata``) to columns. The topic is then that
        one, and the columns are topic, partition, offset, timestamp, the decoder's, key and value; of ``metadata`` the
        last two, which may hold secrets, only if ``columns`` names them.
    threads : int
        Decode in up to this many threads, ahead of the reader. The rows, their order and that of errors stay the same;
        each thread adds one or two batches to the memory, with the bytes that they were read from.
    """

    starting_offsets: Offsets = option(None, _Offsets())
    ending_offsets: Offsets = option(None, _Offsets())
    columns: Sequence[str] | None = option(None, Kind("A,B,..."), command=True)
    isolation: str = option("read_uncommitted", Choice(ISOLATIONS), spark=True, command=True)
    include_control: bool = option(False, FLAG, spark=True, command=True)
    on_error: str = option("raise", Choice(ON_ERROR), spark=True, command=True)
    verify_crc: bool = option(True, FLAG, spark=True)
    batch_bytes: int = option(BATCH_BYTES, Bytes(in_spark=LARGEST_BATCH_BYTES), spark="maxBatchBytes")
    max_decompressed_bytes: int = option(DEFAULT_MAX_DECOMPRESSED_BYTES, Bytes(0), spark=True)
    views: bool = option(False, FLAG)
    decoder: str | None = option(None, Choice(DECODERS), spark=True, command=True)
    threads: int = option(1, Number(highest=MOST_THREADS), command="--jobs")
    names: tuple[str, ...] = field(init=False, repr=False)  # of the columns, checked

    def __post_init__(self) -> None:
        super().__post_init__()
        first, last = self.starting_offsets, self.ending_offsets
        if isinstance(first, int) and isinstance(last, int) and 0 <= last < first:
            raise ValueError(f"starting_offsets: {first} is after ending_offsets {last}")
        object.__setattr__(self, "names", stream_columns(self.columns, self.decoder))

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the columns."""
        return stream_schema(self.names, self.views)

    @property
    def within(self) -> TimeRange:
        """The times of the records that are read; no bounds if offsets, or times as offsets, bound them."""
        return self.times if self.strict_time_range else TimeRange()

    @property
    def committed(self) -> bool:
        """True if only records of committed transactions are read."""
        return self.isolation == "read_committed"

    @property
    def skip_damage(self) -> bool:
        """True if damage is skipped with a warning."""
        return self.on_error == "skip"


@dataclass(frozen=True, kw_only=True)
class LogOptions(Declared):
    """Which partitions under a path are read, and how they are reached.

    Parameters
    ----------
    topics : list of str, optional
        Only topics of these names, or of patterns such as ``ord*``. None is every topic, except Kafka's internal ones
        in a log directory. A pattern has ``*``, ``?`` or ``[...]``, and finds internal topics only if it begins with
        ``__``.
    partitions : list of int or {topic: list of int}, optional
        Only partitions of these numbers.
    storage_options : dict, optional
        How to reach a bucket, as ``{"region": "eu-west-1"}``; without it, by the usual environment. See ``kts.open``.
    remote : path, optional
        The tiered storage of the path, with the prefix of its keys, as one log with it; or it alone, without a path.
    remote_options : dict, optional
        ``layout``, ``private_keys`` and ``metadata`` of the tiered storage, as in ``kts.open``.
    """

    topics: Sequence[str] | str | None = option(None, Several(str, "NAME"), command="--topic")
    partitions: Sequence[int] | Mapping[str, Sequence[int]] | None = option(
        None, Several(int, "N"), command="--partition"
    )
    storage_options: StorageOptions = option(None, Json('{"region": "eu-west-1"}'), spark=True)
    remote: Path | None = option(None, Kind("URI"), spark=True)
    remote_options: RemoteOptions = option(None, Json('{"private_keys": {"k1": "/etc/kts/k1.pem"}}'), spark=True)

    @property
    def reaches_more(self) -> bool:
        """Whether ``storage_options`` also reach something else than the path and ``remote``."""
        return False


@dataclass(frozen=True)
class PathScanOptions(ScanOptions, LogOptions):
    """The arguments of ``kts.scan``.

    Parameters
    ----------
    path : path or list of paths
        As for ``kts.open``.
    log_start_offset : int or mapping, optional
        The log start offset, if it is later than the files show: a number for one partition, or one for each.
    """

    path: Path | Sequence[Path] | None
    _: KW_ONLY
    log_start_offset: LogStartOffsets = option(None, spark=True)


def stream_columns(
    columns: Sequence[str] | None, decoder: str | None, default: tuple[str, ...] = SCAN_COLUMNS
) -> tuple[str, ...]:
    """The columns of a scan: those that are asked for, or else the decoder's or ``default``."""
    if decoder is None:
        return check_columns(columns, default, STREAM_COLUMNS)
    choice("decoder", decoder, tuple(DECODERS))
    _, own, has_raw = DECODERS[decoder]
    shown = (*DECODED_WITH[:-2], *own, *(DECODED_WITH[-2:] if has_raw else ()))
    return check_columns(columns, shown, (*STREAM_COLUMNS, *own))


def stream_schema(columns: Sequence[str], views: bool = False) -> pa.Schema:
    """The Arrow schema of columns of a scan."""
    import pyarrow as pa

    decoded = column_types()
    records = record_schema(tuple(name for name in columns if name not in decoded), views)
    return pa.schema([(name, decoded[name]) if name in decoded else records.field(name) for name in columns])


def offset_or_time(name: str, value: Any) -> Any:
    """An offset as an int, or what is a time as it is.

    Raises
    ------
    TypeError
        A bool, or text of digits alone, which may be either.
    """
    if isinstance(value, bool) or (isinstance(value, str) and value.strip().lstrip("+-").isdigit()):
        raise TypeError(f"{name}: expected an offset as an int, or a time, found {value!r}")
    return int(value) if isinstance(value, Integral) else value


def flat_offsets(given: Mapping[Any, Any], name: str) -> dict[tuple[str, int], int]:
    """{topic: {partition: offset}} or {(topic, partition): offset}, converted to the latter."""
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
        if not -2 <= offset <= INT64_MAX:
            raise ValueError(f"{name}: expected an offset, -1 (latest) or -2 (earliest), found {offset}")
    return value if isinstance(value, int) else flat
