"""The topics of a log directory: loading, lookup, creation, changes, deletion, and upkeep while they are served."""

from __future__ import annotations

import logging
import os
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, Self

from kts.arguments import INT32_MAX
from kts.broker.codes import ApiError, ErrorCode
from kts.broker.settings.broker import BrokerConfig
from kts.broker.settings.describe import Levels, levels
from kts.broker.settings.inert import CHANGEABLE, CleanerSettings, check_cleaner, check_inert, cleaner_settings
from kts.broker.settings.topic import check_level, merged
from kts.broker.topics import topic_file
from kts.broker.topics.directory import (
    DirectoryScan,
    adopted_configs,
    delete_directory,
    deleted_name,
    metric_name,
    scan_directory,
)
from kts.broker.topics.partition import Partition
from kts.broker.topics.topic_file import TopicEntry, TopicFile
from kts.config import LogConfig, known_settings
from kts.errors import InvalidTopicError, KtsError, LogClosedError, LogStorageError, UnknownTopicOrPartitionError
from kts.log.cleaner import Interrupted
from kts.log.deletions import DeletionQueue
from kts.log.directory import LogDirectory
from kts.log.log import Deleted
from kts.log.policies import roll_warning
from kts.model import Cleaned, uuid_bytes
from kts.segment import meta_properties
from kts.segment.locks import new_in_children
from kts.segment.names import INTERNAL_TOPICS, check_topic
from kts.store import descriptors, local
from kts.store.source import files
from kts.times import wall_clock

logger = logging.getLogger(__name__)

MAX_PARTITIONS = 10_000  # of one request, as a KRaft controller has it
CLOSING_THREADS = 16  # closing a log mostly waits for the disk


@dataclass
class Topic:
    """A topic.

    Attributes
    ----------
    topic_id : bytes
        16 bytes.
    partitions : dict of int to Partition
    configs : dict of str to str
        The settings of the topic itself, by Kafka's names.
    config : LogConfig
        The settings in force: its own and the broker's defaults.
    told : set of str
        What the broker's log has a line of: each is told once of a topic.
    """

    name: str
    topic_id: bytes
    partitions: dict[int, Partition]
    configs: dict[str, str]
    config: LogConfig
    told: set[str] = field(default_factory=set)

    @property
    def is_internal(self) -> bool:
        """Whether Kafka keeps its own state in it."""
        return self.name in INTERNAL_TOPICS

    def tell(self, what: str, text: str) -> None:
        """Write what a log tells to the broker's log, once."""
        if what not in self.told:
            self.told.add(what)
            logger.warning("topic %s: %s", self.name, text)


class NewTopic(NamedTuple):
    """A topic to create; -1 partitions means ``num.partitions``."""

    name: str
    num_partitions: int = -1
    configs: Mapping[str, str] | None = None


class Retained(NamedTuple):
    """A segment that retention deleted."""

    topic: str
    partition: int
    segment: Deleted


class Compacted(NamedTuple):
    """A partition that the cleaner cleaned, and what it did."""

    topic: str
    partition: int
    cleaned: Cleaned


