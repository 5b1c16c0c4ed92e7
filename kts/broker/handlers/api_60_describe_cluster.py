"""DescribeCluster (key 60), versions 0 to 2.

Describes the broker, which is its own controller.

Versions::

    1: the brokers or the controllers (KIP-919): there are none of these
    2: fenced brokers (KIP-1073): there are none

Source: AuthHelper.computeDescribeClusterResponse (3.9); KIP-700.
"""

from __future__ import annotations

from kts.broker.authorizer import CLUSTER_OPERATIONS
from kts.broker.broker import Broker
from kts.broker.codes import ErrorCode
from kts.broker.request import Body, Request

BROKERS, CONTROLLERS = 1, 2  # endpoint types


async def handle(broker: Broker, request: Request) -> Body:
    endpoint = request.body["endpoint_type"]
    if endpoint != BROKERS:
        error = ErrorCode.MISMATCHED_ENDPOINT_TYPE if endpoint == CONTROLLERS else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        message = f"expected endpoint type {BROKERS} (brokers), found {endpoint}"
        return {"error_code": error, "error_message": message, "cluster_id": broker.cluster_id, "brokers": []}
    host, port = broker.advertised(request)
    found: Body = {
        "error_code": ErrorCode.NONE,
        "endpoint_type": BROKERS,
        "cluster_id": broker.cluster_id,
        "controller_id": broker.node_id,
        "brokers": [{"broker_id": broker.node_id, "host": host, "port": port}],
    }
    if request.body["include_cluster_authorized_operations"]:
        found["cluster_authorized_operations"] = CLUSTER_OPERATIONS
    return found
