"""What a synchronisation is asked for: the arguments of ``kts.tables.sync`` and of ``kts.spark.sync``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field

from kts.dataset.options import PATHS, LogOptions, Path, ScanOptions
from kts.options import FLAG, MOMENT, PATH, Bytes, Choice, Kind, Number, declared, option, same
from kts.times import Time

COMMIT_BYTES = 256 << 20
FORMATS = ("text", "json", "avro")  # of values


@dataclass(frozen=True)
class SyncOptions(LogOptions):
    """The arguments of ``kts.spark.sync``."""

    path: Path | Sequence[Path] | None = field(metadata=PATHS)
    table: Path = field(
        metadata=declared(
            Kind("str or path"),
            "An Iceberg table as Spark names it: catalog, namespace and name, as ``lake.db.orders``; or a folder of"
            " Parquet files, which has a ``/`` in its path.",
            more="It is made if missing.",
        )
    )
    _: KW_ONLY
    isolation: str = same(ScanOptions, "isolation")
    to_end: bool = option(
        False,
        FLAG,
        "Also what lies above the high watermark, which a dead broker never moves.",
        command=True,
    )
    fail_on_data_loss: bool = option(
        True, FLAG, "Records that are gone before they were read are an error; else a warning.", command=True
    )
    on_error: str = same(ScanOptions, "on_error")
    from_offsets: str | Mapping[str, Mapping[int, int]] | None = option(
        None,
        Kind("str or {topic: {partition: int}}, optional"),
        "Where a table goes on that has no offsets yet, or lost them: the offset of the next record of each partition,"
        " ``earliest`` or ``latest``.",
        more="A number of -2 is the first offset that is there, and -1 the end of what is stable. Each partition that"
        " is read must be named, and others that the table has rows of should be: a partition that is not named is new"
        " to the table, and is added from its first offset.",
        command=True,
        metavar="JSON|WORD",
    )
    value_format: str | None = option(
        None,
        Choice(FORMATS, "str, optional"),
        "Decode the values; else the column has their bytes.",
        more="Records whose values do not decode go to a second table, which has their bytes and the column ``reason``:"
        " its name ends in ``_rejected``. Each table has its own offsets, so that a run that is interrupted between the"
        " two commits goes on in both.",
        command=True,
    )
    value_schema: Path | None = option(
        None,
        PATH,
        "The file of the schema that the values get: JSON Schema, or an Avro schema.",
        command=True,
        metavar="FILE",
    )
    registry: bool = option(
        False,
        FLAG,
        "Values have the id of a schema in the topic ``_schemas`` of the same paths.",
        more="The id is in the header ``__value_schema_id`` or in front of the value (Confluent's clients). Without"
        " ``value_schema`` the column has the newest schema of ``TOPIC-value``.",
        command=True,
    )
    plausible_from: Time | None = option(
        None, MOMENT, "The first time that gets a day. Without it 2000-01-01.", command=True, metavar="TIME"
    )
    plausible_to: Time | None = option(
        None,
        MOMENT,
        "The first time after it that gets none. Without it 366 days from now.",
        more="``day`` is null for times that get none.",
        command=True,
        metavar="TIME",
    )
    unit: str | None = same(ScanOptions, "unit")
    max_days: int = option(
        1000,
        Number(),
        "The most days of a commit (with Spark, of a task), each a file: rows of further days, those with the fewest"
        " rows, get none.",
        command=True,
        metavar="N",
    )


@dataclass(frozen=True, kw_only=True)
class LocalSyncOptions(SyncOptions):
    """The arguments of ``kts.tables.sync``: those of ``SyncOptions``, and more."""

    catalog: Path | None = option(
        None,
        PATH,
        "The SQLite file of an Iceberg catalog.",
        more="It is for ``pyiceberg`` here and for Iceberg's JdbcCatalog in Spark. Without it the table is a folder of"
        " Parquet files; a text with a dot and without a ``/`` is refused then, because it may be the name of an"
        " Iceberg table.",
        command=True,
        metavar="FILE",
    )
    warehouse: Path | None = option(
        None,
        PATH,
        "Where a new table lies. Without it, ``warehouse`` beside the file of the catalog.",
        command=True,
        metavar="DIR",
    )
    threads: int = same(ScanOptions, "threads")
    commit_bytes: int = option(COMMIT_BYTES, Bytes(), "Commit after about this many bytes of records.", command=True)
    progress: Callable[[int], None] | None = option(
        None, Kind("callable, optional"), "Called with the number of offsets that were read."
    )
