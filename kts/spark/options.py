"""The options of ``spark.read.format("kts")`` and ``spark.readStream``: names, defaults and checks."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

from kts.arguments import INT64_MAX, INT64_MIN, suggestion
from kts.dataset.latest import LatestOptions
from kts.dataset.options import LogOptions, PathScanOptions, ScanOptions
from kts.model import EARLIEST, LATEST
from kts.options import FLAG, Bytes, Choice, Duration, Flag, Json, Number, camel_case, option, options_of, same
from kts.store import addresses
from kts.times import UNITS, NotATimeError, length_of, milliseconds, parse_length, parse_range_time

PartitionValues = dict[str, dict[int, int]]  # by topic and partition

GRANULARITIES = ("record", "batch", "segment", "finding", "damage")  # what a row is about
OVERFLOW_POLICIES = ("error", "null", "clamp")  # for a timestamp beyond Spark's range
UNIT_OPTION = "timeUnit={}"  # as an error names it
BATCH, STREAM, EITHER = "batch", "stream", "either"  # the query: a source learns late which it is
_VIEW = "CREATE TEMPORARY VIEW name USING kts OPTIONS (path '/var/lib/kafka/data')"
_SIZE_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}

STREAM_ONLY = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
_ONLY = {  # by query
    STREAM: STREAM_ONLY,
    BATCH: (
        "endingTimestamp",
        "endingOffsetsByTimestamp",
        "endingOffsets",
        "allowedLateness",
        "latest",
        "tombstones",
    ),
}
_NETWORK_ONLY = (
    "groupIdPrefix",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
)


@dataclass(frozen=True)
class Bound:
    """One end of the range to read.

    ``kind`` is ``earliest``, ``latest``, ``timestamp`` (one for all partitions), ``timestamps`` or ``offsets`` (one for
    each); ``option`` is the name of the option, for messages.
    """

    kind: str
    option: str
    timestamp_ms: int = 0
    values: PartitionValues = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Options:
    """All options of a read, checked; ``scan`` has those that are options of ``kts.scan`` too.

    Parameters
    ----------
    paths : tuple of str
        Log directories, partition directories, segment files or addresses in a bucket, also with patterns; ``paths`` is
        a JSON list of them.
    assign : dict, optional
        The partitions to read: JSON ``{"orders": [0, 1]}``.
    subscribe : tuple of str, optional
        The topics to read: names or patterns such as ``ord*``, separated by commas.
    subscribe_pattern : str, optional
        The topics to read: a Python regular expression for the whole name, which finds no internal topics.
    start : Bound
        Where the range begins; the first of these that is given counts: a time for all partitions, in ms or ISO 8601;
        JSON ``{"orders": {"0": time}}``; ``earliest``, or JSON ``{"orders": {"0": 23}}``, where -2 is earliest.
    end : Bound
        Where the range ends, likewise: the first time or offset that is left out; -1 is latest.
    unmatched : str
        ``latest``: a partition without a record at or after the start returns nothing instead of an error.
    fail_on_data_loss : bool
        ``false``: skip offsets that do not exist, or whose segment is gone when a task begins with it, and warn.
    include_headers : bool
        Add the column ``headers``.
    min_partitions : int, optional
        At least about this many tasks that read records.
    max_records : int, optional
        At most this many offsets of records per task.
    granularity : str
        What a row is about.
    latest : bool
        Read the latest state: of each key of a partition, the record with the greatest offset, without tombstones. The
        state as of an offset or a time is a read with that end. Reads with ``isolation=read_committed`` and
        ``allowedLateness=unlimited`` by default; a task has whole partitions.
    tombstones : bool
        With ``latest``: include the records without a value.
    deep : bool
        With ``granularity=finding``: decode every record, as ``kts verify --deep``.
    timestamp_overflow : str
        The result for a time beyond Spark's 64-bit microseconds (9223372036854775 ms): ``null``, or ``clamp`` to the
        extreme.
    max_offsets : int, optional
        At most about this many offsets in a micro-batch, shared among partitions by what each has, but at least one of
        each.
    min_offsets : int, optional
        No micro-batch until this many offsets are there; ``availableNow`` and ``once`` do not wait.
    max_delay_ms : int
        How long ``minOffsetsPerTrigger`` waits after the last micro-batch.
    """

    paths: tuple[str, ...] = option((), spark="path paths")
    assign: dict[str, tuple[int, ...]] | None = option(None, spark=True)
    subscribe: tuple[str, ...] | None = option(None, spark=True)
    subscribe_pattern: str | None = option(None, spark=True)
    start: Bound = option(
        Bound("earliest", "startingOffsets"), spark="startingTimestamp startingOffsetsByTimestamp startingOffsets"
    )
    end: Bound = option(
        Bound("latest", "endingOffsets"), spark="endingTimestamp endingOffsetsByTimestamp endingOffsets"
    )
    unmatched: str = option("error", Choice(("error", "latest")), spark="startingOffsetsByTimestampStrategy")
    fail_on_data_loss: bool = option(True, FLAG, spark=True)
    include_headers: bool = option(False, FLAG, spark=True)
    min_partitions: int | None = option(None, Number(), spark=True)
    max_records: int | None = option(None, Number(), spark="maxRecordsPerPartition")
    scan: ScanOptions = ScanOptions()
    granularity: str = option("record", Choice(GRANULARITIES), spark=True)
    latest: bool = option(False, FLAG, spark=True)
    tombstones: bool = same(LatestOptions, "tombstones")
    deep: bool = option(False, FLAG, spark=True)
    timestamp_overflow: str = option("error", Choice(OVERFLOW_POLICIES), spark=True)
    log_start_offset: int | PartitionValues | None = same(PathScanOptions, "log_start_offset")
    storage_options: Mapping[str, Any] | None = same(LogOptions, "storage_options")
    remote: str | None = same(LogOptions, "remote")
    remote_options: Mapping[str, Any] | None = same(LogOptions, "remote_options")
    max_offsets: int | None = option(None, Number(), spark="maxOffsetsPerTrigger")
    min_offsets: int | None = option(None, Number(), spark="minOffsetsPerTrigger")
    max_delay_ms: int = option(15 * 60 * 1000, spark="maxTriggerDelay")

    @property
    def latest_when_unmatched(self) -> bool:
        """True if a partition without a record at or after the start has nothing to read."""
        return self.unmatched == "latest"

    @property
    def shown(self) -> str:
        """What is read, for messages."""
        return ", ".join([*self.paths, *([] if self.remote is None else [self.remote])])

    @property
    def skips(self) -> bool:
        """True if damage is skipped: with a warning, or as rows of its own."""
        return self.scan.skip_damage or self.granularity == "damage"


DECLARED = (*options_of(Options).values(), *options_of(ScanOptions).values())
KNOWN = tuple(name for one in DECLARED for name in one.spark_names)


def parse_options(given: Mapping[str, str], query: str = BATCH) -> Options:
    """Check the options of a read.

    Parameters
    ----------
    given : mapping of str to str
        As Spark passes them; names in any case.
    query : str
        ``batch``, ``stream``, or ``either``, which allows the options of both.

    Raises
    ------
    ValueError
        An option is missing, unknown or invalid, or options contradict each other.
    """
    raw = {name.lower(): str(value) for name, value in given.items()}
    _refuse_unknown(given, query)
    read = Values(raw)
    assign, subscribe, pattern = _selection(read)
    unit = read.unit("timeUnit")
    strict = read.boolean("strictTimeRange", query != STREAM)
    scan = read.declared(ScanOptions) | {"strict_time_range": strict}
    if read.boolean("latest", False):
        of_latest = {"isolation": LatestOptions.isolation, "allowed_lateness": LatestOptions.allowed_lateness}
        scan |= {name: value for name, value in of_latest.items() if read.text(camel_case(name)) is None}
    options = Options(
        paths=_paths(raw),
        assign=assign,
        subscribe=subscribe,
        subscribe_pattern=pattern,
        start=_bound(read, "starting", "latest" if query == STREAM else "earliest", unit, query != BATCH),
        end=_bound(read, "ending", "latest", unit, False),
        scan=ScanOptions(**scan),
        log_start_offset=_log_start_offset(read),
        remote=None if (remote := read.text("remote")) is None else absolute_prefix(local_path(remote, "remote")),
        max_delay_ms=read.length("maxTriggerDelay", Options.max_delay_ms),
        **read.declared(Options),
    )
    _refuse_contradictions(options, query)
    _refuse_without_time(options, read)
    return options


def _refuse_unknown(given: Mapping[str, str], query: str) -> None:
    known = {name.lower() for name in KNOWN}
    network = {name.lower(): name for name in _NETWORK_ONLY}
    only = {name.lower(): (name, of) for of, names in _ONLY.items() for name in names}
    for name in sorted(given):
        low = name.lower()
        if low in only and query not in (EITHER, only[low][1]):
            shown, of = only[low]
            why = "for streaming queries (spark.readStream)" if of == STREAM else "for batch queries (spark.read)"
            raise ValueError(f"option {shown} is {why}, and this is a {query} query: leave it out")
        if low in known:
            continue
        if low.startswith("kafka.") or low in network:
            shown = network.get(low, name)
            instead = "use isolation" if low == "kafka.isolation.level" else "leave it out"
            raise ValueError(
                f"option {shown} is for clients of a broker, and kts reads Kafka's files without one: {instead} and "
                'give the log directory, as in .load("/var/lib/kafka/data")'
            )
        if low in ("location", "owner"):
            raise ValueError(
                f"option {name} comes from CREATE TABLE, which keeps no options for sources in Python: use {_VIEW}"
            )
        hint = suggestion(name, KNOWN) or f"known are {', '.join(KNOWN)}"
        raise ValueError(f"option {name} is unknown: {hint}")


def _paths(raw: Mapping[str, str]) -> tuple[str, ...]:
    found: list[str] = []
    if raw.get("paths", "").strip():
        try:
            listed = json.loads(raw["paths"])
        except (ValueError, RecursionError) as error:
            raise wrong("paths", "a JSON list of paths", raw["paths"]) from error
        if not isinstance(listed, list) or not all(isinstance(path, str) for path in listed):
            raise wrong("paths", "a JSON list of paths", raw["paths"])
        found += listed
    if raw.get("path", "").strip():
        found.append(raw["path"])
    if not found and not raw.get("remote", "").strip():
        raise ValueError(
            "option path is missing: name a log directory, a partition directory or segment files, as in "
            '.load("/var/lib/kafka/data"); Spark tells none of a table in a catalog, so use a temporary view instead: '
            f"{_VIEW}"
        )
    return tuple(dict.fromkeys(local_path(path) for path in found))


def local_path(path: str, option: str = "path") -> str:
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]+):/", path)
    if scheme is None or addresses.is_served(path):
        return path
    if scheme[1].lower() != "file":
        raise ValueError(
            f"option {option}: kts reads {', '.join(addresses.served())} and files that each executor sees in its own"
            f" file system, found {path!r}: mount or copy the {scheme[1]} data first and give that path"
        )
    return unquote(urlsplit(path).path)


def absolute_prefix(remote: str) -> str:
    """Where tiered storage lies, for executors, which have working directories of their own.

    It is kept to the last character: it may be the beginning of names.
    """
    return os.path.join(os.getcwd(), remote) if addresses.scheme_of(remote) is None else remote


def _selection(read: Values) -> tuple[dict[str, tuple[int, ...]] | None, tuple[str, ...] | None, str | None]:
    assign = read.partitions("assign")
    topics = read.text("subscribe")
    pattern = read.text("subscribePattern")
    given = {"assign": assign, "subscribe": topics, "subscribePattern": pattern}
    chosen = [name for name, value in given.items() if value is not None]
    if len(chosen) > 1:
        raise ValueError(f"options {' and '.join(chosen)} exclude each other: give one of them, or none for all topics")
    subscribe = None
    if topics is not None:
        subscribe = tuple(dict.fromkeys(name for name in (part.strip() for part in topics.split(",")) if name))
        if not subscribe:
            raise wrong("subscribe", "topic names separated by commas", topics)
    if pattern is not None:
        try:
            re.compile(pattern)
        except re.error as error:
            raise wrong("subscribePattern", f"a Python regular expression ({error})", pattern) from error
        if not pattern:
            raise wrong("subscribePattern", "a Python regular expression", pattern)
    return assign, subscribe, pattern


def _bound(read: Values, side: str, default: str, unit: str | None, from_latest: bool) -> Bound:
    """One end of the range. A timestamp for all wins over timestamps by partition, these over offsets, as in Spark.

    ``from_latest`` allows to start at the log's end, where only a stream finds something.
    """
    name = f"{side}Timestamp"
    timestamp_ms = read.milliseconds(name, unit)
    if timestamp_ms is not None:
        return Bound("timestamp", name, timestamp_ms=timestamp_ms)
    name = f"{side}OffsetsByTimestamp"
    values = read.times(name, unit)
    if values is not None:
        return Bound("timestamps", name, values=values)
    name = f"{side}Offsets"
    text = read.text(name)
    if text is None:
        return Bound(default, name)
    if from_latest:
        if text.lower() in ("earliest", "latest"):
            return Bound(text.lower(), name)
        shape = 'earliest, latest or JSON such as {"orders": {"0": 23, "1": -2}}'
        return Bound("offsets", name, values=read.numbers(name, shape, lowest=EARLIEST) or {})
    if text.lower() == default:
        return Bound(default, name)
    allowed, refused, sign = (EARLIEST, "latest", LATEST) if side == "starting" else (LATEST, "earliest", EARLIEST)
    shape = f'{default} or JSON such as {{"orders": {{"0": 23, "1": {allowed}}}}}'
    if text.lower() == refused:
        raise wrong(name, f"{shape}, because {refused} leaves nothing to read", text)
    values = read.numbers(name, shape, lowest=EARLIEST) or {}
    for topic, offsets in values.items():
        for partition, offset in offsets.items():
            if offset == sign:
                raise wrong(
                    name, f"an offset or {allowed} ({default}) for {topic}-{partition}", f"{offset} ({refused})"
                )
    return Bound("offsets", name, values=values)


def _log_start_offset(read: Values) -> int | PartitionValues | None:
    name = "logStartOffset"
    text = read.text(name)
    if text is None:
        return None
    if text.startswith("{"):
        return read.numbers(name, 'offsets as JSON such as {"orders": {"0": 23}}', lowest=0)
    number = integer(text)
    if number is None or number < 0:
        raise wrong(name, 'an offset, or JSON such as {"orders": {"0": 23}}', text)
    return number


def _refuse_contradictions(options: Options, query: str) -> None:
    if options.max_offsets is not None and (options.min_offsets or 0) > options.max_offsets:
        raise ValueError(
            f"options minOffsetsPerTrigger and maxOffsetsPerTrigger: {options.min_offsets} is above "
            f"{options.max_offsets}; give a minimum that a micro-batch can reach"
        )
    if options.remote is None and options.remote_options is not None:
        raise ValueError("option remoteOptions: set remote as well, which names the tiered storage")
    kind = options.granularity
    if query == STREAM and kind not in ("record", "batch"):
        raise ValueError(f"option granularity={kind} is for batch queries (spark.read), and this is a {query} query")
    if options.tombstones and not options.latest:
        raise ValueError("option tombstones is about the latest state: leave it out, or set latest to true")
    for name, asked in (("minPartitions", options.min_partitions), ("maxRecordsPerPartition", options.max_records)):
        if options.latest and asked is not None:
            raise ValueError(f"option {name}: with latest=true a task has whole partitions; leave it out")
    if options.deep and kind != "finding":
        raise ValueError("option deep is about findings: leave it out, or set granularity to finding")
    if kind != "record":
        record_only = {
            "latest": options.latest,
            "includeHeaders": options.include_headers,
            "isolation=read_committed": options.scan.committed and kind != "damage",
            "decoder": options.scan.decoder is not None and kind != "damage",
            "maxOffsetsPerTrigger": options.max_offsets is not None,
            "onError=skip": options.scan.skip_damage and kind != "segment",
            "minPartitions": options.min_partitions is not None and kind != "damage",
            "maxRecordsPerPartition": options.max_records is not None and kind != "damage",
        }
        for name, asked in record_only.items():
            if asked:
                raise ValueError(f"option {name} is about records: leave it out, or set granularity to record")
    for bound in (options.start, options.end) if kind == "finding" else ():
        if bound.kind not in ("earliest", "latest"):
            raise ValueError(
                f"option {bound.option} is about records, and granularity=finding checks whole partitions: leave it out"
            )


def _refuse_without_time(options: Options, read: Values) -> None:
    times = ("timestamp", "timestamps")
    if (
        options.scan.strict_time_range
        and read.text("strictTimeRange")
        and not {options.start.kind, options.end.kind} & {*times}
    ):
        raise ValueError(
            "option strictTimeRange needs a time: give startingTimestamp, endingTimestamp, startingOffsetsByTimestamp "
            "or endingOffsetsByTimestamp"
        )
    if read.text("allowedLateness") and not (options.scan.strict_time_range and options.end.kind in times):
        raise ValueError(
            "option allowedLateness is about the end of a range of times: give endingTimestamp or"
            " endingOffsetsByTimestamp, without strictTimeRange=false, or leave it out"
        )


# --- values, which Spark passes as strings --------------------------------------------------------


class Values:
    """Typed access to option values by name, in any case; every error names the option."""

    def __init__(self, raw: Mapping[str, str]) -> None:
        self._raw = raw

    def declared(self, owner: type) -> dict[str, Any]:
        """The options of a class that have a kind which says how they are read, by the names of their fields."""
        found = dict[str, Any]()
        for one in options_of(owner).values():
            for name in one.spark_names:
                match one.kind:
                    case Flag():
                        found[one.name] = self.boolean(name, one.default)
                    case Choice(choices=choices):
                        found[one.name] = one.default if self.text(name) is None else self.choice(name, choices)
                    case Bytes(in_spark=most):
                        found[one.name] = self.size(name, one.default, most)
                    case Number():
                        found[one.name] = self.positive(name)
                    case Duration():
                        found[one.name] = self.lateness(name, one.default)
                    case Json(example=example):
                        found[one.name] = self.json_object(name, f"JSON such as {example}")
        return found

    def text(self, name: str) -> str | None:
        value = self._raw.get(name.lower())
        return None if value is None else value.strip()

    def boolean(self, name: str, default: bool) -> bool:
        text = self.text(name)
        if text is None:
            return default
        if text.lower() not in ("true", "false"):
            raise wrong(name, "true or false", text)
        return text.lower() == "true"

    def choice(self, name: str, allowed: tuple[str, ...]) -> str:
        text = self.text(name) or ""
        if text.lower() not in allowed:
            raise wrong(name, " or ".join(allowed), text)
        return text.lower()

    def positive(self, name: str, most: int = INT64_MAX) -> int | None:
        text = self.text(name)
        if text is None:
            return None
        number = integer(text)
        if number is None or not 1 <= number <= most:
            limit = "" if most == INT64_MAX else f" and up to {most}"
            raise wrong(name, f"a whole number above 0{limit}", text)
        return number

    def size(self, name: str, default: int, limit: int) -> int:
        text = self.text(name)
        if text is None:
            return default
        match = re.fullmatch(r"(\d{1,15})\s*([kmg]?)b?", text.lower())
        number = int(match[1]) * _SIZE_UNITS[match[2]] if match else 0
        if not 1 <= number <= limit:
            raise wrong(name, f"a size in bytes from 1 to {limit}, such as 4194304 or 4m", text)
        return number

    def length(self, name: str, default: int) -> int:
        """A length of time in ms; a number is ms, and ``min`` is minutes, as Spark has them."""
        text = self.text(name)
        if text is None:
            return default
        try:
            return parse_length(f"{text}ms" if text.isdecimal() else text.replace("min", "m"))
        except ValueError:
            raise wrong(name, "a length of time such as 15m, 90s or 1h (ms s m h d w)", text) from None

    def lateness(self, name: str, default: str) -> int | None:
        """A length of time in ms, which may be 0 or unlimited (None)."""
        text = self.text(name)
        if text == "":
            raise wrong(name, "a length of time such as 1h, or unlimited", text)
        return length_of(f"option {name}", (text or default).replace("min", "m"))

    def unit(self, name: str) -> str | None:
        """The unit of integers given as times, or None."""
        return None if self.text(name) is None else self.choice(name, tuple(UNITS))

    def milliseconds(self, name: str, unit: str | None) -> int | None:
        """A time as ISO 8601 or an integer."""
        text = self.text(name)
        if text is None:
            return None
        try:
            return parse_range_time(text, unit, how=UNIT_OPTION)
        except NotATimeError:
            expected = "milliseconds since 1970 as a whole number, such as 1704067200000, or a time in ISO 8601"
            raise wrong(name, expected, text) from None
        except ValueError as error:
            raise ValueError(f"option {name}: {error}") from None

    def times(self, name: str, unit: str | None) -> PartitionValues | None:
        """JSON ``{"topic": {"0": time}}``, each time an integer or ISO 8601."""

        def time(value: object) -> int | None:
            if type(value) is not int and not isinstance(value, str):
                return None
            return milliseconds(f"option {name}", value, unit, how=UNIT_OPTION)

        shape = 'milliseconds as JSON such as {"orders": {"0": 1704067200000}}, or times in ISO 8601'
        return self._by_partition(name, shape, time)

    def numbers(self, name: str, shape: str, lowest: int = INT64_MIN) -> PartitionValues | None:
        """JSON ``{"topic": {"0": number}}``."""

        def number(value: object) -> int | None:
            return value if type(value) is int and lowest <= value <= INT64_MAX else None

        return self._by_partition(name, shape, number)

    def _by_partition(self, name: str, shape: str, parse: Callable[[object], int | None]) -> PartitionValues | None:
        text = self.text(name)
        if text is None:
            return None
        result: PartitionValues = {}
        for topic, values in self._json_object(name, text, shape).items():
            if not isinstance(values, dict):
                raise wrong(name, shape, text)
            for partition, value in values.items():
                index, parsed = integer(partition), parse(value)
                if index is None or index < 0 or parsed is None:
                    raise wrong(name, shape, f"{partition!r}: {value!r} under {topic!r}")
                result.setdefault(topic, {})[index] = parsed
        return result

    def partitions(self, name: str) -> dict[str, tuple[int, ...]] | None:
        """JSON ``{"topic": [0, 1]}``."""
        text = self.text(name)
        if text is None:
            return None
        shape = 'JSON such as {"orders": [0, 1]}'
        result = {}
        for topic, indexes in self._json_object(name, text, shape).items():
            if not isinstance(indexes, list) or not all(type(i) is int and i >= 0 for i in indexes):
                raise wrong(name, shape, f"{indexes!r} under {topic!r}")
            result[topic] = tuple(sorted(set(indexes)))
        return result

    def json_object(self, name: str, shape: str) -> dict[str, Any] | None:
        """A JSON object; None if the option is not given."""
        text = self.text(name)
        return None if text is None else self._json_object(name, text, shape)

    @staticmethod
    def _json_object(name: str, text: str, shape: str) -> dict[str, Any]:
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise wrong(name, shape, text) from error
        if not isinstance(value, dict) or not value:
            raise wrong(name, shape, text)
        return value


def wrong(name: str, expected: str, found: str) -> ValueError:
    """An error about the value of an option."""
    if not found:
        return ValueError(f"option {name} is empty: expected {expected}")
    return ValueError(f"option {name}: expected {expected}, found {found!r}")


def integer(text: str) -> int | None:
    """The 64-bit integer in ``text``; None if it is something else."""
    number = int(text) if re.fullmatch(r"[+-]?[0-9]{1,19}", text) else None
    return number if number is not None and INT64_MIN <= number <= INT64_MAX else None
