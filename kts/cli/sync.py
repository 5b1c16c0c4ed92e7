"""``kts sync``: adds the new records of logs to a table, each once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kts.errors import InvalidRequestError
from kts.tables.options import LocalSyncOptions

from .inputs import (
    declared,
    existing_paths,
    given_options,
    json_option,
    now_option,
    reached_by_context,
    tiered_paths_argument,
)
from .output import counted, note, print_json, print_table, progress, spelled
from .times import SPELLINGS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kts.tables import Synced

EPILOG = f"""\b
Examples:
  kts sync DIR lake.db.orders --catalog lake.sqlite --topic orders
  kts sync DIR lake.db.all --catalog lake.sqlite --jobs 4 --to-end --json
  kts sync DIR orders-table --topic orders
  kts sync DIR delta:orders-delta --topic orders
  kts sync DIR lake.db.text --catalog lake.sqlite --value-format text
  kts sync DIR lake.db.state --catalog lake.sqlite --mode latest

With --catalog, TABLE is an Iceberg table as Spark names it: catalog, namespace, name. The catalog is an SQLite file
that Iceberg's JdbcCatalog opens too, a URI (https:// for REST, thrift:// for Hive), or the name of one in
.pyiceberg.yaml; the table and the file are made if they are missing. Without it, TABLE is a folder
of Parquet files (day=2026-01-01/part-...) with a ledger, _kts/ledger.json; write ./NAME if the name has a dot.

TABLE may also be a Delta table: delta: and its path, as delta:/data/orders (pip install 'kafka-timestamps[delta]').

Each run adds what is new since the last one. Rows and the offset of the next record of each partition are one commit:
a run that is killed goes on behind its last commit, and every record is there once. Retention of the topic deletes
nothing from the table, and rows that you delete stay deleted. Records that were deleted before a run could read them
are an error (exit code 2) unless --no-fail-on-data-loss is given. Run one at a time.

A table that has lost its offsets is refused: its snapshots expired and its properties were removed, or its ledger is
gone. --from-offsets says where to go on: JSON of topic, partition and offset of the next record, such as
'{{"orders": {{"0": 23}}}}' (-2 is the first offset that is there, -1 the end), or earliest or latest.

Columns: topic, partition, offset, timestamp (microseconds; null where they cannot hold the time), timestampMs (Kafka's
value), timestampType, key, value, headers, and day, by which the table is partitioned. day is null where the time is
implausible: before --plausible-from or not before --plausible-to. Such rows are counted. Each day of a commit is a
file; of more than --max-days days, those with the fewest rows get none, and a warning says so.

With --value-format the column value is decoded, and records whose value does not decode go to the table
TABLE_rejected, which has its bytes and the reason. Each of the two tables has offsets of its own.

With --mode latest the table has one row for each key of a partition, that of its newest record, as kts dump --latest
gives it: a run is one commit that adds, replaces and removes rows. A bucket of keys is written again, unless few of its
rows change: an Iceberg table then gets position deletes.

Times: {SPELLINGS}.
"""


@click.command("sync", short_help="Add what is new in logs to a table, each record once.", epilog=EPILOG)
@tiered_paths_argument
@click.argument("table", metavar="TABLE")
@declared(LocalSyncOptions)
@now_option
@json_option
def command(paths: tuple[str, ...], table: str, now: str | None, as_json: bool, **asked: Any) -> None:
    """Add the records of partitions, log directories, buckets or tiers to a table, from where the last run ended."""
    from kts.tables import sync
    from kts.tables.delta import PREFIX

    given = existing_paths(paths) if paths else None
    try:
        with progress("added", None, sizes=False) as advance:
            options = given_options(LocalSyncOptions, asked, now)
            options["from_offsets"] = _offsets(asked["from_offsets"])
            done = sync(given, table, progress=advance, **options | reached_by_context())
    except (ValueError, InvalidRequestError, ModuleNotFoundError) as error:
        raise click.UsageError(str(error)) from error
    except FileNotFoundError as error:
        raise click.UsageError(spelled(error)) from error
    for added in done.tables:
        if added.created is not None:
            catalog = asked["catalog"]
            kind = "a folder of Parquet files" if catalog is None else f"an Iceberg table of the catalog {catalog}"
            kind = "a Delta table" if table.startswith(PREFIX) else kind
            note(f"made {added.table}, {kind}, in {added.created}")
    report(done, as_json)


def _offsets(given: str | None) -> str | Mapping[str, Mapping[int, int]] | None:
    """The option --from-offsets: JSON, or a word."""
    if given is None or given in ("earliest", "latest"):
        return given
    from kts.model import EARLIEST
    from kts.tables.state import offsets_of, parsed

    try:
        found = parsed(given)
        offsets_of(found, EARLIEST)
    except ValueError as error:
        raise ValueError(
            f'from_offsets: expected earliest, latest or JSON such as {{"orders": {{"0": 23}}}}, found {given}: {error}'
        ) from error
    return dict(found)


def report(done: Synced, as_json: bool) -> None:
    """What was added to each table."""
    from kts.dataset.increments import to_json

    if as_json:
        for added in done.tables:
            print_json(
                {
                    "table": added.table,
                    "records": added.records,
                    "commits": added.commits,
                    "withoutDay": added.without_day,
                    "withoutTimestamp": added.without_timestamp,
                    "offsets": to_json(added.offsets),
                    "heldBack": to_json(done.held_back),
                }
                | ({} if added.removed is None else {"removed": added.removed})
            )
        return
    if done.tables[0].removed is None:
        names = ("table", "records", "commits", "without day", "without timestamp")
        counts = [(one.table, one.records, one.commits, one.without_day, one.without_timestamp) for one in done.tables]
    else:
        names = ("table", "rows added", "removed", "commits", "without timestamp")
        counts = [(one.table, one.records, one.removed or 0, one.commits, one.without_timestamp) for one in done.tables]
    print_table(names, [(table, *map("{:,}".format, row)) for table, *row in counts], right=(1, 2, 3, 4))
    if held_back := sum(done.held_back.values()):
        note(
            f"{counted(held_back, 'offset')} of {counted(len(done.held_back), 'partition')}: not stable yet and left"
            " to a later run; --to-end adds those above the high watermark"
        )
