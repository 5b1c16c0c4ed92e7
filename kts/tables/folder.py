"""A folder of Parquet files, with a ledger that makes the files of a commit appear with its offsets.

::

    day=2026-01-01/part-00000007-0000.parquet    the rows of a commit and a day
    day=__HIVE_DEFAULT_PARTITION__/...           rows without a day
    _kts/ledger.json                             offsets, columns, and the renames of the last commit
    _kts/part-00000007-0000                      a file that no commit has yet, or whose rename was interrupted
    _kts/lock                                    held while files change
"""

from __future__ import annotations

import json
import os
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kts.dataset.increments import Offsets, from_json, to_json
from kts.errors import LogStorageError
from kts.segment import files
from kts.segment.locks import FileLock
from kts.tables.rows import DAY, check_types, lost_race, types_of

OWN = "_kts"
LEDGER = "ledger.json"
LOCK = "lock"
NO_DAY = "__HIVE_DEFAULT_PARTITION__"


class FolderTable:
    """A Parquet folder; see ``kts.tables.run.Target``.

    Raises
    ------
    InvalidRequestError
        It was made with other columns.
    LogLockedError
        Another program is adding to it.

    Notes
    -----
    A commit writes its files aside and syncs them; then it replaces the ledger, which names them and has the new
    offsets; then it renames them. After a crash, whoever opens the folder next renames what is left, or removes files
    that no ledger names. Until then a reader may see a part of the last commit, and never a record twice.
    """

    def __init__(self, path: str, schema: pa.Schema) -> None:
        files.require_local(path, "a Parquet folder")
        self.name, self.schema = path, schema
        self._own = os.path.join(path, OWN)
        files.make_directory(self._own)
        files.sync_directory(os.path.dirname(files.absolute(path)))
        with self._locked():
            self._number, self.offsets = self._recovered()

    def _locked(self) -> FileLock:
        return FileLock(os.path.join(self._own, LOCK), self.name)

    def _recovered(self) -> tuple[int, Offsets]:
        """Finish the last commit, and remove what belongs to none; its number and offsets."""
        path = os.path.join(self._own, LEDGER)
        data = files.read_if_there(path)
        try:
            ledger = self._ledger(0, {}, {}) if data is None else json.loads(data)
            number, offsets, columns = int(ledger["number"]), from_json(ledger["offsets"]), dict(ledger["columns"])
            pending = {str(name): str(target) for name, target in ledger["files"].items()}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise LogStorageError(f"expected the ledger of a table, found {data!r:.80}", path=path) from error
        check_types(self.name, columns, self.schema)
        self._rename(pending)
        for name in files.names_in(self._own):
            if name not in (LEDGER, LOCK):
                files.remove(os.path.join(self._own, name))
        return number, offsets

    def _ledger(self, number: int, offsets: Offsets, pending: dict[str, str]) -> dict[str, Any]:
        return {"number": number, "offsets": to_json(offsets), "columns": types_of(self.schema), "files": pending}

    def _rename(self, pending: dict[str, str]) -> None:
        """Move the files that a commit wrote aside to their days, and wait until that is on disk."""
        days = {os.path.join(self.name, os.path.dirname(target)) for target in pending.values()}
        for day in days:
            files.make_directory(day)
        files.sync_directory(self.name)  # no file moves into a directory that a crash would take along
        for name, target in pending.items():
            source = os.path.join(self._own, name)
            if files.exists(source):
                files.rename(source, os.path.join(self.name, target))
        for day in days:
            files.sync_directory(day)

    def append(self, rows: pa.Table, offsets: Offsets) -> None:
        """Add rows and set the offsets in one commit."""
        with self._locked():
            number, known = self._recovered()
            if known != self.offsets:
                raise lost_race(self.name)
            pending = self._write(rows, number + 1)
            ledger = self._ledger(number + 1, offsets, pending)
            files.write_atomically(os.path.join(self._own, LEDGER), json.dumps(ledger).encode())
            self._rename(pending)
            self.offsets = dict(offsets)

    def _write(self, rows: pa.Table, number: int) -> dict[str, str]:
        """Write the files of each day aside; their names there and in the folder."""
        found: dict[str, str] = {}
        days = rows.column(DAY)
        for place, day in enumerate(pc.unique(days).to_pylist()):
            mask = days.is_null() if day is None else pc.equal(days, pa.scalar(day, pa.date32()))
            name = f"part-{number:08d}-{place:04d}"
            path = os.path.join(self._own, name)
            pq.write_table(rows.filter(mask).drop_columns([DAY]), path, compression="zstd")
            with files.WritableFile(path) as file:
                file.sync()
            found[name] = f"{DAY}={NO_DAY if day is None else day}/{name}.parquet"
        files.sync_directory(self._own)
        return found
