"""Fetch (key 1), versions 0 to 18; a broker of 0.10.2 lists 0 to 3.

Reads records of partitions as they are stored, or down-converted for old clients; waits for more (long poll).

Versions::

    0: records of magic 0; others are down-converted; limits are hard and may cut the first entry
    1: throttle time, always 0
    2: records of magic 1 (KIP-32)
    3: a limit for the whole answer; the first entry is whole, however large (KIP-74)
    4: records of magic 2; isolation level, last stable offset, aborted transactions (KIP-98)
    5: log start offset (KIP-107)
    6: KAFKA_STORAGE_ERROR, which earlier versions get as NOT_LEADER_OR_FOLLOWER (KIP-112)
    7: fetch sessions (KIP-227)
    8, 14: as before
    9: current leader epoch, by which clients are fenced (KIP-320)
    10: zstd, which earlier versions get as UNSUPPORTED_COMPRESSION_TYPE (KIP-110)
    11: rack id and preferred read replica (KIP-392), without effect
    12: flexible; last fetched epoch, and where the client's log diverges (KIP-595)
    13: topic ids instead of names (KIP-516)
    15: the replica id in a tagged field (KIP-903)
    16: the current leader and its endpoint for clients that are fenced (KIP-951)
    17: the replica's directory id (KIP-853), without effect
    18: the replica's high watermark (KIP-1166), without effect

There are no fetch sessions: session 0 in the answer tells the client to continue without one, and an incremental fetch
is refused, so that the client starts again.

Source: KafkaApis.handleFetchRequest, ReplicaManager.fetchMessages, DelayedFetch (3.9).
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from kts.broker.broker import Broker
from kts.broker.codes import ErrorCode
from kts.broker.downconversion import DownConverted, down_convert, needs_conversion, newest_magic
from kts.broker.fetching import FetchParams, PartitionFetch, ReadResult, read_partitions
from kts.broker.leaders import find_topic
from kts.broker.metrics import FETCH
from kts.broker.purgatory import Watch
from kts.broker.request import Body, Request
from kts.broker.threads import TimeSlice, in_thread, opened
from kts.codec.layout import HEADER_BYTES, read_header
from kts.compression import CODECS
from kts.errors import KtsError
from kts.segment.magics import UNREAD
from kts.store.local import FileRange

logger = logging.getLogger(__name__)

INITIAL_EPOCH, FINAL_EPOCH = 0, -1  # of a fetch session: a full fetch
READ_BYTES = 1 << 24  # of one request that may need down-conversion
TOPIC_IDS_FROM, STORAGE_ERROR_FROM, ENDPOINTS_FROM = 13, 6, 16
CODEC_FROM = {codec.name: codec.fetch for codec in CODECS}


async def handle(broker: Broker, request: Request) -> Body | None:
    body, version = request.body, request.version
    if body["session_epoch"] not in (INITIAL_EPOCH, FINAL_EPOCH):
        return {"error_code": ErrorCode.FETCH_SESSION_ID_NOT_FOUND, "session_id": 0, "responses": []}
    replica_id = body["replica_state"]["replica_id"] if version >= 15 else body["replica_id"]
    max_bytes = min(body["max_bytes"], broker.config.fetch_max_bytes)
    read_committed, magic = body["isolation_level"] == 1, newest_magic(version)
    params = FetchParams(replica_id, max_bytes, version <= 2, read_committed, magic)
    wanted = await _wanted_once(broker, request)
    found = await _read_or_wait(broker, params, wanted, body["max_wait_ms"], min(body["min_bytes"], max_bytes))
    found = await _fit_version(broker, wanted, found, version, replica_id)
    return await _response(broker, request, wanted, found)


async def _wanted_once(broker: Broker, request: Request) -> list[PartitionFetch]:
    """The partitions of a request. Of duplicates only the last counts, as in Kafka."""
    by_id, time_slice = request.version >= TOPIC_IDS_FROM, TimeSlice()
    found: dict[tuple[Any, int], PartitionFetch] = {}
    for topic in request.body["topics"]:
        name = topic["topic_id"] if by_id else topic["topic"]
        for one in topic["partitions"]:
            await time_slice.give_way()
            found[name, one["partition"]] = _wanted(broker, topic, one, by_id)
    return list(found.values())


def _wanted(broker: Broker, topic: Body, body: Body, by_id: bool) -> PartitionFetch:
    known, error = find_topic(broker.topics, topic, by_id, "topic")
    if known is None:
        return PartitionFetch(None, topic, body, error)
    partition = known.partitions.get(body["partition"])
    if partition is None:
        return PartitionFetch(None, topic, body, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return PartitionFetch(partition, topic, body)


# --- waiting --------------------------------------------------------------------------------------


async def _read_or_wait(
    broker: Broker, params: FetchParams, wanted: list[PartitionFetch], max_wait_ms: int, min_bytes: int
) -> list[ReadResult]:
    """Read until there are ``min_bytes`` or an error, or ``max_wait_ms`` has passed."""
    partitions = [one.partition for one in wanted if one.partition is not None]
    await opened(partitions)
    if max_wait_ms <= 0 or not partitions:
        return await read_partitions(broker.topics, params, wanted)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + max_wait_ms / 1000
    with Watch(partitions) as watch:
        while True:
            found = await read_partitions(broker.topics, params, wanted)
            left = deadline - loop.time()
            if _is_enough(found, min_bytes) or left <= 0 or broker.closed:
                return found
            del found  # file ranges hold descriptors
            await watch.wait(left)


def _is_enough(found: list[ReadResult], min_bytes: int) -> bool:
    return any(read.ends_wait for read in found) or sum(len(read.records) for read in found) >= min_bytes


# --- what the version can read --------------------------------------------------------------------


async def _fit_version(
    broker: Broker, wanted: list[PartitionFetch], found: list[ReadResult], version: int, replica_id: int
) -> list[ReadResult]:
    """Down-convert records for versions below 4; refuse what a version cannot read."""
    magic, time_slice = newest_magic(version), TimeSlice()
    share = READ_BYTES // max(len(wanted), 1)
    fitted = []
    for one, read in zip(wanted, found, strict=True):
        await time_slice.give_way()
        if read.error == ErrorCode.KAFKA_STORAGE_ERROR and version < STORAGE_ERROR_FROM:
            read = ReadResult(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        elif one.partition is not None and not read.ends_wait:
            config = one.partition.config
            if version < CODEC_FROM.get(config.compression_type, 0):
                read = ReadResult(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, aborted=[])
            elif magic < 2:
                allowed = replica_id >= 0 or config.message_downconversion_enable
                read = await _converted(broker, one, read, magic, allowed, share)
        fitted.append(read)
    return fitted


async def _converted(
    broker: Broker, wanted: PartitionFetch, read: ReadResult, magic: int, allowed: bool, most: int
) -> ReadResult:
    """Down-convert the records if an entry has a newer magic than the client knows."""
    partition = wanted.partition
    if partition is None:
        return read
    if partition.config.magic > magic and not allowed:
        return ReadResult(ErrorCode.UNSUPPORTED_VERSION)
    if not len(read.records):
        return read
    offset, behaviour = wanted.body["fetch_offset"], partition.config.behaviour()
    try:
        if not await _may_need_conversion(read, magic):
            return read
        data = await _beginning(read.records, most)
        if not allowed and await in_thread(needs_conversion, data, magic):
            return ReadResult(ErrorCode.UNSUPPORTED_VERSION)
        done = await in_thread(down_convert, data, magic, offset, behaviour)
    except KtsError as error:
        logger.warning("converting records of %s to magic %d: %s", partition, magic, error)
        return ReadResult(error.code)
    except Exception:  # a failure of one partition does not affect the others
        logger.exception("converting records of %s to magic %d", partition, magic)
        return ReadResult(ErrorCode.UNKNOWN_SERVER_ERROR)
    _count(broker, partition.topic, done)
    return read._replace(records=done.records, stored=None)


async def _may_need_conversion(read: ReadResult, magic: int) -> bool:
    """False if the log knows that no entry has a newer magic."""
    if read.stored is None:
        return True
    segment, lent = read.stored.segment, read.stored.records
    if segment.newest_magic(lent, magic) == UNREAD and lent is read.records:
        await in_thread(segment.read_magics, lent, magic)
    return segment.newest_magic(lent, magic) > magic


async def _beginning(records: bytes | FileRange, most: int) -> bytes:
    """At most ``most`` bytes, but at least the first entry: converted records stay in memory until they are sent."""
    if isinstance(records, bytes):
        return records
    header = read_header(records.read(0, HEADER_BYTES))
    first = 0 if header is None else header.size
    return await in_thread(records.read, 0, min(max(most, first), len(records)))


def _count(broker: Broker, topic: str, done: DownConverted) -> None:
    if done.messages:
        sizes = {"bytes_in": done.bytes_in, "bytes_out": len(done.records)}
        broker.metrics.add(FETCH, topic, messages=done.messages, cpu_ns=done.cpu_ns, **sizes)


# --- the answer -----------------------------------------------------------------------------------


async def _response(broker: Broker, request: Request, wanted: list[PartitionFetch], found: list[ReadResult]) -> Body:
    responses: list[Body] = []
    endpoints: list[Body] = []
    time_slice, last = TimeSlice(), None
    for one, read in zip(wanted, found, strict=True):
        await time_slice.give_way()
        row = _row(one, read)
        if request.version >= ENDPOINTS_FROM and one.partition is not None and _has_new_leader(read):
            row["current_leader"] = {"leader_id": broker.node_id, "leader_epoch": one.partition.leader_epoch}
            host, port = broker.advertised(request)
            endpoints = [{"node_id": broker.node_id, "host": host, "port": port, "rack": None}]
        if one.topic is not last:
            last = one.topic
            responses.append({"topic": last["topic"], "topic_id": last["topic_id"], "partitions": []})
        responses[-1]["partitions"].append(row)
    return {"error_code": 0, "session_id": 0, "responses": responses, "node_endpoints": endpoints}


def _has_new_leader(read: ReadResult) -> bool:
    return read.error in (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER)


def _row(wanted: PartitionFetch, read: ReadResult) -> Body:
    row: Body = {
        "partition_index": wanted.body["partition"],
        "error_code": int(read.error),
        "high_watermark": read.high_watermark,
        "last_stable_offset": read.last_stable_offset,
        "log_start_offset": read.log_start_offset,
        "aborted_transactions": read.aborted if wanted.partition is not None else [],  # Kafka's default is not null
        "records": read.records,
    }
    if read.diverging is not None:
        row["diverging_epoch"] = {"epoch": read.diverging[0], "end_offset": read.diverging[1]}
    return row