class Topics:
    """The topics of a log directory, which stays locked until ``close``. A context manager.

    Parameters
    ----------
    directory : path
        The log directory, created if it is missing. A real broker's directory is served as it is.
    config : BrokerConfig or mapping, optional
    clock : callable, optional
        Returns ms since the epoch; None means the wall clock.

    Attributes
    ----------
    cluster_id : str
    node_id : int
    leader_epoch : int
        The leader epoch of all partitions; each start increases it by one.
    changing : lock
        Hold it from reading a topic until the topic is changed.
    left_alone : list of (str, str)
        Entries that look like a partition and are not served, and why.
    stops_cleaning : bool
        Set it to end a pass of the cleaner, and to begin none.
    adopted : list of str
        Topics found for the first time. Their settings are unknown, so nothing of them expires.

    Raises
    ------
    LogLockedError
        A broker or another process uses the directory.
    LogStorageError
        The disk fails, or a file of the directory is a link or belongs to another node.

    Notes
    -----
    Thread-safe. Links are not followed, so nothing outside the directory changes.
    """

    # --- loading ----------------------------------------------------------------------------------

    def __init__(
        self,
        directory: str | os.PathLike[str],
        config: BrokerConfig | Mapping[str, Any] | None = None,
        clock: Callable[[], int] | None = None,
    ) -> None:
        self.directory = os.path.abspath(os.fspath(directory))
        self.config = BrokerConfig.of(config)
        self.clock = wall_clock if clock is None else clock
        self.changing: threading.RLock
        new_in_children(self, changing=threading.RLock)
        self._topics: dict[str, Topic] = {}
        self._ids: dict[bytes, Topic] = {}
        self._alike: dict[str, set[str]] = {}  # names by ``metric_name``
        self._deletions = DeletionQueue()
        self.closed = False
        self.stops_cleaning = False
        local.make_directory(self.directory)
        self._log_directory = LogDirectory(self.directory)
        try:
            self._load()
        except BaseException:
            self._log_directory.leave()
            raise

    def _load(self) -> None:
        found = scan_directory(self.directory)
        self.left_alone = found.left_alone
        self.adopted: list[str] = []
        meta = meta_properties.read(self.directory)
        self._store = topic_file.TopicStore(self.directory)
        self._file = self._store.content
        self.node_id, self.cluster_id = self._identity(meta)
        if meta is None:
            meta_properties.write(self.directory, self.node_id, self.cluster_id)
        self._log_directory.forget_strays()
        for path in found.deleted:
            self._delete_later(path)
        for name, entry in list(self._file.topics.items()):
            if entry.deleted:
                for index in found.partitions.pop(name, {}):
                    self._delete_partition(name, index)
                del self._file.topics[name]
        self.leader_epoch = min(max(self._file.leader_epoch, found.leader_epoch) + 1, INT32_MAX)
        self._file.leader_epoch = self.leader_epoch
        self._file.cluster_id = self.cluster_id
        blocked = {one for one, _ in self.left_alone}
        for name in sorted({*found.partitions, *self._file.topics}):
            self._add_found(name, found, blocked)
        self._store.replace()
        local.sync_directory(self.directory)

    def _identity(self, meta: meta_properties.MetaProperties | None) -> tuple[int, str]:
        wanted = self.config.cluster_id
        known = (meta.cluster_id if meta is not None else None) or self._file.cluster_id
        if wanted and known and wanted != known:
            raise LogStorageError(f"cluster.id: expected {known}, found {wanted}", path=self.directory)
        node = self.config.node_id
        if meta is not None and meta.node_id is not None and meta.node_id != node:
            if self.config.node_id_is_given:
                raise LogStorageError(f"node.id: expected {meta.node_id}, found {node}", path=self.directory)
            node = meta.node_id
        return node, wanted or known or meta_properties.random_id()

    def _add_found(self, name: str, found: DirectoryScan, blocked: set[str]) -> None:
        entry = self._file.topics.get(name)
        indexes = found.partitions.get(name, {})
        if entry is None:
            topic_id = next((one for one in indexes.values() if one is not None), None)
            configs = adopted_configs(self.directory, name, indexes, self.config)
            entry = TopicEntry(topic_id or meta_properties.random_id(), sorted(indexes), configs)
            self.adopted.append(name)
            self._file.topics[name] = entry
        for index in entry.partitions:
            if index not in indexes and f"{name}-{index}" not in blocked:
                self._make(name, index)
        entry.partitions = sorted({*entry.partitions, *indexes})
        own = known_settings(entry.configs, self.config.behaviour)
        try:
            config = self.config.log_config(own, self.dynamic)
        except ValueError as error:
            raise LogStorageError(f"topic {name}: {error}", path=topic_file.path(self.directory)) from error
        topic = Topic(name, uuid_bytes(entry.topic_id), {}, own, config)
        for index in entry.partitions:
            foreign = indexes.get(index)
            if f"{name}-{index}" in blocked:
                continue
            if foreign is not None and foreign != entry.topic_id:
                self.left_alone.append((f"{name}-{index}", f"of another topic with the id {foreign}"))
                continue
            topic.partitions[index] = self._partition(topic, index)
        self._serve(topic)

    def _serve(self, topic: Topic) -> None:
        self._topics[topic.name] = self._ids[topic.topic_id] = topic
        self._alike.setdefault(metric_name(topic.name), set()).add(topic.name)

    def _make(self, name: str, index: int) -> None:
        local.make_directory(os.path.join(self.directory, f"{name}-{index}"))
        self._log_directory.made(name, index)
        self._file.topics[name].made.add(index)

    def _partition(self, topic: Topic, index: int) -> Partition:
        entry = self._file.topics[topic.name]
        options: dict[str, Any] = {
            "clock": self.clock,
            "producer_id_expiration_ms": self.config.producer_id_expiration_ms,
            "shipped": self.config.shipped and not topic.is_internal,
            "topic_id": entry.topic_id if index in entry.made else None,
        }
        return Partition(
            os.path.join(self.directory, f"{topic.name}-{index}"),
            topic.name,
            index,
            config=topic.config,
            leader_epoch=self.leader_epoch,
            options=options,
            tell=topic.tell,
        )

    def _delete_partition(self, name: str, index: int) -> None:
        path = os.path.join(self.directory, f"{name}-{index}")
        if files.exists(path):
            target = os.path.join(self.directory, deleted_name(name, index, uuid.uuid4().hex))
            local.rename(path, target)
            self._delete_later(target)

    def _delete_later(self, path: str) -> None:
        delay = self.config.log_config({}, self.dynamic).file_delete_delay_ms
        self._deletions.add(self.clock(), delay, partial(self._delete, path))

    def _delete(self, path: str) -> None:
        self.left_alone.extend(delete_directory(path))

    def _sweep(self) -> None:
        self._deletions.sweep(self.clock())

    # --- lookup -----------------------------------------------------------------------------------

    def get(self, name: str) -> Topic | None:
        """The topic with a name."""
        return self._topics.get(name)

    def by_id(self, topic_id: bytes) -> Topic | None:
        """The topic with an id of 16 bytes."""
        return self._ids.get(bytes(topic_id))

    def names(self) -> list[str]:
        """All topics, sorted."""
        return sorted(self._topics)

    def partitions(self) -> list[Partition]:
        """All partitions, topic by topic."""
        return [one for name in self.names() if (topic := self.get(name)) for one in topic.partitions.values()]

    def partition(self, name: str, index: int) -> Partition | None:
        """The partition of a topic, if both exist."""
        topic = self.get(name)
        return None if topic is None else topic.partitions.get(index)

    check_name = staticmethod(check_topic)

    @staticmethod
    def is_internal(name: str) -> bool:
        """Whether Kafka keeps its own state in a topic with this name."""
        return name in INTERNAL_TOPICS

    @property
    def dynamic(self) -> dict[str, str]:
        """The broker settings that were changed while it ran."""
        return merged(self._file.cluster, self._file.node)

    @property
    def levels(self) -> Levels:
        """The broker's settings by source, for their description."""
        return levels(self.config, self._file.node, self._file.cluster, self.directory)

    # --- changing ---------------------------------------------------------------------------------

    def create(
        self,
        name: str,
        num_partitions: int = -1,
        configs: Mapping[str, str] | None = None,
        *,
        validate_only: bool = False,
    ) -> Topic:
        """Create a topic.

        Parameters
        ----------
        num_partitions : int
            -1 means ``num.partitions``.
        configs : mapping, optional
            The topic's own settings by Kafka's names, as text.
        validate_only : bool
            Check the request and create nothing.

        Raises
        ------
        InvalidTopicError
            Kafka does not allow the name, or it differs from another one only in '.' and '_'.
        ApiError
            TOPIC_ALREADY_EXISTS, INVALID_PARTITIONS, INVALID_CONFIG, POLICY_VIOLATION.
        LogStorageError
            The disk fails.
        """
        [made] = self.create_all([NewTopic(name, num_partitions, configs)], validate_only=validate_only)
        if isinstance(made, KtsError):
            raise made
        return made

    def create_all(self, wanted: Iterable[NewTopic], *, validate_only: bool = False) -> list[Topic | KtsError]:
        """Create topics independently of one another, with one sync for all of them.

        Returns
        -------
        list of Topic or KtsError
            What ``create`` returns or raises for each.
        """
        with self.changing:
            wanted = list(wanted)
            planned: dict[str, tuple[Topic, TopicEntry]] = {}
            alike: dict[str, str] = {}
            found: list[Topic | KtsError] = []
            for one in wanted:
                try:
                    topic, entry = self._planned(one, alike)
                except KtsError as error:
                    found.append(error)
                    continue
                found.append(topic)
                planned[one.name] = topic, entry
                alike[metric_name(one.name)] = one.name
            if planned and not validate_only:
                try:
                    self._make_planned(planned)
                except LogStorageError as error:
                    self._undo_create(planned)
                    if len(planned) == 1:
                        return [error if isinstance(one, Topic) else one for one in found]
                    return [self.create_all([one])[0] for one in wanted]
            return found

    def _planned(self, wanted: NewTopic, alike: Mapping[str, str]) -> tuple[Topic, TopicEntry]:
        name, count, configs = wanted
        self.check_new(name, alike)
        if count == -1:
            count = self.config.num_partitions
        if count < 1:
            message = "Number of partitions was set to an invalid non-positive value."
            raise ApiError(ErrorCode.INVALID_PARTITIONS, message)
        if count > MAX_PARTITIONS:
            message = f"expected at most {MAX_PARTITIONS} partitions in a request, found {count}"
            raise ApiError(ErrorCode.POLICY_VIOLATION, message)
        own = dict(configs or {})
        config = self.check_configs(own)
        indexes = range(count)
        entry = TopicEntry(meta_properties.random_id(), list(indexes), own, set(indexes))
        self._check_free(name, entry.partitions)
        return Topic(name, uuid_bytes(entry.topic_id), {}, own, config), entry

    def _make_planned(self, planned: Mapping[str, tuple[Topic, TopicEntry]]) -> None:
        """Write the topic file first: after a crash there is a whole topic or none."""
        self._file.topics.update((name, entry) for name, (_, entry) in planned.items())
        self._store.write(planned)
        for topic, entry in planned.values():
            for index in entry.partitions:
                self._make(topic.name, index)
                topic.partitions[index] = self._partition(topic, index)
        local.sync_directory(self.directory)
        for topic, _ in planned.values():
            self._serve(topic)
            _warn(topic.name, topic.config)

    def _check_open(self) -> None:
        if self.closed:
            raise LogClosedError("the topics are closed", path=self.directory)

    def check_new(self, name: str, others: Mapping[str, str] | None = None) -> None:
        """Check whether a topic with this name can be created; raises what ``create`` raises.

        Parameters
        ----------
        others : mapping, optional
            Names in the same request, by their metric name.
        """
        self._check_open()
        check_topic(name)
        key = metric_name(name)
        other = (others or {}).get(key)
        if name in self._topics or name == other:
            raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        other = min(self._alike.get(key, ()), default=other)
        if other is not None:
            raise InvalidTopicError(f"Topic '{name}' collides with existing topic: {other}")
        for left, why in self.left_alone:
            if left.rpartition("-")[0] == name:
                raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"{left} exists and is not served: {why}")

    def _check_free(self, name: str, partitions: Iterable[int]) -> None:
        """Refuse directories that appeared after the start."""
        for index in partitions:
            if files.exists(os.path.join(self.directory, f"{name}-{index}")):
                raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"{name}-{index} exists and is not served")

    def _undo_create(self, planned: Mapping[str, tuple[Topic, TopicEntry]]) -> None:
        for name, (_, entry) in planned.items():
            for index in entry.made:
                with suppress(LogStorageError):
                    local.remove_directory(os.path.join(self.directory, f"{name}-{index}"))
        self._store.drop(planned)
        with suppress(LogStorageError):  # the next change writes it
            self._store.write(())

    def check_configs(self, configs: Mapping[str, str], existing: Mapping[str, str] | None = None) -> LogConfig:
        """The configuration of a topic with these settings instead of those it has; raises ApiError INVALID_CONFIG."""
        try:
            return self.config.checked_topic(configs, self.dynamic, existing)
        except (TypeError, ValueError) as error:
            raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from error

    def _set(self, thing: TopicEntry | TopicFile, topic: str | None = None, **values: Any) -> None:
        """Change values in the topic file; a failed write restores them, so that no later write applies the change."""
        before = {name: getattr(thing, name) for name in values}
        vars(thing).update(values)
        try:
            if topic is None:
                self._store.replace()
            else:
                self._store.write([topic])
        except LogStorageError:
            vars(thing).update(before)
            raise

    def _known(self, name: str) -> Topic:
        self._check_open()
        topic = self._topics.get(name)
        if topic is None:
            raise UnknownTopicOrPartitionError(f"no topic {name!r}")
        return topic

    def add_partitions(self, name: str, count: int, *, validate_only: bool = False) -> None:
        """Increase the number of partitions to ``count``.

        Raises
        ------
        UnknownTopicOrPartitionError, ApiError
            INVALID_PARTITIONS, POLICY_VIOLATION.
        """
        with self.changing:
            topic = self._known(name)
            before = max(topic.partitions, default=-1) + 1
            if count == before:
                raise ApiError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {before} partition(s).")
            if count < before:
                message = f"The topic {name} currently has {before} partition(s); {count} would not be an increase."
                raise ApiError(ErrorCode.INVALID_PARTITIONS, message)
            if count - before > MAX_PARTITIONS:
                message = f"expected at most {MAX_PARTITIONS} partitions in a request, found {count - before}"
                raise ApiError(ErrorCode.POLICY_VIOLATION, message)
            if validate_only:
                return
            new = range(before, count)
            self._check_free(name, new)
            entry = self._file.topics[name]
            self._set(entry, name, partitions=sorted({*entry.partitions, *new}), made={*entry.made, *new})
            added = {}
            for index in new:
                self._make(name, index)
                added[index] = self._partition(topic, index)
            local.sync_directory(self.directory)
            topic.partitions = {**topic.partitions, **added}

    def alter(self, name: str, configs: Mapping[str, str], *, validate_only: bool = False) -> None:
        """Replace all own settings of a topic.

        Raises
        ------
        UnknownTopicOrPartitionError, ApiError
            INVALID_CONFIG; nothing changes.
        """
        with self.changing:
            topic = self._known(name)
            own = dict(configs)
            config = self.check_configs(own, topic.configs)
            if validate_only:
                return
            self._set(self._file.topics[name], name, configs=own)
            topic.configs = own
            self._reconfigure(topic, config)

    def alter_broker(self, configs: Mapping[str, str], *, cluster: bool, validate_only: bool = False) -> None:
        """Replace all broker settings that may change while it runs.

        Parameters
        ----------
        cluster : bool
            The settings of all brokers; those of this one take precedence.

        Raises
        ------
        ApiError
            INVALID_REQUEST, as in Kafka: a setting that cannot change, or a bad value.
        """
        with self.changing:
            fixed = sorted(set(configs) - CHANGEABLE)
            if fixed:
                message = f"Cannot update these configs dynamically: {', '.join(fixed)}"
                raise ApiError(ErrorCode.INVALID_REQUEST, message)
            own = dict(configs)
            dynamic = merged(own, self._file.node) if cluster else merged(self._file.cluster, own)
            try:
                check_level(own, self.config.behaviour)
                check_inert(own, self.config.behaviour)
                check_cleaner({**self.config.static, **self.dynamic}, {**self.config.static, **dynamic})
                self.config.log_config({}, dynamic)
                made = {one.name: self.config.log_config(one.configs, dynamic) for one in self._topics.values()}
            except (TypeError, ValueError) as error:
                raise ApiError(ErrorCode.INVALID_REQUEST, str(error)) from error
            if validate_only:
                return
            if cluster:
                self._set(self._file, cluster=own)
            else:
                self._set(self._file, node=own)
            for name, config in made.items():
                self._reconfigure(self._topics[name], config)

    def _reconfigure(self, topic: Topic, config: LogConfig) -> None:
        if (topic.config, topic.config.undecided) == (config, config.undecided):
            return
        _warn(topic.name, config, topic.config)
        topic.config = config
        for partition in topic.partitions.values():
            with suppress(KtsError):  # the partition is offline then
                if not partition.is_offline:
                    partition.reconfigure(config)

    def delete(self, name: str) -> None:
        """Delete a topic. Its directories are renamed at once and removed after ``log.segment.delete.delay.ms``.

        Raises
        ------
        UnknownTopicOrPartitionError
        """
        [error] = self.delete_all([name])
        if error is not None:
            raise error

    def delete_all(self, names: Iterable[str]) -> list[KtsError | None]:
        """Delete topics independently, with one sync for all; returns what ``delete`` raises for each."""
        with self.changing:
            errors: dict[str, KtsError | None] = {}
            chosen: dict[str, Topic] = {}
            for name in names:
                errors[name] = None
                try:
                    chosen[name] = self._known(name)
                except KtsError as error:
                    errors[name] = error
            if not chosen:
                return list(errors.values())
            try:
                self._mark_deleted(chosen)
                for name, topic in chosen.items():
                    try:
                        self._remove(topic)
                    except LogStorageError as error:  # the next start continues
                        errors[name] = error
                local.sync_directory(self.directory)
            except LogStorageError as error:
                errors |= dict.fromkeys(chosen, error)
            else:
                done = [name for name in chosen if errors[name] is None]
                self._log_directory.forget({(name, index) for name in done for index in chosen[name].partitions})
                self._store.drop(done)
            return list(errors.values())

    def _mark_deleted(self, chosen: Mapping[str, Topic]) -> None:
        entries = [self._file.topics[name] for name in chosen]
        for entry in entries:
            entry.deleted = True
        try:
            self._store.write(chosen)
        except LogStorageError:
            for entry in entries:
                entry.deleted = False
            raise

    def _remove(self, topic: Topic) -> None:
        del self._topics[topic.name]
        self._ids.pop(topic.topic_id, None)
        key = metric_name(topic.name)
        self._alike[key].discard(topic.name)
        if not self._alike[key]:
            del self._alike[key]
        for index, partition in topic.partitions.items():
            partition.abandon("deleted")  # unwritten data is not needed any more
            self._delete_partition(topic.name, index)

    # --- upkeep -----------------------------------------------------------------------------------

    def _for_each(self, partitions: Iterable[Partition], do: Callable[[Partition], object]) -> None:
        """Call ``do`` for each partition. One that fails goes offline; the others continue."""
        for partition in partitions:
            try:
                do(partition)
            except KtsError as error:
                if partition.failure is None and not partition.is_offline:
                    partition.failure = LogStorageError(str(error), path=partition.path)

    def run_retention(self) -> list[Retained]:
        """Apply the retention of all topics now. Returns what was deleted, and by which rule.

        Notes
        -----
        Opens all logs. A partition that fails goes offline. Before that, idle logs roll whose proposal says so.
        """
        gone: list[Retained] = []

        def retain(partition: Partition) -> None:
            partition.log.roll_if_due()
            taken = partition.log.delete_old_segments()
            gone.extend(Retained(partition.topic, partition.index, one) for one in taken)
            if taken:
                partition.changed()

        self._for_each(self.partitions(), retain)
        self.delete_due()
        return gone

    def run_cleaner(self, *, force: bool = False) -> list[Compacted]:
        """Clean the logs of all compacted topics that are due, or all. Returns what was done.

        Raises
        ------
        KtsError
            The first pass that failed; the others went on. Its partition is not cleaned again before the next start.
        """
        settings = self.cleaner_settings
        done: list[Compacted] = []

        def go_on(_: int) -> None:
            if self.stops_cleaning:
                raise Interrupted

        errors: list[KtsError | ValueError] = []
        for one in self.partitions():
            if self.closed or self.stops_cleaning:
                break
            if not one.config.compacted or one.is_offline or one.uncleanable is not None:
                continue
            try:
                cleaned = one.log.clean(
                    force=force,
                    dedupe_buffer_bytes=settings.dedupe_buffer_bytes,
                    load_factor=settings.load_factor,
                    on_progress=go_on,
                )
            except LogClosedError:
                continue
            except (KtsError, ValueError) as error:  # ValueError: no room for a key, by the settings
                one.uncleanable = str(error)  # the error itself would keep the pass, with its memory and files
                errors.append(error)
                continue
            if cleaned.reason is None:
                done.append(Compacted(one.topic, one.index, cleaned))
        if errors:
            raise errors[0]
        return done

    @property
    def cleaner_settings(self) -> CleanerSettings:
        """The settings of the cleaner that hold now."""
        return cleaner_settings({**self.config.static, **self.dynamic})

    def delete_due(self) -> None:
        """Remove the files and directories whose delete delay is over."""
        with self.changing:
            if not self.closed:  # an unlocked directory may belong to another broker by now
                self._sweep()
        self._for_each(self._open_partitions(), lambda one: one.log.delete_due_files())

    def flush_due(self) -> None:
        """Flush the logs that were not flushed for ``flush.ms``."""
        now = self.clock()
        self._for_each(self._open_partitions(), lambda one: one.log.flush_if_due(now))

    def checkpoint(self) -> None:
        """Write the recovery point checkpoint."""
        with self.checkpoints_at_once():
            self._for_each(self._open_partitions(), lambda one: one.log.checkpoint())

    def checkpoints_at_once(self) -> AbstractContextManager[None]:
        """Collect checkpoint changes and write each file once at the end."""
        return self._log_directory.checkpoints_at_once()

    def remove_expired_producers(self) -> None:
        """Remove producers that sent nothing for ``producer.id.expiration.ms``."""
        self._for_each(self._open_partitions(), lambda one: one.log.remove_expired_producers())

    def _open_partitions(self) -> list[Partition]:
        return [one for one in self.partitions() if one.is_open and not one.is_offline]

    def close(self) -> None:
        """Close all logs and unlock the directory. A second call does nothing.

        Raises
        ------
        LogStorageError
            The first partition that could not be written. The next start recovers it.
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

            count = min(CLOSING_THREADS, descriptors.most_holders())
            try:
                with self.checkpoints_at_once(), ThreadPoolExecutor(count) as threads:
                    list(threads.map(close, self.partitions()))
                try:
                    self._store.settle()
                except KtsError as error:
                    failures.append(error)
            finally:
                self._log_directory.leave()
            if failures:
                raise failures[0]

    def abandon(self) -> None:
        """Release everything without writing, as if the process had died."""
        with self.changing:
            self.closed = True
            for partition in self.partitions():
                partition.abandon()
            self._log_directory.leave()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _warn(name: str, config: LogConfig, before: LogConfig | None = None) -> None:
    """Warn of settings that do not belong together, unless they were so before."""
    warning = roll_warning(config)
    if warning is not None and (before is None or warning != roll_warning(before)):
        logger.warning("topic %s: %s", name, warning)
