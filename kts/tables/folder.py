"""A folder of Parquet files, with a ledger that makes the files of a commit appear with its offsets.

::

    day=2026-01-01/part-00000007-0000.parquet    the rows of a commit and a day
    day=__HIVE_DEFAULT_PARTITION__/...           rows without a day
    _kts/ledger.json                             offsets, topic ids, columns, and the renames of the last commit
    _kts/0123456789abcdef0123456789abcdef        a file that no commit has yet, or whose rename was interrupted
    _kts/lock                                    held by the one program that adds to the table

A folder of the latest state has a file for each bucket of keys, which a commit replaces::

    bucket=3/state.parquet                      a row for each key of the bucket
"""

from __future__ import annotations

import datetime
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kts.arguments import INT64_MAX
from kts.dataset.increments import Offsets, to_json
from kts.errors import LogStorageError
from kts.segment.locks import FileLock
from kts.store import addresses, local, publishing
from kts.store.source import files
from kts.tables.options import MOST_BUCKETS
from kts.tables.rows import DAY, agreed_schema, check_types, other_mode, types_of
from kts.tables.state import (
    MOST_BYTES,
    NEXT,
    Known,
    LostOffsetsError,
    TableState,
    as_object,
    offsets_of,
    parsed,
    topic_ids_of,
)

OWN = "_kts"
LEDGER = "ledger.json"
LOCK = "lock"
BUCKET = "bucket"
NO_DAY = "__HIVE_DEFAULT_PARTITION__"
VERSION = 1

_ASIDE = re.compile(r"[0-9a-f]{32}")
_PART = re.compile(r"part-(?P<number>[0-9]{8,19})-(?P<place>[0-9]{4,9})\.parquet")
_BUCKET = re.compile(r"bucket=(?P<bucket>0|[1-9][0-9]{0,4})/state\.parquet")
_TARGET = re.compile(rf"{DAY}=(?P<day>[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}|{NO_DAY})/{_PART.pattern}")


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
        with local.storage_errors(path, "writing"):
            pq.write_table(of_day.drop_columns([DAY]), path, compression="zstd")
        publishing.sync_file(path)
        found.append(Aside(name, day, of_day.num_rows, of_day.column("timestamp").null_count))
    return found


def is_folder_table(path: str) -> bool:
    """Whether there is a Parquet folder."""
    return files.directory_exists(os.path.join(path, OWN))


def days_in(path: str, by: str = DAY) -> list[str]:
    """The directories of days, or of buckets, in a Parquet folder."""
    return [name for name in files.names_in(path) if name.startswith(f"{by}=")]


def parts_in(path: str, days: Iterable[str]) -> Iterator[tuple[str, int]]:
    """The files of rows in days of a Parquet folder, by their path in it, each with the number of its commit."""
    for day in days:
        for name in files.names_in(os.path.join(path, day)):
            if (found := _PART.fullmatch(name)) is not None:
                yield f"{day}/{name}", int(found["number"])


class Ledger(NamedTuple):
    """The content of a ledger, checked.

    Attributes
    ----------
    number : int
        Of the last commit.
    columns : dict
        The types of the table's columns.
    pending : dict
        The files of the last commit in ``_kts``, and where each goes.
    buckets : int or None
        Of a folder of the latest state: how many buckets of keys it has.
    """

    number: int
    state: TableState
    columns: dict[str, str]
    pending: dict[str, str]
    buckets: int | None = None

    def to_json(self) -> bytes:
        """The bytes of the file."""
        told: dict[str, Any] = {"version": VERSION, "number": self.number, "offsets": to_json(self.state.offsets)}
        if self.buckets is not None:
            told["buckets"] = self.buckets
        return json.dumps(
            told | {"topicIds": self.state.topic_ids, "columns": self.columns, "files": self.pending}
        ).encode()

    @classmethod
    def of(cls, data: bytes) -> Ledger:
        """The inverse; ValueError says what is wrong. A ledger may come from anybody: its paths stay in the folder."""
        told = as_object(parsed(data), "the ledger")
        if (version := told.get("version", VERSION)) != VERSION or type(version) is not int:
            raise ValueError(f"expected version {VERSION}, found {version!r:.80}")
        number = told.get("number")
        if type(number) is not int or not 0 <= number <= INT64_MAX:
            raise ValueError(f"expected the number of a commit, found {number!r:.80}")
        state = TableState(offsets_of(told.get("offsets")), topic_ids_of(told.get("topicIds", {})))
        columns = as_object(told.get("columns"), "the columns")
        if wrong := [column for column, kind in columns.items() if not isinstance(kind, str)]:
            raise ValueError(f"expected the type of the column {wrong[0]!r:.80}, found {columns[wrong[0]]!r:.80}")
        buckets = told.get("buckets")
        if buckets is not None and (type(buckets) is not int or not 1 <= buckets <= MOST_BUCKETS):
            raise ValueError(f"expected a number of buckets, at most {MOST_BUCKETS}, found {buckets!r:.80}")
        pending = as_object(told.get("files"), "the files")
        for name, target in pending.items():
            if not _ASIDE.fullmatch(name):
                raise ValueError(f"expected a file name of 32 hex digits, found {name!r:.80}")
            found = (_TARGET if buckets is None else _BUCKET).fullmatch(target) if isinstance(target, str) else None
            if found is not None and buckets is not None and int(found["bucket"]) < buckets:
                continue
            if found is None or buckets is not None or not _is_day(found["day"]) or int(found["number"]) != number:
                what = f"a day and of commit {number}" if buckets is None else f"one of {buckets} buckets"
                raise ValueError(f"expected a file of {what}, found {target!r:.80}")
        if len({*pending.values()}) < len(pending):
            raise ValueError("two files have the same place")
        return cls(number, state, columns, pending, buckets)


