"""``kts dump``: writes records as tables, lines and columnar files."""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, cast

import click

from kts.dataset.options import ScanOptions, stream_columns, stream_schema
from kts.errors import KtsError

from .exact import OF_DUMP, refuse_others
from .index_files import index_files, print_entries, rows_for_programs, schema_for_programs
from .inputs import (
    ENCODINGS,
    declared,
    exact_range,
    filter_options,
    given_options,
    json_option,
    log_bytes,
    now_option,
    open_logs,
    tiered_paths_argument,
)
from .output import (
    FINE,
    NAMES,
    NotTextError,
    cores,
    counted,
    expand_option,
    expanded,
    harmless,
    naming_the_record,
    note,
    print_table,
    progress,
    refuse_input,
    refuse_terminal,
    remark,
    show_bytes,
    sink,
)
from .times import SPELLINGS, chosen_zone, show_time, zone_option

if TYPE_CHECKING:
    from kts.dataset.partition import PartitionLog

    from .formats import Writer

FORMATS = ("table", "jsonl", "csv", "parquet", "arrow")
EXACT_FORMATS = ("jsonl", "parquet", "arrow")
JSONL_COLUMNS = ("topic", "partition", "offset", "timestamp", "timestampType", "key", "value", "headers")
TABLE_COLUMNS = {  # of a decoder
    "offsets": (
        "partition",
        "offset",
        "timestamp",
        "recordType",
        "group",
        "committedTopic",
        "committedPartition",
        "committedOffset",
        "tombstone",
    ),
    "transactions": (
        "partition",
        "offset",
        "timestamp",
        "transactionalId",
        "transactionProducerId",
        "transactionProducerEpoch",
        "transactionState",
        "transactionPartitions",
    ),
    "share": (
        "partition",
        "offset",
        "timestamp",
        "recordType",
        "group",
        "shareTopicId",
        "sharePartition",
        "shareStartOffset",
        "deliveryCompleteCount",
        "tombstone",
    ),
    "metadata": ("offset", "timestamp", "recordType", "recordVersion", "fields"),
}
SPELLED = ("auto", *ENCODINGS, "json")  # how keys and values may be written
SUFFIXES = {".jsonl": "jsonl", ".json": "jsonl", ".csv": "csv", ".parquet": "parquet", ".arrow": "arrow"}
COMPRESSED = {".gz": "gzip", ".zst": "zstd"}
GZIP_LEVEL, GZIP_BLOCK_BYTES = 1, 1 << 18
RANGE = ("starting_timestamp", "ending_timestamp", "starting_offsets", "ending_offsets")
TABLE_ROWS = 20
NONE = "0 records: none is in the range, or passes the filters"

EPILOG = f"""\b
Examples:
  kts dump DIR/orders-0 --limit 5
  kts dump DIR --from 2026-09-01T10:00 --to 2026-09-01T10:05 -o out.parquet
  kts dump DIR/orders-0 --offsets 100:200 --values json --format jsonl
  kts dump DIR/orders-0 --tail 5 --expand
  kts dump DIR --grep customer.:.C0345 -o found.jsonl.gz
  kts dump DIR --decoder offsets -o commits.parquet
  kts dump DIR/orders-0 --latest --to 2026-09-02 -o state.parquet
  kts dump DIR --decoder metadata --format jsonl
  kts dump DIR --jobs 4 -o all.parquet
  kts dump DIR/orders-0 --exact -o orders.parquet

Times: {SPELLINGS}.

Files beside a log (.index, .timeindex, .txnindex, .snapshot) are dumped by their entries, in every format.

JSON lines: topic, partition, offset, timestamp (ms; -1 is none), timestampType, key, value (base64 unless told
otherwise), headers as [[name, base64 or null], ...]. CSV has the same columns. A table leaves timestampType and headers
out where they say nothing: CreateTime and no headers in all rows.

--keys and --values: utf8 and json end the dump at a value that is not; auto, the default of tables, writes text as it
is and any other value as 0x and hex; base64 and hex lose nothing. json is UTF-8 that is JSON: in JSON lines it is the
value itself, not a string.

--latest reads committed records, unless --isolation says otherwise, and decides by offset; with --offsets :N or --to it
gives the state by the records before that. Records without a key do not count.

--exact writes one partition so that kts append --exact brings it back: a row for each record, with the header of its
batch, for each batch without records, and for each segment without batches. There is no damage in it and no choice of
records. What would not come back, such as a wrapper around messages of several magics, ends it. In Parquet and Arrow
times are whole numbers, too. Deleted records before the log start offset are in it, as they are in the segments.

--key and --grep choose among the records of the range; --limit and --tail count what is left.

A spreadsheet runs a CSV cell that begins with = + - @, a tab or a carriage return as a formula. --disarm writes a ' in
front of such text, which then differs from the record. On a terminal, control characters, and marks that are not seen
or change the direction of text, are shown as \\u001b and the like, in every format; files and pipes get the bytes
unchanged.
"""


