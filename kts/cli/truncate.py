"""``kts truncate``: cuts off the end of a partition, or shows what that would remove."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from kts.arguments import INT64_MAX

from .inputs import (
    advice_on_locks,
    config_option,
    directory_argument,
    json_option,
    make_config,
    partition,
    say_what_was_recovered,
)
from .output import counted, expand_option, print_json, print_table, remark, show_bytes

if TYPE_CHECKING:
    from kts.offline.truncate import TruncationPlan

EPILOG = """\b
Examples:
  kts truncate DIR/orders-0 --to-offset 2000
  kts truncate DIR/orders-0 --to-offset 2000 --json
  kts truncate DIR/orders-0 --to-offset 2000 --in-place

Without --in-place nothing is changed: the table shows what would be removed. A batch is never cut in two: if it
contains the offset, it is removed whole, and the log ends before it. Segments that begin after the offset are removed
with their files. With --in-place, .lock, the checkpoints and the clean-shutdown marker in the log directory are kept as
brokers keep them.
"""


@click.command("truncate", short_help="Cut off the end of a partition, or show what would go.", epilog=EPILOG)
@directory_argument
@click.option(
    "--to-offset", type=click.IntRange(0, INT64_MAX), required=True, help="Remove the records from this offset on."
)
@click.option("--in-place", is_flag=True, help="Truncate the log. No broker may be running on it.")
@config_option
@expand_option
@json_option
def command(directory: str, to_offset: int, in_place: bool, settings: tuple[str, ...], as_json: bool) -> None:
    """Remove the records of a partition from an offset on, as a follower does after a change of leaders.

    With --in-place the log is opened as a broker opens it: locked, and recovered if it was not closed cleanly. A
    shorter copy atomically replaces the segment that is cut: if anything stops the command, the log stays valid. Run it
    as the broker's user, because it creates files.
    """
    from kts.offline.truncate import plan_truncation
    from kts.store.addresses import require_local

    if in_place:
        require_local(directory, "truncation")
    log, config = partition(directory), make_config(settings, directory)
    if in_place:
        from kts.offline.truncate import truncate_in_place

        with advice_on_locks():
            plan = truncate_in_place(log.path, to_offset, config, opened=say_what_was_recovered)
    else:
        plan = plan_truncation(log, to_offset)
    if as_json:
        print_json(as_object(directory, plan, in_place))
        return
    show(plan, in_place)


def as_object(directory: str, plan: TruncationPlan, done: bool) -> dict[str, Any]:
    """The plan for ``--json``."""
    earlier = None if plan.earlier is None else {"first": plan.earlier[0], "last": plan.earlier[1]}
    return {
        "path": directory,
        "toOffset": plan.to_offset,
        "done": done,
        "logStartOffset": plan.log_start_offset,
        "logEndOffset": plan.next_offset,
        "logEndOffsetBefore": plan.log_end_offset,
        "segmentsRemoved": sum(cut.whole for cut in plan.cuts),
        "batches": plan.batches,
        "records": plan.records,
        "sizeInBytes": plan.size_bytes,
        "earlierOffsets": earlier,
        "cuts": [
            {
                "path": cut.path,
                "removed": cut.whole,
                "position": cut.position,
                "batches": cut.batches,
                "records": cut.records,
                "sizeInBytes": cut.size_bytes,
            }
            for cut in plan.cuts
        ],
    }


def show(plan: TruncationPlan, done: bool) -> None:
    """Print the plan."""
    if not plan.cuts:
        click.echo(f"nothing to cut: the log ends at offset {plan.log_end_offset}")
        return
    rows = [
        [
            os.path.basename(cut.path),
            "all of it" if cut.whole else f"from position {cut.position:,}",
            f"{cut.batches:,}",
            f"{cut.records:,}",
            show_bytes(cut.size_bytes),
        ]
        for cut in plan.cuts
    ]
    print_table(["segment", "gone" if done else "would go", "batches", "records", "size"], rows, right=(2, 3, 4))
    if plan.earlier is not None:
        first, last = plan.earlier
        others = f"offset {first}" if first == last else f"offsets {first} to {last}"
        click.echo(f"offset {plan.to_offset} lies inside a batch, which goes as a whole, with {others}")
    verb = "cut" if done else "would be cut"
    total = f"{counted(plan.records, 'record')} in {counted(plan.batches, 'batch')}, {show_bytes(plan.size_bytes)}"
    click.echo(f"{total} {verb}; the log {'ends' if done else 'would end'} at offset {plan.next_offset}")
    if not done:
        remark("nothing was changed; --in-place does it")
