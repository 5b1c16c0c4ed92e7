"""A table at one of its commits, read-only: what it knows of its logs, and the rows that it has up to there."""

from __future__ import annotations

import datetime
import errno
import os
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from kts.dataset.options import Path
from kts.model import TopicPartition
from kts.store import addresses, local
from kts.store.source import files
from kts.tables.folder import LEDGER, NO_DAY, OWN, Ledger, days_in, is_folder_table, parts_in
from kts.tables.iceberg import IcebergTable, existing
from kts.tables.rows import DAY, DAY_MS, agreed_schema, check_types, table_schema, types_of
from kts.tables.state import MOST_BYTES, Known, LostOffsetsError, TableState

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyiceberg.catalog import Catalog
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.io.pyarrow import ArrowScan
    from pyiceberg.table import FileScanTask

BATCH_ROWS = 1 << 16
EPOCH = datetime.date(1970, 1, 1)
CHOSEN_BY = ("topic", "partition", "offset", "timestampMs")  # rows


class RowRange(NamedTuple):
    """Which rows of a table are read; None is all.

    Attributes
    ----------
    names : collection of TopicPartition, optional
    start_ms, end_ms : int, optional
        Of ``timestampMs``; the end is not included.
    offsets : tuple of int, optional
        The first one, and one after the last.
    """

    names: Collection[TopicPartition] | None = None
    start_ms: int | None = None
    end_ms: int | None = None
    offsets: tuple[int, int] | None = None

    @property
    def partitions(self) -> dict[str, list[int]]:
        """The numbers of ``names``, by topic."""
        found: dict[str, list[int]] = {}
        for name in sorted(self.names or ()):
            found.setdefault(name.topic, []).append(name.partition)
        return found

    @property
    def bounds(self) -> list[tuple[str, int | None, int | None]]:
        """Columns with their first value and the one after the last."""
        return [("timestampMs", self.start_ms, self.end_ms), ("offset", *(self.offsets or (None, None)))]

    def passes_over(self, day: int) -> bool:
        """Whether no row of a day, in days since 1970, is wanted."""
        first, end = day * DAY_MS, (day + 1) * DAY_MS
        return (self.start_ms is not None and end <= self.start_ms) or (
            self.end_ms is not None and first >= self.end_ms
        )

    def for_arrow(self) -> pc.Expression:
        """The condition as Arrow has it."""
        import pyarrow.compute as pc

        wanted, column = pc.scalar(True), pc.field
        if self.names is not None:
            wanted = pc.scalar(False)
            for topic, numbers in self.partitions.items():
                wanted |= (column("topic") == topic) & column("partition").isin(numbers)
        for name, first, end in self.bounds:
            wanted &= (column(name) >= first) if first is not None else pc.scalar(True)
            wanted &= (column(name) < end) if end is not None else pc.scalar(True)
        return wanted

    def for_iceberg(self) -> BooleanExpression:
        """The condition as pyiceberg has it."""
        from pyiceberg import expressions

        make: Any = expressions  # whose types do not know their own arguments
        all_of, any_of = [make.AlwaysTrue()] * 2, [make.AlwaysFalse()] * 2
        if self.names is not None:
            for topic, numbers in self.partitions.items():
                any_of.append(make.And(make.EqualTo("topic", topic), make.In("partition", numbers)))
            all_of.append(make.Or(*any_of))
        for name, first, end in self.bounds:
            all_of += [] if first is None else [make.GreaterThanOrEqual(name, first)]
            all_of += [] if end is None else [make.LessThan(name, end)]
        wanted: BooleanExpression = make.And(*all_of)
        return wanted


class TableAt(Known, ABC):
    """A table at one of its commits.

    Attributes
    ----------
    schema : pyarrow.Schema
        The columns of ``table_schema`` that it has.
    """

    schema: pa.Schema

    @property
    def found(self) -> TableState:
        """What it knows."""
        return self._found

    @abstractmethod
    def rows(self, columns: Sequence[str], wanted: RowRange) -> Iterator[pa.RecordBatch]:
        """The rows of that commit and of those before it.

        Raises
        ------
        LogStorageError
            A file of the table is gone or cannot be read.
        """


def table_at(table: str, catalog: Path | Catalog | None, seconds: float) -> TableAt:
    """A table that ``kts sync`` made, as it names it, at its newest commit.

    Raises
    ------
    FileNotFoundError
        There is none.
    """
    if catalog is None:
        return FolderAt(table)
    return IcebergAt(*existing(table, catalog), seconds)