@click.command("dump", short_help="Records as a table, JSON lines, CSV, Parquet or Arrow.", epilog=EPILOG)
@tiered_paths_argument
@filter_options
@declared(ScanOptions)
@now_option
@click.option(
    "--offsets",
    metavar="A:B",
    help="From offset A to B, which is excluded. Either may be left out; B may be high_watermark.",
)
@zone_option
@click.option(
    "--times",
    type=click.Choice(["ms", "iso"]),
    default="ms",
    help="Times in JSON lines and CSV. Default ms since 1970.",
)
@click.option("--key", metavar="TEXT", help="Only records with this key.")
@click.option("--grep", metavar="REGEX", help="Only records whose key or value has a match (RE2; (?i) ignores case).")
@click.option("--latest", is_flag=True, help="The latest state: the last record of each key, without deleted keys.")
@click.option("--tail", metavar="N", type=click.IntRange(1, 2**62), help="The last N records of each partition.")
@click.option("--exact", is_flag=True, help="A partition with all of its batches, for kts append --exact.")
@click.option(
    "--keys", type=click.Choice(SPELLED), help="How keys are written: see below. Default base64, tables auto."
)
@click.option("--values", type=click.Choice(SPELLED), help="How values are written, likewise.")
@click.option("--limit", type=click.IntRange(0, 2**62), help=f"At most this many. Default {TABLE_ROWS} for a table.")
@click.option(
    "--format", "kind", type=click.Choice(FORMATS), help="Default: by the suffix of -o, else table, or jsonl in a pipe."
)
@expand_option
@click.option("--disarm", is_flag=True, help="CSV: ' before cells that begin with = + - @, a tab or CR (see below).")
@click.option(
    "-o",
    "--out",
    "output",
    metavar="FILE",
    type=click.Path(),
    help="A file that appears when complete; .jsonl.gz, .csv.zst too.",
)
@json_option
def command(
    paths: tuple[str, ...],
    topics: tuple[str, ...],
    partitions: tuple[int, ...],
    offsets: str | None,
    now: str | None,
    times: str,
    key: str | None,
    grep: str | None,
    latest: bool,
    tail: int | None,
    exact: bool,
    keys: str | None,
    values: str | None,
    limit: int | None,
    kind: str | None,
    disarm: bool,
    output: str | None,
    as_json: bool,
    **asked: Any,
) -> int:
    """Print or convert the records of partitions, segments or whole log directories.

    A range of times has exactly the records with --from <= timestamp < --to, in whatever order they lie. What begins an
    hour or more after --to is not read, as the time index and the headers say; --allowed-lateness sets another bound.
    With --no-strict the range is that of Spark's Kafka source: from the first record at or after --from up to the first
    at or after --to. If the log is out of order, records in between may be outside the times, and later ones inside.

    Kafka's internal topics are left out of a log directory unless --topic or --decoder names them. The decoded columns
    of a record of another kind are empty, and its key and value are columns too.
    """
    if exact:
        refuse_others(OF_DUMP)
    timed = asked["starting_timestamp"] is not None or asked["ending_timestamp"] is not None
    if offsets is not None and timed:
        raise click.UsageError("--offsets and --from/--to exclude each other: give one of them")

    exact_range(asked)
    if as_json and kind not in (None, "jsonl"):
        raise click.UsageError(f"--json means --format jsonl; leave out --format {kind}")
    if tail is not None and (latest or limit is not None):
        raise click.UsageError(f"--tail and {'--latest' if latest else '--limit'} exclude each other: give one of them")
    if expanded() and (as_json or kind not in (None, "table") or output not in (None, "-")):
        raise click.UsageError("--expand draws tables: leave out --json, --format and -o, or leave out --expand")
    if latest and asked["include_control"]:
        raise click.UsageError(
            "--latest is of keys, and the markers of transactions have none; leave out --include-control"
        )
    kind = kind or (
        "jsonl" if as_json or (exact and output in (None, "-")) else "table" if expanded() else default_format(output)
    )
    if times == "iso" and kind not in ("jsonl", "csv"):
        raise click.UsageError(f"--times is for JSON lines and CSV, and the format is {kind}")
    if compression_of(output) is not None and kind in ("parquet", "arrow"):
        raise click.UsageError(f"-o {output}: --format {kind} is no text; leave out {os.path.splitext(str(output))[1]}")
    if disarm and kind != "csv":
        raise click.UsageError(f"--disarm is for CSV, and the format is {kind}")
    if kind in ("parquet", "arrow"):
        refuse_terminal(output, f"--format {kind}")
    if kind == "table" and output not in (None, "-"):
        raise click.UsageError("--format table is for the terminal; for a file use jsonl, csv, parquet or arrow")
    if exact:
        return dump_exactly(paths, topics, partitions, kind, output)
    if beside := index_files(paths):
        return dump_entries(beside, limit, kind, output, Spelling(None, None, times == "iso", disarm))
    first, behind = offset_range(offsets)
    decoder: str | None = asked["decoder"]
    shown = wanted_columns(asked["columns"], kind, decoder)
    chosen = Chosen.of(shown, key, grep)
    given = given_options(ScanOptions, asked, now)
    given |= {"starting_offsets": first, "ending_offsets": behind, "columns": chosen.read}
    check_scan(given)
    logs = open_logs(paths, topics=topics, partitions=partitions, internal=False, decoder=decoder)
    read = partial(latest_records if latest else scanned, given, chosen)
    if tail is not None:
        read = partial(
            last_of_all if timed and asked["strict_time_range"] is not False else last_records, given, chosen, tail
        )
    if kind == "table":
        most = limit if limit is not None or tail is not None else TABLE_ROWS
        print_records(limited(logs, read, None if most is None else most + 1), shown, most, keys, values)
        return FINE
    refuse_input(output, logs)
    how = Spelling(keys, values, times == "iso", disarm)
    total = None if latest or tail is not None or chosen.filters else expected_records(logs, given)
    records = write_records(limited(logs, read, limit), total, stream_schema(shown), kind, output, how)
    if not records:
        note(NONE)
    elif output not in (None, "-"):
        remark(f"{records:,} records, {show_bytes(os.path.getsize(str(output)))} in {output}")
    return FINE


