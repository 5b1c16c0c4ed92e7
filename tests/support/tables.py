"""Tables that a synchronisation made, as other programs see them: DuckDB over the files of the newest snapshot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

import kts
from kts.tables import sync
from kts.tables.upkeep import Upkeep


def iceberg_table(catalog: Path, name: str = "lake.db.rows") -> Table:
    """The table as pyiceberg sees it now."""
    lake, *identifier = name.split(".")
    warehouse = f"file://{catalog.parent / 'warehouse'}"
    return SqlCatalog(lake, uri=f"sqlite:///{catalog}", warehouse=warehouse).load_table(tuple(identifier))


def data_files(catalog: Path, name: str = "lake.db.rows") -> list[str]:
    """The files of the newest snapshot."""
    return [task.file.file_path.removeprefix("file://") for task in iceberg_table(catalog, name).scan().plan_files()]


def folder_files(folder: Path) -> list[str]:
    """The files of a Parquet folder."""
    return [str(path) for path in folder.glob("day=*/*.parquet")]


def query(files: list[str], sql: str) -> list[tuple[Any, ...]]:
    """What DuckDB answers; the rows of the files are called ``rows``."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.read_parquet(files, hive_partitioning=False).create_view("rows")
        return connection.execute(sql).fetchall()


def check_each_once(rows: list[str], rejected: list[str], ends: list[int]) -> int:
    """Whether the two tables have each record of a ``JsonWriter`` once, up to the ends of its partitions; how many."""
    wrong = '"offset" <> value.o OR partition <> value.p'
    assert query(rows, f"SELECT count(*) FROM rows WHERE {wrong}") == [(0,)]
    places = 'SELECT partition, "offset" FROM rows'
    added, refused = query(rows, places), query(rejected, places)
    assert len(added) > len(refused) > 0
    found = sorted(added + refused)
    assert found == [(partition, offset) for partition, end in enumerate(ends) for offset in range(end)]
    return len(found)


DAY_MS = 86_400_000
FIRST_DAY = 1_767_225_600_000  # 2026-01-01


class Filled:
    """A topic of two partitions and its Iceberg table, of many small files: a commit for each run.

    Attributes
    ----------
    ends : list of int
        Of the partitions.
    """

    NAME = "lake.db.rows"

    def __init__(self, folder: Path, runs: int = 0, days: int = 2) -> None:
        self.folder, self.catalog, self.days, self.ends = folder, folder / "c.sqlite", days, [0, 0]
        for _ in range(runs):
            self.run()

    def run(self, count: int = 10) -> None:
        """Add records of each day to each partition, and then to the table."""
        for partition in range(2):
            with kts.Log(self.folder / "logs" / f"t-{partition}") as log:
                times = [FIRST_DAY + number % self.days * DAY_MS for number in range(count)]
                log.append_rows({"value": [b"v" * 20] * count, "timestamp": times})
                self.ends[partition] = log.log_end_offset
        self.sync()

    def sync(self, **more: Any) -> int:
        """Add what is new; how many records."""
        return sync(self.folder / "logs", self.NAME, catalog=self.catalog, **more).tables[0].records

    def open(self) -> Upkeep:
        return Upkeep(self.NAME, self.catalog)

    @property
    def table(self) -> Table:
        return iceberg_table(self.catalog, self.NAME)

    def places(self) -> list[tuple[int, int]]:
        """Where the rows are from, as DuckDB sees them."""
        return query(data_files(self.catalog, self.NAME), 'SELECT partition, "offset" FROM rows ORDER BY ALL')  # type: ignore[return-value]

    def check_each_once(self) -> None:
        assert self.places() == [(number, at) for number, end in enumerate(self.ends) for at in range(end)]

    def files(self) -> set[str]:
        """All files of the table that are there."""
        return {str(path) for path in (self.folder / "warehouse").rglob("*") if path.is_file()}
