"""``kts dump``: writes records as tables, lines and columnar files."""

from __future__ import annotations

import os
import sys
from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from kts.errors import KtsError

from .inputs import ENCODINGS, filter_options, json_option, open_logs, paths_argument
from .output import (
    TYPE_NAMES,
    NotTextError,
    note,
    print_table,
    progress,
    refuse_input,
    refuse_terminal,
    remark,
    show_bytes,
    sink,
)
from .times import SPELLINGS, resolve, show_time, time_options

if TYPE_CHECKING:
    from .formats import Writer

FORMATS = ("table", "jsonl", "csv", "parquet", "arrow")
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
}
SUFFIXES = {".jsonl": "jsonl", ".json": "jsonl", ".csv": "csv", ".parquet": "parquet", ".arrow": "arrow"}
RANGE = ("starting_timestamp", "ending_timestamp", "starting_offsets", "ending_offsets")
TABLE_ROWS = 20

EPILOG = f"""\b
Examples:
  kts dump DIR/orders-0 --limit 5
  kts dump DIR --topic orders --from 2026-09-01T10:00 --to 2026-09-01T10:05 --strict -o orders.parquet
  kts dump DIR/orders-0 --offsets 100:200 --values utf8 --format jsonl
  kts dump DIR --decoder offsets -o commits.parquet

Times: {SPELLINGS}.

JSON lines: topic, partition, offset, timestamp (ms; -1 is none), timestampType, key, value (base64 unless told
otherwise), headers as [[name, base64 or null], ...].

A spreadsheet runs a CSV cell that begins with = + - @, a tab or a carriage return as a formula. --disarm writes a ' in
front of such text, which then differs from the record. On a terminal, control characters are shown as \\u001b and the
like, in every format; files and pipes get the bytes unchanged.
"""


@click.command("dump", short_help="Records as a table, JSON lines, CSV, Parquet or Arrow.", epilog=EPILOG)
@paths_argument
@filter_options
@click.option("--from", "start", metavar="TIME", help="Start at the first record with this time or later.")
@click.option("--to", "end", metavar="TIME", help="End before the first record with this time or later.")
@click.option("--strict", is_flag=True, help="Exactly the records with a timestamp in the range, late ones too.")
@click.option(
    "--offsets",
    metavar="A:B",
    help="From offset A to B, which is excluded. Either may be left out; B may be high_watermark.",
)
@time_options
@click.option("--keys", type=click.Choice(ENCODINGS), help="How keys are written in text. Default base64.")
@click.option("--values", type=click.Choice(ENCODINGS), help="How values are written in text. Default base64.")
@click.option(
    "--decoder",
    type=click.Choice(sorted(TABLE_COLUMNS)),
    help="Decode __consumer_offsets or __transaction_state to columns.",
)
@click.option("--columns", metavar="A,B,...", help="These columns, in this order; a wrong name lists all.")
@click.option(
    "--isolation",
    type=click.Choice(["read_uncommitted", "read_committed"]),
    default="read_uncommitted",
    help="read_committed leaves out aborted and open transactions. Default read_uncommitted.",
)
@click.option("--include-control", is_flag=True, help="Include transaction markers and other control records.")
@click.option(
    "--on-error",
    type=click.Choice(["raise", "skip"]),
    default="raise",
    help="On damage: stop, or skip it and warn. Default raise.",
)
@click.option("--limit", type=click.IntRange(0, 2**62), help=f"At most this many. Default {TABLE_ROWS} for a table.")
@click.option(
    "--format", "kind", type=click.Choice(FORMATS), help="Default: by the suffix of -o, else table, or jsonl in a pipe."
)
@click.option("--disarm", is_flag=True, help="CSV: ' before cells that begin with = + - @, a tab or CR (see below).")
@click.option("-o", "--output", metavar="FILE", help="Write here instead of stdout; appears only when complete.")
@json_option
def command(
    paths: tuple[str, ...],
    topics: tuple[str, ...],
    partitions: tuple[int, ...],
    start: str | None,
    end: str | None,
    strict: bool,
    offsets: str | None,
    unit: str | None,
    now: str | None,
    keys: str | None,
    values: str | None,
    decoder: str | None,
    columns: str | None,
    isolation: str,
    include_control: bool,
    on_error: str,
    limit: int | None,
    kind: str | None,
    disarm: bool,
    output: str | None,
    as_json: bool,
) -> None:
    """Print or convert the records of partitions, segments or whole log directories.

    A range of times works as in Spark's Kafka source: from the first record at or after --from to the first at or after
    --to, found through the time index. If the log is out of order, records in between may be outside the range, and
    later ones inside; --strict reads to the end and takes exactly the records in the range.

    Kafka's internal topics are left out of a log directory unless --topic or --decoder names them. The decoded columns
    of a record of another kind are empty, and its key and value are columns too.
    """
    if offsets is not None and (start is not None or end is not None):
        raise click.UsageError("--offsets and --from/--to exclude each other: give one of them")
    if strict and start is None and end is None:
        raise click.UsageError("--strict needs --from or --to")
    if as_json and kind not in (None, "jsonl"):
        raise click.UsageError(f"--json means --format jsonl; leave out --format {kind}")
    kind = kind or ("jsonl" if as_json else default_format(output))
    if disarm and kind != "csv":
        raise click.UsageError(f"--disarm is for CSV, and the format is {kind}")
    if kind in ("parquet", "arrow"):
        refuse_terminal(output, f"--format {kind}")
    if kind == "table" and output not in (None, "-"):
        raise click.UsageError("--format table is for the terminal; for a file use jsonl, csv, parquet or arrow")
    first, behind = offset_range(offsets)
    given: dict[str, Any] = {
        "starting_timestamp": resolve(start, "--from", unit, now),
        "ending_timestamp": resolve(end, "--to", unit, now),
        "unit": "ms",  # of the times above, whose integers were checked
        "strict_time_range": strict,
        "starting_offsets": first,
        "ending_offsets": behind,
        "isolation": isolation,
        "include_control": include_control,
        "on_error": on_error,
        "columns": wanted_columns(columns, kind, decoder),
        "decoder": decoder,
    }
    check_scan(given)
    logs = open_logs(paths, topics=topics, partitions=partitions, internal=False, decoder=decoder)
    if kind == "table":
        shown = TABLE_ROWS if limit is None else limit
        print_records(scanned(logs, given, shown + 1), given["columns"], shown, keys, values)
        return
    refuse_input(output, logs)
    write_records(logs, given, limit, kind, output, keys, values, disarm)


