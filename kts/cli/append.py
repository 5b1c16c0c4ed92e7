"""``kts append``: appends lines of JSON to a partition, as record batches."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, BinaryIO

import click
import numpy as np

from kts.arguments import INT32_MAX
from kts.compression import CODEC_NAMES
from kts.errors import KtsError

from .inputs import (
    ENCODINGS,
    Size,
    config_option,
    directory_argument,
    json_option,
    make_config,
    partition,
    proposal_option,
    release_option,
    shipped_option,
    unit_option,
    with_proposals,
    writable_log,
)
from .output import FINE, UNREADABLE, counted, note, progress, say
from .times import resolve

if TYPE_CHECKING:
    from kts.log.log import Log

RECORD_OVERHEAD_BYTES = 21  # the most bytes that a record's fields take besides its key, value and headers

EPILOG = """\b
Examples:
  kts append DIR/orders-0 --jsonl -i more.jsonl
  kts append DIR/orders-0 --jsonl --values utf8 --compression lz4
  kts append DIR/new-0 --jsonl --create --config segment.bytes=1048576
  kts append DIR/orders-0 --jsonl -i more.jsonl --release 4.3
  kts append DIR/orders-0 --jsonl -i more.jsonl --proposal bucket-index --json
  kts append NEW/orders-0 --exact --create -i orders.parquet

\b
A line as kts dump --format jsonl prints it; every field is optional:
  {"timestamp":1756720800000,"value":"MTA=","headers":[["from","dGlsbA=="]]}

The timestamp is ISO 8601, or an integer in ms since 1970 (another unit: --unit). It defaults to now; -1 means none.
Topic, partition and offset are ignored unless --check is given, and so are the other fields that dump prints. Unknown
fields are refused, and -1 with hasTimestamp true. A bad line ends the command: its batch is not appended, the batches
before it are. In the log directory, .lock, the checkpoints and the clean-shutdown marker are kept as a broker keeps
them.