def dump_exactly(
    paths: Sequence[str], topics: Sequence[str], partitions: Sequence[int], kind: str, output: str | None
) -> int:
    """Write all batches of one partition; the exit code."""
    from kts.offline.exact import exact_rows, exact_schema

    if kind not in EXACT_FORMATS:
        raise click.UsageError(f"--exact is for {', '.join(EXACT_FORMATS)}, and the format is {kind}")
    logs = open_logs(paths, topics=topics, partitions=partitions)
    if len(logs) != 1:
        found = f"--exact writes one partition, and here are {len(logs)}"
        raise click.UsageError(f"{found}; name one by its directory, or by --topic and --partition")
    log = logs[0]
    refuse_input(output, logs)
    segments = log.segments
    if segments and log.log_start_offset > segments[0].base_offset:
        note(f"the dump has the deleted records before the log start offset {log.log_start_offset}, too")

    def left_out(path: str, size: int) -> None:
        note(f"{path}: left out {counted(size, 'byte')} of a cut tail")

    rows = exact_rows(log, left_out=left_out)
    written = write_records(rows, None, exact_schema(), kind, output, Spelling(None, None, False, False))
    if output not in (None, "-"):
        remark(
            f"{written:,} rows of {show_bytes(log_bytes(logs))}, {show_bytes(os.path.getsize(str(output)))} in {output}"
        )
    return FINE


def dump_entries(paths: Sequence[str], limit: int | None, kind: str, output: str | None, how: Spelling) -> int:
    """The entries of files beside a log in a format; the exit code."""
    if kind == "table":
        return print_entries(paths, limit, TABLE_ROWS)
    if output is not None and os.path.realpath(output) in map(os.path.realpath, paths):
        raise click.BadParameter(f"{output} is among the input, which is only read; name another", param_hint="'-o'")
    codes = [FINE]
    schema = schema_for_programs(paths[0])
    write_records(rows_for_programs(paths, limit, codes), None, schema, kind, output, how)
    return max(codes)


