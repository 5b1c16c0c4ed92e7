"""DescribeTransactions (key 65), version 0.

Finds no transaction; an empty name is invalid.

Source: KafkaApis, TransactionCoordinator.handleDescribeTransactions (3.9); KIP-664.
"""

from __future__ import annotations

from kts.broker.broker import Broker
from kts.broker.codes import ErrorCode
from kts.broker.request import Body, Request


async def handle(_: Broker, request: Request) -> Body:
    rows = []
    for name in request.body["transactional_ids"]:
        error = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND if name else ErrorCode.INVALID_REQUEST
        rows.append({"error_code": error, "transactional_id": name})
    return {"transaction_states": rows}
