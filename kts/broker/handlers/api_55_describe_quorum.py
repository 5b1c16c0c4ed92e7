"""DescribeQuorum (key 55), versions 0 to 2.

Refuses: this broker has no metadata quorum.

Versions::

    1: times of the replicas (KIP-836)
    2: error messages, and the nodes of the quorum (KIP-853)

Source: KafkaRaftClient.handleDescribeQuorumRequest, DescribeQuorumRequest (3.9); KIP-595.
"""

from __future__ import annotations

from kts.broker.broker import Broker
from kts.broker.codes import ErrorCode
from kts.broker.request import Body, Request
from kts.log.directory import CONTROLLER


async def handle(_: Broker, request: Request) -> Body:
    asked = [
        (one["topic_name"], [each["partition_index"] for each in one["partitions"]]) for one in request.body["topics"]
    ]
    if asked == [(CONTROLLER, [0])]:
        message = "this broker has no metadata quorum; it stores its topics in a file of the log directory"
        return {"error_code": ErrorCode.UNSUPPORTED_VERSION, "error_message": message, "topics": []}
    unknown = {
        "error_code": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "error_message": "only the metadata log has a quorum",
    }
    topics = [
        {"topic_name": name, "partitions": [{"partition_index": index, **unknown} for index in indexes]}
        for name, indexes in asked
    ]
    return {"error_code": ErrorCode.NONE, "error_message": "", "topics": topics}
