"""The options of ``spark.read.format("kts")``: their names, their defaults, and what they may hold."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from kts.arguments import DEFAULT_MAX_DECOMPRESSED_BYTES, INT32_MAX
from kts.model import EARLIEST, LATEST
from kts.spark.values import PartitionValues, Values, integer, wrong

MAX_BATCH_BYTES = 1 << 30  # Arrow's binary columns have 32-bit offsets

KNOWN = (
    "path",
    "paths",
    "assign",
    "subscribe",
    "subscribePattern",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsets",
    "startingOffsetsByTimestampStrategy",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "endingOffsets",
    "failOnDataLoss",
    "includeHeaders",
    "minPartitions",
    "maxRecordsPerPartition",
    "strictTimeRange",
    "verifyCrc",
    "isolation",
    "includeControl",
    "granularity",
    "timestampOverflow",
    "logStartOffset",
    "maxBatchBytes",
    "maxDecompressedBytes",
)
_NETWORK_ONLY = (
    "groupIdPrefix",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
)
_STREAM_ONLY = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "maxBytesPerTrigger")


@dataclass(frozen=True)
class Bound:
    """One end of the range to read.

    ``kind`` is ``earliest``, ``latest``, ``timestamp`` (one for all partitions), ``timestamps`` or ``offsets`` (one for
    each); ``option`` is the name of the option that said so, for messages.
    """

    kind: str
    option: str
    timestamp_ms: int = 0
    values: PartitionValues = field(default_factory=dict)


@dataclass(frozen=True)
class Options:
    """All options of a read, checked."""

    paths: tuple[str, ...]
    assign: dict[str, tuple[int, ...]] | None
    subscribe: tuple[str, ...] | None
    subscribe_pattern: str | None
    start: Bound
    end: Bound
    latest_when_unmatched: bool
    fail_on_data_loss: bool
    include_headers: bool
    min_partitions: int | None
    max_records: int | None
    strict_time_range: bool
    verify_crc: bool
    isolation: str
    include_control: bool
    granularity: str
    timestamp_overflow: str
    log_start_offset: int | PartitionValues | None
    batch_bytes: int
    max_decompressed_bytes: int


def parse_options(given: Mapping[str, str]) -> Options:
    """Check the options of a read.

    Parameters
    ----------
    given : mapping of str to str
        As Spark hands them over; names in any case.

    Raises
    ------
    ValueError
        Naming the option, what it may hold and what it held.
    """
    raw = {name.lower(): str(value) for name, value in given.items()}
    _refuse_unknown(given)
    read = Values(raw)
    assign, subscribe, pattern = _selection(read)
    options = Options(
        paths=_paths(raw),
        assign=assign,
        subscribe=subscribe,
        subscribe_pattern=pattern,
        start=_bound(read, "starting", "earliest"),
        end=_bound(read, "ending", "latest"),
        latest_when_unmatched=read.choice("startingOffsetsByTimestampStrategy", ("error", "latest")) == "latest",
        fail_on_data_loss=read.boolean("failOnDataLoss", True),
        include_headers=read.boolean("includeHeaders", False),
        min_partitions=read.positive("minPartitions"),
        max_records=read.positive("maxRecordsPerPartition"),
        strict_time_range=read.boolean("strictTimeRange", False),
        verify_crc=read.boolean("verifyCrc", True),
        isolation=read.choice("isolation", ("read_uncommitted", "read_committed")),
        include_control=read.boolean("includeControl", False),
        granularity=read.choice("granularity", ("record", "batch")),
        timestamp_overflow=read.choice("timestampOverflow", ("error", "null", "clamp")),
        log_start_offset=_log_start_offset(read),
        batch_bytes=read.size("maxBatchBytes", 4 << 20, MAX_BATCH_BYTES),
        max_decompressed_bytes=read.size("maxDecompressedBytes", DEFAULT_MAX_DECOMPRESSED_BYTES, INT32_MAX),
    )
    _refuse_contradictions(options)
    return options


def _refuse_unknown(given: Mapping[str, str]) -> None:
    known = {name.lower(): name for name in KNOWN}
    network = {name.lower(): name for name in _NETWORK_ONLY}
    stream = {name.lower(): name for name in _STREAM_ONLY}
    for name in sorted(given):
        low = name.lower()
        if low in known:
            continue
        if low.startswith("kafka.") or low in network:
            shown = network.get(low, name)
            instead = "use isolation" if low == "kafka.isolation.level" else "leave it out"
            raise ValueError(
                f"option {shown} is for talking to a broker, and kts reads Kafka's files without one: {instead} and "
                'give the log directory, as in .load("/var/lib/kafka/data")'
            )
        if low in stream:
            raise ValueError(
                f"option {stream[low]} is for streaming queries, and kts has batch queries (spark.read) only"
            )
        if low == "location":
            raise ValueError(
                "option location comes from CREATE TABLE, which keeps no options for sources in Python: use "
                "CREATE TEMPORARY VIEW name USING kts OPTIONS (path '/var/lib/kafka/data')"
            )
        close = difflib.get_close_matches(low, known, n=1, cutoff=0.6)
        hint = f"did you mean {known[close[0]]}?" if close else f"known are {', '.join(KNOWN)}"
        raise ValueError(f"option {name} is unknown: {hint}")


def _paths(raw: Mapping[str, str]) -> tuple[str, ...]:
    found: list[str] = []
    if raw.get("paths", "").strip():
        try:
            listed = json.loads(raw["paths"])
        except ValueError as error:
            raise wrong("paths", "a JSON list of paths", raw["paths"]) from error
        if not isinstance(listed, list) or not all(isinstance(path, str) for path in listed):
            raise wrong("paths", "a JSON list of paths", raw["paths"])
        found += listed
    if raw.get("path", "").strip():
        found.append(raw["path"])
    if not found:
        raise ValueError(
            "option path is missing: name a log directory, a partition directory or segment files, as in "
            '.load("/var/lib/kafka/data")'
        )
    return tuple(dict.fromkeys(_local_path(path) for path in found))


def _local_path(path: str) -> str:
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]+):/", path)
    if scheme is None:
        return path
    if scheme[1].lower() != "file":
        raise ValueError(
            f"option path: kts reads files that each executor sees in its own file system, found {path!r}: "
            f"mount or copy the {scheme[1]} data first and give that path"
        )
    return unquote(urlsplit(path).path)


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


def _bound(read: Values, side: str, default: str) -> Bound:
    """One end of the range: a timestamp for all beats timestamps by partition, and those beat offsets, as in Spark."""
    name = f"{side}Timestamp"
    timestamp_ms = read.milliseconds(name)
    if timestamp_ms is not None:
        return Bound("timestamp", name, timestamp_ms=timestamp_ms)
    name = f"{side}OffsetsByTimestamp"
    values = read.numbers(name, 'milliseconds as JSON such as {"orders": {"0": 1704067200000}}')
    if values is not None:
        return Bound("timestamps", name, values=values)
    name = f"{side}Offsets"
    text = read.text(name)
    if text is None or text.lower() == default:
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


def _refuse_contradictions(options: Options) -> None:
    if options.granularity == "batch":
        record_only = {
            "includeHeaders": options.include_headers,
            "strictTimeRange": options.strict_time_range,
            "isolation=read_committed": options.isolation == "read_committed",
        }
        for name, asked in record_only.items():
            if asked:
                raise ValueError(f"option {name} is about records: leave it out, or set granularity to record")
    timed = {options.start.kind, options.end.kind} & {"timestamp", "timestamps"}
    if options.strict_time_range and not timed:
        raise ValueError(
            "option strictTimeRange needs a time: give startingTimestamp, endingTimestamp, startingOffsetsByTimestamp "
            "or endingOffsetsByTimestamp"
        )
