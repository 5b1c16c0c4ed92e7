"""Topics as a log directory has them: found at the start, opened lazily, asked for by name or id."""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from kts.broker.topics import file as topic_file
from kts.broker.topics import meta_properties
from kts.broker.topics.adopting import adopted_configs
from kts.broker.topics.describing import Levels, levels
from kts.broker.topics.directories import Found, delete_directory, doomed_name, find
from kts.broker.topics.file import TopicEntry
from kts.broker.topics.names import check_name, one_name
from kts.broker.topics.partitions import Partition
from kts.broker.topics.settings import BrokerConfig
from kts.broker.topics.topic import Topic
from kts.errors import LogStorageError
from kts.log.deleting import Doomed
from kts.log.directory import WholeDirectory
from kts.log.log_base import wall_clock
from kts.segment import files
from kts.segment.locks import new_in_children
from kts.segment.names import INTERNAL_TOPICS


class LoadedTopics:
    """Topics that can be asked for; see ``Topics``."""

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
        self._alike: dict[str, set[str]] = {}  # names by ``one_name``
        self._doomed = Doomed()
        self.closed = False
        files.make_directory(self.directory)
        self._whole = WholeDirectory(self.directory)
        try:
            self._load()
        except BaseException:
            self._whole.leave()
            raise

    def _load(self) -> None:
        found = find(self.directory)
        self.left_alone = found.left_alone
        self.adopted: list[str] = []
        meta = meta_properties.read(self.directory)
        self._store = topic_file.TopicStore(self.directory)
        self._file = self._store.content
        self.node_id, self.cluster_id = self._identity(meta)
        if meta is None:
            meta_properties.write(self.directory, self.node_id, self.cluster_id)
        self._whole.forget_strays()
        for path in found.doomed:
            self._doom(path)
        for name, entry in list(self._file.topics.items()):
            if entry.deleted:
                for index in found.partitions.pop(name, {}):
                    self._doom_partition(name, index)
                del self._file.topics[name]
        self.leader_epoch = min(max(self._file.leader_epoch, found.leader_epoch) + 1, 2**31 - 1)
        self._file.leader_epoch = self.leader_epoch
        self._file.cluster_id = self.cluster_id
        blocked = {one for one, _ in self.left_alone}
        for name in sorted({*found.partitions, *self._file.topics}):
            self._add_found(name, found, blocked)
        self._store.replace()
        files.sync_directory(self.directory)

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

    def _add_found(self, name: str, found: Found, blocked: set[str]) -> None:
        entry = self._file.topics.get(name)
        indexes = found.partitions.get(name, {})
        if entry is None:
            told = next((one for one in indexes.values() if one is not None), None)
            configs = adopted_configs(self.directory, name, indexes, self.config)
            entry = TopicEntry(told or meta_properties.random_id(), sorted(indexes), configs)
            self.adopted.append(name)
            self._file.topics[name] = entry
        for index in entry.partitions:
            if index not in indexes and f"{name}-{index}" not in blocked:
                self._make(name, index)
        entry.partitions = sorted({*entry.partitions, *indexes})
        try:
            config = self.config.log_config(entry.configs, self.dynamic)
        except ValueError as error:
            raise LogStorageError(f"topic {name}: {error}", path=topic_file.path(self.directory)) from error
        topic = Topic(name, topic_file.id_bytes(entry.topic_id), {}, dict(entry.configs), config)
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
        self._alike.setdefault(one_name(topic.name), set()).add(topic.name)

    def _make(self, name: str, index: int) -> None:
        files.make_directory(os.path.join(self.directory, f"{name}-{index}"))
        self._whole.made(name, index)
        self._file.topics[name].made.add(index)

    def _partition(self, topic: Topic, index: int) -> Partition:
        entry = self._file.topics[topic.name]
        options: dict[str, Any] = {
            "clock": self.clock,
            "producer_id_expiration_ms": self.config.producer_id_expiration_ms,
            "topic_id": entry.topic_id if index in entry.made else None,
        }
        return Partition(
            os.path.join(self.directory, f"{topic.name}-{index}"),
            topic.name,
            index,
            config=topic.config,
            leader_epoch=self.leader_epoch,
            options=options,
        )

    def _doom_partition(self, name: str, index: int) -> None:
        path = os.path.join(self.directory, f"{name}-{index}")
        if files.exists(path):
            target = os.path.join(self.directory, doomed_name(name, index, uuid.uuid4().hex))
            files.rename(path, target)
            self._doom(target)

    def _doom(self, path: str) -> None:
        delay = self.config.log_config({}, self.dynamic).file_delete_delay_ms
        self._doomed.add(self.clock(), delay, partial(self._delete, path))

    def _delete(self, path: str) -> None:
        self.left_alone.extend(delete_directory(path))

    def _sweep(self) -> None:
        self._doomed.sweep(self.clock())

    # --- asking -----------------------------------------------------------------------------------

    def get(self, name: str) -> Topic | None:
        """A topic by its name."""
        return self._topics.get(name)

    def by_id(self, topic_id: bytes) -> Topic | None:
        """A topic by its id of 16 bytes."""
        return self._ids.get(bytes(topic_id))

    def names(self) -> list[str]:
        """All topics, sorted."""
        return sorted(self._topics)

    def partitions(self) -> list[Partition]:
        """All partitions, topic by topic."""
        return [one for name in self.names() if (topic := self.get(name)) for one in topic.partitions.values()]

    check_name = staticmethod(check_name)

    @staticmethod
    def is_internal(name: str) -> bool:
        """Whether Kafka keeps its own state in a topic of this name."""
        return name in INTERNAL_TOPICS

    @property
    def dynamic(self) -> dict[str, str]:
        """The broker's own settings that were changed since it was made."""
        return {**self._file.cluster, **self._file.node}

    @property
    def levels(self) -> Levels:
        """The broker's settings by where they were set."""
        return levels(self.config, self._file.node, self._file.cluster, self.directory)
