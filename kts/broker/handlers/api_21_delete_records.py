"""DeleteRecords (key 21), versions 0 to 2.

Advances log start offsets. The checkpoint is written once, before the answer.

Versions::

    1: as before
    2: flexible

Source: KafkaApis.handleDeleteRecordsRequest, Partition.deleteRecordsOnLeader (3.9); KIP-107.
"""

from __future__ import annotations

from functools import partial

from kts.broker.broker import Broker
from kts.broker.codes import ApiError, ErrorCode
from kts.broker.leaders import answer_of
from kts.broker.request import Body, Request
from kts.broker.threads import in_thread
from kts.broker.topics.partition import Partition
from kts.broker.wire.messages import ApiKey

API = ApiKey.DELETE_RECORDS
HIGH_WATERMARK = -1  # delete up to the high watermark


async def handle(broker: Broker, request: Request) -> Body | None:
    return await in_thread(_delete_records, broker, request)


def _delete_records(broker: Broker, request: Request) -> Body:
    answers = []
    with broker.topics.checkpoints_at_once():
        for topic in request.body["topics"]:
            rows = []
            for one in topic["partitions"]:
                index = one["partition_index"]
                row = answer_of(broker.topics, topic["name"], index, partial(_delete_before, broker, one), API)
                rows.append({"partition_index": index, "low_watermark": -1, **row})
            answers.append({"name": topic["name"], "partitions": rows})
    return {"topics": answers}


def _delete_before(broker: Broker, one: Body, partition: Partition) -> Body:
    log, offset = partition.log, one["offset"]
    if broker.topics.is_internal(partition.topic):
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"expected a topic of the user, found {partition.topic}")
    if not log.config.deletes:
        text = f"expected a cleanup.policy with delete, found {log.config.cleanup_policy}"
        raise ApiError(ErrorCode.POLICY_VIOLATION, text)
    if offset == HIGH_WATERMARK:
        offset = log.high_watermark
    if offset < 0:
        raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, f"expected an offset, found {offset}")
    if log.advance_log_start_offset(offset):
        partition.changed()
    return {"error_code": 0, "low_watermark": log.log_start_offset}
