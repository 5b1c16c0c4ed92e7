"""A copy of one partition and who leads it; where the two may differ, the copy is cut to what both have."""

from __future__ import annotations

from collections.abc import Callable

from kts.broker.codes import ApiError, ApiKey, ErrorCode
from kts.broker.following.client import EARLIEST, LATEST, NO_TOPIC_ID, Client, FetchPartition, TopicMetadata
from kts.broker.following.client_connection import Connection, error_of
from kts.broker.following.divergence import first_difference, truncation
from kts.broker.topics.topic_file import id_text
from kts.errors import InvalidRequestError
from kts.log.log import Log


class Replica:
    """What a ``Follower`` is besides its copying; see there."""

    def __init__(
        self,
        log: Log,
        client: Client,
        topic: str | None = None,
        partition: int | None = None,
        *,
        max_bytes: int = 2**20,
        tell: Callable[[str], None] = lambda message: None,
    ) -> None:
        self.log = log
        self.topic = log.topic if topic is None else topic
        self.partition = log.partition if partition is None else partition
        self.leader: Connection | None = None
        self.leader_epoch = -1
        self.high_watermark = -1
        self.copied_bytes = self.copied_batches = self.truncations = 0
        self.caught_up = False
        self.max_bytes = max_bytes
        self._client = client
        self._tell = tell
        self._topic_id = NO_TOPIC_ID
        self._may_differ = True  # from the leader, below the copy's end

    def __repr__(self) -> str:
        return f"{self.topic}-{self.partition}"

    # --- the leader -------------------------------------------------------------------------------

    def find_leader(self, topic: TopicMetadata) -> None:
        """Turn to the leader that Metadata names; where the copy may differ from it is asked before the next fetch.

        Raises
        ------
        ApiError
            Nobody leads it, or there is no such partition.
        InvalidRequestError
            It is another topic of the same name.
        """
        found = topic.partitions.get(self.partition)
        if found is None:
            count = len(topic.partitions)
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{self}: the topic has {count} other partitions")
        if found.leader < 0:
            raise error_of(found.error_code or ErrorCode.LEADER_NOT_AVAILABLE, str(self))
        self._topic_id = self._same_topic(topic.topic_id)
        self.leader = self._client.node(found.leader)
        self.leader_epoch = found.leader_epoch
        self._may_differ = True

    def _same_topic(self, topic_id: bytes) -> bytes:
        ours, theirs = self.log.topic_id, topic_id_text(topic_id)
        if ours is not None and theirs is not None and ours != theirs:
            raise InvalidRequestError(
                f"{self}: expected topic id {ours}, as partition.metadata has it, found {theirs} at the leader: the "
                "topic was deleted and made anew, or it is another cluster's"
            )
        return topic_id

    def lose_leader(self) -> None:
        """Ask anew who leads, before anything else."""
        self.leader = None
        self.caught_up = False

    def _known_leader(self) -> Connection:
        if self.leader is None:
            raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, f"{self}: the leader is not known")
        return self.leader

    # --- truncation -------------------------------------------------------------------------------

    def truncate_if_needed(self) -> None:
        """Cut what the leader does not have: by its epochs, or by comparing records where epochs tell nothing.

        Raises
        ------
        ApiError, InvalidRequestError
            The leader cannot say, or says what no leader does.
        """
        if not self._may_differ:
            return
        leader, log = self._known_leader(), self.log
        by_epochs = log.leader_epochs and leader.serves(ApiKey.OFFSET_FOR_LEADER_EPOCH)
        while by_epochs and log.leader_epochs:
            asked = log.leader_epochs[-1][0]
            answer = self._client.offset_for_leader_epoch(
                leader, self.topic, self.partition, asked, current_leader_epoch=self.leader_epoch
            )
            cut = truncation(log.leader_epochs, asked, *answer, log.log_end_offset)
            if cut is None:
                self._tell(f"{self}: the leader has no records of epoch {asked}, so records are compared")
                by_epochs = False
                break
            self._truncate(cut.offset, f"epoch {answer[0]} of the leader ends at {answer[1]}")
            if cut.completed:
                break
        if not by_epochs:
            self._compare()
        self._may_differ = False

    def _compare(self) -> None:
        """What 0.10 has no question for: it cuts at the high watermark, and all that is copied lies below that."""
        log, leader = self.log, self._known_leader()
        if log.log_end_offset == log.log_start_offset:
            return
        first, end = (
            self._client.list_offsets(leader, self.topic, self.partition, each).offset for each in (EARLIEST, LATEST)
        )
        start, common = max(first, log.log_start_offset), min(end, log.log_end_offset)
        found = first_difference(self._ours, self._theirs, start, common)
        if found is not None:
            self._truncate(found, f"the leader has another record at offset {found}")

    def _ours(self, offset: int) -> bytes | memoryview:
        return self.log.read(offset, 1, min_one_message=True).records

    def _theirs(self, offset: int) -> bytes | memoryview:
        answer = self._client.fetch(self._known_leader(), [self._wanted(offset, self.max_bytes, False)], max_wait_ms=0)
        found = answer.get((self.topic, self.partition))
        if found is None or found["error_code"]:
            raise error_of(found["error_code"] if found else -1, f"{self}: comparing records at offset {offset}")
        records: bytes | memoryview = found["records"] or b""
        return records

    def _truncate(self, offset: int, why: str) -> None:
        """Cut at an offset; a batch that it lies in goes as a whole, and the copy goes on where that began."""
        log = self.log
        end = log.log_end_offset
        if offset >= end:
            return
        log.truncate_to(offset)
        last = max(log.segments[-1].next_offset(), log.log_start_offset)
        if last < log.log_end_offset:
            log.truncate_to(last)
        self.truncations += 1
        self._tell(f"{self}: {why}: cut from {end} to {log.log_end_offset}")

    def _out_of_range(self) -> None:
        """The leader does not have the offset that comes next."""
        leader, log = self._known_leader(), self.log
        end = self._client.list_offsets(leader, self.topic, self.partition, LATEST).offset
        start = self._client.list_offsets(leader, self.topic, self.partition, EARLIEST).offset
        if not 0 <= start <= end:
            raise InvalidRequestError(f"{self}: expected offsets of the leader, found {start} to {end}")
        empty = log.log_end_offset == log.log_start_offset
        if end < log.log_end_offset and not empty:
            self._truncate(end, f"the leader ends at {end}")
            self._may_differ = True
        elif start > log.log_end_offset or end < log.log_end_offset:
            if not empty:
                self._tell(f"{self}: the leader begins at {start}, behind the copy's end: the copy begins anew there")
                self.truncations += 1
            log.truncate_fully_and_start_at(start)

    # --- fetching ---------------------------------------------------------------------------------

    def wanted(self) -> FetchPartition:
        """What to fetch next."""
        return self._wanted(self.log.log_end_offset, self.max_bytes, True)

    def _wanted(self, offset: int, max_bytes: int, goes_on: bool) -> FetchPartition:
        epochs = self.log.leader_epochs if goes_on else []
        return FetchPartition(
            self.topic,
            self._topic_id,
            self.partition,
            offset,
            max_bytes,
            self.leader_epoch,
            epochs[-1][0] if epochs else -1,
        )


def topic_id_text(topic_id: bytes) -> str | None:
    """A topic id as ``partition.metadata`` has it; None where there is none."""
    return None if topic_id == NO_TOPIC_ID else id_text(topic_id)
