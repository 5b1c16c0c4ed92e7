"""``kts groups``: the committed offsets of consumer groups."""

from __future__ import annotations

import csv
from io import StringIO
from typing import Any

import click

from .inputs import json_option, on_error_option, paths_argument, where_to_look
from .output import counted, expand_option, note, print_json, print_table, remark
from .times import show_time

EPILOG = """\b
Examples:
  kts groups DIR
  kts groups DIR --group billing --json
  kts groups DIR --group billing --export

DIR holds __consumer_offsets; each group's offsets are in one of its partitions. "log end offset" is that of the
partition's own files in DIR, and empty if they are elsewhere; "lag" is the distance to it. Offsets that a transaction
commits count once it is committed; deleted offsets are left out.

--export writes topic, partition, offset, which kafka-consumer-groups --group billing --reset-offsets --from-file FILE
--execute commits in another cluster. The group comes first unless there is exactly one --group, as in its own files.
"""


@click.command("groups", short_help="The committed offsets of consumer groups.", epilog=EPILOG)
@paths_argument
@click.option("--group", "groups", metavar="NAME", multiple=True, help="Only this group; repeatable.")
@click.option("--topic", "topics", metavar="NAME", multiple=True, help="Only this topic; repeatable.")
@on_error_option
@click.option("--export", is_flag=True, help="CSV for --from-file of kafka-consumer-groups (see below).")
@expand_option
@json_option
def command(
    paths: tuple[str, ...],
    groups: tuple[str, ...],
    topics: tuple[str, ...],
    on_error: str,
    export: bool,
    as_json: bool,
) -> None:
    """List the current committed offset of each group, topic and partition."""
    if export and as_json:
        raise click.UsageError("--export and --json exclude each other: give one of them")
    rows = committed_rows(paths, groups, topics, on_error)
    if as_json:
        for row in rows:
            print_json(row)
    elif export:
        names = ["group", "topic", "partition", "currentOffset"][len(groups) == 1 :]
        lines = StringIO()
        csv.writer(lines, lineterminator="\n").writerows([row[name] for name in names] for row in rows)
        click.echo(lines.getvalue(), nl=False)
    else:
        print_table(
            ["group", "topic", "partition", "current offset", "log end offset", "lag", "commit time"],
            [cells(row) for row in rows],
            right=(2, 3, 4, 5),
            shrink=(0, 1),
        )
        if not rows:
            note("there are no committed offsets")
        number = counted(len({row["group"] for row in rows}), "group")
        remark(f"{number}, {counted(len(rows), 'committed offset')}")


def committed_rows(
    paths: tuple[str, ...], groups: tuple[str, ...], topics: tuple[str, ...], on_error: str
) -> list[dict[str, Any]]:
    """The rows of ``--json``; times in ms."""
    import pyarrow as pa

    from kts.dataset.committed import committed_offsets
    from kts.dataset.paths import NoPartitionsError

    path = list(paths) if len(paths) > 1 else paths[0]
    try:
        found = committed_offsets(path, groups=groups or None, topics=topics or None, on_error=on_error)
    except ValueError as error:  # an unknown name, a file that is no segment
        raise click.UsageError(str(error)) from error
    except NoPartitionsError as error:
        found = f"no partition directories (such as orders-0) in {', '.join(paths)}{where_to_look(paths)}"
        raise click.UsageError(found) from error
    for name in ("commitTimestamp", "expireTimestamp"):
        found = found.set_column(found.column_names.index(name), name, found[name].cast(pa.int64()))
    listed: list[dict[str, Any]] = found.to_pylist()
    return listed


def cells(row: dict[str, Any]) -> list[object]:
    """A row of the table."""
    numbers = [row[name] for name in ("currentOffset", "logEndOffset", "lag")]
    return [
        row["group"],
        row["topic"],
        row["partition"],
        *("" if number is None else f"{number:,}" for number in numbers),
        show_time(row["commitTimestamp"]),
    ]
