"""A replica of one partition: it takes what its leader has, batch for batch."""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterator
from typing import Any

from kts.broker.codes import ApiError, ApiKey, ErrorCode
from kts.broker.following.client import LATEST
from kts.broker.following.client_connection import error_of
from kts.broker.following.replica import Replica
from kts.codec.validate import validate_follower
from kts.errors import CorruptRecordError, RecordTooLargeError

_ENTRY = struct.Struct(">qi4xb")  # offset, size, magic
_LAST_OFFSET_DELTA = struct.Struct(">23xi")  # of magic 2
_OVERHEAD_BYTES, _SMALLEST_BYTES = 12, 14
_ALL = 2**31 - 1


class Follower(Replica):
    """The copy of a partition and what it knows of its leader.

    Parameters
    ----------
    log : Log
        The copy; nobody else appends to it.
    client : Client
        To the cluster of the leader.
    topic, partition : optional
        What is copied; by default what the log is called.
    max_bytes : int
        ``replica.fetch.max.bytes``: about so many bytes at a time. An entry that is larger comes whole.
    tell : callable
        Gets a sentence for everything that is not plain copying: what was cut, why the copy begins anew.

    Attributes
    ----------
    leader : Connection or None
        None until it is known, and after each error.
    leader_epoch : int
        -1 where the leader does not tell.
    high_watermark : int
        The leader's, -1 before its first answer.
    copied_bytes, copied_batches, truncations : int
        Since the start.
    caught_up : bool
        The last answer left nothing to copy.

    Notes
    -----
    Offsets, times, epochs and bytes stay the leader's. It fetches as a consumer that reads uncommitted, so up to the
    high watermark: what it has is what the replicas of the leader all have. Segments roll by the log's own settings
    and, where the leader tells where its own begin (ListOffsets 0: up to Kafka 3.9), there too.

    Source: AbstractFetcherThread, ReplicaFetcherThread, Partition.appendRecordsToFollowerOrFutureReplica (3.9).
    """

    def take(self, answer: dict[str, Any]) -> int:
        """Take the leader's answer to ``wanted``.

        Returns
        -------
        int
            Bytes that were appended.

        Raises
        ------
        ApiError
            The leader refuses.
        CorruptRecordError, InvalidOffsetError, RecordTooLargeError
            The records are damaged, or cannot be what comes next: nothing of them is appended.
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
        if start > log.log_start_offset and log.generation != "0.10.2":
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
            generation=log.generation,
            shipped=log.shipped,
            leader_epoch=epoch,
        )
        if not done.entries:
            if whole_entries(records):
                message = f"{self}: found batches of a later leader epoch than {epoch}"
                raise ApiError(ErrorCode.UNKNOWN_LEADER_EPOCH, message)
            self._want_more(len(records))
            return 0
        bases = self._leaders_segments(done.last_offset)
        for entry, last_offset in entries_of(memoryview(done.records)):
            number = bisect_right(bases, last_offset) - 1
            log.append_as_follower(entry, segment_base=bases[number] if number >= 0 else None)
            self.copied_batches += 1
        self.copied_bytes += len(done.records)
        return len(done.records)

    def _from_the_end(self, records: memoryview) -> memoryview:
        """Without entries that the copy has; where one holds the copy's end, the copy gives way to its beginning."""
        log = self.log
        for entry, base, last in _with_base(records):
            end = log.log_end_offset
            if last < end:
                records = records[len(entry) :]
                continue
            if base < end:
                if end == log.log_start_offset:  # a log start offset inside of a batch
                    log.truncate_fully_and_start_at(base)
                else:
                    self._truncate(base, f"the leader's batch at {base} holds the copy's end")
                if log.log_end_offset != base:
                    self._may_differ = True
                    return records[:0]
            break
        return records

    def _want_more(self, found: int) -> None:
        """An answer of Fetch 0 to 2 was cut inside of its first entry."""
        most = self._known_leader().max_frame_bytes // 2
        if self.max_bytes >= most:
            message = f"{self}: the entry at offset {self.log.log_end_offset} is larger than {self.max_bytes} bytes"
            raise RecordTooLargeError(message)
        if found < self.max_bytes and self._known_leader().version(ApiKey.FETCH) > 2:
            raise CorruptRecordError(f"{self}: expected a whole entry, found {found} bytes of one")
        self.max_bytes = min(2 * self.max_bytes, most)

    def _leaders_segments(self, last_offset: int) -> list[int]:
        """Where the leader's segments begin, as far as it tells and the records go; ascending."""
        leader = self._known_leader()
        if not leader.serves(ApiKey.LIST_OFFSETS, 0):
            return []
        found = self._client.old_style_offsets(leader, self.topic, self.partition, LATEST, _ALL)
        return sorted(each for each in found if self.log.log_start_offset < each <= last_offset)


def entries_of(records: memoryview) -> Iterator[tuple[memoryview, int]]:
    """Whole entries, each with its last offset."""
    return ((entry, last) for entry, _, last in _with_base(records))


def whole_entries(records: memoryview) -> bool:
    """Whether there is a whole entry at the beginning."""
    return next(_with_base(records), None) is not None


def _with_base(records: memoryview) -> Iterator[tuple[memoryview, int, int]]:
    """Whole entries with the first offset their header tells, and the last."""
    position, end = 0, len(records)
    while end - position >= _LAST_OFFSET_DELTA.size - 1:  # the smallest message has 26 bytes
        offset, size, magic = _ENTRY.unpack_from(records, position)
        following = position + _OVERHEAD_BYTES + size
        entry = records[position:following]
        if size < _SMALLEST_BYTES or len(entry) < following - position:
            return
        last = offset
        if magic == 2 and len(entry) >= _LAST_OFFSET_DELTA.size:
            last += _LAST_OFFSET_DELTA.unpack_from(entry)[0]
        yield entry, offset, last
        position = following
