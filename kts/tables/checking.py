"""Whether an Iceberg table is whole and well kept: its files, its offsets, and what to do next."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from kts.codec.encode import int64s
from kts.dataset.increments import Offsets
from kts.errors import LogStorageError
from kts.model import TopicPartition
from kts.tables.state import ATTEMPTS
from kts.tables.upkeep import PLACE, SMALL, TARGET_BYTES, Upkeep

if TYPE_CHECKING:
    import numpy.typing as npt
    from pyiceberg.table import FileScanTask

MANY_SNAPSHOTS, SLOW_S = 100, 1.0
MANY_FILES = 1.3  # times the fewest that there could be
CHUNK = 1 << 20  # offsets whose bits lie together


@dataclass
class Checked:
    """What was found of a table.

    Attributes
    ----------
    table, location : str
    files, size_in_bytes, records : int
        Of the newest snapshot.
    small_files, fewest_files, delete_files : int
        Files below three quarters of the target; how many of the target's size would do; files of deleted rows.
    snapshots, manifests, metadata_files : int
    planning_s : float
        How long a reader needs to find the files.
    offsets : dict of TopicPartition to int
        The offset of the next record of each partition, as the table states them.
    doubled : int or None
        Rows whose place another row has; None if rows were not read.
    missing : list of str
        Files that a snapshot refers to and that are not there; without ``rows``, of older snapshots only their lists.
    findings : list of str
        What is wrong.
    advice : list of str
        What to do next, as commands.
    """

    table: str
    location: str
    files: int = 0
    size_in_bytes: int = 0
    records: int = 0
    small_files: int = 0
    fewest_files: int = 0
    delete_files: int = 0
    snapshots: int = 0
    manifests: int = 0
    metadata_files: int = 0
    planning_s: float = 0.0
    offsets: Offsets = field(default_factory=dict)
    doubled: int | None = None
    missing: list[str] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)
    advice: list[str] = field(default_factory=list)


def check(table: Upkeep, *, rows: bool = False, target_bytes: int = TARGET_BYTES) -> Checked:
    """Whether a table is whole and well kept: what its branches, tags and newest snapshot use is there.

    Parameters
    ----------
    rows : bool
        Look for the files of every snapshot, and read where each row is from (three columns) to compare it with the
        offsets; else only the files' own bounds count.
    """
    for _ in range(ATTEMPTS):
        before = table.table.metadata_location
        try:
            found = _checked(table, rows, target_bytes)
        except LogStorageError:
            table.refresh()
            if table.table.metadata_location == before:
                raise
            continue
        if found.missing:
            table.refresh()
        if table.table.metadata_location == before:
            return found  # else a snapshot may have expired meanwhile, with its files
    return _checked(table, rows, target_bytes)


def _checked(table: Upkeep, rows: bool, target_bytes: int) -> Checked:
    found = Checked(
        table.name,
        table.metadata.location,
        snapshots=len(table.metadata.snapshots),
        metadata_files=1 + len(table.metadata.metadata_log),
        offsets=table.offsets,
    )
    _find_missing(table, found, every=rows)
    tasks: list[FileScanTask] = []
    if not any(path.endswith(".avro") for path in found.missing):
        tasks, found.planning_s = table.planned()
    found.files = len(tasks)
    found.size_in_bytes = sum(task.file.file_size_in_bytes for task in tasks)
    found.records = sum(task.file.record_count for task in tasks)
    found.small_files = sum(task.file.file_size_in_bytes < SMALL * target_bytes for task in tasks)
    found.fewest_files = _fewest(tasks, target_bytes)
    found.delete_files = len({one.file_path for task in tasks for one in task.delete_files})
    if table.lost:
        found.findings.append("the offsets up to which it has the logs are lost: see kts sync --from-offsets")
    else:
        found.findings += _beyond(table, tasks)
        if rows and not found.missing:
            _read_rows(table, tasks, found)
    found.advice = _advice(found)
    return found


def _fewest(tasks: Iterable[FileScanTask], target_bytes: int) -> int:
    """The number of files of the target's size that would hold each partition of the table."""
    sizes: dict[str, int] = {}
    for task in tasks:
        key = f"{task.file.spec_id} {task.file.partition!r}"
        sizes[key] = sizes.get(key, 0) + task.file.file_size_in_bytes
    return sum(math.ceil(size / target_bytes) for size in sizes.values())


