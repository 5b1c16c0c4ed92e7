"""The topics of a broker: made, changed, deleted and kept in one log directory, beside what others left there."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import NamedTuple, Self

from kts.broker.topics.changing import ChangingTopics, NewTopic
from kts.broker.topics.names import check_name
from kts.broker.topics.partitions import Partition
from kts.broker.topics.topic import Topic
from kts.errors import KtsError, LogStorageError
from kts.log.log_changing import Deleted
from kts.segment import files

CLOSING_THREADS = 16  # what a disk is asked for at a time: most of closing is waiting for it

__all__ = ["NewTopic", "Retained", "Topic", "Topics", "check_name"]


class Retained(NamedTuple):
    """A segment that retention took."""

    topic: str
    partition: int
    segment: Deleted


class Topics(ChangingTopics):
    """All topics in a log directory, held until ``close``. A context manager.

    Parameters
    ----------
    directory : path
        The log directory, made if it is missing; a real broker's is served as it is.
    config : BrokerConfig or mapping, optional
    clock : callable, optional
        Gives ms since the epoch; None is the wall clock.

    Attributes
    ----------
    cluster_id : str
    node_id : int
    leader_epoch : int
        Of what is served: greater by one at each start.
    changing : lock
        Held by what reads and then changes.
    left_alone : list of (str, str)
        Names in the directory that look like a partition's and are not served, and why.

    adopted : list of str
        Topics that were found for the first time; what they are set to elsewhere is not known here, so they keep all.

    Raises
    ------
    LogLockedError
        A broker or another process has the directory.
    LogStorageError
        The disk fails, or files of the directory itself are links or belong to another node.

    Notes
    -----
    Any thread may call it. Nothing outside the directory is touched: links are not followed.
    """

    # --- keeping ----------------------------------------------------------------------------------

    def _each(self, partitions: Iterable[Partition], do: Callable[[Partition], object]) -> None:
        """What the disk refuses takes one partition offline and leaves the others."""
        for partition in partitions:
            try:
                do(partition)
            except KtsError as error:
                if partition.failure is None and not partition.is_offline:
                    partition.failure = LogStorageError(str(error), path=partition.path)

    def run_retention(self) -> list[Retained]:
        """Apply every topic's retention now; what was deleted, and by which rule.

        Notes
        -----
        Opens all logs. Partitions that fail are offline then.
        """
        gone: list[Retained] = []

        def retain(partition: Partition) -> None:
            taken = partition.log.delete_old_segments()
            gone.extend(Retained(partition.topic, partition.index, one) for one in taken)
            if taken:
                partition.changed()

        self._each(self.partitions(), retain)
        self.delete_due()
        return gone

    def delete_due(self) -> None:
        """Remove the files and directories whose time has come."""
        with self.changing:
            if not self.closed:  # a directory that was given back may be another's already
                self._sweep()
        self._each(self._written(), lambda one: one.log.delete_due_files())

    def flush_due(self) -> None:
        """Flush the logs that were not for their topic's ``flush.ms``."""
        now = self.clock()
        self._each(self._written(), lambda one: one.log.flush_if_due(now))

    def checkpoint(self) -> None:
        """Note how far the logs are flushed."""
        with self.checkpoints_at_once():
            self._each(self._written(), lambda one: one.log.checkpoint())

    def checkpoints_at_once(self) -> AbstractContextManager[None]:
        """What logs note in the checkpoints meanwhile is written at the end, each file once."""
        return self._whole.checkpoints_at_once()

    def remove_expired_producers(self) -> None:
        """Forget the producers that were silent for ``producer.id.expiration.ms``."""
        self._each(self._written(), lambda one: one.log.remove_expired_producers())

    def _written(self) -> list[Partition]:
        return [one for one in self.partitions() if one.is_open and not one.is_offline]

    def close(self) -> None:
        """Close all logs, and give the directory back; a second call does nothing.

        Raises
        ------
        LogStorageError
            Some partition could not be written, the first of them: the next start recovers it.
        """
        with self.changing:
            if self.closed:
                return
            self.closed = True
            failures: list[KtsError] = []

            def close(partition: Partition) -> None:
                try:
                    partition.close()
                except KtsError as error:
                    failures.append(error)

            count = min(CLOSING_THREADS, files.most_holders())
            try:
                with self.checkpoints_at_once(), ThreadPoolExecutor(count) as threads:
                    list(threads.map(close, self.partitions()))
                try:
                    self._store.settle()
                except KtsError as error:
                    failures.append(error)
            finally:
                self._whole.leave()
            if failures:
                raise failures[0]

    def abandon(self) -> None:
        """Let go of everything without writing, as a process does that dies."""
        with self.changing:
            self.closed = True
            for partition in self.partitions():
                partition.abandon()
            self._whole.leave()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
