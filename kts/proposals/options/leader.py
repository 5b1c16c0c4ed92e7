"""The leader of logs of options 1, 2 and 3, as an extension of a broker.

Only followers get option 3's index entries: a consumer's ``time_index`` is always empty.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from kts.arguments import INT32_MAX, INT64_MAX
from kts.errors import InvalidRequestError, KtsError, LogClosedError, NotLeaderError, OffsetOutOfRangeError
from kts.log.epochs import UNDEFINED, LeaderEpochs, end_offset_for, epoch_for
from kts.log.log import Deleted
from kts.model import EARLIEST, LATEST, NO_TIMESTAMP
from kts.proposals.options.log import OptionLog
from kts.proposals.options.messages import walk
from kts.proposals.options.wire import CONSUMER, FETCH, LIST_OFFSETS, PRIVATE_VERSIONS, PRODUCE, Fields, not_served

MOST_BYTES = 16 << 20  # of records in an answer; a client's max_bytes may be any number
MOST_ENTRIES = 4096  # of the time index in an answer

Row = dict[str, Any]


class Led(NamedTuple):
    """A log and its leader epochs, of which this leader's is the last one."""

    log: OptionLog
    epochs: LeaderEpochs


class OptionLeader:
    """Leads partitions: an extension for ``KtsBroker(extensions=[...])``.

    Parameters
    ----------
    logs : iterable of OptionLog
        They stay open when the broker closes.
    leader_epoch : int, optional
        Above all epochs that a log knows, as a controller gives it; None is the next one of each log. Give it if
        another replica may have led meanwhile.

    Raises
    ------
    InvalidRequestError
        The epoch is not new; or two logs are of one partition.

    Notes
    -----
    The leader is the source of truth: a log of option 3 that waited for index entries waits no longer. All that is
    appended can be read, as with ``kts serve``. The topics have no Metadata, and no topic can be created.

    Examples
    --------
    >>> import tempfile
    >>> from kts.broker import wire
    >>> from kts.replica.client import Connection
    >>> from kts.proposals import options
    >>> from kts.testing import KtsBroker
    >>> folder = tempfile.TemporaryDirectory()
    >>> log = options.OptionLog(f"{folder.name}/orders-0", option=3)
    >>> with log, KtsBroker(extensions=[options.OptionLeader([log])]) as broker:
    ...     layouts = wire.private_layouts(options.PRIVATE_VERSIONS)
    ...     with Connection(broker.host, broker.port, private=layouts) as connection:
    ...         _ = options.Producer(connection, option=3).send("orders", [options.ProducerRecord(b"paid", None, 1000)])
    ...         [record] = options.Consumer(connection).fetch("orders", 0)
    >>> record.create_time_ms, record.log_append_time_ms  # option 3 hides LogAppendTime
    (1000, None)
    """

    def __init__(self, logs: Iterable[OptionLog], *, leader_epoch: int | None = None) -> None:
        self._led: dict[tuple[str, int], Led] = {}
        for log in logs:
            key = log.topic, log.partition
            if key in self._led:
                raise InvalidRequestError(
                    f"logs: expected each partition once, found {log.topic}-{log.partition} twice"
                )
            self._led[key] = Led(log, _begun(log, leader_epoch))
        self._answers: dict[int, Callable[[Row, Led, Row], Row]] = {
            PRODUCE: _produce,
            FETCH: _fetch,
            LIST_OFFSETS: _list_offset,
        }

    @property
    def private_versions(self) -> Mapping[tuple[int, int], tuple[Fields, Fields]]:
        """The fields of its requests and responses by API key and version."""
        return PRIVATE_VERSIONS

    def leader_epoch(self, topic: str, partition: int = 0) -> int:
        """The epoch in which this leader leads a partition."""
        return self._led[topic, partition].epochs.latest

    def answer(self, api_key: int, body: Row) -> Row | None:
        """Answer a request, each partition for itself."""
        answer = self._answers[api_key]
        budget = {"left": min(body["max_bytes"], MOST_BYTES), "entries_left": MOST_ENTRIES} if api_key == FETCH else {}
        asked = {**body, **budget}
        topics = []
        for topic in body["topics"]:
            rows = []
            for one in topic["partitions"]:
                try:
                    row = answer(asked, self._of(topic["topic"], one["partition"]), one)
                except KtsError as error:
                    row = {"error_code": error.code, "error_message": error.message}
                rows.append({"partition": one["partition"], "error_code": 0, "records": b"", **row})
            topics.append({"topic": topic["topic"], "partitions": rows})
        return None if api_key == PRODUCE and body["acks"] == 0 else {"topics": topics}

    def run_retention(self) -> list[tuple[str, int, Deleted]]:
        """Roll and delete what is due in each log that is open; what was deleted.

        Raises
        ------
        LogStorageError
            The first failure of a disk. The log closed itself; the others were cared for.
        """
        gone, failures = list[tuple[str, int, Deleted]](), list[KtsError]()
        for log, _ in self._led.values():
            try:
                log.roll_if_due()
                gone += ((log.topic, log.partition, one) for one in log.delete_old_segments())
            except LogClosedError:
                continue
            except KtsError as error:
                failures.append(error)
        if failures:
            raise failures[0]
        return gone

    def _of(self, topic: str, partition: int) -> Led:
        led = self._led.get((topic, partition))
        if led is None or led.log.closed:
            raise not_served(topic, partition)
        return led


