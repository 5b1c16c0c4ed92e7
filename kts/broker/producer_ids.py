"""Ids for idempotent producers, unique across restarts."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from contextlib import suppress

from kts.arguments import INT64_MAX
from kts.broker.codes import ApiError, ErrorCode
from kts.broker.topics import Topics
from kts.errors import KtsError, LogStorageError
from kts.segment.locks import new_in_children
from kts.store import publishing
from kts.store.source import files

FILE = "producer-id-block"
BLOCK = 1000
LARGEST = INT64_MAX


def largest_producer_id(topics: Topics) -> int:
    """The largest producer id in the logs, or -1. Opens all logs; offline partitions are skipped."""
    largest = -1
    for partition in topics.partitions():
        with suppress(KtsError):
            largest = max(largest, partition.log.largest_producer_id)
    return largest


class ProducerIds:
    """Assigns producer ids from blocks. A block is stored before its first id is assigned.

    Parameters
    ----------
    directory : str
        The log directory. Its file ``producer-id-block`` has the last block, as Kafka writes it.
    largest_known : callable, optional
        Returns the largest producer id in the logs. Called once, since the directory may come from a real broker.

    Notes
    -----
    Thread-safe. Source: ZkProducerIdManager, ProducerIdsBlock (3.9).
    """

    def __init__(self, directory: str, largest_known: Callable[[], int] | None = None) -> None:
        self.path = os.path.join(directory, FILE)
        self._largest_known = largest_known
        self._lock: threading.Lock
        new_in_children(self, _lock=threading.Lock)
        self._next = self._end = 0

    @property
    def left(self) -> int:
        """Ids that can be assigned without storing a block."""
        return self._end - self._next

    def next(self) -> int:
        """A new id.

        Raises
        ------
        LogStorageError
            The next block could not be stored.
        """
        with self._lock:
            if self._next >= self._end:
                self._take_block()
            self._next += 1
            return self._next - 1

    def _take_block(self) -> None:
        start = self._end or self._first()
        end = start + BLOCK
        if end > LARGEST:
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"expected an id below 2^63-1, found {start} assigned")
        block = {"version": 1, "broker": 0, "block_start": str(start), "block_end": str(end - 1)}
        publishing.publish(self.path, json.dumps(block).encode())
        self._next, self._end = start, end

    def _first(self) -> int:
        """The first id after the last block and all ids in the logs."""
        written = 0
        if files.exists(self.path):
            try:
                written = int(json.loads(files.read_bytes(self.path))["block_end"]) + 1
            except LogStorageError:
                raise
            except (ValueError, KeyError, TypeError):
                written = 0  # damaged or not Kafka's: the logs have the ids in use
        known = self._largest_known() + 1 if self._largest_known is not None else 0
        return max(written, known, 0)
