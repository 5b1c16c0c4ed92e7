"""What a synchronisation is asked for: the arguments of ``kts.tables.sync`` and of ``kts.spark.sync``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

from kts.dataset.options import ISOLATIONS, LogOptions, Path, ScanOptions
from kts.options import FLAG, MOMENT, PATH, Bytes, Choice, FilePath, Kind, Number, Several, option, same
from kts.times import Time

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

COMMIT_BYTES = 256 << 20
MODES = ("append", "latest")
MOST_BUCKETS = 1 << 14
FORMATS = ("text", "json", "avro")  # of values


@dataclass(frozen=True)
class SyncOptions(LogOptions):
    """The arguments of ``kts.spark.sync``.

    Parameters
    ----------
    path : path or list of paths
        As for ``kts.open``.
    table : str or path
        An Iceberg table as Spark names it: catalog, namespace and name, as ``lake.db.orders``; or a folder of Parquet
        files, which has a ``/`` in its path. It is made if missing. For ``kts.tables.sync`` also a Delta table, as
        ``delta:/data/orders``: its path, or its address as delta-rs takes it, with the environment's credentials.
    isolation : str, optional
        ``read_committed`` leaves out aborted transactions, and ends at the first open one: without it so with
        ``mode="latest"``, and ``read_uncommitted`` else.
    to_end : bool
        Also what lies above the high watermark, which a dead broker never moves.
    fail_on_data_loss : bool
        Records that are gone before they were read are an error; else a warning.
    from_offsets : str or {topic: {partition: int}}, optional
        Where a table goes on that has no offsets yet, or lost them: the offset of the next record of each partition,
        ``earliest`` or ``latest``. A number of -2 is the first offset that is there, and -1 the end of what is stable.
        Each partition that is read must be named, and others that the table has rows of should be: a partition that is
        not named is new to the table, and is added from its first offset.
    value_format : str, optional
        Decode the values; else the column has their bytes. Records whose values do not decode go to a second table,
        which has their bytes and the column ``reason``: its name ends in ``_rejected``. Each table has its own offsets,
        so that a run that is interrupted between the two commits goes on in both.
    value_schema : path, optional
        The file of the schema that the values get: JSON Schema, or an Avro schema.
    registry : bool
        Values have the id of a schema in the topic ``_schemas`` of the same paths. The id is in the header
        ``__value_schema_id`` or in front of the value (Confluent's clients). Without ``value_schema`` the column has
        the newest schema of ``TOPIC-value``.
    plausible_from : int (ms), aware datetime or ISO 8601 text, optional
        The first time that gets a day; without it 2000-01-01. ``day`` is null for times that get none.
    plausible_to : int (ms), aware datetime or ISO 8601 text, optional
        The first time that gets none; without it 366 days from now.
    max_days : int
        The most days of a commit (with Spark, of a task), each a file: rows of further days, those with the fewest
        rows, get none.
    """

    path: Path | Sequence[Path] | None
    table: Path
    _: KW_ONLY
    isolation: str | None = option(None, Choice(ISOLATIONS), command=True)
    to_end: bool = option(False, FLAG, command=True)
    fail_on_data_loss: bool = option(True, FLAG, command=True)
    on_error: str = same(ScanOptions, "on_error")
    from_offsets: str | Mapping[str, Mapping[int, int]] | None = option(None, Kind("JSON|WORD"), command=True)
    value_format: str | None = option(None, Choice(FORMATS), command=True)
    value_schema: Path | None = option(None, PATH, command=True)
    registry: bool = option(False, FLAG, command=True)
    plausible_from: Time | None = option(None, MOMENT, command=True)
    plausible_to: Time | None = option(None, MOMENT, command=True)
    unit: str | None = same(ScanOptions, "unit")
    max_days: int = option(1000, Number(), command=True)


@dataclass(frozen=True, kw_only=True)
class LocalSyncOptions(SyncOptions):
    """The arguments of ``kts.tables.sync``: those of ``SyncOptions``, and more.

    Parameters
    ----------
    catalog : path, str or pyiceberg.catalog.Catalog, optional
        The Iceberg catalog: an SQLite file, a URI, or the name of a catalog of ``.pyiceberg.yaml``. The file, which is
        made if it is missing, is for ``pyiceberg`` here and for Iceberg's JdbcCatalog in Spark. A URI is that of a REST
        catalog (``https://``), of Hive's metastore (``thrift://``) or of a database (``postgresql://``). Without
        ``catalog`` the table is a folder of Parquet files; a text with a dot and without a ``/`` is refused then,
        because it may be the name of an Iceberg table.
    warehouse : path, optional
        Where a new table lies; without it, where the catalog says, or in ``warehouse`` beside its file.
    partition_by : list of str, optional
        How a new Iceberg table is partitioned: columns, or Iceberg's transforms of them, as ``hour(timestamp)``,
        ``bucket(16, key)``, ``truncate(4, topic)``. Without it ``day``. A table that is there keeps its own.
    mode : str
        ``append`` adds a row for each record. With ``latest`` a table has a row for each key, which has its newest
        record: each run is one commit that adds, replaces and removes rows. It has no column ``day``.
    buckets : int, optional
        Of a new table of the latest state: in how many parts keys are divided. A run rewrites those that have changes,
        one after another in memory: about one for each 100 MiB of the table. Without it 16.
    commit_bytes : int
        Commit after about this many bytes of records.
    progress : callable, optional
        Called with the number of offsets that were read.
    """

    catalog: Path | Catalog | None = option(None, FilePath("FILE|URI|NAME"), command=True)
    warehouse: Path | None = option(None, PATH, command=True)
    threads: int = same(ScanOptions, "threads")
    partition_by: Sequence[str] | None = option(None, Several(str, "FIELD"), command=True)
    mode: str = option("append", Choice(MODES), command=True)
    buckets: int | None = option(None, Number(1, MOST_BUCKETS), command=True)
    commit_bytes: int = option(COMMIT_BYTES, Bytes(), command=True)
    progress: Callable[[int], None] | None = None

    @property
    def reaches_more(self) -> bool:
        """Whether ``storage_options`` also have the catalog's limit of time."""
        return self.catalog is not None and "time_limit" in (self.storage_options or {})
