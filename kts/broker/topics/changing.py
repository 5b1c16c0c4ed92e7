"""How topics are made, changed and deleted."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from kts.broker.codes import ApiError, ErrorCode
from kts.broker.topics import file as topic_file
from kts.broker.topics import meta_properties
from kts.broker.topics.file import TopicEntry, TopicFile
from kts.broker.topics.loading import LoadedTopics
from kts.broker.topics.names import check_name
from kts.broker.topics.topic import Topic
from kts.broker.topics.topic_settings import DYNAMIC, check_without_effect
from kts.config import LogConfig
from kts.errors import InvalidTopicError, KtsError, LogClosedError, LogStorageError, UnknownTopicOrPartitionError
from kts.storage import files

MAX_PARTITIONS = 10_000  # of one request, as a KRaft controller has it


class ChangingTopics(LoadedTopics):
    """Topics that come and go; see ``Topics``."""

    # --- changing ---------------------------------------------------------------------------------

    def create(
        self,
        name: str,
        num_partitions: int = -1,
        configs: Mapping[str, str] | None = None,
        *,
        validate_only: bool = False,
    ) -> Topic:
        """Make a topic.

        Parameters
        ----------
        num_partitions : int
            -1 is ``num.partitions``.
        configs : mapping, optional
            Its settings by Kafka's names, as text.
        validate_only : bool
            Only say whether it could be made.

        Raises
        ------
        InvalidTopicError
            A name that Kafka does not allow, or that differs from another one's by '.' and '_' alone.
        ApiError
            TOPIC_ALREADY_EXISTS, INVALID_PARTITIONS, INVALID_CONFIG, POLICY_VIOLATION.
        LogStorageError
            The disk fails.
        """
        with self.changing:
            self.check_new(name)
            count = self.config.num_partitions if num_partitions == -1 else num_partitions
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
            topic = Topic(name, topic_file.id_bytes(entry.topic_id), {}, own, config)
            self._check_free(name, entry.partitions)
            if validate_only:
                return topic
            self._file.topics[name] = entry
            try:
                topic_file.write(self.directory, self._file)
                for index in entry.partitions:
                    self._make(name, index)
                    topic.partitions[index] = self._partition(topic, index)
                files.sync_directory(self.directory)
            except LogStorageError:
                self._undo_create(name)
                raise
            self._topics[name] = self._ids[topic.topic_id] = topic
            return topic

    def _check_open(self) -> None:
        if self.closed:
            raise LogClosedError("expected topics that are served, found that they were closed", path=self.directory)

    def check_new(self, name: str) -> None:
        """Whether a topic of this name could be made; raises what ``create`` does."""
        self._check_open()
        check_name(name)
        if name in self._topics:
            raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        alike = name.replace(".", "_")
        other = next((one for one in self._topics if one.replace(".", "_") == alike), None)
        if other is not None:
            raise InvalidTopicError(f"Topic '{name}' collides with existing topic: {other}")
        for left, why in self.left_alone:
            if left.rpartition("-")[0] == name:
                raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"{left} is there and not served: {why}")

    def _check_free(self, name: str, partitions: Iterable[int]) -> None:
        """What came into the directory after the start is not taken for the topic's."""
        for index in partitions:
            if files.exists(os.path.join(self.directory, f"{name}-{index}")):
                raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"{name}-{index} is there and not served")

    def _undo_create(self, name: str) -> None:
        for index in self._file.topics.pop(name).made:
            with suppress(LogStorageError):
                files.remove_directory(os.path.join(self.directory, f"{name}-{index}"))
        topic_file.write(self.directory, self._file)

    def check_configs(self, configs: Mapping[str, str]) -> LogConfig:
        """What a topic with these settings is set to; raises ApiError INVALID_CONFIG."""
        try:
            return self.config.log_config(configs, self.dynamic)
        except (TypeError, ValueError) as error:
            raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from error

    def _set(self, thing: TopicEntry | TopicFile, **values: Any) -> None:
        """Change something in the file; what could not be written is as before, or a later write would do it."""
        before = {name: getattr(thing, name) for name in values}
        vars(thing).update(values)
        try:
            topic_file.write(self.directory, self._file)
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
        """Give a topic more partitions, ``count`` in all.

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
            self._set(entry, partitions=sorted({*entry.partitions, *new}), made={*entry.made, *new})
            added = {}
            for index in new:
                self._make(name, index)
                added[index] = self._partition(topic, index)
            files.sync_directory(self.directory)
            topic.partitions = {**topic.partitions, **added}

    def alter(self, name: str, configs: Mapping[str, str], *, validate_only: bool = False) -> None:
        """Set a topic's own settings, all of them.

        Raises
        ------
        UnknownTopicOrPartitionError, ApiError
            INVALID_CONFIG: nothing has changed.
        """
        with self.changing:
            topic = self._known(name)
            own = dict(configs)
            config = self.check_configs(own)
            if validate_only:
                return
            self._set(self._file.topics[name], configs=own)
            topic.configs = own
            self._reconfigure(topic, config)

    def alter_broker(self, configs: Mapping[str, str], *, cluster: bool, validate_only: bool = False) -> None:
        """Set the broker's own settings that may change while it runs, all of them.

        Parameters
        ----------
        cluster : bool
            Those for all brokers, which count less than those for this one.

        Raises
        ------
        ApiError
            INVALID_REQUEST, as Kafka answers: a setting that cannot change, a bad value.
        """
        with self.changing:
            fixed = sorted(set(configs) - DYNAMIC)
            if fixed:
                message = f"Cannot update these configs dynamically: {', '.join(fixed)}"
                raise ApiError(ErrorCode.INVALID_REQUEST, message)
            own = dict(configs)
            merged = {**own, **self._file.node} if cluster else {**self._file.cluster, **own}
            try:
                check_without_effect(own)
                self.config.log_config({}, merged)
                made = {one.name: self.config.log_config(one.configs, merged) for one in self._topics.values()}
            except (TypeError, ValueError) as error:
                raise ApiError(ErrorCode.INVALID_REQUEST, str(error)) from error
            if validate_only:
                return
            self._set(self._file, **{"cluster" if cluster else "node": own})
            for name, config in made.items():
                self._reconfigure(self._topics[name], config)

    def _reconfigure(self, topic: Topic, config: LogConfig) -> None:
        if topic.config == config:
            return
        topic.config = config
        for partition in topic.partitions.values():
            with suppress(KtsError):  # then it is offline
                if not partition.is_offline:
                    partition.reconfigure(config)

    def delete(self, name: str) -> None:
        """Delete a topic: its directories are renamed at once and removed after ``log.segment.delete.delay.ms``.

        Raises
        ------
        UnknownTopicOrPartitionError
        """
        with self.changing:
            topic = self._known(name)
            self._set(self._file.topics[name], deleted=True)
            del self._topics[name]
            self._ids.pop(topic.topic_id, None)
            for index, partition in topic.partitions.items():
                with self._using:
                    self._open.pop(id(partition), None)
                partition.abandon("deleted")  # nobody needs what was not written
                self._doom_partition(name, index)
            files.sync_directory(self.directory)
            self._whole.forget({(name, index) for index in topic.partitions})
            del self._file.topics[name]
            topic_file.write(self.directory, self._file)
