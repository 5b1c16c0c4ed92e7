"""A copy of one partition that follows its leader, batch by batch, and is truncated where the two diverge."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from typing import Any

from kts.arguments import INT32_MAX
from kts.broker.codes import ApiError, ErrorCode
from kts.broker.wire.messages import ApiKey
from kts.codec.layout import Entries
from kts.codec.validate import validate_follower
from kts.errors import CorruptRecordError, InvalidRequestError, RecordTooLargeError
from kts.log.log import Log
from kts.model import EARLIEST, LATEST, ZERO_UUID, topic_id_text
from kts.replica.client import (
    Client,
    Connection,
    FetchPartition,
    TopicMetadata,
    error_of,
)
from kts.replica.divergence import first_difference, truncation


class Follower:
    """The copy of a partition, and its state relative to the leader.

    Parameters
    ----------
    log : Log
        The copy; only the follower appends to it.
    client : Client
        Connected to the leader's cluster.
    topic, partition : optional
        The partition to copy; by default that of the log's directory.
    max_bytes : int
        ``replica.fetch.max.bytes``, the size of a fetch. A larger entry comes whole.
    tell : callable
        Gets a message about each truncation and restart of the copy.

    Attributes
    ----------
    leader : Connection or None
        None until it is known and after each error.
    leader_epoch : int
        -1 if the leader does not say.
    high_watermark : int
        The leader's, -1 before its first answer.
    copied_bytes, copied_batches, truncations : int
        Since the start.
    caught_up : bool
        Whether the last answer left nothing to copy.

    Notes
    -----
    Offsets, timestamps, epochs and bytes are the leader's. The follower fetches as a read_uncommitted consumer, so up
    to the high watermark: it copies what all in-sync replicas have. Segments begin where the leader's do, whatever rule
    it rolls by, if it serves ListOffsets 0 (up to Kafka 3.9); else they roll by the copy's settings.

    Source: AbstractFetcherThread, ReplicaFetcherThread, Partition.appendRecordsToFollowerOrFutureReplica (3.9).
    """

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
        self._topic_id = ZERO_UUID
        self._may_differ = True  # from the leader, below the end of the copy

    def __repr__(self) -> str:
        return f"{self.topic}-{self.partition}"

    # --- the leader -------------------------------------------------------------------------------

    def find_leader(self, topic: TopicMetadata) -> None:
        """Use the leader that Metadata names. Before the next fetch, the copy is compared with it.

        Raises
        ------
        ApiError
            The partition has no leader or does not exist.
        InvalidRequestError
            The topic with this name is another one.
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
                "topic was deleted and created again, or it belongs to another cluster"
            )
        return topic_id

    def lose_leader(self) -> None:
        """Forget the leader; it is looked up again first."""
        self.leader = None
        self.caught_up = False

    def _known_leader(self) -> Connection:
        if self.leader is None:
            raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, f"{self}: the leader is not known")
        return self.leader

    # --- truncation -------------------------------------------------------------------------------

    def truncate_if_needed(self) -> None:
        """Truncate what the leader does not have: by leader epochs, or by comparing records if epochs do not decide.

        Raises
        ------
        ApiError, InvalidRequestError
            The leader refuses, or its answer is impossible.
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
                self._tell(f"{self}: the leader does not know epoch {asked}; comparing records")
                by_epochs = False
                break
            self._truncate(cut.offset, f"epoch {answer[0]} of the leader ends at {answer[1]}")
            if cut.completed:
                break
        if not by_epochs:
            self._compare()
        self._may_differ = False

    def _compare(self) -> None:
        """Truncate to the last equal record. Kafka 0.10 has no request for epochs; its replicas truncate to the high
        watermark, and the copy ends below it."""
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
        """Truncate to an offset. A batch that contains it is removed whole, and the copy continues at its beginning."""
        log = self.log
        end = log.log_end_offset
        if offset >= end:
            return
        log.truncate_to(offset)
        last = max(log.segments[-1].next_offset(), log.log_start_offset)
        if last < log.log_end_offset:
            log.truncate_to(last)
        self.truncations += 1
        self._tell(f"{self}: {why}: truncated from {end} to {log.log_end_offset}")

    def _out_of_range(self) -> None:
        """The leader does not have the next offset: truncate or restart the copy."""
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
                self._tell(
                    f"{self}: the leader begins at {start}, after the end of the copy: restarting the copy there"
                )
                self.truncations += 1
            log.truncate_fully_and_start_at(start)

    # --- fetching ---------------------------------------------------------------------------------

    def wanted(self) -> FetchPartition:
        """The next fetch."""
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

    # --- appending --------------------------------------------------------------------------------

    def take(self, answer: dict[str, Any]) -> int:
        """Append the leader's answer to ``wanted``.

        Returns
        -------
        int
            The bytes that were appended.

        Raises
        ------
        ApiError
            The leader refuses.
        CorruptRecordError, InvalidOffsetError, RecordTooLargeError
            The records are damaged or do not follow the log end offset; none is appended.
        """
        code = answer["error_code"]
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._out_of_range()
            return 0
        if code:
            raise error_of(code, f"Fetch of {self} at offset {self.log.log_end_offset}")
        diverging = answer.get("diverging_epoch")
        if diverging and diverging["end_offset"] >= 0:
            self._may_differ = True
            return 0
        records = memoryview(answer["records"] or b"")
        appended = self._append(records) if len(records) else 0
        self._follow_offsets(answer["high_watermark"], answer["log_start_offset"])
        self.caught_up = self.log.log_end_offset >= self.high_watermark
        return appended

    def _follow_offsets(self, high_watermark: int, log_start_offset: int) -> None:
        log = self.log
        self.high_watermark = high_watermark
        mark = min(high_watermark, log.log_end_offset)
        if mark != log.high_watermark:
            log.advance_high_watermark(mark)
        start = min(log_start_offset, log.high_watermark)
        if start > log.log_start_offset and log.behaviour.moves_log_start:
            log.advance_log_start_offset(start)

    def _append(self, records: memoryview) -> int:
        records = self._from_the_end(records)
        if not len(records):
            return 0
        epoch = self.leader_epoch if self.leader_epoch >= 0 else None
        log = self.log
        done = validate_follower(
            records,
            end_offset=log.log_end_offset,
            config=log.config,
            behaviour=log.behaviour,
            leader_epoch=epoch,
        )
        if not done.entries:
            if len(Entries(records, until_damage=True)):
                message = f"{self}: found batches of a later leader epoch than {epoch}"
                raise ApiError(ErrorCode.UNKNOWN_LEADER_EPOCH, message)
            self._want_more(len(records))
            return 0
        bases = self._leaders_segments(done.last_offset)
        taken = memoryview(done.records)
        for entry in Entries(taken):
            number = bisect_right(bases, entry.last_offset) - 1
            one = taken[entry.position : entry.end]
            log.append_as_follower(one, segment_base=bases[number] if number >= 0 else None)
            self.copied_batches += 1
        self.copied_bytes += len(done.records)
        return len(done.records)

    def _from_the_end(self, records: memoryview) -> memoryview:
        """The entries that the copy lacks. If one contains the copy's end, the copy is truncated to its beginning."""
        log, position = self.log, 0
        for entry in Entries(records, until_damage=True):
            end = log.log_end_offset
            if entry.last_offset < end:
                position = entry.end
                continue
            base = entry.last_offset if entry.base_offset < 0 else entry.base_offset  # a wrapper has only its last one
            if base < end:
                if end == log.log_start_offset:  # a log start offset inside a batch
                    log.truncate_fully_and_start_at(base)
                else:
                    self._truncate(base, f"the leader's batch at {base} holds the copy's end")
                if log.log_end_offset != base:
                    self._may_differ = True
                    return records[:0]
            break
        return records[position:]

    def _want_more(self, found: int) -> None:
        """Fetch 0 to 2 cut the first entry: double the fetch size."""
        most = self._known_leader().max_frame_bytes // 2
        if self.max_bytes >= most:
            message = f"{self}: the entry at offset {self.log.log_end_offset} is larger than {self.max_bytes} bytes"
            raise RecordTooLargeError(message)
        if found < self.max_bytes and self._known_leader().version(ApiKey.FETCH) > 2:
            raise CorruptRecordError(f"{self}: expected a whole entry, found {found} bytes of one")
        self.max_bytes = min(2 * self.max_bytes, most)

    def _leaders_segments(self, last_offset: int) -> list[int]:
        """Base offsets of the leader's segments up to ``last_offset``, ascending; empty without ListOffsets 0."""
        leader = self._known_leader()
        if not leader.serves(ApiKey.LIST_OFFSETS, 0):
            return []
        found = self._client.old_style_offsets(leader, self.topic, self.partition, LATEST, INT32_MAX)
        return sorted(each for each in found if each <= last_offset)