--exact takes what kts dump --exact wrote, in JSON lines, Parquet or Arrow, and appends it as a follower appends the
batches of its leader: offsets, gaps, times and their types, batches, producers, sequences, leader epochs, transactions
and control records stay, and segments begin at the same offsets. Where nothing is compressed, the .log files are the
same bytes. Offsets that the log has already are refused. The indexes are written anew. A segment without batches is
left out, unless it is the last one.
"""


@click.command("append", short_help="Append records from JSON lines, with chosen timestamps.", epilog=EPILOG)
@directory_argument
@click.option("--jsonl", is_flag=True, help="The input is JSON lines. This is the default.")
@click.option("-i", "--input", "source", type=click.File("rb"), default="-", help="Read this file instead of stdin.")
@click.option("--keys", type=click.Choice(ENCODINGS), default="base64", help="How keys are written. Default base64.")
@click.option(
    "--values", type=click.Choice(ENCODINGS), default="base64", help="How values are written. Default base64."
)
@click.option(
    "--compression", type=click.Choice(CODEC_NAMES), default="none", help="Codec of the batches. Default none."
)
@click.option("--batch-records", type=click.IntRange(1), help="At most this many records per batch. Default no limit.")
@click.option(
    "--batch-bytes",
    type=Size(1, 2**30),
    default=16384,
    help="About this many bytes per batch. Default 16384.",
)
@click.option("--create", is_flag=True, help="Create the partition directory if it is missing.")
@click.option("--exact", is_flag=True, help="The input is of kts dump --exact, and all batches stay as they are.")
@click.option("--check", is_flag=True, help="Refuse a line if its topic, partition or offset is not the one it gets.")
@click.option("--now", metavar="TIME", help="The timestamp of lines without one, and the log's clock. Default: now.")
@unit_option
@config_option
@proposal_option
@release_option
@shipped_option
@json_option
def command(
    directory: str,
    jsonl: bool,
    source: BinaryIO,
    keys: str,
    values: str,
    compression: str,
    batch_records: int | None,
    batch_bytes: int,
    create: bool,
    exact: bool,
    check: bool,
    now: str | None,
    unit: str | None,
    settings: tuple[str, ...],
    proposals: tuple[str, ...],
    release: str | None,
    shipped: bool,
    as_json: bool,
) -> int:
    """Append the records of JSON lines to a partition, as a broker without replicas would.

    The log is opened as a broker opens it: locked, and recovered if it was not closed cleanly. Offsets continue from
    its end. Its message format stays as it is (3.9 for a new log), unless --config message.format.version is given.
    """
    from kts.store.addresses import require_local

    from .exact import OF_APPEND, append_exactly, refuse_others, report_appended
    from .text import BadLineError, pieces_of_lines, records_of

    if exact:
        refuse_others(OF_APPEND)
    now_ms = resolve(now, "--now", None, None)
    require_local(directory, "appending")
    if not create and not os.path.exists(directory):
        raise click.UsageError(f"{directory}: no such file or directory; --create makes a partition")
    if os.path.exists(directory):
        partition(directory)
    config = make_config(with_proposals(settings, proposals), directory, release)
    clock = None if now_ms is None else lambda: now_ms
    if exact:
        how: dict[str, Any] = {"create": create, "shipped": shipped, "clock": clock}
        return append_exactly(directory, source, config, check=check, as_json=as_json, **how)
    if source.isatty():
        note("reading JSON lines from the terminal; Ctrl-D ends them")
    code = FINE
    with writable_log(directory, config, create=create, shipped=shipped, clock=clock) as log:
        appender = BatchAppender(log, compression, batch_records or INT32_MAX, batch_bytes, check, now_ms)
        try:
            with progress("appended", input_bytes(source)) as advance:
                for first_line, lines in pieces_of_lines(source):
                    try:
                        appender.add(records_of(lines, first_line, keys=keys, values=values, unit=unit))
                    except BadLineError as error:
                        appender.add(error.good)
                        raise
                    advance(len(lines))
                appender.finish()
        except (BadLineError, RefusedError) as error:
            code = say(f"{error}; {appender.so_far()}", UNREADABLE)
        except (KeyboardInterrupt, SystemExit):  # so that the user can continue from there
            note(f"stopped: {appender.so_far()}")
            raise
        if not log.closed:  # a disk error closes it
            log.flush()
        report_appended(log, appender, as_json, code)
    return code


class RefusedError(ValueError):
    """The log refused a batch; these are its input lines."""


class BatchAppender:
    """Groups records into batches and appends each as a whole."""

    def __init__(
        self, log: Log, compression: str, batch_records: int, batch_bytes: int, check: bool, now_ms: int | None
    ) -> None:
        self.records = self.batches = self.size_bytes = 0
        self.first_offset: int | None = None
        self._log = log
        self._compression = compression
        self._most, self._most_bytes = batch_records, batch_bytes
        self._check = check
        self._now_ms = now_ms
        self._waiting: Any = None
        self._last_line = 0

    def add(self, records: Any) -> None:
        """Append all full batches; keep the other records for the next call."""
        import pyarrow as pa

        if self._waiting is not None and self._waiting.num_rows:
            records = pa.concat_batches([self._waiting, records])
        for start, end, full in cuts(records, self._most, self._most_bytes):
            if not full:
                self._waiting = records.slice(start)
                return
            self._append(records.slice(start, end - start))
        self._waiting = None

    def finish(self) -> None:
        """Append the records that are left."""
        if self._waiting is not None and self._waiting.num_rows:
            self._append(self._waiting)
        self._waiting = None

    def so_far(self) -> str:
        """A message about what was appended before an error."""
        if not self.records:
            return "nothing was appended"
        return f"{counted(self.records, 'record')} up to line {self._last_line} were appended, nothing after it"

    def _append(self, records: Any) -> None:
        import kts

        first = self._log.log_end_offset
        if self._check:
            self._compare(records, first)
        times = records["timestamp"].fill_null(self._time())
        columns = {"timestamp": times, "key": records["key"], "value": records["value"]}
        if len(records["headers"].flatten()):
            columns["headers"] = records["headers"]
        lines = f"lines {records['line'][0]} to {records['line'][-1]}"
        try:
            data = kts.encode(
                columns,
                magic=self._log.config.magic,
                compression=self._compression,
                base_offset=0,
                batch_bytes=INT32_MAX,
            )
            appended = self._log.append(data)
        except KtsError as error:
            if error.record_index is not None and error.record_index < records.num_rows:
                lines = f"line {records['line'][error.record_index]}"
            raise RefusedError(f"{lines}: {error}") from error
        if self.first_offset is None:
            self.first_offset = appended.first_offset
        self.records += records.num_rows
        self.batches += 1
        self.size_bytes += len(appended.records)
        self._last_line = records["line"][-1].as_py()

    def _time(self) -> int:
        from .times import parse_time

        return parse_time("now") if self._now_ms is None else self._now_ms

    def _compare(self, records: Any, first: int) -> None:
        """``--check``: compare the topic, partition and offset of each line with those it gets."""
        import pyarrow as pa
        import pyarrow.compute as pc

        wanted = {
            "topic": pa.repeat(self._log.topic, records.num_rows),
            "partition": pa.repeat(pa.scalar(self._log.partition, pa.int64()), records.num_rows),
            "offset": pa.array(np.arange(first, first + records.num_rows)),
        }
        for name, expected in wanted.items():
            given = records[name]
            row = pc.index(pc.fill_null(pc.equal(given, expected), True), False).as_py()
            if row >= 0:
                raise RefusedError(f"line {records['line'][row]}: expected {name} {expected[row]}, found {given[row]}")


def cuts(records: Any, most: int, most_bytes: int) -> Iterator[tuple[int, int, bool]]:
    """Start and end of each batch, and whether it is full; only the last one may not be."""
    import pyarrow.compute as pc

    sizes = np.full(records.num_rows, RECORD_OVERHEAD_BYTES, np.int64)
    for name in ("key", "value"):
        sizes += np.asarray(pc.fill_null(pc.binary_length(records[name]), 0))
    headers = records["headers"]
    pairs = headers.flatten()
    if len(pairs):
        inner = np.asarray(pc.binary_length(pairs.field("key").cast("binary"))).astype(np.int64)
        inner += np.asarray(pc.fill_null(pc.binary_length(pairs.field("value")), 0)) + 2
        starts = np.concatenate([[0], np.cumsum(inner)])
        offsets = np.asarray(headers.offsets) - headers.offsets[0].as_py()
        sizes += np.diff(starts[offsets])
    ends = np.cumsum(sizes)
    start = 0
    while start < len(sizes):
        before = ends[start - 1] if start else 0
        end = int(np.searchsorted(ends, before + most_bytes, "right"))
        end = min(max(end, start + 1), start + most)
        yield start, end, end < len(sizes) or end - start == most
        start = end


def input_bytes(source: BinaryIO) -> int | None:
    """The size of a file; None for a pipe."""
    try:
        status = os.fstat(source.fileno())
    except (OSError, ValueError):
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None
