"""The entries of files beside a log, for commands that list records or batches: ``.index``, ``.snapshot`` and such."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from kts.segment.index_files import INDEXES, KINDS, IndexFileContent, kind_of, read_index_file

from .output import FINDINGS, FINE, UNREADABLE, counted, note, print_table, say
from .times import show_time

if TYPE_CHECKING:
    import pyarrow as pa

USED = frozenset({"paths", "limit", "kind", "output", "times", "disarm", "as_json"})  # of the options of a command


def index_files(paths: Sequence[str]) -> list[str]:
    """The paths, if they name files beside a log; empty if they do not.

    Raises
    ------
    click.UsageError
        Some do, or they are of several kinds, or there are options about records.
    """
    from .inputs import existing_paths

    if not any(map(kind_of, paths)):
        return []
    context = click.get_current_context()
    options = [param for param in context.command.params if isinstance(param, click.Option) and param.name not in USED]
    typed = click.core.ParameterSource.COMMANDLINE
    for option in options:
        if option.expose_value and context.get_parameter_source(str(option.name)) is typed:
            raise click.UsageError(f"{option.opts[-1]} is about records, and {paths[0]} has none")
    found = existing_paths(paths)
    kinds = sorted({str(kind_of(path)) for path in found})
    if len(kinds) > 1:
        named = " and ".join(kinds).replace("None", "others")
        raise click.UsageError(f"expected files of one kind, found {named}; list them one by one")
    return found


def entries_of(paths: Sequence[str], codes: list[int]) -> Iterator[tuple[str, IndexFileContent]]:
    """The files with their entries; adds an exit code to ``codes`` for each that is damaged, and says how."""
    from kts.errors import KtsError

    from .inputs import source_named

    for path in paths:
        try:
            found = read_index_file(path, source_named(path))
        except KtsError as error:
            codes.append(say(str(error), UNREADABLE))
            continue
        if found.base_offset is None and kind_of(path) in INDEXES:
            note(f"{path}: offsets are relative ones, for the file's name has no base offset")
        for fault in found.faults:
            note(f"{path}: {fault}")
            codes.append(FINE if fault.startswith("preallocated") else FINDINGS)
        yield path, found


def rows_for_programs(paths: Sequence[str], limit: int | None, codes: list[int]) -> Iterator[pa.RecordBatch]:
    """The entries with the base offset and the path of their file."""
    import pyarrow as pa

    left = limit
    for path, found in entries_of(paths, codes):
        batch = found.columns.slice(0, left)
        left = None if left is None else left - batch.num_rows
        segment = pa.array([found.base_offset] * batch.num_rows, pa.int64())
        where = {"segment": segment, "path": pa.array([path] * batch.num_rows, pa.string())}
        names = [*batch.schema.names, *where]
        yield pa.RecordBatch.from_arrays([*batch.columns, *where.values()], names=names)


def schema_for_programs(path: str) -> pa.Schema:
    """The schema of ``rows_for_programs`` for files like this one."""
    import pyarrow as pa

    names = KINDS[str(kind_of(path))]
    kinds = {"timestamp": pa.timestamp("ms", "UTC")}
    fields = [(name, kinds.get(name, pa.int64())) for name in names]
    return pa.schema([*fields, ("segment", pa.int64()), ("path", pa.string())])


def print_entries(paths: Sequence[str], limit: int | None, default: int) -> int:
    """At most ``limit`` entries as a table, and a note when there are more than the default; the exit code."""
    codes, most = [FINE], default if limit is None else limit
    names, cells, more = KINDS[str(kind_of(paths[0]))], list[list[object]](), 0
    for path, found in entries_of(paths, codes):
        rows = found.columns.slice(0, max(most - len(cells), 0))
        more += found.columns.num_rows - rows.num_rows
        columns = [shown(name, rows.column(name)) for name in names]
        cells += [[os.path.basename(path), *row] for row in zip(*columns, strict=True)]
    headers = ["file", *(re.sub("(?<=[a-z])([A-Z])", lambda found: f" {found[0].lower()}", name) for name in names)]
    alone = int(len(paths) == 1)  # its name says nothing new
    right = [number for number, name in enumerate(["file", *names][alone:]) if name not in ("file", "timestamp")]
    print_table(headers[alone:], [row[alone:] for row in cells], right=right)
    if more and limit is None:
        note(f"the first {counted(most, 'entry').replace('entrys', 'entries')}; more with --limit N, all with --json")
    return max(codes)


def shown(name: str, column: Any) -> list[object]:
    """A column as table cells."""
    if name == "timestamp":
        return [show_time(ms) for ms in column.cast("int64").to_pylist()]
    return ["" if name == "openFromOffset" and value == -1 else value for value in column.to_pylist()]