def default_format(output: str | None) -> str:
    """The format of a file's suffix; without a file, a table on a terminal and JSON lines in a pipe."""
    if output not in (None, "-"):
        name = str(output) if compression_of(output) is None else os.path.splitext(str(output))[0]
        suffix = os.path.splitext(name)[1].lower()
        if suffix not in SUFFIXES:
            if os.path.isdir(str(output)):
                raise click.UsageError(f"-o {output} is a directory: name a file in it, as {output}/out.parquet")
            found = f"no format has the suffix {suffix}" if suffix else "there is no suffix that names a format"
            raise click.UsageError(f"-o {output}: {found}; name one, as x.jsonl or x.parquet, or add --format")
        return SUFFIXES[suffix]
    return "table" if sys.stdout.isatty() else "jsonl"


def compression_of(output: str | None) -> str | None:
    """The compression that a file's suffix asks for."""
    return None if output is None else COMPRESSED.get(os.path.splitext(output)[1].lower())


def offset_range(text: str | None) -> tuple[int | None, int | str | None]:
    """``a:b`` as two offsets; None for a side that is left out."""
    if text is None:
        return None, None
    before, colon, after = text.partition(":")
    try:
        if not colon:
            raise ValueError
        first = int(before) if before.strip() else None
        behind: int | str | None = after if after == "high_watermark" else int(after) if after.strip() else None
    except ValueError:
        message = f"expected A:B, A: or :B with whole numbers, found {text!r}"
        raise click.BadParameter(message, param_hint="'--offsets'") from None
    if first is not None and isinstance(behind, int) and 0 <= behind < first:
        raise click.BadParameter(f"the end {behind} lies before the start {first}", param_hint="'--offsets'")
    return first, behind


def check_scan(given: dict[str, Any]) -> None:
    """Refuse ranges that contradict themselves, before anything is opened or written."""

    try:
        ScanOptions(**given)
    except ValueError as error:
        raise click.UsageError(str(error)) from error


def wanted_columns(text: str | None, kind: str, decoder: str | None) -> list[str]:
    """The columns of the option, or the format's default."""
    from kts.codec.columns import SCAN_COLUMNS

    default = SCAN_COLUMNS if kind in ("parquet", "arrow") else JSONL_COLUMNS
    names: Sequence[str] | None = None if text is None else [name.strip() for name in text.split(",")]
    if names is None and decoder is not None and kind == "table":
        names = TABLE_COLUMNS[decoder]
    try:
        return list(stream_columns(names, decoder, default))
    except ValueError as error:
        raise click.UsageError(str(error)) from error


class Chosen(NamedTuple):
    """Which records are wanted, and their columns."""

    read: list[str]
    columns: list[str]
    key: bytes | None
    regex: str | None

    @classmethod
    def of(cls, columns: list[str], key: str | None, regex: str | None) -> Chosen:
        """The options; a wrong regular expression is a usage error."""
        more = ["key"] * (key is not None or regex is not None) + ["value"] * (regex is not None)
        chosen = cls(list(dict.fromkeys([*columns, *more])), columns, None if key is None else os.fsencode(key), regex)
        if regex is not None:
            import pyarrow as pa

            try:
                matches(pa.array([b""]), regex)
            except pa.ArrowInvalid as error:
                raise click.BadParameter(str(error), param_hint="'--grep'") from error
        return chosen

    @property
    def filters(self) -> bool:
        """True if records may be left out."""
        return self.key is not None or self.regex is not None

    def among(self, batch: Any) -> Any:
        """The wanted rows and columns of a batch."""
        if self.filters:
            import pyarrow.compute as pc

            if self.key is not None:
                batch = batch.filter(pc.equal(batch["key"], self.key))
            if self.regex is not None:
                found = [pc.fill_null(matches(batch[name], self.regex), False) for name in ("key", "value")]
                batch = batch.filter(pc.or_(*found))
        return batch if self.read == self.columns else batch.select(self.columns)


def matches(column: Any, regex: str) -> Any:
    """Which values of a binary column have a match; they are searched as UTF-8, whatever they are."""
    import pyarrow as pa
    import pyarrow.compute as pc

    text = pc.cast(column, options=pc.CastOptions(pa.string(), allow_invalid_utf8=True))
    return pc.match_substring_regex(text, regex)


def scanned(given: dict[str, Any], chosen: Chosen, log: PartitionLog) -> Iterator[Any]:
    """The wanted records of a partition."""
    return map(chosen.among, log.scan(**given))


