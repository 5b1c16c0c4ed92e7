"""ListOffsets (key 2), versions 0 to 11; a broker of 0.10.2 lists 0 to 1.

Finds offsets by time, and the ends of partitions.

Versions::

    0: base offsets of segments by the times of their files
    1: one offset and its timestamp (KIP-79)
    2: isolation level (KIP-98); throttle time, always 0
    3, 5: as before
    4: leader epochs, by which clients are fenced (KIP-320)
    6: flexible
    7: -3, the greatest timestamp (KIP-734)
    8: -4, the first local offset, which is the log start offset (KIP-405)
    9: -5, the last tiered offset: there is none (KIP-1005)
    10: a timeout for remote storage (KIP-1075), without effect
    11: -6, the first offset to upload: there is none (KIP-1023)

Source: KafkaApis.handleListOffsetRequest, Partition.fetchOffsetForTimestamp, UnifiedLog (0.10.2, 3.9, 4.3).
"""

from __future__ import annotations

from collections import Counter
from functools import partial

from kts.broker.broker import Broker
from kts.broker.codes import ApiError, ErrorCode
from kts.broker.leaders import answer_of, existing, is_long
from kts.broker.listing import OffsetQuery, check_time, check_time_of_version_0, list_offset, offsets_before
from kts.broker.request import Body, Request
from kts.broker.threads import in_thread, opened
from kts.broker.topics.partition import Partition
from kts.broker.wire.messages import ApiKey
from kts.model import EARLIEST, LATEST

API = ApiKey.LIST_OFFSETS
CONSUMER = -1


async def handle(broker: Broker, request: Request) -> Body | None:
    """Searches may read files, so they use a thread."""
    topics = request.body["topics"]
    await opened(existing(broker.topics, topics, "name", "partition_index"))
    searches = any(one["timestamp"] not in (EARLIEST, LATEST) for topic in topics for one in topic["partitions"])
    if searches or request.version == 0 or is_long(topics):
        return await in_thread(_list_offsets, broker, request)
    return _list_offsets(broker, request)


def _list_offsets(broker: Broker, request: Request) -> Body:
    topics = request.body["topics"]
    seen = Counter((topic["name"], one["partition_index"]) for topic in topics for one in topic["partitions"])
    list_one = _list_v0 if request.version == 0 else _list_one
    repeats = request.version == 0 or broker.config.behaviour.tells_repeated_partitions
    answers = []
    told = set()
    for topic in topics:
        rows = []
        for one in topic["partitions"]:
            index = one["partition_index"]
            if not repeats and (topic["name"], index) in told:
                continue
            told.add((topic["name"], index))
            try:  # Kafka checks this before it looks up the partition
                _check_one(broker, request, topic["name"], one, seen[topic["name"], index])
                row = answer_of(broker.topics, topic["name"], index, partial(list_one, broker, request, one), API)
            except ApiError as error:
                row = {"error_code": error.code}
            rows.append({"partition_index": index, **row})
        answers.append({"name": topic["name"], "partitions": rows})
    return {"topics": answers}


def _check_one(broker: Broker, request: Request, topic: str, one: Body, times: int) -> None:
    if request.version == 0:
        check_time_of_version_0(one["timestamp"])
        return
    if times > 1:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"expected each partition once, found it {times} times")
    if broker.topics.partition(topic, one["partition_index"]) is None:  # a topic may allow negative timestamps
        check_time(one["timestamp"], request.version)


def _list_one(broker: Broker, request: Request, one: Body, partition: Partition) -> Body:
    body = request.body
    consumer = body["replica_id"] == CONSUMER
    query = OffsetQuery(one["timestamp"], request.version, consumer, body["isolation_level"] == 1)
    found = list_offset(partition, query, one["current_leader_epoch"], shipped=broker.config.shipped_search)
    answer = {"timestamp": found.timestamp_ms, "offset": found.offset, "leader_epoch": found.leader_epoch}
    return {"error_code": 0, **answer}


def _list_v0(broker: Broker, request: Request, one: Body, partition: Partition) -> Body:
    consumer = request.body["replica_id"] == CONSUMER
    offsets = offsets_before(partition.log, one["timestamp"], one["max_num_offsets"], broker.clock(), consumer)
    return {"error_code": 0, "old_style_offsets": offsets}
