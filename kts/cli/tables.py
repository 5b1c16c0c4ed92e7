"""``kts tables``: looks after an Iceberg table: what it needs, fewer files, fewer snapshots, no orphans."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from .inputs import SIZE_WORDS, Size
from .output import FINDINGS, FINE, counted, note, print_json, print_line, print_table, progress, remark, show_bytes
from .times import length_callback, show_length, show_time

if TYPE_CHECKING:
    from kts.tables.upkeep import Upkeep

EPILOG = """\b
Examples:
  kts tables check lake.db.orders --catalog lake.sqlite
  kts tables check lake.db.orders --catalog lake.sqlite --rows --json
  kts tables compact lake.db.orders --catalog lake.sqlite --dry-run
  kts tables expire lake.db.orders --catalog lake.sqlite --older-than 7d
  kts tables orphans lake.db.orders --catalog lake.sqlite --dry-run

A sync may run meanwhile: of two commits one comes first, and the other one is made again on top of it. The offsets up
to which the table has the logs stay, and so do its rows.

check: is every file there that a snapshot refers to, do the offsets of the table cover its rows, and what comes next?
With --rows it also reads where each row is from, and finds those that are there twice. Exit code 1: something is wrong.

compact: files of less than three quarters of --target-size become files of about that size, each partition of the table
(a day) for itself. Readers of older snapshots keep the old files until these expire.

expire: snapshots that are older go, with the files that only they use, but not the newest ones, nor those of branches
and tags, nor the one that has the offsets.