def _find_missing(table: Upkeep, found: Checked, *, every: bool) -> None:
    """Look for each file that a snapshot refers to: every one, or those of branches and tags."""
    shown = {table.metadata.current_snapshot_id, *(ref.snapshot_id for ref in table.metadata.refs.values())}
    there, manifests, gone = table.listing(), dict[str, Any](), list[str]()

    def is_gone(location: str) -> bool:
        return table.key(location) not in there and not table.is_there(location)

    for snapshot in table.metadata.snapshots:
        if is_gone(snapshot.manifest_list):
            gone.append(snapshot.manifest_list)
            continue
        if not every and snapshot.snapshot_id not in shown:
            continue
        of_snapshot = table.manifests(snapshot)
        manifests |= {one.manifest_path: one for one in of_snapshot}
        if snapshot.snapshot_id == table.metadata.current_snapshot_id:
            found.manifests = len(of_snapshot)
    seen = set[str]()
    for path, manifest in manifests.items():
        if is_gone(path):
            gone.append(path)
            continue
        new = {*table.files_of(manifest)} - seen
        seen |= new
        gone += [file for file in sorted(new) if is_gone(file)]
    found.missing = gone
    if gone:
        more = f", and {len(gone) - 1:,} more" if len(gone) > 1 else ""
        found.findings.append(f"a file that a snapshot refers to is not there: {gone[0]}{more}")


def _beyond(table: Upkeep, tasks: Iterable[FileScanTask]) -> list[str]:
    """What the bounds of files say of rows that lie beyond the table's offsets."""
    known = table.offsets
    highest = max(known.values(), default=0)
    told = dict[str, None]()
    for task in tasks:
        low, high = table.bounds(task.file.lower_bounds), table.bounds(task.file.upper_bounds)
        if "offset" not in high:
            continue
        name, end = None, highest
        if low.get("topic") == high.get("topic") and low.get("partition") == high.get("partition") is not None:
            name = TopicPartition(high["topic"], high["partition"])
            end = known.get(name, 0)
        if high["offset"] >= end:
            told[_told(name, high["offset"], end)] = None
    return list(told)[:10]


def _told(name: TopicPartition | None, offset: int, end: int) -> str:
    where = "its files have" if name is None else f"{name}: its files have"
    return f"{where} offset {offset}, and its offsets end at {end}: the next sync would add records again"


def _read_rows(table: Upkeep, tasks: Iterable[FileScanTask], found: Checked) -> None:
    """Find rows beyond the table's offsets, and rows whose place another row has."""
    places = RowPlaces()
    for task in tasks:
        for batch in table.step(partial(table.batches, task, PLACE), task.file.file_size_in_bytes):
            places.add(batch)
    found.doubled = places.doubled
    if places.doubled:
        found.findings.append(f"{places.doubled:,} rows have the topic, partition and offset of another row")
    for name, last in sorted(places.last.items()):
        if last >= (end := table.offsets.get(name, 0)):
            text = _told(name, last, end)
            found.findings += [] if text in found.findings else [text]


class RowPlaces:
    """Where rows are from: one bit for each offset, in chunks.

    Attributes
    ----------
    doubled : int
        How many rows had the place of another one.
    last : dict
        The greatest offset of each partition.
    """

    def __init__(self) -> None:
        self.doubled, self.last = 0, Offsets()
        self._bits: dict[tuple[TopicPartition, int], npt.NDArray[np.uint8]] = {}

    def add(self, rows: Any) -> None:
        """Add rows with the columns ``PLACE``."""
        import pyarrow as pa

        grouped = pa.Table.from_batches([rows]).group_by(["topic", "partition"]).aggregate([("offset", "list")])
        for row in range(grouped.num_rows):
            name = TopicPartition(grouped["topic"][row].as_py(), grouped["partition"][row].as_py())
            self._add(name, int64s(grouped["offset_list"][row].values, "offset"))

    def _add(self, name: TopicPartition, offsets: npt.NDArray[np.int64]) -> None:
        distinct = np.unique(offsets)
        self.doubled += len(offsets) - len(distinct)
        self.last[name] = max(self.last.get(name, -1), int(distinct[-1]))
        chunks = distinct // CHUNK
        for chunk in np.unique(chunks):
            inside = distinct[chunks == chunk] - chunk * CHUNK
            bits = self._bits.setdefault((name, int(chunk)), np.zeros(CHUNK // 8, np.uint8))
            masks = (1 << (inside % 8)).astype(np.uint8)
            self.doubled += int(np.count_nonzero(bits[inside // 8] & masks))
            np.bitwise_or.at(bits, inside // 8, masks)


def _advice(found: Checked) -> list[str]:
    """The commands that come next."""
    if found.findings:
        return []
    told = []
    if found.files > MANY_FILES * found.fewest_files and found.small_files > 1:
        told.append("compact")
    if found.snapshots > MANY_SNAPSHOTS:
        told.append("expire")
    if found.planning_s > SLOW_S and "compact" not in told:
        told.append("compact")
    return told