def latest_records(given: dict[str, Any], chosen: Chosen, log: PartitionLog) -> Iterator[Any]:
    """The wanted ones of the last records of each key of a partition."""
    from kts.dataset.latest import LatestOptions, latest_of

    return map(chosen.among, latest_of(log, LatestOptions(None, **given)))


def last_of_all(given: dict[str, Any], chosen: Chosen, count: int, log: PartitionLog) -> Iterator[Any]:
    """The last of the wanted records of a partition, from a read of all of them: late ones may be the last."""
    return iter(last_rows(scanned(given, chosen, log), count)[0])


def last_rows(batches: Iterator[Any], count: int) -> tuple[deque[Any], int]:
    """The last rows of some batches, at most so many, and how many they are."""
    found, rows = deque[Any](), 0
    for batch in batches:
        found.append(batch)
        rows += batch.num_rows
        while rows - found[0].num_rows >= count:
            rows -= found.popleft().num_rows
    if rows > count:
        found[0] = found[0].slice(rows - count)
    return found, min(rows, count)


def last_records(given: dict[str, Any], chosen: Chosen, count: int, log: PartitionLog) -> Iterator[Any]:
    """The last of the wanted records of a partition, read from its end in windows that grow."""
    from kts.dataset.scan import range_of
    from kts.segment.rereading import settled
    from kts.segment.transactions import log_end_offset

    options = ScanOptions(**given)
    start, behind = settled(lambda: range_of(log, options))
    log_end = settled(
        lambda: log_end_offset(log.listed(skip_damage=options.skip_damage), skip_damage=options.skip_damage)
    )
    window = given | {"starting_timestamp": None, "ending_timestamp": None}
    found = deque[Any]()
    length, left = count, count
    while left > 0 and behind > start:
        first = max(start, min(behind, log_end) - length)
        asked = window | {"starting_offsets": first, "ending_offsets": behind}
        last, rows = last_rows(scanned(asked, chosen, log), left)
        found.extendleft(reversed(last))
        left -= rows
        behind, length = first, length * 4
    return iter(found)


def limited(logs: Sequence[PartitionLog], read: Callable[[PartitionLog], Iterator[Any]], limit: int | None) -> Any:
    """The record batches of all partitions, in order, cut after ``limit`` records."""
    left = limit
    for batch in chain.from_iterable(map(read, logs)):
        if left is not None:
            batch = batch.slice(0, left)
            left -= batch.num_rows
        if batch.num_rows:
            yield batch
        if left == 0:
            return


class Spelling(NamedTuple):
    """How values are written in text."""

    keys: str | None
    values: str | None
    iso_times: bool
    disarm: bool


def write_records(
    batches: Iterable[Any], total: int | None, schema: Any, kind: str, output: str | None, how: Spelling
) -> int:
    """Stream the records into a file or stdout; their number."""
    records = 0
    quiet = output in (None, "-") and sys.stdout.isatty()
    try:
        with (
            sink(output) as plain,
            compressed(plain, compression_of(output)) as file,
            progress("records", total, quiet=quiet, sizes=False) as advance,
        ):
            writer = make_writer(kind, file, schema, how, stream=output in (None, "-"))
            try:
                for batch in batches:
                    writer.write(batch)
                    records += batch.num_rows
                    advance(batch.num_rows)
                writer.close()
            except BaseException:
                writer.abandon()
                raise
    except NotTextError as error:
        raise click.UsageError(str(error)) from error
    return records


@contextmanager
def compressed(file: BinaryIO, how: str | None) -> Iterator[BinaryIO]:
    """A file that compresses what is written into another one, with gzip on all cores."""
    if how is None:
        yield file
        return
    import pyarrow as pa
    from isal import igzip_threaded

    stream: Any = pa.CompressedOutputStream(file, how) if how == "zstd" else None
    if stream is None:
        opened: Callable[..., Any] = igzip_threaded.open
        stream = opened(file, "wb", GZIP_LEVEL, threads=cores(), block_size=GZIP_BLOCK_BYTES)
    try:
        yield cast(BinaryIO, stream)
    except BaseException:
        with suppress(OSError, pa.ArrowException):
            stream.close()
        raise
    stream.close()


def expected_records(logs: Sequence[Any], given: dict[str, Any]) -> int | None:
    """The number of records for the progress bar, from offsets; None without a bar, for a range or a damaged log."""
    if not sys.stderr.isatty() or any(given.get(name) is not None for name in RANGE):
        return None
    try:
        return sum(int(log.log_end_offset - log.log_start_offset) for log in logs)
    except KtsError:
        return None