def _begun(log: OptionLog, epoch: int | None) -> LeaderEpochs:
    """The epochs of a log with a new one, which is on disk before the leader appends in it."""
    epochs = LeaderEpochs(log.path)
    if epoch is not None and epoch <= epochs.latest:
        raise InvalidRequestError(f"leader_epoch: expected more than {epochs.latest} for {log!r}, found {epoch}")
    start = log.log_end_offset if epochs.entries else log.log_start_offset
    epochs.assign(epochs.latest + 1 if epoch is None else epoch, start)
    log.lead()
    return epochs


# --- Produce, ListOffsets -------------------------------------------------------------------------


def _produce(_: Row, led: Led, one: Row) -> Row:
    done = led.log.append(one["records"])
    hidden = led.log.option == 3
    return {"base_offset": done.first_offset, "log_append_time_ms": NO_TIMESTAMP if hidden else done.append_ms}


def _list_offset(_: Row, led: Led, one: Row) -> Row:
    log, target = led.log, one["timestamp"]
    if target in (EARLIEST, LATEST):
        return {"offset": log.log_start_offset if target == EARLIEST else log.log_end_offset}
    found = log.search(target).found
    if found is None:
        return {}
    hidden = log.option == 3
    return {"offset": found.offset, "timestamp": NO_TIMESTAMP if hidden else found.timestamp_ms}


# --- Fetch ----------------------------------------------------------------------------------------


def _fetch(asked: Row, led: Led, one: Row) -> Row:
    log, offset = led.log, one["fetch_offset"]
    follows = asked["replica_id"] != CONSUMER
    epochs = list(led.epochs.entries)
    row: Row = {
        "high_watermark": log.log_end_offset,
        "log_start_offset": log.log_start_offset,
        "leader_epoch": epochs[-1][0],
    }
    diverging = _diverging(log, epochs, offset, one["last_fetched_epoch"])
    if diverging is not None:
        return {**row, "diverging_epoch": diverging[0], "diverging_end": diverging[1]}
    records, last = b"", offset - 1
    most = min(one["partition_max_bytes"], asked["left"])
    if most > 0:
        records, row["records_epoch"], last = _records(log, epochs, offset, most)
    if follows and log.option == 3:
        last = min(max(last, one["index_last_offset"]), offset + INT32_MAX)
        count = asked["entries_left"]
        entries = log.index_entries(offset - 1, last)
        if len(entries) > count:  # no record without its entries
            last = entries[count].offset - 1
            if len(records):
                records, row["records_epoch"], _ = _records(log, epochs, offset, most, last)
            del entries[count:]
        asked["entries_left"] -= len(entries)
        index = [{"log_append_time": entry.append_ms, "offset": entry.offset - offset} for entry in entries]
        row |= {"time_index": index, "index_last_offset": last}
    asked["left"] -= len(records)
    if most > 0:
        row["segment_base_offset"] = _segment_base(log, offset)
    return {**row, "records": records}


def _diverging(log: OptionLog, epochs: list[tuple[int, int]], offset: int, last_epoch: int) -> tuple[int, int] | None:
    """The epoch and end offset where a follower's log diverges from this one; None if it does not."""
    if last_epoch == UNDEFINED:
        return None
    if last_epoch > epochs[-1][0]:
        raise NotLeaderError(
            f"expected a last fetched epoch up to {epochs[-1][0]}, found {last_epoch}: another one leads"
        )
    epoch, end = end_offset_for(epochs, last_epoch, log.log_end_offset)
    return (epoch, end) if epoch < last_epoch or end < offset else None


def _records(
    log: OptionLog, epochs: list[tuple[int, int]], offset: int, most: int, last: int = INT64_MAX
) -> tuple[bytes, int, int]:
    """Whole messages of one epoch and of one segment between two offsets, their epoch, and their last offset."""
    data = log.read(offset, most)
    found = walk(data, option=log.option)
    following = next((start for _, start in epochs if start > offset), log.log_end_offset)
    count = int(np.searchsorted(found.last_offset, min(following - 1, last), "right"))
    if not count:
        return b"", UNDEFINED, offset - 1
    end = int(found.position[count - 1] + found.size[count - 1])
    return data[:end], epoch_for(epochs, offset), int(found.last_offset[count - 1])


def _segment_base(log: OptionLog, offset: int) -> int:
    """The base offset of the segment that has, or will have, the message at an offset.

    Asked after the records and index entries were read: if retention took the segment meanwhile, they may be a part.
    """
    bases = [segment.base_offset for segment in log.segments if segment.base_offset <= offset]
    if not bases:
        raise OffsetOutOfRangeError(f"expected an offset from {log.log_start_offset} on, found {offset}", offset=offset)
    return bases[-1]