class FolderAt(TableAt):
    """A Parquet folder at the commit of its ledger; nothing is renamed, and no lock is taken.

    Notes
    -----
    A file of the last commit lies in ``_kts`` until it is renamed, and from then on with its day: it is looked for at
    the first of these places, and then at the other one. Files of later commits have greater numbers.
    """

    def __init__(self, path: str) -> None:
        self.name, self._path = path, addresses.absolute(addresses.plain(path))
        if addresses.scheme_of(self._path) is not None:
            raise ValueError(f"table: a Parquet folder lies on a disk, found {path}")
        if not is_folder_table(self._path):
            raise FileNotFoundError(errno.ENOENT, f"there is no table, which has a folder {OWN}", path)
        self.learn(self._find, stated=False)

    def _find(self) -> tuple[TableState, bool]:
        ledger_path = os.path.join(self._path, OWN, LEDGER)
        ledger = Ledger(0, TableState(), types_of(table_schema()), {})
        try:
            if files.exists(ledger_path):
                (data,) = files.read_small([ledger_path], MOST_BYTES)
                if data is None:
                    raise ValueError(f"it has more than {MOST_BYTES} bytes")
                ledger = Ledger.of(data)
            # Read after the ledger: files of a greater number belong to commits since then.
            parts = [*parts_in(self._path, days_in(self._path))]
            if parts and not ledger.state.offsets and not files.exists(ledger_path):
                raise ValueError("there is none")
            there = {part for part, number in parts if number <= ledger.number}
            if there and not ledger.state.offsets:
                raise ValueError("it has no offsets, and there are files of rows")
        except ValueError as error:
            raise LostOffsetsError(
                f"expected the ledger of the table, found another: {error}: put the right one back", path=ledger_path
            ) from error
        check_types(self.name, ledger.columns, types_of(table_schema()))
        self.schema = table_schema()
        pending = {target: name for name, target in ledger.pending.items()}
        self._parts = [(part, pending.get(part)) for part in sorted(there | pending.keys())]
        return ledger.state, True

    def rows(self, columns: Sequence[str], wanted: RowRange) -> Iterator[pa.RecordBatch]:
        """The rows, file by file."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        condition = wanted.for_arrow()
        schema = pa.schema([self.schema.field(name) for name in columns])
        names = [name for name in dict.fromkeys((*CHOSEN_BY, *columns)) if name != DAY]
        for part, aside in self._parts:
            day = _day_of(part)
            if day is not None and wanted.passes_over(day):
                continue
            path = os.path.join(self._path, part)
            with self._opened(path, aside) as file, local.storage_errors(path, "reading"):
                for batch in pq.ParquetFile(file).iter_batches(BATCH_ROWS, columns=names):
                    days = pa.array([day], pa.int32()).cast(pa.date32()).take(pa.array([0] * batch.num_rows, pa.int8()))
                    found = pa.Table.from_batches([batch.append_column(DAY, days)]).filter(condition)
                    yield from found.select(list(columns)).cast(schema).to_batches()

    def _opened(self, path: str, aside: str | None) -> pa.NativeFile:
        """A file, wherever it lies now."""
        import pyarrow as pa

        if aside is not None:
            with suppress(FileNotFoundError):
                return pa.OSFile(os.path.join(self._path, OWN, aside))
        with local.storage_errors(path, "opening"):
            return pa.OSFile(path)


def _day_of(part: str) -> int | None:
    """The day of a file, in days since 1970."""
    day = part.partition("/")[0].partition("=")[2]
    return None if day == NO_DAY else (datetime.date.fromisoformat(day) - EPOCH).days


class IcebergAt(IcebergTable, TableAt):
    """An Iceberg table at its newest snapshot."""

    def __init__(self, catalog: Catalog, identifier: tuple[str, ...], seconds: float) -> None:
        super().__init__(catalog, identifier, None, seconds=seconds)
        agreed_schema(self.name, self.schema, table_schema())
        self.snapshot = self._table.metadata.current_snapshot_id

    def rows(self, columns: Sequence[str], wanted: RowRange) -> Iterator[pa.RecordBatch]:
        """The rows, file by file: one at a time is in memory."""
        import pyarrow as pa
        from pyiceberg.io.pyarrow import ArrowScan

        if self.snapshot is None:
            return
        schema = pa.schema([table_schema().field(name) for name in columns])
        scan = self._table.scan(wanted.for_iceberg(), tuple(columns), snapshot_id=self.snapshot)
        tasks = self._within(lambda: list(scan.plan_files()))
        reader = ArrowScan(self._table.metadata, self._table.io, scan.projection(), scan.row_filter)
        for task in tasks:
            found = self._within(partial(_of_file, reader, task), task.file.file_size_in_bytes)
            for batch in found:
                if batch.num_rows:
                    yield batch.select(list(columns)).cast(schema)


def _of_file(reader: ArrowScan, task: FileScanTask) -> list[pa.RecordBatch]:
    return list(reader.to_record_batches([task]))
