"""Paths and filters from the command line, opened as partitions in order."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from kts.errors import UnknownTopicOrPartitionError

if TYPE_CHECKING:
    from kts.dataset.partition import PartitionLog


def paths_argument(function: Any) -> Any:
    """One or more paths."""
    return click.argument("paths", metavar="PATH...", nargs=-1, required=True)(function)


def filter_options(function: Any) -> Any:
    """``--topic`` and ``--partition``, for log directories with many of them."""
    partition = click.option("--partition", "partitions", type=int, multiple=True, help="Only this one; repeatable.")
    topic = click.option("--topic", "topics", metavar="NAME", multiple=True, help="Only this topic; repeatable.")
    return topic(partition(function))


def index_options(function: Any) -> Any:
    """The two topic settings that decide what the indexes hold, for commands that make them."""
    interval = click.option(
        "--index-interval-bytes",
        type=click.IntRange(min=0),
        default=4096,
        show_default=True,
        help="The topic's index.interval.bytes.",
    )
    most = click.option(
        "--segment-index-bytes",
        type=click.IntRange(min=12),
        default=10 * 2**20,
        show_default=True,
        help="The topic's segment.index.bytes.",
    )
    return interval(most(function))


json_option = click.option("--json", "as_json", is_flag=True, help="One JSON object a line, for programs.")


def open_logs(
    paths: Sequence[str], *, topics: Sequence[str] = (), partitions: Sequence[int] = (), internal: bool = True
) -> list[PartitionLog]:
    """Every partition under the paths, by topic and partition; several log directories count as one.

    Parameters
    ----------
    internal : bool
        False leaves Kafka's internal topics out of log directories, unless they are named.

    Raises
    ------
    FileNotFoundError
        No such path.
    UnknownTopicOrPartitionError
        A filter that nothing passes.
    """
    import kts
    from kts.segment.names import INTERNAL_TOPICS

    for path in paths:
        if not os.path.exists(path):
            raise FileNotFoundError(f"{path}: no such file or directory; expected a partition, .log or log directory")
    try:
        opened = kts.open(list(paths) if len(paths) > 1 else paths[0])
    except ValueError as error:  # a file that is no segment, the same partition twice
        raise click.UsageError(str(error)) from error
    logs = list(opened.values()) if isinstance(opened, kts.LogDirs) else [opened]
    wanted = [
        log for log in logs if (not topics or log.topic in topics) and (not partitions or log.partition in partitions)
    ]
    for topic in topics:
        if not any(log.topic == topic for log in logs):
            known = ", ".join(sorted({log.topic for log in logs})) or "none at all"
            raise UnknownTopicOrPartitionError(f"no topic {topic!r} under {', '.join(paths)}; there is {known}")
    if not internal and not topics:
        wanted = [log for log in wanted if log.topic not in INTERNAL_TOPICS or log.path in paths or log.lone]
    if not wanted:
        if topics or partitions:
            raise UnknownTopicOrPartitionError(f"no partition passes --topic and --partition under {', '.join(paths)}")
        raise UnknownTopicOrPartitionError(f"no partition directories (such as orders-0) in {', '.join(paths)}")
    return sorted(wanted, key=lambda log: (log.topic, log.partition))


def log_bytes(logs: Iterable[PartitionLog]) -> int:
    """Length of all ``.log`` files, as far as they are there."""
    from kts.segment.rereading import settled

    def bytes_of(log: PartitionLog) -> int:
        return sum(segment.size_bytes for segment in log.segments)

    return sum(settled(partial(bytes_of, log)) for log in logs)