def default_format(output: str | None) -> str:
    """The format of a file's suffix; without a file, a table on a terminal and JSON lines in a pipe."""
    if output not in (None, "-"):
        suffix = os.path.splitext(str(output))[1].lower()
        if suffix not in SUFFIXES:
            if os.path.isdir(str(output)):
                raise click.UsageError(f"-o {output} is a directory: name a file in it, as {output}/out.parquet")
            raise click.UsageError(f"-o {output}: no format is known for {suffix or 'no suffix'!r}; add --format")
        return SUFFIXES[suffix]
    return "table" if sys.stdout.isatty() else "jsonl"


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
    from kts.dataset.options import ScanOptions

    try:
        ScanOptions.of(**given)
    except ValueError as error:
        raise click.UsageError(str(error)) from error


def wanted_columns(text: str | None, kind: str, decoder: str | None) -> list[str]:
    """The columns of the option, or the format's default."""
    from kts.codec.columns import SCAN_COLUMNS
    from kts.dataset.options import stream_columns

    default = SCAN_COLUMNS if kind in ("parquet", "arrow") else JSONL_COLUMNS
    names: Sequence[str] | None = None if text is None else [name.strip() for name in text.split(",")]
    if names is None and decoder is not None and kind == "table":
        names = TABLE_COLUMNS[decoder]
    try:
        return list(stream_columns(names, decoder, default))
    except ValueError as error:
        raise click.UsageError(str(error)) from error


def scanned(logs: Sequence[Any], given: dict[str, Any], limit: int | None) -> Iterator[Any]:
    """The record batches of all partitions, in order, cut after ``limit`` records."""
    left = limit
    for batch in chain.from_iterable(log.scan(**given) for log in logs):
        if left is not None:
            batch = batch.slice(0, left)
            left -= batch.num_rows
        if batch.num_rows:
            yield batch
        if left == 0:
            return


