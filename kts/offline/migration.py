"""KIP-32's migration as a plan: what a broker would convert in each step, from a census of the magics on disk.

The log is its own measure: its records are sent once more, in the magic that they have, and read once by consumers of
each generation. Only headers are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from kts.dataset.partition import PartitionLog
from kts.dataset.scan import segment_batches

SEND_BYTES = 16 * 1024  # Kafka's default of batch.size: how many plain messages come in a request
FETCH_BYTES = 2**20  # Kafka's default of max.partition.fetch.bytes and replica.fetch.max.bytes
TIMESTAMP_BYTES = 8  # what magic 1 adds to a message of magic 0
STEPS = ("phase 1", "canary", "phase 2", "rollback")

Sizes = npt.NDArray[np.int64]


class Conversion(NamedTuple):
    """What a step converts in the requests of one kind.

    Attributes
    ----------
    step : str
        One of ``STEPS``.
    partition : int or None
        In the canary, the partition with the fewest bytes that has records; otherwise None: all partitions.
    request : str
        ``Produce 1``, ``Produce 2``, ``Fetch 1``, ... by its version.
    from_magics, to_magic
        What is converted to what. From 0 to 0, compressed sets are rewritten with absolute offsets.
    size_bytes : int
        Size of the batches and messages before the conversion.
    requests : int
        Requests with at least one of them.
    exact : bool
        False if records are sized as they lie on disk, but would be stored in another format first.
    """

    step: str
    partition: int | None
    request: str
    from_magics: tuple[int, ...]
    to_magic: int
    size_bytes: int
    requests: int
    exact: bool = True


class TopicPlan(NamedTuple):
    """The plan of a topic; ``size_bytes`` is by magic."""

    topic: str
    partitions: int
    size_bytes: tuple[int, int, int]
    conversions: tuple[Conversion, ...]


class _Work(IntEnum):
    """The rows of a census, each with bytes and requests."""

    SENT_0 = 0
    SENT_1 = 1
    SENT_2 = 2
    COMPRESSED_0 = 3  # the part of SENT_0 that is compressed
    READ_ABOVE_0 = 4  # what consumers of 0.9 cannot read as it lies
    READ_ABOVE_1 = 5  # the same of 0.10
    READ_AS_1 = 6  # all of it, stored as magic 1


_Row = tuple[str, tuple[int, ...], int, _Work, bool]  # of a Conversion, its work by name


class Requests:
    """Counts the requests that carry entries in order: each up to a limit of bytes, but at least one entry."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._room = 0
        self._counted = False
        self.work = np.zeros(2, np.int64)

    def add(self, sizes: Sizes, wanted: npt.NDArray[np.bool_]) -> None:
        """Add entries; only requests with wanted ones count."""
        ends, hits, at = np.cumsum(sizes), np.flatnonzero(wanted), 0
        self.work[0] += int(sizes[hits].sum())
        while at < len(sizes):
            begin = int(ends[at - 1]) if at else 0
            stop = int(np.searchsorted(ends, begin + self._room, side="right"))
            if stop == at:
                self._room, self._counted = max(self._limit, int(sizes[at])), False
                continue
            first = int(np.searchsorted(hits, at))
            if not self._counted and first < len(hits) and hits[first] < stop:
                self._counted = True
                self.work[1] += 1
            self._room -= int(ends[stop - 1]) - begin
            at = stop

    def end(self) -> None:
        """The next entry begins a request, as at the end of a segment."""
        self._room = 0


def plan(
    logs: Iterable[PartitionLog], *, fetch_bytes: int = FETCH_BYTES, progress: Callable[[int], None] | None = None
) -> list[TopicPlan]:
    """Plan KIP-32's migration for each topic of some partitions.

    Parameters
    ----------
    fetch_bytes : int
        The most that a Fetch asks of a partition.
    progress : callable, optional
        Called with the number of ``.log`` bytes whose headers were just read.

    Raises
    ------
    CorruptRecordError
        A log is damaged.

    Notes
    -----
    Memory holds the headers of a slice of 4 MiB.

    Source: KIP-32, *Compatibility, Deprecation, and Migration Plan*.
    """
    topics: dict[str, dict[int, Sizes]] = {}
    for log in logs:
        topics.setdefault(log.topic, {})[log.partition] = _census(log, fetch_bytes, progress)
    return [_planned(topic, found) for topic, found in topics.items()]