orphans: files in the table's location go that nothing uses: no snapshot of any metadata version that is still listed.
None that is younger than three days goes: a commit may be about to name it.
"""
ACTIONS = ("check", "compact", "expire", "orphans")
OF_ACTIONS = {  # which take an option
    "older_than": ("expire", "orphans"),
    "keep": ("expire",),
    "target_size": ("check", "compact"),
    "rows": ("check",),
    "dry_run": ("compact", "expire", "orphans"),
}


@click.command("tables", short_help="Check, compact and clean up an Iceberg table.", epilog=EPILOG)
@click.argument("action", metavar="ACTION", type=click.Choice(ACTIONS))
@click.argument("table", metavar="TABLE")
@click.option("--catalog", metavar="FILE|URI|NAME", required=True, help="The catalog, as for kts sync.")
@click.option(
    "--older-than", metavar="LENGTH", callback=length_callback,
    help="What is younger stays. Default 5d of expire; 3d of orphans, and no less.",
)  # fmt: skip
@click.option("--keep", metavar="N", type=click.IntRange(1), help="Snapshots that stay, whatever their age. Default 1.")
@click.option("--target-size", type=Size(1), help=f"Size of files; {SIZE_WORDS}. Default 128MiB.")
@click.option("--rows", is_flag=True, help="Also read where each row is from.")
@click.option("--dry-run", is_flag=True, help="Show what would be done; nothing changes.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(action: str, table: str, catalog: str, as_json: bool, **asked: Any) -> int:
    """Look after an Iceberg table that ``kts sync`` fills, beside a sync that runs.

    ACTION is check, compact, expire or orphans. TABLE is named as by kts sync: catalog, namespace, name. Nothing else
    is needed, no JVM and no server.
    """
    for name, actions in OF_ACTIONS.items():
        if asked[name] and action not in actions:
            raise click.UsageError(f"--{name.replace('_', '-')} is for {' and '.join(actions)}")
    try:
        from kts.tables.upkeep import Upkeep

        opened = Upkeep(table, catalog)
        return {"check": check, "compact": compact, "expire": expire, "orphans": orphans}[action](
            opened, asked, as_json, f"{table} --catalog {catalog}"
        )
    except (ValueError, ModuleNotFoundError) as error:
        raise click.UsageError(str(error)) from error
    except FileNotFoundError as error:
        raise click.UsageError(f"{error.filename}: {error.strerror}") from error


def check(table: Upkeep, asked: dict[str, Any], as_json: bool, named: str) -> int:
    """Say what the table is like."""
    from kts.dataset.increments import to_json
    from kts.tables import checking, upkeep

    found = checking.check(table, rows=asked["rows"], target_bytes=asked["target_size"] or upkeep.TARGET_BYTES)
    if as_json:
        print_json(
            {
                "table": found.table,
                "location": found.location,
                "ok": not found.findings,
                "files": found.files,
                "sizeInBytes": found.size_in_bytes,
                "records": found.records,
                "smallFiles": found.small_files,
                "fewestFiles": found.fewest_files,
                "deleteFiles": found.delete_files,
                "snapshots": found.snapshots,
                "manifests": found.manifests,
                "metadataFiles": found.metadata_files,
                "planningMs": round(found.planning_s * 1000),
                "offsets": to_json(found.offsets),
                "doubled": found.doubled,
                "missing": found.missing,
                "findings": found.findings,
                "advice": found.advice,
            }
        )
        return FINDINGS if found.findings else FINE
    facts = [
        ("rows", f"{found.records:,}"),
        ("files", f"{found.files:,}, {show_bytes(found.size_in_bytes)}"),
        ("small files", f"{found.small_files:,}; {counted(found.fewest_files, 'file')} would do"),
        ("snapshots", f"{found.snapshots:,}, in {counted(found.metadata_files, 'metadata file')}"),
        ("manifests", f"{found.manifests:,}; a reader finds its files in {found.planning_s * 1000:,.0f} ms"),
        ("offsets", f"of {counted(len(found.offsets), 'partition')}"),
    ]
    print_table((found.table, ""), facts)
    for one in found.findings:
        print_line(f"wrong: {one}")
    for one in found.advice:
        print_line(f"next: kts tables {one} {named}")
    if not found.findings and not found.advice:
        print_line("OK")
    return FINDINGS if found.findings else FINE


def compact(table: Upkeep, asked: dict[str, Any], as_json: bool, named: str) -> int:
    """Rewrite small files."""
    from kts.tables import compaction, upkeep

    with progress("rewritten", None) as advance:
        done = compaction.compact(
            table,
            target_bytes=asked["target_size"] or upkeep.TARGET_BYTES,
            dry_run=asked["dry_run"],
            progress=advance,
        )
    if as_json:
        print_json(
            {
                "table": done.table,
                "done": not asked["dry_run"],
                "filesBefore": done.files_before,
                "filesAfter": done.files_after,
                "bytesBefore": done.bytes_before,
                "bytesAfter": done.bytes_after,
                "records": done.records,
                "commits": done.commits,
                "passedOver": done.passed_over,
                "dropped": done.dropped,
            }
        )
        return FINE
    row = (
        f"{done.files_before:,} to {done.files_after:,}",
        f"{show_bytes(done.bytes_before)} to {'less' if asked['dry_run'] else show_bytes(done.bytes_after)}",
        f"{done.records:,}",
        f"{done.commits:,}",
    )
    print_table(("files", "size", "rows", "commits"), [row], right=(0, 1, 2, 3))
    if done.passed_over:
        note(f"{counted(done.passed_over, 'small file')} of an earlier partitioning of the table stay")
    if done.dropped:
        note(f"{counted(done.dropped, 'group')} of files stay as another program left them meanwhile")
    _say_dry(asked)
    return FINE


def expire(table: Upkeep, asked: dict[str, Any], as_json: bool, named: str) -> int:
    """Expire snapshots."""
    from kts.tables import expiry

    older = expiry.OLDER_THAN_MS if asked["older_than"] is None else asked["older_than"]
    with progress("removed", None, sizes=False) as advance:
        done = expiry.expire(
            table,
            older_than_ms=older,
            keep=asked["keep"] or expiry.KEEP,
            dry_run=asked["dry_run"],
            progress=advance,
        )
    if as_json:
        print_json(
            {
                "table": done.table,
                "done": not asked["dry_run"],
                "expired": done.snapshots,
                "kept": done.kept,
                "files": len(done.files),
                "removed": done.removed,
            }
        )
        return FINE
    row = (f"{len(done.snapshots):,}", f"{done.kept:,}", f"{len(done.files):,}")
    print_table((f"older than {show_length(older)}", "stay", "files that only they use"), [row], right=(0, 1, 2))
    _say_dry(asked)
    return FINE


def orphans(table: Upkeep, asked: dict[str, Any], as_json: bool, named: str) -> int:
    """Remove what nothing uses."""
    from kts.tables import orphans as finding

    older = finding.YOUNGEST_MS if asked["older_than"] is None else asked["older_than"]
    with progress("removed", None, sizes=False) as advance:
        done = finding.orphans(table, older_than_ms=older, dry_run=asked["dry_run"], progress=advance)
    if as_json:
        files = [
            {"path": one.path, "sizeInBytes": one.bytes, "modified": int(one.modified_s * 1000)} for one in done.files
        ]
        print_json(
            {
                "table": done.table,
                "location": done.location,
                "done": not asked["dry_run"],
                "orphans": files,
                "tooYoung": done.too_young,
                "used": done.used,
                "removed": done.removed,
            }
        )
        return FINE
    rows = [(one.path, show_bytes(one.bytes), show_time(int(one.modified_s * 1000))) for one in done.files]
    if rows:
        print_table(("orphan", "size", "modified"), rows, right=(1,), shrink=(0,))
    size = show_bytes(sum(one.bytes for one in done.files))
    print_line(f"{counted(len(rows), 'orphan')}, {size}; {done.used:,} files are used, {done.too_young:,} too young")
    _say_dry(asked)
    return FINE


def _say_dry(asked: dict[str, Any]) -> None:
    if asked["dry_run"]:
        remark("nothing was changed; without --dry-run it is done")
