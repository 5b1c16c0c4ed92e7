"""A replica of a log of option 1, 2 or 3 that follows the leader: truncates, fetches, and takes option 3's index."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

from kts.errors import CorruptRecordError, InvalidRequestError, OffsetOutOfRangeError
from kts.log.epochs import UNDEFINED, LeaderEpochs, end_offset_for, epoch_for
from kts.model import EARLIEST
from kts.proposals.options.append_times import TimeIndexEntry
from kts.proposals.options.log import OptionLog
from kts.proposals.options.wire import FETCH, LIST_OFFSETS, OptionConnection, ask_partition

FETCH_BYTES = 1 << 20  # replica.fetch.max.bytes


class OptionFollower:
    """Follows the leader of a partition.

    Parameters
    ----------
    log : OptionLog
        The copy, of the leader's option and with its settings for segments.
    connection : OptionConnection
        To the leader's broker.
    replica_id : int
        0 or more; -1 is a consumer.
    max_bytes : int
        Of records in one fetch; a single message may exceed it.

    Attributes
    ----------
    truncations : int
        How often the copy was truncated.
    caught_up : bool
        The last fetch reached the leader's end.

    Notes
    -----
    A copy is truncated where its leader epochs diverge from the leader's (KIP-101, KIP-595). In option 3, with each new
    leader epoch it also compares its index, and is truncated where that differs: the leader is the source of truth.
    Index entries that a crash or damage took are fetched from the leader before anything else is appended.
    """

    def __init__(
        self, log: OptionLog, connection: OptionConnection, *, replica_id: int = 1, max_bytes: int = FETCH_BYTES
    ) -> None:
        if replica_id < 0:
            raise ValueError(f"replica_id: expected 0 or more, found {replica_id}")
        self.log = log
        self.truncations = 0
        self.caught_up = False
        self._connection = connection
        self._replica_id, self._max_bytes = replica_id, max_bytes
        log.follow()
        self._epochs = LeaderEpochs(log.path)
        self._epochs.truncate_from_end(log.log_end_offset)  # a crash took their messages
        self._compared = UNDEFINED  # the leader epoch whose index was compared
        if log.log_end_offset > log.log_start_offset and not self._epochs.entries:
            raise InvalidRequestError(
                f"expected the leader epochs of {log!r} in {self._epochs.path}, found none: it cannot be told where it "
                "diverges from the leader; delete the directory to copy it again"
            )

    def __repr__(self) -> str:
        return f"OptionFollower({self.log!r})"

    def catch_up(self) -> int:
        """Fetch until the leader's end is reached; the messages' bytes that were appended.

        Raises
        ------
        KtsError
            As from ``step``.
        """
        self.caught_up = False
        appended = 0
        while not self.caught_up:
            appended += self.step()
        return appended

    def step(self) -> int:
        """Make one fetch, and do what its answer asks for; the messages' bytes that were appended.

        Raises
        ------
        KtsError
            The leader cannot be reached or refuses, or its answer does not fit the copy. Nothing of it was appended.
        """
        log = self.log
        offset, start = log.log_end_offset, log.log_start_offset
        last_epoch = epoch_for(self._epochs.entries, offset - 1) if offset > start else UNDEFINED
        try:
            answer = self._fetch(offset, last_epoch, self._max_bytes)
        except OffsetOutOfRangeError:
            self._start_again()
            return 0
        if answer["diverging_end"] >= 0:
            self._truncate(answer["diverging_epoch"], answer["diverging_end"])
            return 0
        if self._rolled_elsewhere(answer["segment_base_offset"]):
            return 0
        if log.option == 3 and answer["leader_epoch"] != self._compared:
            if self._differs_from(answer):
                return 0
            self._compared = answer["leader_epoch"]
        for gap in log.waits_for_leader:
            log.fill_index(gap, self._leaders_entries(gap.first_offset, gap.last_offset, answer["leader_epoch"]))
        appended = self._append(answer, offset)
        self.caught_up = log.log_end_offset >= answer["high_watermark"]
        return appended

    def _fetch(self, offset: int, last_epoch: int, max_bytes: int, index_last: int = -1) -> dict[str, Any]:
        one = {
            "fetch_offset": offset,
            "last_fetched_epoch": last_epoch,
            "partition_max_bytes": max_bytes,
            "index_last_offset": index_last,
        }
        log, limits = self.log, {"replica_id": self._replica_id, "max_bytes": max_bytes}
        return ask_partition(self._connection, FETCH, log.topic, log.partition, one, **limits)

    # --- where the leader differs -----------------------------------------------------------------

    def _truncate(self, epoch: int, end: int) -> None:
        """Truncate to where the leader's epoch ends in both logs; the next fetch goes on from there."""
        log, before = self.log, (self.log.log_end_offset, len(self._epochs.entries))
        known, mine = end_offset_for(self._epochs.entries, epoch, log.log_end_offset)
        self._truncate_to(min(end, mine) if known != UNDEFINED else end)
        if before == (log.log_end_offset, len(self._epochs.entries)):
            raise InvalidRequestError(f"expected an end of epoch {epoch} before {before[0]}, found {end}")

    def _start_again(self) -> None:
        """The leader does not have the next offset: begin where it begins, if that is after the end of the copy."""
        log = self.log
        one = {"timestamp": EARLIEST}
        start = ask_partition(self._connection, LIST_OFFSETS, log.topic, log.partition, one)["offset"]
        if start <= log.log_end_offset:
            raise OffsetOutOfRangeError(
                f"expected a leader that has offset {log.log_end_offset}, or begins after it, found a start of {start}",
                offset=log.log_end_offset,
            )
        self.truncations += log.log_end_offset > log.log_start_offset
        log.truncate_fully_and_start_at(start)
        self._epochs.clear()

    def _truncate_to(self, offset: int) -> None:
        if offset < self.log.log_end_offset:
            self.log.truncate_to(offset)
            self.truncations += 1
        self._epochs.truncate_from_end(self.log.log_end_offset)

    def _rolled_elsewhere(self, base_offset: int) -> bool:
        """Whether the leader's active segment begins elsewhere; the copy is truncated to fetch from there again."""
        log, active = self.log, self.log.segments[-1]
        if base_offset in (active.base_offset, active.end_offset):
            return False
        if not 0 <= base_offset <= log.log_end_offset:
            raise InvalidRequestError(
                f"expected a segment of 0 to {log.log_end_offset}, found base offset {base_offset}"
            )
        if base_offset > active.base_offset or active.size:
            self._truncate_to(max(base_offset, active.base_offset))
        elif len(log.segments) == 1:
            log.truncate_fully_and_start_at(base_offset)
        else:  # it is empty: go back behind the roll
            self._truncate_to(active.base_offset - 1)
        return True

    def _differs_from(self, answer: dict[str, Any]) -> bool:
        """Compare the index with the leader's; truncate where they differ, to fetch it again."""
        log = self.log
        for segment in log.segments:
            index = segment.append_times
            first, last = max(segment.base_offset, answer["log_start_offset"]), segment.end_offset - 1
            if index is not None and index.gap is not None:
                last = index.gap.first_offset - 1  # the rest comes from the leader
            if index is None or first > last:
                continue
            mine = index.between(first, last)
            theirs = self._leaders_entries(first, last, answer["leader_epoch"])
            if theirs and theirs[-1].offset == log.log_end_offset - 1 and len(theirs) == len(mine) + 1:
                theirs.pop()  # the leader has rolled since: the fetch brings this entry
            for one, other in zip_longest(mine, theirs):
                if one != other:
                    self._truncate_to(min(each.offset for each in (one, other) if each is not None))
                    return True
        return False

    def _leaders_entries(self, first: int, last: int, leader_epoch: int) -> list[TimeIndexEntry]:
        """The leader's index entries for some offsets, both included."""
        found: list[TimeIndexEntry] = []
        at = first
        while at <= last:
            answer = self._fetch(at, UNDEFINED, 0, last)
            reached = answer["index_last_offset"]
            if answer["leader_epoch"] != leader_epoch or reached < at:
                raise InvalidRequestError(
                    f"expected index entries of epoch {leader_epoch} from offset {at} on, found epoch "
                    f"{answer['leader_epoch']} up to {reached}"
                )
            found += [one for one in _entries(answer, at) if at <= one.offset <= last]
            at = reached + 1
        return found

    # --- appending --------------------------------------------------------------------------------

    def _append(self, answer: dict[str, Any], offset: int) -> int:
        log, records = self.log, answer["records"]
        entries = _entries(answer, offset)
        closing = [one for one in entries if one.offset < offset]
        if closing:
            log.append_as_follower(b"", closing)
        if answer["segment_base_offset"] == offset:  # the leader rolled here, whatever made it
            log.roll()
        if not len(records):
            return 0
        epoch = answer["records_epoch"]
        if not max(self._epochs.latest, 0) <= epoch <= answer["leader_epoch"]:
            raise InvalidRequestError(
                f"expected records of epoch {self._epochs.latest} to {answer['leader_epoch']}, found {epoch}"
            )
        self._epochs.assign(epoch, offset)
        log.append_as_follower(records, entries[len(closing) :])
        if log.log_end_offset == offset:
            raise CorruptRecordError(f"expected whole messages from offset {offset} on, found {len(records)} bytes")
        return len(records)


def _entries(answer: dict[str, Any], offset: int) -> Sequence[TimeIndexEntry]:
    """The index entries of an answer, offsets absolute."""
    return [TimeIndexEntry(one["log_append_time"], offset + one["offset"]) for one in answer["time_index"]]