def _census(log: PartitionLog, fetch_bytes: int, progress: Callable[[int], None] | None) -> Sizes:
    """Bytes and requests by ``_Work``."""
    census = np.zeros((len(_Work), 2), np.int64)
    plain_sends = [Requests(SEND_BYTES), Requests(SEND_BYTES)]
    reads = {work: Requests(fetch_bytes) for work in (_Work.READ_ABOVE_0, _Work.READ_ABOVE_1, _Work.READ_AS_1)}
    latest = None
    for segment, headers in segment_batches(log):
        if segment is not latest:
            latest = segment
            for read in reads.values():
                read.end()
        sizes, magics, codecs = (_column(headers, name) for name in ("sizeInBytes", "magic", "codec"))
        plain = (codecs == 0) & (magics < 2)
        for magic in range(3):
            alone = (magics == magic) & ~plain
            one = int(sizes[alone].sum()), int(alone.sum())
            census[magic] += one
            if magic == 0:
                census[_Work.COMPRESSED_0] += one
        for magic, sends in enumerate(plain_sends):
            those = sizes[plain & (magics == magic)]
            sends.add(those, np.ones(len(those), np.bool_))
        reads[_Work.READ_ABOVE_0].add(sizes, magics > 0)
        reads[_Work.READ_ABOVE_1].add(sizes, magics > 1)
        as_1 = sizes + TIMESTAMP_BYTES * (plain & (magics == 0))
        reads[_Work.READ_AS_1].add(as_1, np.ones(len(as_1), np.bool_))
        if progress is not None:
            progress(int(sizes.sum()))
    for magic, sends in enumerate(plain_sends):
        census[magic] += sends.work
    for work, read in reads.items():
        census[work] = read.work
    return census


def _column(headers: Any, name: str) -> Sizes:
    return np.asarray(headers[name], np.int64)


def _planned(topic: str, found: dict[int, Sizes]) -> TopicPlan:
    whole = np.sum(list(found.values()), axis=0)
    # A canary shall convert little: it leads the partition with the fewest bytes that has records.
    canary = min(found, key=lambda partition: (not found[partition].any(), int(found[partition][_Work.READ_AS_1, 0])))
    conversions: list[Conversion] = []
    for step in STEPS:
        partition = canary if step == "canary" else None
        conversions += _of_step(step, partition, whole if partition is None else found[partition])
    v0, v1, v2 = (int(whole[magic, 0]) for magic in range(3))
    return TopicPlan(topic, len(found), (v0, v1, v2), tuple(conversions))


def _of_step(step: str, partition: int | None, census: Sizes) -> list[Conversion]:
    """What a step converts, without the kinds of requests that it converts nothing of."""
    newer = tuple(magic for magic in (1, 2) if census[magic, 0])
    exact = not census[_Work.COMPRESSED_0, 0] and not census[_Work.SENT_2, 0]
    as_it_lies: list[_Row] = [
        ("Fetch 1", newer, 0, _Work.READ_ABOVE_0, True),
        ("Fetch 2", (2,), 1, _Work.READ_ABOVE_1, True),
    ]
    stored_as_1: list[_Row] = [("Fetch 1", (1,), 0, _Work.READ_AS_1, exact)]
    to_0: list[_Row] = [
        ("Produce 1", (0,), 0, _Work.COMPRESSED_0, True),  # each compressed set needs absolute offsets
        ("Produce 2", (1,), 0, _Work.SENT_1, True),
        ("Produce 3", (2,), 0, _Work.SENT_2, True),
    ]
    to_1: list[_Row] = [("Produce 1", (0,), 1, _Work.SENT_0, True), ("Produce 3", (2,), 1, _Work.SENT_2, True)]
    rows = {"phase 1": to_0 + as_it_lies, "rollback": to_0 + stored_as_1}.get(step, to_1 + stored_as_1)
    return [
        Conversion(step, partition, request, magics, to_magic, int(census[work, 0]), int(census[work, 1]), exactly)
        for request, magics, to_magic, work, exactly in rows
        if census[work, 1]
    ]