def write_records(
    logs: Sequence[Any],
    given: dict[str, Any],
    limit: int | None,
    kind: str,
    output: str | None,
    keys: str | None,
    values: str | None,
    disarm: bool,
) -> None:
    """Stream the records into a file or stdout."""
    total = expected_records(logs, given) if sys.stderr.isatty() else None
    records = 0
    quiet = output in (None, "-") and sys.stdout.isatty()
    try:
        with sink(output) as file, progress("records", total, quiet=quiet, sizes=False) as advance:
            writer = make_writer(
                kind, file, given["columns"], keys, values, stream=output in (None, "-"), disarm=disarm
            )
            try:
                for batch in scanned(logs, given, limit):
                    writer.write(batch)
                    records += batch.num_rows
                    advance(batch.num_rows)
                writer.close()
            except BaseException:
                writer.abandon()
                raise
    except NotTextError as error:
        raise click.UsageError(str(error)) from error
    if output not in (None, "-"):
        remark(f"{records:,} records, {show_bytes(os.path.getsize(str(output)))} in {output}")


def expected_records(logs: Sequence[Any], given: dict[str, Any]) -> int | None:
    """The number of records for the progress bar, from offsets; None for a range or a damaged log."""
    if any(given[name] is not None for name in RANGE):
        return None
    try:
        return sum(int(log.log_end_offset - log.log_start_offset) for log in logs)
    except KtsError:
        return None


def make_writer(
    kind: str,
    file: BinaryIO,
    columns: Sequence[str],
    keys: str | None,
    values: str | None,
    *,
    stream: bool,
    disarm: bool,
) -> Writer:
    """The writer of a format."""
    from kts.dataset.options import stream_schema

    from . import formats

    schema = stream_schema(columns)
    if kind == "parquet":
        return formats.Parquet(file, schema, keys, values)
    if kind == "arrow":
        return formats.Arrow(file, schema, keys, values, stream=stream)
    from . import text  # its imports take longer than writing a small Parquet file

    keys, values = keys or "base64", values or "base64"
    if kind == "csv":
        return text.Csv(file, schema, keys, values, disarm)
    return text.JsonLines(file, keys, values)


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
    batches: Iterable[Any], columns: Sequence[str], limit: int, keys: str | None, values: str | None
) -> None:
    """At most ``limit`` records as a table, and a note when there are more."""
    rows: list[list[str]] = []
    more = False
    for batch in batches:
        lists = [shown_column(name, batch[name], keys if name == "key" else values) for name in columns]
        rows += [list(row) for row in zip(*lists, strict=True)]
    if len(rows) > limit:
        more = bool(rows.pop())
    numbers = [number for number, name in enumerate(columns) if name in NUMBERS]
    free = [number for number, name in enumerate(columns) if name in FREE]
    print_table(columns, rows, right=numbers, shrink=free)
    if more:
        note(f"the first {limit} records; more with --limit N, all with --format jsonl or -o FILE.parquet")


def shown_column(name: str, column: Any, encoding: str | None) -> list[str]:
    """A column as table cells."""
    if str(column.type).startswith("timestamp"):
        return [show_time(ms) for ms in column.cast("int64").to_pylist()]
    if name == "timestampType":
        return [TYPE_NAMES.get(value, str(value)) for value in column.to_pylist()]
    if name == "headers":
        cells = column.to_pylist()
        return [", ".join(f"{shown(h['key'])}={shown_bytes(h['value'], None)}" for h in cell or []) for cell in cells]
    if name in ("key", "value"):
        return [shown_bytes(value, encoding) for value in column.to_pylist()]
    if name == "transactionPartitions":
        return [partitions_text(value) for value in column.to_pylist()]
    return ["" if value is None else str(value) for value in column.to_pylist()]


def partitions_text(found: Sequence[Any] | None) -> str:
    """Partitions as ``orders-0, orders-1``."""
    return ", ".join(f"{each['topic']}-{number}" for each in found or () for number in each["partitions"])


def shown_bytes(value: bytes | None, encoding: str | None) -> str:
    """A key or value as a table cell: in the given encoding, else as text or hex; long ones are cut."""
    if value is None:
        return "null"
    if encoding == "hex":
        text = value.hex()
    elif encoding == "base64":
        text = b64encode(value).decode("ascii")
    else:
        try:
            text = value.decode("utf-8")
        except UnicodeDecodeError:
            text = f"0x{value.hex()}"
        text = shown(text)
    return text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 1] + "…"


def shown(text: str) -> str:
    """Text with control characters escaped."""
    return text if text.isprintable() else repr(text)[1:-1]
