"""How topics are made, changed and deleted."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from kts.broker.codes import ApiError, ErrorCode
from kts.broker.topics import file as topic_file
from kts.broker.topics import meta_properties
from kts.broker.topics.file import TopicEntry, TopicFile
from kts.broker.topics.inert_settings import CHANGEABLE, check_cleaner, check_inert
from kts.broker.topics.loading import LoadedTopics
from kts.broker.topics.names import check_name, one_name
from kts.broker.topics.topic import Topic
from kts.broker.topics.topic_settings import check_without_effect
from kts.config import LogConfig
from kts.errors import InvalidTopicError, KtsError, LogClosedError, LogStorageError, UnknownTopicOrPartitionError
from kts.segment import files

MAX_PARTITIONS = 10_000  # of one request, as a KRaft controller has it


class NewTopic(NamedTuple):
    """A topic that is to be made; -1 partitions are ``num.partitions``."""

    name: str
    num_partitions: int = -1
    configs: Mapping[str, str] | None = None


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
        [made] = self.create_all([NewTopic(name, num_partitions, configs)], validate_only=validate_only)
        if isinstance(made, KtsError):
            raise made
        return made

    def create_all(self, wanted: Iterable[NewTopic], *, validate_only: bool = False) -> list[Topic | KtsError]:
        """Make topics, each for itself, and wait for the disk once for all of them.

        Returns
        -------
        list of Topic or KtsError
            For each what ``create`` returns or raises.
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
                alike[one_name(one.name)] = one.name
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
        return Topic(name, topic_file.id_bytes(entry.topic_id), {}, own, config), entry

    def _make_planned(self, planned: Mapping[str, tuple[Topic, TopicEntry]]) -> None:
        """The file first: with it on the disk a stop leaves all of a topic, without it nothing."""
        self._file.topics.update((name, entry) for name, (_, entry) in planned.items())
        self._store.write(planned)
        for topic, entry in planned.values():
            for index in entry.partitions:
                self._make(topic.name, index)
                topic.partitions[index] = self._partition(topic, index)
        files.sync_directory(self.directory)
        for topic, _ in planned.values():
            self._serve(topic)

    def _check_open(self) -> None:
        if self.closed:
            raise LogClosedError("expected topics that are served, found that they were closed", path=self.directory)

    def check_new(self, name: str, others: Mapping[str, str] | None = None) -> None:
        """Whether a topic of this name could be made; raises what ``create`` does.

        Parameters
        ----------
        others : mapping, optional
            Names of those that are to be made with it, by what they have in common with names that are alike.
        """
        self._check_open()
        check_name(name)
        key = one_name(name)
        other = (others or {}).get(key)
        if name in self._topics or name == other:
            raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        other = min(self._alike.get(key, ()), default=other)
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

    def _undo_create(self, planned: Mapping[str, tuple[Topic, TopicEntry]]) -> None:
        for name, (_, entry) in planned.items():
            for index in entry.made:
                with suppress(LogStorageError):
                    files.remove_directory(os.path.join(self.directory, f"{name}-{index}"))
        self._store.drop(planned)
        with suppress(LogStorageError):  # the next change says it
            self._store.write(())

    def check_configs(self, configs: Mapping[str, str]) -> LogConfig:
        """What a topic with these settings is set to; raises ApiError INVALID_CONFIG."""
        try:
            return self.config.log_config(configs, self.dynamic)
        except (TypeError, ValueError) as error:
            raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from error

    def _set(self, thing: TopicEntry | TopicFile, topic: str | None = None, **values: Any) -> None:
        """Change something in the file; what could not be written is as before, or a later write would do it."""
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
            self._set(entry, name, partitions=sorted({*entry.partitions, *new}), made={*entry.made, *new})
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
            self._set(self._file.topics[name], name, configs=own)
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
            fixed = sorted(set(configs) - CHANGEABLE)
            if fixed:
                message = f"Cannot update these configs dynamically: {', '.join(fixed)}"
                raise ApiError(ErrorCode.INVALID_REQUEST, message)
            own = dict(configs)
            merged = {**own, **self._file.node} if cluster else {**self._file.cluster, **own}
            try:
                check_without_effect(own)
                check_inert(own)
                check_cleaner({**self.config.static, **self.dynamic}, {**self.config.static, **merged})
                self.config.log_config({}, merged)
                made = {one.name: self.config.log_config(one.configs, merged) for one in self._topics.values()}
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
        [error] = self.delete_all([name])
        if error is not None:
            raise error

    def delete_all(self, names: Iterable[str]) -> list[KtsError | None]:
        """Delete topics, each for itself, and wait for the disk once for all; for each what ``delete`` raises."""
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
                        self._take_away(topic)
                    except LogStorageError as error:  # the next start goes on with it
                        errors[name] = error
                files.sync_directory(self.directory)
            except LogStorageError as error:
                errors |= dict.fromkeys(chosen, error)
            else:
                done = [name for name in chosen if errors[name] is None]
                self._whole.forget({(name, index) for name in done for index in chosen[name].partitions})
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

    def _take_away(self, topic: Topic) -> None:
        del self._topics[topic.name]
        self._ids.pop(topic.topic_id, None)
        key = one_name(topic.name)
        self._alike[key].discard(topic.name)
        if not self._alike[key]:
            del self._alike[key]
        for index, partition in topic.partitions.items():
            partition.abandon("deleted")  # nobody needs what was not written
            self._doom_partition(topic.name, index)