def _is_day(text: str) -> bool:
    with suppress(ValueError):
        return text == NO_DAY or datetime.date.fromisoformat(text).isoformat() == text
    return False


class FolderTable(Known):
    """A Parquet folder; see ``kts.tables.run.Target``.

    Parameters
    ----------
    stated : bool
        Whether a table whose ledger is lost gets other offsets.

    Attributes
    ----------
    schema : pyarrow.Schema
        The columns of the rows that it is given.
    created : str or None
        The folder, if it was no table before.

    Raises
    ------
    ValueError
        The path is an address of a bucket.
    InvalidRequestError
        It was made with other columns.
    LogLockedError
        Another program is adding to it.
    LogStorageError
        Its ledger is malformed or lost, or a link leads out of it.

    Notes
    -----
    A commit writes its files aside and syncs them; then it replaces the ledger, which names them and has the new
    offsets; then it renames them. After a crash, whoever opens the folder next renames what is left, and removes files
    that no ledger names. Until then a reader may see a part of the last commit, and never a record twice.
    """

    by = DAY  # the column in the names of directories

    def __init__(self, path: str, schema: pa.Schema, *, stated: bool = False, buckets: int | None = None) -> None:
        self.name, self.schema, self._buckets = path, schema, buckets
        self._path = addresses.absolute(addresses.plain(path))
        if addresses.scheme_of(self._path) is not None:
            raise ValueError(
                f"table: a Parquet folder lies on a disk, because a commit renames files; found {path}: name an Iceberg"
                " table whose warehouse is there"
            )
        self._own = os.path.join(self._path, OWN)
        self.created = None if is_folder_table(self._path) else self._path
        local.make_directory(self._own)
        local.sync_directory(os.path.dirname(self._path))
        with self._locked():
            self.learn(self._find, stated)

    def _locked(self) -> FileLock:
        """The lock, after a look at what lies in ``_kts``: whoever made the folder may have left links."""
        if addresses.real(self._own) != os.path.join(addresses.real(self._path), OWN):
            raise LogStorageError("expected a directory, found a link that leads out of the table", path=self._own)
        for entry in files.list_directory(self._own):
            if self._is_own(entry.name) and not entry.is_file(follow_symlinks=False):
                raise LogStorageError("expected a file, found a link or a directory", path=entry.path)
        return FileLock(self._in_own(LOCK), addresses.real(self._path))  # owners of other names would share it

    def _is_own(self, name: str) -> bool:
        return name in (LEDGER, f"{LEDGER}.tmp", LOCK) or _ASIDE.fullmatch(name) is not None

    def _find(self) -> tuple[TableState, bool]:
        """Finish the last commit, and remove what belongs to none; what the ledger says."""
        path, days = self._in_own(LEDGER), self._days()
        if any(days_in(self._path, by) for by in (DAY, BUCKET) if by != self.by):  # whatever became of its ledger
            raise other_mode(self.name, is_state=self.by == DAY)
        if not files.exists(path):
            if days:
                raise LostOffsetsError(
                    "expected the ledger of the days that are there, found none: put it back, name another folder, or"
                    f" {NEXT}",
                    path=path,
                )
            ledger = Ledger(0, TableState(), types_of(self.schema), {}, self._buckets)
        else:
            (data,) = files.read_small([path], MOST_BYTES)
            try:
                if data is None:
                    raise ValueError(f"it has more than {MOST_BYTES} bytes")
                ledger = Ledger.of(data)
                if (newest := self._newest(days)) > ledger.number:
                    raise ValueError(f"it is of commit {ledger.number}, and there are files of commit {newest}")
                if newest and not ledger.state.offsets:
                    raise ValueError(f"it has no offsets, and there are files of commit {newest}")
            except ValueError as error:
                raise LostOffsetsError(
                    f"expected the ledger of the table, found another: {error}: put the right one back, or {NEXT}",
                    path=path,
                ) from error
        self._agree_on_buckets(ledger.buckets)
        self.schema = self._agreed(ledger.columns, days)
        self._number = ledger.number
        self._rename(ledger.pending)
        return ledger.state, True

    def _agree_on_buckets(self, found: int | None) -> None:
        """Refuse a table of the latest state."""
        if found is not None:
            raise other_mode(self.name, is_state=True)

    def _agreed(self, columns: dict[str, str], days: Sequence[str]) -> pa.Schema:
        """The columns of rows: where those of the ledger differ, it is their files that say what can be added."""
        asked = types_of(self.schema)
        for path in self._parts(days) if columns != asked else ():
            with local.storage_errors(path, "reading"):
                found = self._columns_in(path)
            if types_of(found) == columns:
                return agreed_schema(self.name, found, self.schema)
        check_types(self.name, columns, asked)
        return self.schema

    def _columns_in(self, path: str) -> pa.Schema:
        """The columns of a file of rows."""
        return pq.read_schema(path).append(pa.field(DAY, pa.date32()))

    def _days(self) -> list[str]:
        """The directories of rows."""
        return days_in(self._path, self.by)

    def _parts(self, days: Iterable[str]) -> Iterator[str]:
        """The files of rows."""
        for part, _ in parts_in(self._path, days):
            yield os.path.join(self._path, part)

    def _rename(self, pending: dict[str, str]) -> None:
        """Move the files of a commit to their days, wait until that is on disk, and remove files that it lacks."""
        days = {os.path.join(self._path, os.path.dirname(target)) for target in pending.values()}
        publishing.make_directories(self._path, days)
        for day in days:
            if addresses.real(day) != os.path.join(addresses.real(self._path), os.path.basename(day)):
                raise LogStorageError("expected a directory, found a link that leads out of the table", path=day)
        for name, target in pending.items():
            if files.exists(self._in_own(name)):
                self._check_free(target)
                local.rename(self._in_own(name), os.path.join(self._path, target))
        for day in days:
            local.sync_directory(day)
        self._remove_others(pending)

    def _check_free(self, target: str) -> None:
        """Refuse to replace a file of rows."""
        path = os.path.join(self._path, target)
        if files.exists(path):
            raise LogStorageError(
                f"expected no file of this name yet: {self._in_own(LEDGER)} is older than the table's files; put the"
                " right one back",
                path=path,
            )

    def _remove_others(self, kept: Iterable[str]) -> None:
        """Remove the files in ``_kts`` that belong to no commit."""
        for name in {*filter(_ASIDE.fullmatch, files.names_in(self._own))} - {*kept}:
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
            self.check_race(self._find)
            if self.lost:
                self._number = self._last_number()
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
            local.sync_directory(self._own)
            pending, number = {}, self._number + 1
            for place, (name, day, *_) in enumerate(written):
                pending[name] = self._target(day, number, place)
                self._check_free(pending[name])
            state = self.state(offsets)
            ledger = Ledger(number, state, types_of(self.schema), pending, self._buckets)
            publishing.publish(self._in_own(LEDGER), ledger.to_json())
            self._rename(pending)
            self.committed(state)
            return written

    def _target(self, day: Any, number: int, place: int) -> str:
        """Where a file of a commit goes."""
        return f"{DAY}={NO_DAY if day is None else day}/part-{number:08d}-{place:04d}.parquet"

    def _last_number(self) -> int:
        """The number of the last commit of a table whose ledger is lost."""
        if left := [*filter(_ASIDE.fullmatch, files.names_in(self._own))]:
            raise LogStorageError(
                "expected no such file, because the ledger would say whether its rows belong to the table: put the"
                " ledger back, or move the file away",
                path=self._in_own(left[0]),
            )
        return self._newest(self._days())

    def _newest(self, days: Iterable[str]) -> int:
        """The number of the newest commit that left files of rows, or 0."""
        return max((number for _, number in parts_in(self._path, days)), default=0)
