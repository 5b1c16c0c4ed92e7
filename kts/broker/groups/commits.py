"""Committed offsets: commit, fetch, delete, expire.

Source: GroupCoordinator, GroupMetadataManager, GroupMetadata.removeExpiredOffsets (3.9).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from kts.broker.codes import ErrorCode
from kts.broker.groups.group import GROUP_BYTES, OFFSET_BYTES, Group, State, check_generation, check_member
from kts.broker.groups.journal import Journal, Row
from kts.broker.groups.rebalance import Rebalancing
from kts.broker.groups.registry import Registry
from kts.coordinator_records.groups import Committed, group_key, offset_key, offset_value

PartitionKey = tuple[str, int]
ABSENT = Committed(-1, -1, "", -1)
RECORD_BYTES = 40  # of a committed offset at least, besides texts
# The answer to a commit whose append failed.
COMMIT_ERRORS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
}


class OffsetCommits:
    """The offsets of all groups."""

    def __init__(self, registry: Registry, rebalancing: Rebalancing, journal: Journal) -> None:
        self.registry = registry
        self.rebalancing = rebalancing
        self.journal = journal

    def commit(
        self,
        group_id: str,
        member_id: str,
        instance_id: str | None,
        generation_id: int,
        offsets: Mapping[PartitionKey, Committed],
        *,
        tells_groups: bool = False,
    ) -> dict[PartitionKey, ErrorCode]:
        """Commit offsets. Those with too large metadata are refused, the others are stored.

        Parameters
        ----------
        tells_groups : bool
            The request has a code for a group that does not exist.
        """
        most = self.registry.settings.max_metadata_size
        errors = {
            each: ErrorCode.OFFSET_METADATA_TOO_LARGE if utf16_length(found.metadata) > most else ErrorCode.NONE
            for each, found in offsets.items()
        }
        kept = {each: found for each, found in offsets.items() if not errors[each]}
        group = self.registry.groups.get(group_id)
        if group is None:
            tells = tells_groups and self.registry.settings.refuses_unknown_groups
            unknown = ErrorCode.GROUP_ID_NOT_FOUND if tells else ErrorCode.ILLEGAL_GENERATION
            error = unknown if generation_id >= 0 else ErrorCode.NONE
        else:
            error = self._check(group, member_id, instance_id, generation_id)
        if error:
            return dict.fromkeys(offsets, error)
        if kept:
            if len(kept) * (len(group_id) + RECORD_BYTES) > self.journal.max_batch_bytes:
                return dict.fromkeys(offsets, ErrorCode.INVALID_COMMIT_OFFSET_SIZE)  # before encoding it
            if not self.registry.has_room_for(self._growth(group, group_id, kept)):
                return dict.fromkeys(offsets, ErrorCode.INVALID_COMMIT_OFFSET_SIZE)
            if group is not None and member_id in group.members:
                self.rebalancing.heard_of(group, group.members[member_id])
            error = self._store(group, group_id, kept)
            errors |= dict.fromkeys(kept, error)
        elif group is None and self.registry.has_room_for(2 * len(group_id) + 5000):
            self.registry.create(group_id)  # in Kafka the first commit creates the group even if it fails
        return errors

    @staticmethod
    def _growth(group: Group | None, group_id: str, offsets: Mapping[PartitionKey, Committed]) -> int:
        """How many more bytes these offsets take than those that they replace."""
        known = {} if group is None else group.offsets
        growth = 0 if group is not None else GROUP_BYTES + len(group_id)
        for place, found in offsets.items():
            old = known.get(place)
            growth += OFFSET_BYTES + len(place[0]) if old is None else -len(old.metadata)
            growth += len(found.metadata)
        return growth

    def _check(self, group: Group, member_id: str, instance_id: str | None, generation_id: int) -> ErrorCode:
        if generation_id < 0 and group.state is State.EMPTY:
            return ErrorCode.NONE  # an administrator, or a consumer that assigns partitions itself
        if generation_id < 0 and not member_id and instance_id is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        error = check_member(group, member_id, instance_id) or check_generation(group, generation_id)
        if not error and group.state is State.COMPLETING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return error

    def _store(self, group: Group | None, group_id: str, offsets: Mapping[PartitionKey, Committed]) -> ErrorCode:
        rows = [(offset_key(group_id, *each), offset_value(found)) for each, found in offsets.items()]
        error = self.journal.append(group_id, rows)
        if error:
            return COMMIT_ERRORS.get(error, error)
        if group is None:
            group = self.registry.create(group_id)
        for (topic, partition), found in offsets.items():
            group.put_offset(topic, partition, found)
        return ErrorCode.NONE

    def fetch(self, group_id: str, partitions: Iterable[PartitionKey] | None) -> dict[PartitionKey, Committed]:
        """The committed offsets of the given or all partitions; -1 where there is none."""
        group = self.registry.groups.get(group_id)
        known = group.offsets if group is not None else {}
        return dict(known) if partitions is None else {each: known.get(each, ABSENT) for each in partitions}

    def delete(
        self, group_id: str, partitions: Iterable[PartitionKey]
    ) -> tuple[ErrorCode, dict[PartitionKey, ErrorCode]]:
        """Delete committed offsets of topics that no member subscribes to."""
        group = self.registry.groups.get(group_id)
        if not group_id:
            return ErrorCode.INVALID_GROUP_ID, {}
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND, {}
        if group.state is not State.EMPTY and not group.is_consumer_group:
            return ErrorCode.NON_EMPTY_GROUP, {}
        used = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        busy = group.state is not State.EMPTY
        errors = {each: used if busy and group.is_subscribed(each[0]) else ErrorCode.NONE for each in partitions}
        gone = [each for each, error in errors.items() if not error]
        self.clean([group], lambda _: gone, ends=self.registry.settings.ends_emptied_groups)
        return ErrorCode.NONE, errors

    def forget_topics(self, names: Iterable[str]) -> None:
        """Delete the offsets of deleted topics."""
        gone = frozenset(names)
        self.clean(
            self.registry.groups.values(),
            lambda group: [each for each in group.offsets if each[0] in gone],
            ends=self.registry.settings.ends_emptied_groups,
        )

    def expire(self) -> int:
        """Delete offsets older than the retention time; returns how many."""
        now = self.registry.clock()
        return self.clean(self.registry.groups.values(), lambda group: self._expired(group, now))

    def _expired(self, group: Group, now_ms: int) -> list[PartitionKey]:
        """The expired offsets. In an empty group the time counts from when it became empty; in a stable one, offsets of
        subscribed topics do not expire."""
        since: int | None = None
        if group.protocol_type is not None:
            if group.state is State.EMPTY:
                since = group.state_ms if group.state_ms != -1 else None
            elif not group.is_consumer_group or group.topics is None or group.state is not State.STABLE:
                return []
        subscribed = group.topics if group.state is State.STABLE and group.topics is not None else ()
        retention = self.registry.settings.retention_ms
        return [
            each
            for each, found in group.offsets.items()
            if each[0] not in subscribed
            and (
                now_ms - (found.commit_ms if since is None else since) >= retention
                if found.expire_ms is None
                else now_ms >= found.expire_ms
            )
        ]

    def clean(
        self, groups: Iterable[Group], choose: Callable[[Group], list[PartitionKey]], *, ends: bool = True
    ) -> int:
        """Delete the chosen offsets and, if it ``ends`` them, then empty groups; returns the number of offsets."""
        count = 0
        for group in list(groups):
            gone = [each for each in choose(group) if each in group.offsets]
            dies = ends and group.state is State.EMPTY and len(gone) == len(group.offsets) and not group.pending
            rows: list[Row] = [(offset_key(group.group_id, *each), None) for each in gone]
            if dies and group.generation_id > 0:
                rows.append((group_key(group.group_id), None))
            if rows and self.journal.append_many(group.group_id, rows):
                continue  # not stored; the next call tries again
            count += len(group.remove_offsets(gone))
            if dies:
                group.move_to(State.DEAD, self.registry.clock())
                self.registry.remove(group.group_id)
        return count


def utf16_length(text: str) -> int:
    """The length of a text in UTF-16 code units, as Java counts it."""
    return len(text) if text.isascii() else len(text.encode("utf-16-be", "surrogatepass")) // 2
