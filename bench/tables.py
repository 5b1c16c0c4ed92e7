"""A topic that becomes a table, beside its sinks' own writers, which get the same rows ready-made."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds

import kts
from kts.tables import sync
from kts.tables.iceberg import open_catalog
from kts.tables.rows import DAY, READ, Plausible, table_rows

from .corpora import corpora
from .table import Report, all_cores, medians, wall_seconds

TABLE = "lake.db.t"
PAIRS = {
    "kts.tables.sync into a Parquet folder": "pyarrow.dataset.write_dataset",
    "kts.tables.sync into Iceberg": "append of pyiceberg",
}


def ready(logs: Path) -> pa.Table:
    """The rows that a table gets, in memory."""
    plausible = Plausible(0, 2**62)
    return pa.Table.from_batches([table_rows(batch, plausible) for batch in kts.scan(logs, columns=READ)])


def written(rows: pa.Table, folder: Path) -> None:
    by_day = ds.partitioning(pa.schema([rows.schema.field(DAY)]), flavor="hive")
    parquet = ds.ParquetFileFormat()
    how = parquet.make_write_options(compression="zstd")
    ds.write_dataset(rows, folder, format=parquet, file_options=how, partitioning=by_day)


def appended(rows: pa.Table, folder: Path) -> None:
    folder.mkdir()
    catalog = open_catalog("lake", str(folder / "c.sqlite"))
    catalog.create_namespace("db")
    creation = catalog.create_table_transaction("db.t", rows.schema)
    with creation, creation.update_spec() as partitioning:
        partitioning.add_identity(DAY)
    catalog.load_table("db.t").append(rows)


def synced(logs: Path, folder: Path, records: int, *, iceberg: bool) -> None:
    folder.mkdir()
    done = sync(logs, TABLE, catalog=folder / "c.sqlite") if iceberg else sync(logs, folder / "t")
    if done.tables[0].records != records:
        raise ValueError(f"expected {records} rows, found {done.tables[0].records}")


def run(report: Report, total_bytes: int, seed: int, rounds: int, scratch: Path) -> None:
    """One table: rows a second into a new folder, and into a new Iceberg table."""
    shutil.rmtree(scratch, ignore_errors=True)
    [corpus] = corpora(2, "100 B", ["lz4"], total_bytes, seed)
    logs = scratch / "logs"
    (logs / "t-0").mkdir(parents=True)
    (logs / "t-0" / f"{0:020}.log").write_bytes(corpus.data)
    rows, folders = ready(logs), (scratch / str(number) for number in itertools.count())
    works: list[Callable[[], object]] = [
        lambda: synced(logs, next(folders), corpus.records, iceberg=False),
        lambda: written(rows, next(folders)),
        lambda: synced(logs, next(folders), corpus.records, iceberg=True),
        lambda: appended(rows, next(folders)),
    ]
    names = [name for pair in PAIRS.items() for name in pair]
    with all_cores():
        found = medians({name: wall_seconds(work) for name, work in zip(names, works, strict=True)}, rounds)
    shutil.rmtree(scratch)
    report.table(
        f"A table of {corpus.records:,} records ({corpus.name}), by the clock",
        ["what", "rows a second", "peer, which gets the rows ready-made", "rows a second", "of the peer's"],
        [
            [
                ours,
                f"{corpus.records / found[ours]:,.0f}",
                peer,
                f"{corpus.records / found[peer]:,.0f}",
                f"{found[peer] / found[ours]:.0%}",
            ]
            for ours, peer in PAIRS.items()
        ],
    )
