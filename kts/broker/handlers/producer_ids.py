"""InitProducerId: ids for idempotent producers.

Source: KafkaApis.handleInitProducerIdRequest, TransactionCoordinator.handleInitProducerId (3.9); KIP-98, KIP-360.
"""

from __future__ import annotations

import logging
from typing import Any

from kts.broker.broker import Broker, Handler
from kts.broker.codes import ApiKey, ErrorCode
from kts.broker.request import Request
from kts.broker.threads import in_thread
from kts.errors import KtsError

logger = logging.getLogger(__name__)
NONE = -1


async def handle_init_producer_id(broker: Broker, request: Request) -> dict[str, Any] | None:
    """Assign a new id with epoch 0, also to a producer that has one, as Kafka does without transactions.

    Transactions are refused with an error that clients do not retry.
    """
    body = request.body
    if body["transactional_id"] is not None:
        empty = not body["transactional_id"]
        return _refused(ErrorCode.INVALID_REQUEST if empty else ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if (body["producer_id"] == NONE) != (body["producer_epoch"] == NONE):
        return _refused(ErrorCode.INVALID_REQUEST)
    ids = broker.producer_ids
    try:
        producer_id = ids.next() if ids.left else await in_thread(ids.next)
    except KtsError as error:
        logger.warning("cannot assign a producer id: %s", error)
        return _refused(error.code)
    return {"error_code": 0, "producer_id": producer_id, "producer_epoch": 0}


def _refused(error: int) -> dict[str, Any]:
    return {"error_code": int(error), "producer_id": NONE, "producer_epoch": NONE}


HANDLERS: dict[int, Handler] = {ApiKey.INIT_PRODUCER_ID: handle_init_producer_id}
