"""What a synchronisation is asked for: the arguments of ``kts.tables.sync`` and of ``kts.spark.sync``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass

from kts.dataset.paths import Path
from kts.remote.buckets import StorageOptions
from kts.remote.tiers import RemoteOptions
from kts.times import Time

COMMIT_BYTES = 256 << 20
MAX_DAYS = 1_000


@dataclass(frozen=True)
class SyncOptions:
    """The arguments of ``kts.spark.sync``.

    Parameters
    ----------
    path : path or list of paths
        As for ``kts.open``.
    table : str or path
        An Iceberg table as Spark names it: catalog, namespace and name, as ``lake.db.orders``; or a folder of Parquet
        files, which has a ``/`` in its path. It is made if missing.
    topics, partitions, storage_options, remote, remote_options : optional
        As for ``kts.scan``.
    isolation, on_error : str
        As for ``kts.scan``; by default ``read_uncommitted`` and ``raise``.
    to_end : bool
        Also what lies above the high watermark: after a broker's end nothing moves it any more.
    fail_on_data_loss : bool
        Records that are gone before they were read are an error; else a warning.
    from_offsets : str or {topic: {partition: int}}, optional
        For a table that has no offsets yet, or lost them: the offset of the next record of each partition, ``earliest``
        or ``latest``; a number of -2 is the first offset that is there, and -1 the end of what is stable. Each
        partition that is read must be named, and others that the table has rows of should be: a partition that is not
        named is new to the table, and is added from its first offset.
    value_format : str, optional
        Decode the values: ``text``, ``json`` or ``avro``; None is their bytes. Records whose values do not decode go
        to a second table, which has their bytes and the column ``reason``: its name ends in ``_rejected``. Each table
        has its own offsets, so that a run that is interrupted between the two commits goes on in both.
    value_schema : path, optional
        The file of the schema that ``value`` gets: JSON Schema, or an Avro schema.
    registry : bool
        The id of a value's schema is in the header ``__value_schema_id`` or in front of the value (Confluent's
        clients), and the schemas are in the topic ``_schemas`` of the same paths. Without ``value_schema`` the column
        has the newest one of ``TOPIC-value``.
    plausible_from, plausible_to : int (ms), aware datetime or ISO 8601 text, optional
        The times that get a day, from 2000 until 366 days from now by default; ``day`` is null for others.
    unit : str, optional
        The unit of these two as integers; see ``kts.scan``.
    max_days : int
        The most days of a commit (with Spark, of a task), each of which is a file: rows of further days, those with the
        fewest rows, get no ``day``.
    """

    path: Path | Sequence[Path] | None
    table: Path
    _: KW_ONLY
    topics: Sequence[str] | str | None = None
    partitions: Sequence[int] | Mapping[str, Sequence[int]] | None = None
    isolation: str = "read_uncommitted"
    to_end: bool = False
    fail_on_data_loss: bool = True
    on_error: str = "raise"
    from_offsets: str | Mapping[str, Mapping[int, int]] | None = None
    value_format: str | None = None
    value_schema: Path | None = None
    registry: bool = False
    plausible_from: Time | None = None
    plausible_to: Time | None = None
    unit: str | None = None
    max_days: int = MAX_DAYS
    storage_options: StorageOptions = None
    remote: Path | None = None
    remote_options: RemoteOptions = None


@dataclass(frozen=True, kw_only=True)
class LocalSyncOptions(SyncOptions):
    """The arguments of ``kts.tables.sync``: those of ``SyncOptions``, and more.

    Parameters
    ----------
    table : str or path
        Without ``catalog``, a folder of Parquet files; a text with a dot and without a ``/`` is refused, because it may
        be the name of an Iceberg table.
    catalog : path, optional
        The SQLite file of the catalog, for ``pyiceberg`` here and for Iceberg's JdbcCatalog in Spark.
    warehouse : path, optional
        Where a new table lies; None is ``warehouse`` beside the file.
    threads : int
        As for ``kts.scan``.
    commit_bytes : int
        Commit after about so many bytes of records.
    progress : callable, optional
        Called with the number of offsets that were read.
    """

    catalog: Path | None = None
    warehouse: Path | None = None
    threads: int = 1
    commit_bytes: int = COMMIT_BYTES
    progress: Callable[[int], None] | None = None
