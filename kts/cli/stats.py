"""``kts stats``: counts records and bytes per hour, from batch headers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from functools import partial
from itertools import chain, groupby
from typing import TYPE_CHECKING, Any, NamedTuple
from zoneinfo import ZoneInfo

import click

from kts.behaviour import GENERATIONS
from kts.config import LogConfig
from kts.segment.rereading import settled
from kts.times import STEPS_MS, first_moment, offset_ms, wall_clock

from .clusters import configs_of
from .inputs import (
    config_of,
    config_option,
    filter_options,
    json_option,
    log_bytes,
    open_logs,
    parse_settings,
    tiered_paths_argument,
)
from .output import (
    FINDINGS,
    FINE,
    expand_option,
    note,
    print_json,
    print_line,
    print_table,
    progress,
    room_beside,
    show_bytes,
)
from .times import chosen_zone, length_callback, resolve, show_length, show_time, zone_option
from .unstable import print_open_transactions, unstable_of
from .work import on_each, one_by_one, spark_option

if TYPE_CHECKING:
    from kts.dataset.partition import PartitionLog
    from kts.offline.timestamps import Timestamps

MOST_UNSTABLE_BYTES = 2**30  # of a log, to be read again for its open transactions
BAR_CHARACTERS, LEAST_BAR_CHARACTERS = 40, 10
GROUPS = ("all", "topic", "partition")
MINUS_ONE = "1969-12-31T23:59:59.999Z"
EIGHTHS = " ▏▎▍▌▋▊▉█"

EPILOG = """\b
Examples:
  kts stats DIR/orders-0 --by 1h
  kts stats DIR --by 1d --per topic
  kts stats DIR --by 1d --tz Europe/Berlin
  kts stats DIR --by 15m --json
  kts stats DIR --timestamps
  kts stats DIR --check-release 4.3

Nothing is decompressed. A batch counts at its greatest timestamp, with all its records and bytes. The header of a
compressed v0 or v1 wrapper message does not say how many messages are inside: they are counted by offsets, which is
exact until the log is compacted and never too low. Such numbers have "<=" and "recordsAreExact": false. Control batches
count as bytes, not as records. Open transactions follow: the producer, the first offset, and since when.

--timestamps reads every record instead, and counts those with a timestamp that Kafka cannot tell from something else:
-1 (no timestamp, or 1969-12-31T23:59:59.999Z), times before 1970, and of these the numbers that a client cannot search
for, because ListOffsets means something else by them. Batches marked with hasTimestamp (kts convert) are counted too.

