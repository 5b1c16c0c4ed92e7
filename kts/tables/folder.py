"""A folder of Parquet files, with a ledger that makes the files of a commit appear with its offsets.

::

    day=2026-01-01/part-00000007-0000.parquet    the rows of a commit and a day
    day=__HIVE_DEFAULT_PARTITION__/...           rows without a day
    _kts/ledger.json                             offsets, topic ids, columns, and the renames of the last commit
    _kts/0123456789abcdef0123456789abcdef        a file that no commit has yet, or whose rename was interrupted
    _kts/lock                                    held by the one program that adds to the table
"""

from __future__ import annotations

import datetime
import json
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kts.dataset.increments import Offsets, TopicIds, from_json, to_json
from kts.errors import LogStorageError
from kts.segment import files
from kts.segment.locks import FileLock
from kts.tables.rows import DAY, check_types, lost_race, types_of

OWN = "_kts"
LEDGER = "ledger.json"
LOCK = "lock"
NO_DAY = "__HIVE_DEFAULT_PARTITION__"


class Aside(NamedTuple):
    """A file in ``_kts`` with rows of one day, which no reader sees before a commit names it."""

    name: str
    day: datetime.date | None
    records: int
    without_timestamp: int


def write_aside(own: str, rows: pa.Table) -> list[Aside]:
    """Write a file for each day of rows into the directory ``_kts`` of a table, as any process may that sees it."""
    found, days = [], rows.column(DAY)
    for day in pc.unique(days).to_pylist():
        of_day = rows.filter(days.is_null() if day is None else pc.equal(days, pa.scalar(day, pa.date32())))
        name = uuid4().hex
        path = os.path.join(own, name)
        with files.storage_errors(path, "writing"):
            pq.write_table(of_day.drop_columns([DAY]), path, compression="zstd")
        with files.WritableFile(path) as file:
            file.sync()
        found.append(Aside(name, day, of_day.num_rows, of_day.column("timestamp").null_count))
    return found


class FolderTable:
    """A Parquet folder; see ``kts.tables.run.Target``.

    Raises
    ------
    ValueError
        The path is an address of a bucket.
    InvalidRequestError
        It was made with other columns.
    LogLockedError
        Another program is adding to it.
    LogStorageError
        Its ledger is malformed or lost.

    Notes
    -----
    A commit writes its files aside and syncs them; then it replaces the ledger, which names them and has the new
    offsets; then it renames them. After a crash, whoever opens the folder next renames what is left, and removes files
    that no ledger names. Until then a reader may see a part of the last commit, and never a record twice.
    """

    def __init__(self, path: str, schema: pa.Schema) -> None:
        self.name, self.schema = path, schema
        self._path = files.absolute(files.plain(path))
        if files.scheme_of(self._path) is not None:
            raise ValueError(
                f"table: a Parquet folder lies on a disk, because a commit renames files; found {path}: name an Iceberg"
                " table whose warehouse is there"
            )
        self._own = os.path.join(self._path, OWN)
        files.make_directory(self._own)
        files.sync_directory(os.path.dirname(self._path))
        with self._locked():
            _, self.offsets, self.topic_ids = self._recovered()

    def _locked(self) -> FileLock:
        return FileLock(self._in_own(LOCK), files.real(self._path))  # owners of other names would share it

    def _recovered(self) -> tuple[int, Offsets, TopicIds]:
        """Finish the last commit, and remove what belongs to none; its number, offsets and topic ids."""
        path = self._in_own(LEDGER)
        data = files.read_if_there(path)
        if data is None and any(name.startswith(f"{DAY}=") for name in files.names_in(self._path)):
            raise LogStorageError(
                "expected the ledger of the days that are there, found none: put it back, or name another folder",
                path=path,
            )
        try:
            ledger = self._ledger(0, {}, {}, {}) if data is None else json.loads(data)
            topic_ids: TopicIds = dict(ledger.get("topicIds", {}))
            number, offsets, columns = int(ledger["number"]), from_json(ledger["offsets"]), dict(ledger["columns"])
            pending = {str(name): str(target) for name, target in ledger["files"].items()}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise LogStorageError(f"expected the ledger of a table, found {data!r:.80}", path=path) from error
        check_types(self.name, columns, self.schema)
        self._rename(pending)
        return number, offsets, topic_ids

    def _ledger(self, number: int, offsets: Offsets, topic_ids: TopicIds, pending: dict[str, str]) -> dict[str, Any]:
        told = {"number": number, "offsets": to_json(offsets), "topicIds": topic_ids}
        return told | {"columns": types_of(self.schema), "files": pending}

    def _rename(self, pending: dict[str, str]) -> None:
        """Move the files of a commit to their days, wait until that is on disk, and remove files that it lacks."""
        days = {os.path.join(self._path, os.path.dirname(target)) for target in pending.values()}
        for day in days:
            files.make_directory(day)
        files.sync_directory(self._path)  # no file moves into a directory that a crash would take along
        for name, target in pending.items():
            if files.exists(self._in_own(name)):
                files.rename(self._in_own(name), os.path.join(self._path, target))
        for day in days:
            files.sync_directory(day)
        self._remove_others(pending)

    def _remove_others(self, kept: Iterable[str]) -> None:
        """Remove the files in ``_kts`` that belong to no commit."""
        for name in {*files.names_in(self._own)} - {LEDGER, LOCK, *kept}:
            files.remove(self._in_own(name), missing_ok=True)  # its writer may live still, and remove it

    def _in_own(self, name: str) -> str:
        return os.path.join(self._own, name)

    def append(self, rows: pa.Table, offsets: Offsets) -> None:
        """Add rows and set the offsets in one commit."""
        self.commit(lambda own: write_aside(own, rows), offsets)

    def commit(self, write: Callable[[str], Sequence[Aside]], offsets: Offsets) -> Sequence[Aside]:
        """Add files and set the offsets, both or neither; the lock is held meanwhile.

        Parameters
        ----------
        write : callable
            Called with the directory ``_kts``, it gives the files that ``write_aside`` left there, here or in other
            processes; others, of attempts that failed, are removed.

        Raises
        ------
        LogLockedError
            Another program is adding to it, or has added to it.
        LogStorageError
            A file is not there: the processes that wrote see another directory.
        """
        with self._locked():
            number, known, _ = self._recovered()
            if known != self.offsets:
                raise lost_race(self.name)
            try:
                written = write(self._own)
            except BaseException:
                with suppress(LogStorageError):
                    self._remove_others(())
                raise
            for one in written:
                if not files.exists(self._in_own(one.name)):
                    raise LogStorageError(
                        "expected a file that another process wrote, found none: put the table where all of them see"
                        " it under the same path, such as a shared mount",
                        path=self._in_own(one.name),
                    )
            files.sync_directory(self._own)
            pending = {}
            for place, (name, day, *_) in enumerate(written):
                pending[name] = f"{DAY}={NO_DAY if day is None else day}/part-{number + 1:08d}-{place:04d}.parquet"
            ledger = self._ledger(number + 1, offsets, self.topic_ids, pending)
            files.write_atomically(self._in_own(LEDGER), json.dumps(ledger).encode())
            self._rename(pending)
            self.offsets = dict(offsets)
            return written