def make_writer(kind: str, file: BinaryIO, schema: Any, how: Spelling, *, stream: bool) -> Writer:
    """The writer of a format."""
    from . import formats

    if kind == "parquet":
        return formats.Parquet(file, schema, how.keys, how.values)
    if kind == "arrow":
        return formats.ArrowWriter(file, schema, how.keys, how.values, stream=stream)
    from . import text  # its imports take longer than writing a small Parquet file

    keys, values, zone = how.keys or "base64", how.values or "base64", chosen_zone()
    name = None if zone is None else zone.key
    if kind == "csv":
        return text.Csv(file, schema, keys, values, how.disarm, how.iso_times, name)
    return text.JsonLines(file, keys, values, how.iso_times, name)


# --- the first records as a table --------------------------------------------------------------


SHOWN_CHARACTERS = 60
NUMBERS = (
    "partition",
    "offset",
    "position",
    "committedPartition",
    "committedOffset",
    "transactionProducerId",
    "transactionProducerEpoch",
)
FREE = ("key", "value", "headers", "group", "committedTopic", "transactionalId", "members", "transactionPartitions")


def print_records(
    batches: Iterable[Any], columns: Sequence[str], limit: int | None, keys: str | None, values: str | None
) -> None:
    """At most ``limit`` records as a table, and a note when there are more."""
    cells: dict[str, list[str]] = {name: [] for name in columns}
    for batch in batches:
        try:
            with naming_the_record(batch):
                for name in columns:
                    cells[name] += shown_column(name, batch[name], keys if name == "key" else values)
        except NotTextError as error:
            raise click.UsageError(str(error)) from error
    count = len(next(iter(cells.values()), []))
    brief = list(columns) == list(JSONL_COLUMNS)
    if brief:
        cells = briefly(cells)
    names = list(cells)
    rows = list(zip(*cells.values(), strict=True))
    numbers = [number for number, name in enumerate(names) if name in NUMBERS and not (name == "partition" and brief)]
    free = [number for number, name in enumerate(names) if name in FREE]
    print_table(names, rows[:limit], right=numbers, shrink=free)
    if not count:
        note(NONE)
    if limit is not None and count > limit:
        note(f"the first {counted(limit, 'record')}; more with --limit N, all with --format jsonl or -o FILE.parquet")


def briefly(cells: dict[str, list[str]]) -> dict[str, list[str]]:
    """The default columns, without those that say nothing: a table has little room."""
    whole = {
        "partition": [f"{topic}-{number}" for topic, number in zip(cells["topic"], cells["partition"], strict=True)]
    }
    usual = {"timestampType": "CreateTime", "headers": ""}
    others = [name for name in cells if name not in ("topic", "partition")]
    return whole | {name: cells[name] for name in others if any(cell != usual.get(name) for cell in cells[name])}


def shown_column(name: str, column: Any, encoding: str | None) -> list[str]:
    """A column as table cells."""
    if str(column.type).startswith("timestamp"):
        return [show_time(ms) for ms in column.cast("int64").to_pylist()]
    if name in NAMES:
        return [NAMES[name].get(value, str(value)) for value in column.to_pylist()]
    if name in ("key", "value"):
        return shown_bytes(column, encoding, name)
    if name == "headers":
        cells = column.to_pylist()
        contents = iter(shown_bytes(column.flatten().field("value"), None, name))
        return [", ".join(f"{shown(header['key'])}={next(contents)}" for header in cell or []) for cell in cells]
    if name == "transactionPartitions":
        return [partitions_text(value) for value in column.to_pylist()]
    return ["" if value is None else str(value) for value in column.to_pylist()]


def partitions_text(found: Sequence[Any] | None) -> str:
    """Partitions as ``orders-0, orders-1``."""
    return ", ".join(f"{each['topic']}-{number}" for each in found or () for number in each["partitions"])


def shown_bytes(column: Any, encoding: str | None, name: str) -> list[str]:
    """A binary column as table cells; long ones are cut unless the user wants one record a block."""
    from .text import encode_column

    most = sys.maxsize if expanded() else SHOWN_CHARACTERS
    texts = [
        "null" if text is None else shown(text) for text in encode_column(column, encoding or "auto", name).to_pylist()
    ]
    return [text if len(text) <= most else text[: most - 1] + "…" for text in texts]


def shown(text: str) -> str:
    """Text as a cell, also in a pipe: one line, with control characters escaped."""
    return harmless(text, one_line=True)
