"""``kts groups``: groups of every type, with their offsets and members."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from io import StringIO
from typing import TYPE_CHECKING, Any

import click

from .inputs import json_option, on_error_option, paths_argument, where_to_look
from .output import counted, expand_option, note, print_json, print_table, remark
from .times import show_time

if TYPE_CHECKING:
    from kts.dataset.groups import Groups

EPILOG = """\b
Examples:
  kts groups DIR
  kts groups DIR --group billing --json
  kts groups DIR --members
  kts groups DIR --group billing --export

DIR holds __consumer_offsets; each group's offsets are in one of its partitions. "log end offset" is that of the
partition's own files in DIR, and empty if they are elsewhere; "lag" is the distance to it. Offsets that a transaction
commits count once it is committed; deleted offsets are left out.

A share group has the start offset of each share partition, from __share_group_state, as its current offset; its lag
leaves out what is done behind it. A topic is named by its id where nothing in DIR has its name.

--state lists the groups: classic groups, consumer groups of KIP-848, share groups and streams groups, with the state
in which a broker would load them. --members lists their members, with what is assigned to them.

--export writes topic, partition, offset, which kafka-consumer-groups --group billing --reset-offsets --from-file FILE
--execute commits in another cluster. The group comes first unless there is exactly one --group, as in its own files.
Share groups are left out.
"""
VIEWS = ("--export", "--state", "--members")


@click.command("groups", short_help="Groups, with their offsets and members.", epilog=EPILOG)
@paths_argument
@click.option("--group", "groups", metavar="NAME", multiple=True, help="Only this group; repeatable.")
@click.option("--topic", "topics", metavar="NAME", multiple=True, help="Only offsets of this topic; repeatable.")
@on_error_option
@click.option("--export", is_flag=True, help="CSV for --from-file of kafka-consumer-groups (see below).")
@click.option("--state", is_flag=True, help="List groups: type, state, epoch, number of members.")
@click.option("--members", is_flag=True, help="List members: client, epoch, assignment.")
@expand_option
@json_option
def command(
    paths: tuple[str, ...],
    groups: tuple[str, ...],
    topics: tuple[str, ...],
    on_error: str,
    export: bool,
    state: bool,
    members: bool,
    as_json: bool,
) -> None:
    """List the current offset of each group, topic and partition; or groups, or their members."""
    asked = [name for name, given in zip(VIEWS, (export, state, members), strict=True) if given]
    if len(asked) > 1:
        raise click.UsageError(f"{' and '.join(asked)} exclude each other: give one of them")
    if export and as_json:
        raise click.UsageError("--export and --json exclude each other: give one of them")
    if topics and (state or members):
        raise click.UsageError(f"--topic is about offsets: leave it out with {asked[0]}")
    found = read(paths, on_error)
    if state or members:
        rows = [row for row in found.rows if row["group"] in chosen("group", groups, found.rows, "group")]
        (show_states if state else show_members)(rows, as_json)
        return
    rows = found.offsets
    for name, wanted in (("group", groups), ("topic", topics)):
        names = chosen(name, wanted, rows, f"committed offset of {name}")
        rows = [row for row in rows if row[name] in names]
    if export:
        columns = ["group", "topic", "partition", "currentOffset"][len(groups) == 1 :]
        left_out = sorted({row["group"] for row in rows if row["type"] == "Share"})
        if left_out:
            note(f"share groups have no committed offsets and are left out: {', '.join(left_out)}")
        lines = StringIO()
        exported = ([row[name] for name in columns] for row in rows if row["type"] != "Share")
        csv.writer(lines, lineterminator="\n").writerows(exported)
        click.echo(lines.getvalue(), nl=False)
    else:
        show_offsets(rows, as_json)


def read(paths: tuple[str, ...], on_error: str) -> Groups:
    """The groups under the paths."""
    from kts.dataset.groups import read_groups
    from kts.dataset.paths import NoPartitionsError

    try:
        return read_groups(list(paths) if len(paths) > 1 else paths[0], on_error=on_error)
    except ValueError as error:  # a file that is no segment
        raise click.UsageError(str(error)) from error
    except NoPartitionsError as error:
        found = f"no partition directories (such as orders-0) in {', '.join(paths)}{where_to_look(paths)}"
        raise click.UsageError(found) from error


def chosen(name: str, wanted: Sequence[str], rows: Sequence[dict[str, Any]], what: str) -> set[str]:
    """The groups or topics of the rows that are wanted; all if none are named."""
    from kts.dataset.committed import chosen_of

    there = {row[name] for row in rows}
    try:
        return {*chosen_of(name, wanted, there, what)} if wanted else there
    except ValueError as error:
        raise click.UsageError(str(error)) from error


def show_offsets(rows: list[dict[str, Any]], as_json: bool) -> None:
    """A row for each group, topic and partition."""
    if as_json:
        for row in rows:
            print_json(row)
        return
    print_table(
        ["group", "topic", "partition", "current offset", "log end offset", "lag", "commit time", "type"],
        [cells(row) for row in rows],
        right=(2, 3, 4, 5),
        shrink=(0, 1),
    )
    if not rows:
        note("there are no committed offsets")
    number = counted(len({row["group"] for row in rows}), "group")
    remark(f"{number}, {counted(len(rows), 'committed offset')}")


def show_states(rows: list[dict[str, Any]], as_json: bool) -> None:
    """A row for each group."""
    listed = [row | {"members": len(row["members"])} for row in rows]
    if as_json:
        for row in listed:
            print_json(row)
        return
    names = ("group", "type", "state", "epoch", "members", "protocol")
    cells = [["" if row[name] is None else row[name] for name in names] for row in listed]
    print_table(list(names), cells, right=(3, 4), shrink=(0,))
    if not rows:
        note("there are no groups")
    remark(counted(len(rows), "group"))


def show_members(rows: list[dict[str, Any]], as_json: bool) -> None:
    """A row for each member of a group."""
    listed = [{"group": row["group"], "type": row["type"], **member} for row in rows for member in row["members"]]
    if as_json:
        for row in listed:
            print_json(row)
        return
    names = ("group", "type", "memberId", "clientId", "clientHost", "epoch")
    cells = [[*("" if row[name] is None else row[name] for name in names), assigned(row)] for row in listed]
    headers = ["group", "type", "member id", "client id", "client host", "epoch", "assignment"]
    print_table(headers, cells, right=(5,), shrink=(0, 2, 3, 6))
    if not listed:
        note("there are no members")
    remark(f"{counted(len(listed), 'member')} of {counted(len(rows), 'group')}")


def assigned(row: dict[str, Any]) -> str:
    """Partitions as topic-partition, tasks as Kafka Streams names them: subtopology_partition."""
    found = []
    for each in row["assignment"]:
        before = f"{each['topic']}-" if "topic" in each else f"{each['tasks']} {each['subtopologyId']}_"
        found += [f"{before}{number}" for number in each["partitions"]]
    return ", ".join(found)


def cells(row: dict[str, Any]) -> list[object]:
    """A row of the table."""
    numbers = [row[name] for name in ("currentOffset", "logEndOffset", "lag")]
    return [
        row["group"],
        row["topic"],
        row["partition"],
        *("" if number is None else f"{number:,}" for number in numbers),
        show_time(row["commitTimestamp"]),
        row["type"],
    ]
