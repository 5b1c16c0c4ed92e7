"""``kts dump --exact`` and ``kts append --exact``: a partition there and back, with all of its batches."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from io import BytesIO
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

import click
from click.core import ParameterSource

from kts.errors import KtsError

from .inputs import writable_log
from .output import FINE, UNREADABLE, counted, note, print_json, progress, say

if TYPE_CHECKING:
    from kts.config import LogConfig
    from kts.log.log import Log
    from kts.offline.exact import ExactAppender, ExactSet

OF_DUMP = ("topics", "partitions", "kind", "output")
OF_APPEND = ("jsonl", "source", "create", "check", "now", "settings", "proposals", "release", "shipped")
OF_BOTH = ("paths", "directory", "exact", "as_json")
ARROW_FILE, ARROW_STREAM, PARQUET = b"ARROW1", b"\xff\xff\xff\xff", b"PAR1"


def refuse_others(allowed: Collection[str]) -> None:
    """Refuse options that have no meaning where batches stay as they are."""
    context = click.get_current_context()
    for parameter in context.command.params:
        given = context.get_parameter_source(parameter.name or "")
        ours = not parameter.expose_value or parameter.name in (*OF_BOTH, *allowed)
        if given is ParameterSource.COMMANDLINE and not ours:
            name = max(parameter.opts, key=len)
            raise click.UsageError(f"--exact keeps all batches as they are: leave out {name}")


class ExactRefusedError(ValueError):
    """What was read is refused; what came before it is in the log."""


def append_exactly(
    directory: str,
    source: BinaryIO,
    config: LogConfig,
    *,
    create: bool,
    shipped: bool,
    clock: Callable[[], int] | None,
    check: bool,
    as_json: bool,
) -> int:
    """Append all batches of an exact dump; the exit code."""
    from kts.offline.exact import ExactAppender, ExactBatches, NotExactError

    code = FINE
    done = Done()
    with writable_log(directory, config, create=create, shipped=shipped, clock=clock) as log:
        appender, batches = ExactAppender(log), ExactBatches()
        try:
            with progress("appended", None) as advance:
                for rows in rows_in(source):
                    for one in batches.add(rows):
                        append_one(log, appender, one, check, done)
                    advance(rows.nbytes)
                for one in batches.finish():
                    append_one(log, appender, one, check, done)
                appender.finish()
            if not done.rows:
                raise ExactRefusedError("expected rows of kts dump --exact, found none")
        except NotExactError as error:
            code = say(f"row {error.row}: {error}; {done.so_far()}", UNREADABLE)
        except ExactRefusedError as error:
            code = say(f"{error}; {done.so_far()}", UNREADABLE)
        except (KeyboardInterrupt, SystemExit):
            note(f"stopped: {done.so_far()}")
            raise
        for base_offset in appender.left_out:
            note(f"left out the segment {base_offset}, which has no batches")
        if not log.closed:  # a disk error closes it
            log.flush()
        report_appended(log, done, as_json, code)
    return code


class Done:
    """What was appended so far."""

    def __init__(self) -> None:
        self.first_offset: int | None = None
        self.records = self.batches = self.size_bytes = self.rows = 0

    def so_far(self) -> str:
        """For an error."""
        if not self.batches:
            return "nothing was appended"
        return f"{counted(self.batches, 'batch')} up to row {self.rows} were appended, nothing after it"


def append_one(log: Log, appender: ExactAppender, one: ExactSet, check: bool, done: Done) -> None:
    """Append batches, unless they are of another partition or the log has their offsets."""
    named = f"row {one.first_row}"
    if check and (one.topic, one.partition) != (log.topic, log.partition):
        raise ExactRefusedError(f"{named}: expected {log.topic}-{log.partition}, found {one.topic}-{one.partition}")
    if one.data and one.first_offset < log.log_end_offset:
        raise ExactRefusedError(f"{named}: offset {one.first_offset} exists: the log ends at {log.log_end_offset}")
    try:
        appender.append(one)
    except KtsError as error:
        raise ExactRefusedError(f"rows {one.first_row} to {one.end_row - 1}: {error}") from error
    done.rows = one.end_row - 1
    if one.data:
        done.first_offset = one.first_offset if done.first_offset is None else done.first_offset
        done.records += one.records
        done.batches += one.batches
        done.size_bytes += len(one.data)


def rows_in(source: BinaryIO) -> Iterator[Any]:
    """The rows of a file or pipe of any of the formats, which its first bytes tell."""
    import pyarrow as pa

    first = peeked(source)
    try:
        if first.startswith(ARROW_STREAM):
            tables = iter(pa.ipc.open_stream(source))
        elif not first.startswith((ARROW_FILE, PARQUET)):
            yield from rows_of_lines(source)
            return
        elif not source.seekable():
            raise ExactRefusedError("Parquet and Arrow files are not read from a pipe: name the file with -i")
        elif first.startswith(PARQUET):
            from pyarrow import parquet

            tables = parquet.ParquetFile(source).iter_batches()
        else:
            file = pa.ipc.open_file(source)
            tables = map(file.get_batch, range(file.num_record_batches))
        for batch in tables:
            yield of_schema(batch)
    except pa.ArrowInvalid as error:
        raise ExactRefusedError(f"not a whole file of kts dump --exact: {error}") from error


def peeked(source: Any) -> bytes:
    """The first bytes, which stay where they are."""
    return bytes(source.peek(8)[:8]) if hasattr(source, "peek") else bytes(source.getbuffer()[:8])


def of_schema(batch: Any) -> Any:
    """The columns of an exact dump; others are left out."""
    import pyarrow as pa

    from kts.offline.exact import exact_schema

    schema = exact_schema()
    missing = [name for name in schema.names if name not in batch.schema.names]
    if missing:
        raise ExactRefusedError(f"not a file of kts dump --exact: there is no column {missing[0]}")
    columns = [batch.column(field.name).cast(field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def rows_of_lines(source: BinaryIO) -> Iterator[Any]:
    """The rows of JSON lines."""
    from .text import pieces_of_lines

    for first, lines in pieces_of_lines(source):
        if lines.strip():
            try:
                yield parsed(lines)
                continue
            except ValueError:  # one of them is empty, or wrong
                numbered = enumerate(lines.split(b"\n"), first)
            for number, line in numbered:
                try:
                    if line.strip():
                        yield parsed(line)
                except ValueError as error:
                    raise ExactRefusedError(f"line {number}: not of kts dump --exact: {error}") from error


def parsed(lines: bytes) -> Any:
    """Lines as rows.

    Raises
    ------
    ValueError
        Not the JSON objects of an exact dump.
    """
    import pyarrow as pa
    import pyarrow.json as pj

    from kts.offline.exact import exact_schema

    from .text import are_objects, decode_column, headers_of, lines_in, one_array

    if not are_objects(lines):
        raise ValueError("expected a JSON object")
    schema, texts = exact_schema(), {"topic": pa.string(), "key": pa.string(), "value": pa.string()}
    texts["headers"] = pa.list_(pa.list_(pa.string()))
    fields = [(field.name, texts.get(field.name, pa.int64())) for field in schema]
    options = pj.ReadOptions(use_threads=False, block_size=len(lines) + 1)
    parse = pj.ParseOptions(explicit_schema=pa.schema(fields), unexpected_field_behavior="error")
    table = pj.read_json(BytesIO(lines), options, parse)
    if table.num_rows != lines_in(lines):
        raise ValueError("expected one JSON object")
    columns = {name: one_array(table.column(name)) for name in schema.names}
    for name in ("key", "value"):
        columns[name] = decode_column(columns[name], "base64")
    columns["headers"] = headers_of(columns["headers"])
    return pa.RecordBatch.from_arrays([columns[field.name].cast(field.type) for field in schema], schema=schema)


class Counts(Protocol):
    """What was appended, of either kind of input."""

    first_offset: int | None
    records: int
    batches: int
    size_bytes: int


def report_appended(log: Log, appender: Counts, as_json: bool, code: int) -> None:
    """Print what was appended."""
    first = appender.first_offset
    if as_json:
        print_json(
            {
                "topic": log.topic,
                "partition": log.partition,
                "baseOffset": first,
                "lastOffset": None if first is None else log.log_end_offset - 1,
                "records": appender.records,
                "batches": appender.batches,
                "sizeInBytes": appender.size_bytes,
                "logEndOffset": log.log_end_offset,
                "complete": code == FINE,
            }
        )
        return
    where = "" if first is None else f": offsets {first} to {log.log_end_offset - 1}"
    what = f"{counted(appender.records, 'record')} in {counted(appender.batches, 'batch')}"
    click.echo(f"appended {what} to {log.topic}-{log.partition}{where}")
