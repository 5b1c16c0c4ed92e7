"""``kts verify``: checks CRCs, offsets, and both indexes against the log."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain, starmap
from typing import TYPE_CHECKING, NamedTuple

import click

from kts.behaviour import TimeRules
from kts.segment.names import INDEX_SUFFIXES

from .clusters import applied_states
from .inputs import (
    filter_options,
    json_option,
    negative_times_options,
    open_logs,
    storage_options_of_context,
    tiered_paths_argument,
)
from .output import FINDINGS, counted, note, print_json, print_line, progress, show_bytes
from .work import on_each, spark_option

if TYPE_CHECKING:
    from kts.dataset.partition import PartitionLog
    from kts.offline.findings import Violation

# Rough costs of a check: opening files, reading bytes. The work must be worth starting a process for.
SEGMENT_SECONDS, RATE, DEEP_RATE, PROCESS_SECONDS = 2e-4, 1e9, 1e8, 1.5

# What `kts reindex` mends: violations of these kinds, or in such files.
OF_INDEXES = {"index-checksum", "index-file"}
# What the metadata of the cluster contradicts.
OF_CLUSTER = {"topic-id", "key"}

EPILOG = """\b
Examples:
  kts verify DIR
  kts verify DIR/orders-0 --deep
  kts verify DIR --jobs 4 --json

Prints OK, or every violation with its file, position and offset, and what to type next; then the exit code is 1. With
--json: one object per violation, and a summary at the end.

Where the metadata log of a KRaft cluster lies beside the partitions (kts cluster DIR), the ids of topics must be those
that it has, and --deep finds records without a key in topics that it compacts; stderr says where it was read, and which
partitions are not the cluster's, or not this node's any more.

On a cluster: kts verify s3://backups/kafka --spark spark://HOST:7077.
"""


@click.command("verify", short_help="Check CRCs, offsets and indexes: OK, or every violation.", epilog=EPILOG)
@tiered_paths_argument
@filter_options
@click.option("--deep", is_flag=True, help="Also decompress and read every record.")
@click.option("--jobs", type=click.IntRange(min=1), default=1, help="Use up to this many processes. Default 1.")
@spark_option
@negative_times_options
@json_option
def command(
    paths: tuple[str, ...],
    topics: tuple[str, ...],
    partitions: tuple[int, ...],
    deep: bool,
    jobs: int,
    master: str | None,
    allow_negative_timestamps: bool,
    minus_one_is_a_time: bool,
    as_json: bool,
) -> int:
    """Check that batches are whole and sound, offsets rise, and both indexes agree with the log."""
    from kts.offline.cluster_check import compacted, strays, verify_topic_ids
    from kts.offline.facts import facts_of
    from kts.offline.small_files import log_directories_of, verify_checkpoints, verify_groups
    from kts.offline.verify import apart, folded

    if master is not None and jobs > 1:
        raise click.UsageError("--jobs is for this machine and --spark for a cluster; leave out one")
    logs = open_logs(paths, topics=topics, partitions=partitions)
    amounts = [amount_of(log) for log in logs]
    size, segments = sum(one.size_bytes for one in amounts), sum(one.segments for one in amounts)
    counts: Counter[str] = Counter()
    states = applied_states(logs, "topic ids and settings")
    left = list(strays(logs, states))
    for log, why in left:
        note(f"{log.topic}-{log.partition} is {why}")
    with progress("checked", size, quiet=master is not None) as advance:
        rules = TimeRules.of(allow_negative_timestamps, minus_one_is_a_time)
        with_keys = compacted(logs, states) if deep else frozenset()
        work = partial(facts_of, deep=deep, rules=rules, compacted=with_keys)
        checked = list(chain.from_iterable(map(apart, logs)))
        workers = max(1, min(jobs, int(sum(one.seconds(deep) for one in amounts) / PROCESS_SECONDS)))
        done = on_each(checked, work, folded, advance, master=master, jobs=workers, parts=True)
        found = chain.from_iterable(violations for _, violations in done)
        of_directories = chain.from_iterable(
            starmap(verify_checkpoints, log_directories_of(paths, logs, storage_options_of_context()))
        )
        of_cluster = verify_topic_ids(logs, states)
        for violation in chain(of_directories, of_cluster, verify_groups(logs), found):
            counts[mender_of(violation)] += 1
            print_violation(violation, as_json)
    count = counts.total()
    steps = next_steps(paths, counts, [state.origin.directory for state in states.values()])
    if as_json:
        summary = {"ok": not count, "violations": count, "partitions": len(logs), "segments": segments}
        away = [{"topic": log.topic, "partition": log.partition, "path": log.path, "stray": why} for log, why in left]
        metadata = dict.fromkeys(state.origin.log for state in states.values())
        beside = {"metadataLogs": [*metadata], "strays": away}
        print_json(summary | {"sizeInBytes": size, "deep": deep, "next": steps} | beside)
    elif count:
        note(f"{counted(count, 'violation')} in {counted(len(logs), 'partition')}")
        for step in steps:
            note(f"next: {step}")
    else:
        amount = f"{counted(len(logs), 'partition')}, {counted(segments, 'segment')}, {show_bytes(size)}"
        click.echo(f"OK: {amount}{', every record' * deep}")
    return FINDINGS if count else 0


def mender_of(violation: Violation) -> str:
    """The command that mends a violation, or shows what it is about."""
    if violation.kind in OF_INDEXES or violation.path.endswith(INDEX_SUFFIXES):
        return "reindex"
    if violation.kind in OF_CLUSTER:
        return "cluster"
    return "groups" if violation.kind == "group" else "copy"


def next_steps(paths: Sequence[str], counts: Mapping[str, int], homes: Sequence[str]) -> list[str]:
    """The commands that mend violations: those of indexes in their place, others in a copy; what else there is, shown.

    Parameters
    ----------
    counts : mapping of str to int
        Violations by ``mender_of``.
    homes : sequence of str
        The log directories that have the metadata.
    """
    source = shlex.quote(paths[0]) if len(paths) == 1 else "SRC"
    steps = {
        "reindex": f"kts reindex {source} --in-place",
        "copy": f"kts copy {source} DST --on-error skip",
        "groups": f"kts groups {source}",
        "cluster": f"kts cluster {shlex.quote(''.join(homes[:1]))}",
    }
    return [step for mender, step in steps.items() if counts.get(mender)]


class Amount(NamedTuple):
    """The amount to check in a partition."""

    segments: int
    size_bytes: int

    def seconds(self, deep: bool) -> float:
        """The estimated time of the check."""
        return SEGMENT_SECONDS * (1 + self.segments) + self.size_bytes / (DEEP_RATE if deep else RATE)


def amount_of(log: PartitionLog) -> Amount:
    """The amount to check in a partition now."""
    from kts.segment.rereading import settled

    def amount() -> Amount:
        segments = log.segments
        return Amount(len(segments), sum(segment.size_bytes for segment in segments))

    return settled(amount)


def print_violation(violation: Violation, as_json: bool) -> None:
    """Print one violation as a line."""
    if as_json:
        names = ("path", "position", "offset", "kind", "message")
        print_json({name: getattr(violation, name) for name in names})
        return
    where = [f"position {violation.position}"] if violation.position is not None else []
    where += [f"offset {violation.offset}"] if violation.offset is not None else []
    print_line(f"{violation.path}: {violation.kind}{' at ' * bool(where)}{', '.join(where)}: {violation.message}")
