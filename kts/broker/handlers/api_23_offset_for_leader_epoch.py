"""OffsetForLeaderEpoch (key 23), versions 0 to 4; a broker of 0.10.2 does not list it.

Gives the end offsets of leader epochs.

Versions::

    1: the epoch that the end offset is of (KIP-279)
    2: current leader epoch, by which clients are fenced (KIP-320); throttle time, always 0
    3: replica id, without effect
    4: flexible

Source: KafkaApis.handleOffsetForLeaderEpochRequest, Partition.lastOffsetForLeaderEpoch (3.9); KIP-101.
"""

from __future__ import annotations

from functools import partial

from kts.broker.broker import Broker
from kts.broker.leaders import answer_of, existing, is_long
from kts.broker.request import Body, Request
from kts.broker.threads import in_thread, opened
from kts.broker.topics.partition import Partition
from kts.broker.wire.messages import ApiKey
from kts.log.epochs import end_offset_for

API = ApiKey.OFFSET_FOR_LEADER_EPOCH


async def handle(broker: Broker, request: Request) -> Body | None:
    topics = request.body["topics"]
    await opened(existing(broker.topics, topics, "topic", "partition"))
    return await in_thread(_end_offsets, broker, request) if is_long(topics) else _end_offsets(broker, request)


def _end_offsets(broker: Broker, request: Request) -> Body:
    answers = []
    for topic in request.body["topics"]:
        rows = []
        for one in topic["partitions"]:
            row = answer_of(broker.topics, topic["topic"], one["partition"], partial(_end_offset, one), API)
            rows.append({"partition": one["partition"], **row})
        answers.append({"topic": topic["topic"], "partitions": rows})
    return {"topics": answers}


def _end_offset(one: Body, partition: Partition) -> Body:
    partition.check_leader_epoch(one["current_leader_epoch"])
    log = partition.log
    epoch, end = end_offset_for(log.leader_epochs, one["leader_epoch"], log.log_end_offset)
    return {"error_code": 0, "leader_epoch": epoch, "end_offset": end}
