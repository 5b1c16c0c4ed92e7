"""Tables that a synchronisation made, as other programs see them: DuckDB over the files of the newest snapshot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table


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
