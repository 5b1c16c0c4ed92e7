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


def query(files: list[str], sql: str) -> list[tuple[Any, ...]]:
    """What DuckDB answers; the rows of the files are called ``rows``."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.read_parquet(files, hive_partitioning=False).create_view("rows")
        return connection.execute(sql).fetchall()