--check-release 4.3 counts the records that a broker of that release would refuse, if a producer sent them now as they
are: by rule and by day of their timestamps (--by). The topics' settings are those that DIR keeps (see kts retention),
or Kafka's defaults; --config replaces them, --now is the broker's clock. A record counts once, for the first of:
message format, size of its batch, key, timestamp. The exit code is 1 if there are any.
"""


@dataclass
class Row:
    """The sums of one time interval."""

    count: int = 0
    size_bytes: int = 0
    batches: int = 0
    guessed: int = 0  # the part of ``count`` that is estimated from offsets
    transactional: int = 0  # batches

    def add(self, other: Row) -> None:
        """Add the sums of other batches."""
        sums = map(sum, zip(astuple(self), astuple(other), strict=True))
        self.count, self.size_bytes, self.batches, self.guessed, self.transactional = sums


@dataclass(frozen=True)
class Intervals:
    """Intervals of a length that start at whole multiples of it, as clocks in a zone show the time."""

    length_ms: int
    zone: ZoneInfo | None = None
    starts: dict[tuple[int, int], int] = field(default_factory=dict, compare=False, repr=False)

    def starts_of(self, moments: Any) -> Any:
        """The start of the interval of each time, in ms since the epoch."""
        if self.zone is None:
            return self.floors(moments)
        import numpy as np

        ahead = self.ahead_of(moments)
        pairs, which = np.unique(np.stack([self.floors(moments + ahead), ahead]), axis=1, return_inverse=True)
        return np.array([self.start_of(*pair) for pair in pairs.T.tolist()], np.int64)[which.reshape(-1)]

    def floors(self, times: Any) -> Any:
        """The whole multiple of the length before each time, or the least one there is."""
        import numpy as np

        return np.maximum(times // self.length_ms, -(2**63 // self.length_ms)) * self.length_ms

    def ahead_of(self, times: Any) -> Any:
        """How much clocks in the zone are ahead of UTC at each time."""
        import numpy as np
        import pyarrow as pa
        import pyarrow.compute as pc

        from .text import FIRST_MS, LAST_MS

        inside = np.where((times > FIRST_MS + STEPS_MS["d"]) & (times < LAST_MS - STEPS_MS["d"]), times, 0)
        moments = pa.array(inside).cast(pa.timestamp("ms", str(self.zone)))
        return np.where(inside == times, np.asarray(pc.local_timestamp(moments).cast(pa.int64())) - inside, 0)

    def start_of(self, shown_ms: int, ahead_ms: int) -> int:
        """When an interval started that clocks show as starting at a time, while they are ahead of UTC by so much.

        An hour that is shown twice, as clocks go back, is two intervals; a day with it is one, of 25 hours.
        """
        zone, start = self.zone, shown_ms - ahead_ms
        if zone is None:
            return start
        if (shown_ms, ahead_ms) not in self.starts:
            alone = self.length_ms <= STEPS_MS["h"] and offset_ms(start, zone) == ahead_ms
            self.starts[shown_ms, ahead_ms] = start if alone else first_moment(shown_ms, zone)
        return self.starts[shown_ms, ahead_ms]

    def end_of(self, start: int) -> int:
        """Where the interval that starts there ends."""
        if self.zone is None:
            return start + self.length_ms
        low, high = start, start + self.length_ms + 2 * STEPS_MS["d"]
        while low < high:
            middle = (low + high) // 2
            ahead = offset_ms(middle, self.zone)
            behind = self.start_of((middle + ahead) // self.length_ms * self.length_ms, ahead) > start
            low, high = (low, middle) if behind else (middle + 1, high)
        return low


@click.command("stats", short_help="Records and bytes per hour, from headers alone.", epilog=EPILOG)
@tiered_paths_argument
@filter_options
@click.option(
    "--by", metavar="LENGTH", callback=length_callback, help="15m, 1h, 1d, ... Default 1h; 1d with --check-release."
)
@click.option(
    "--per",
    type=click.Choice(GROUPS),
    default="all",
    help="Count all together, per topic or per partition.",
)
@zone_option
@click.option("--timestamps", is_flag=True, help="Count timestamps of -1, before 1970, and ListOffsets' numbers.")
@click.option(
    "--check-release",
    "release",
    type=click.Choice(GENERATIONS),
    help="Count what a broker of this release would refuse, as --check-release 4.3.",
)
@config_option
@click.option("--now", metavar="TIME", help="The broker's clock, with --check-release. Default: now.")
@spark_option
@expand_option
@json_option
def command(
    paths: tuple[str, ...],
    topics: tuple[str, ...],
    partitions: tuple[int, ...],
    by: int | None,
    per: str,
    timestamps: bool,
    release: str | None,
    settings: tuple[str, ...],
    now: str | None,
    master: str | None,
    as_json: bool,
) -> int:
    """Count records and bytes per hour, or any other length of time, with a bar per row.

    Intervals start at UTC hours and days, or with --tz at those that clocks show there: a day on which they change has
    23 or 25 hours. Batches without a timestamp have a row of their own.
    """
    if release is None and (settings or now is not None):
        raise click.UsageError(f"{'--config' if settings else '--now'} is for --check-release; give a release, as 4.3")
    if release is not None and timestamps:
        raise click.UsageError("--timestamps and --check-release count different things; leave out one")
    logs = open_logs(paths, topics=topics, partitions=partitions)
    if timestamps:
        print_timestamps(logs, per, master, as_json)
        return FINE
    zone = chosen_zone()
    if release is not None:
        asked = resolve(now, "--now", None, None)
        given = parse_settings(settings)
        config_of(given, release)  # a wrong one is told before anything is read
        check = Check(
            release,
            configs_of(logs, given, release),
            wall_clock() if asked is None else asked,
            Intervals(by or STEPS_MS["d"], zone),
        )
        return print_refused(logs, check, per, master, as_json)
    by = by or STEPS_MS["h"]
    groups: dict[tuple[str | int, ...], dict[int | None, Row]] = {}
    intervals, transactional = Intervals(by, zone), dict[tuple[str, int], Any]()
    with progress("headers", log_bytes(logs), quiet=master is not None) as advance:
        work = partial(counted, intervals)
        for log, counts in on_each(logs, work, one_by_one, advance, master=master, parts=True):
            rows = groups.setdefault((log.topic, log.partition)[: GROUPS.index(per)], {})
            for start, row in chain.from_iterable(one.items() for one in counts):
                rows.setdefault(start, Row()).add(row)
                if row.transactional:
                    transactional[log.topic, log.partition] = log
    if as_json:
        for group, rows in groups.items():
            for start, row in in_order(rows):
                print_json(dict(zip(GROUPS[1:], group, strict=False)) | as_object(start, intervals, row))
        return FINE
    for group, rows in groups.items():
        print_group("-".join(map(str, group)), rows, intervals)
    print_open_transactions(with_open_transactions(transactional.values()))
    return FINE


def with_open_transactions(logs: Iterable[PartitionLog]) -> Iterator[dict[str, Any]]:
    """The last stable offset and the open transactions of each partition; those that are not known are told."""
    for log in logs:
        found = settled(lambda log=log: unstable_of(log.listed(), MOST_UNSTABLE_BYTES))  # type: ignore[misc]
        if found["lastStableOffset"] is None:
            why = f"the snapshots of its producers are more than {show_bytes(MOST_UNSTABLE_BYTES)} before its end"
            note(f"{log.topic}-{log.partition}: whether transactions are open is not known: {why}, or missing")
        yield {"topic": log.topic, "partition": log.partition} | found


def print_timestamps(logs: Sequence[PartitionLog], per: str, master: str | None, as_json: bool) -> None:
    """Print the counts of ambiguous timestamps, per group."""
    from kts.offline.timestamps import SPECIAL, Timestamps

    groups: dict[tuple[str | int, ...], Timestamps] = {}
    with progress("records", log_bytes(logs), quiet=master is not None) as advance:
        done = on_each(logs, counted_timestamps, one_by_one, advance, master=master, parts=True)
        for log, counts_of_log in done:
            group = (log.topic, log.partition)[: GROUPS.index(per)]
            for one in counts_of_log:
                groups.setdefault(group, Timestamps()).add(one)
    for group, found in groups.items():
        if as_json:
            names = (*GROUPS[1:], "offset")
            first = {str(number): dict(zip(names, where, strict=True)) for number, where in found.first.items()}
            counts = {
                "records": found.records,
                "hasTimestampMarked": found.marked,
                "minusOne": found.minus_one,
                "minusOneMarked": found.minus_one_marked,
                "minusOneOfMagic0": found.minus_one_of_magic_0,
                "minusOneAmbiguous": found.ambiguous,
                "before1970": found.before_1970,
                "listOffsetsNumbers": {str(number): count for number, count in found.special.items()},
                "first": first,
            }
            print_json(dict(zip(GROUPS[1:], group, strict=False)) | counts)
            continue
        if group:
            print_line("-".join(map(str, group)))
        later = found.records - found.minus_one - found.before_1970
        rows = [
            ("0 or later", later, "", ""),
            ("-1", found.ambiguous, first_of(found.first, -1), f"no timestamp, or {MINUS_ONE}"),
            ("-1, marked", found.minus_one_marked, "", f"{MINUS_ONE}, by hasTimestamp"),
            ("before that", found.before_1970, "", "times before 1970"),
        ]
        for number, count in found.special.items():
            if count:
                why = f"of these, for ListOffsets {SPECIAL[number]}"
                rows.append((str(number), count, first_of(found.first, number), why))
        cells = [(name, f"{count:,}", where, why) for name, count, where, why in rows]
        print_table(("timestamp", "records", "first", "what it is"), cells, right=(1,))
        click.echo(f"total: {found.records:,} records, {found.marked:,} of them in batches with hasTimestamp")
        if found.minus_one_of_magic_0:
            note(f"-1: {found.minus_one_of_magic_0:,} of these are of magic 0, which has no timestamps")


class Check(NamedTuple):
    """What ``--check-release`` asks: the settings are by log directory and topic."""

    release: str
    configs: Mapping[tuple[str, str], LogConfig]
    now_ms: int
    intervals: Intervals


def print_refused(logs: Sequence[PartitionLog], check: Check, per: str, master: str | None, as_json: bool) -> int:
    """Print the records that a broker would refuse, by group, rule and interval."""
    found = dict[tuple[Any, ...], tuple[int, tuple[str, int, int]]]()
    with progress("headers", log_bytes(logs), quiet=master is not None) as advance:
        done = on_each(logs, partial(refused_of, check), one_by_one, advance, master=master, parts=True)
        for log, parts in done:
            group = (log.topic, log.partition)[: GROUPS.index(per)]
            for one in chain.from_iterable(parts):
                key = (group, one.rule, one.start_ms)
                records, first = found.get(key, (0, (log.topic, log.partition, one.first_offset)))
                found[key] = records + one.records, first
    ordered = sorted(found.items(), key=lambda one: (one[0][0], one[0][1].name, one[0][2] is not None, one[0][2] or 0))
    total, intervals = sum(records for _, (records, _) in ordered), check.intervals
    if as_json:
        for (group, rule, start), (records, first) in ordered:
            what = {"rule": rule.name, "error": rule.error.__name__, "start": start}
            where = dict(zip((*GROUPS[1:], "offset"), first, strict=True))
            day = {"startTime": None if start is None else show_time(start), "records": records, "first": where}
            print_json(dict(zip(GROUPS[1:], group, strict=False)) | what | day)
        return FINDINGS if total else FINE
    for group, rows in groupby(ordered, key=lambda one: one[0][0]):
        if group:
            print_line("-".join(map(str, group)))
        cells = [
            (rule.name, rule.error.__name__, "no timestamp" if start is None else label_of(start, intervals))
            + (f"{records:,}", "{}-{}, offset {}".format(*first))
            for (_, rule, start), (records, first) in rows
        ]
        print_table(("rule", "error", f"from ({intervals.zone or 'UTC'})", "records", "first"), cells, right=(3,))
    refuses = f"refuse {total:,} record{'s' * (total != 1)}" if total else "take every record"
    click.echo(f"Kafka {check.release} would {refuses}")
    if any(rule.name.startswith("message format") for _, rule, _ in found):
        note("next: kts convert writes them in a newer message format")
    return FINDINGS if total else FINE


def refused_of(check: Check, log: PartitionLog, advance: Callable[[int], None]) -> Iterator[list[Any]]:
    """What a broker would refuse of a partition."""
    from kts.dataset.placement import home_of
    from kts.offline.release_check import check_release

    yield check_release(log, check.configs[home_of(log), log.topic], check.now_ms, check.intervals.starts_of, advance)


def first_of(first: dict[int, tuple[str, int, int]], number: int) -> str:
    """Where the first record with a number is."""
    return "{}-{}, offset {}".format(*first[number]) if number in first else ""


def counted_timestamps(log: PartitionLog, advance: Callable[[int], None]) -> Iterator[Timestamps]:
    """The ambiguous timestamps of a partition."""
    from kts.offline.timestamps import count_timestamps

    yield count_timestamps(log, advance)


def counted(intervals: Intervals, log: PartitionLog, advance: Callable[[int], None]) -> Iterator[dict[int | None, Row]]:
    """The rows of a partition."""
    rows: dict[int | None, Row] = {}
    for headers, before in with_offset_before(log):
        add(rows, headers, before, intervals)
        advance(sum(headers["sizeInBytes"].to_pylist()))
    yield rows


def with_offset_before(log: PartitionLog) -> Iterator[tuple[Any, int]]:
    """Header scans of a partition, each with the last offset before it in its segment."""
    from kts.dataset.scan import segment_batches

    latest, before = None, -1
    for segment, headers in segment_batches(log):
        if headers.num_rows:
            yield headers, before if segment == latest else segment.base_offset - 1
            latest, before = segment, headers["lastOffset"][-1].as_py()


def add(rows: dict[int | None, Row], headers: Any, before: int, intervals: Intervals) -> None:
    """Add each batch of a header scan to the row of its max timestamp."""
    import numpy as np

    times = np.asarray(headers["maxTimestamp"].cast("int64"))
    sizes = np.asarray(headers["sizeInBytes"], np.int64)
    control = np.asarray(headers["control"].cast("int8")).astype(bool)
    unknown = np.asarray(headers["count"].is_null())
    ends = np.asarray(headers["lastOffset"], np.int64)
    by_offset = np.maximum(np.diff(ends, prepend=before), 0)
    counts = np.where(unknown, by_offset, np.asarray(headers["count"].fill_null(0), np.int64))
    counts[control] = 0
    transactional = np.asarray(headers["transactional"].cast("int8")).astype(bool) & ~control
    timeless = times == -1
    for part in (np.flatnonzero(timeless), np.flatnonzero(~timeless)):
        starts, which = np.unique(intervals.starts_of(times[part]), return_inverse=True)
        sums = [
            np.bincount(which, weights=amounts[part], minlength=len(starts)).astype(np.int64).tolist()
            for amounts in (counts, sizes, np.ones_like(sizes), counts * unknown, transactional)
        ]
        for start, *found in zip(starts.tolist(), *sums, strict=True):
            rows.setdefault(None if timeless[part[0]] else start, Row()).add(Row(*found))


def in_order(rows: dict[int | None, Row]) -> list[tuple[int | None, Row]]:
    """Rows by time, the one without a time first."""
    return sorted(rows.items(), key=lambda item: (item[0] is not None, item[0] or 0))


def as_object(start: int | None, intervals: Intervals, row: Row) -> dict[str, object]:
    """A row for ``--json``."""
    return {
        "start": start,
        "startTime": None if start is None else show_time(start),
        "lengthMs": intervals.length_ms if start is None else intervals.end_of(start) - start,
        "records": row.count,
        "recordsAreExact": row.guessed == 0,
        "sizeInBytes": row.size_bytes,
        "batches": row.batches,
    }


def print_group(name: str, rows: dict[int | None, Row], intervals: Intervals) -> None:
    """Print a table with a bar per row; empty intervals in sequence are one line."""
    if name:
        print_line(name)
    ordered = in_order(rows)
    by_count = any(row.count for row in rows.values())
    most = max((row.count if by_count else row.size_bytes for row in rows.values()), default=0)
    cells: list[Sequence[str]] = []
    amounts: list[int] = []
    end: int | None = None
    for start, row in ordered:
        if end is not None and start is not None and start > end:
            cells.append(("", f"nothing for {show_length(start - end)}", "", ""))
            amounts.append(0)
        amount = row.count if by_count else row.size_bytes
        count = f"{'<=' if row.guessed else ''}{row.count:,}"
        label = "no timestamp" if start is None else label_of(start, intervals)
        cells.append((label, count, show_bytes(row.size_bytes), f"{row.batches:,}"))
        amounts.append(amount)
        end = None if start is None else intervals.end_of(start)
    total = Row(*(sum(column) for column in zip(*(astuple(row) for row in rows.values()), strict=True)))
    headers = (f"from ({intervals.zone or 'UTC'})", "records", "size", "batches")
    longest = min(BAR_CHARACTERS, max(room_beside(headers, cells), LEAST_BAR_CHARACTERS))
    lines = [(*row, bar(amount, most, longest)) for row, amount in zip(cells, amounts, strict=True)]
    print_table((*headers, ""), lines, right=(1, 2, 3))
    click.echo(
        f"total: {'<=' if total.guessed else ''}{total.count:,} records, {show_bytes(total.size_bytes)}, "
        f"{total.batches:,} batches"
    )
    if total.guessed:
        note(f"<= : {total.guessed:,} of these are compressed v0/v1 messages, counted by offsets; gaps would count too")


def label_of(start: int, intervals: Intervals) -> str:
    """The start of an interval, no finer than needed; with its offset from UTC if clocks show it twice."""
    text = show_time(start)
    day, letter, clock = text.partition("T")
    if not letter:
        return text
    clock, offset = clock[: len("10:00:00.000")], clock[len("10:00:00.000") :]
    if intervals.length_ms % STEPS_MS["d"] == 0 and not clock.strip("0:."):
        return day
    zone = intervals.zone
    twice = zone is not None and first_moment(start + offset_ms(start, zone), zone) != start
    twice |= zone is not None and offset_ms(intervals.end_of(start), zone) < offset_ms(start, zone)
    short = clock[:5] if not clock[5:].strip("0:.") else clock
    return f"{day} {short}{f' {offset}' if twice else ''}"


def bar(amount: int, most: int, longest: int) -> str:
    """A bar of at most ``longest`` characters, in eighths of a character where the terminal can show them."""
    eighths = -(-amount * longest * 8 // most) if most else 0
    if "utf" not in (getattr(sys.stdout, "encoding", "") or "").lower():
        return "#" * (-(-eighths // 8))
    return EIGHTHS[8] * (eighths // 8) + EIGHTHS[eighths % 8].strip()
