"""InitProducerId (key 22), versions 0 to 6; a broker of 0.10.2 does not list it.

Assigns a new producer id with epoch 0, also to a producer that has one, as Kafka does without transactions.

Versions::

    1, 4, 5: as before
    2: flexible
    3: the producer's id and epoch (KIP-360)
    6: two-phase commit (KIP-939), without effect

Transactions are refused with an error that clients do not retry.

Source: KafkaApis, TransactionCoordinator.handleInitProducerId (3.9); KIP-98.
"""

from __future__ import annotations

import logging

from kts.broker.broker import Broker
from kts.broker.codes import NO_TRANSACTIONS, ErrorCode
from kts.broker.request import Body, Request
from kts.broker.threads import in_thread
from kts.errors import KtsError

logger = logging.getLogger(__name__)

NO_ID = -1


async def handle(broker: Broker, request: Request) -> Body | None:
    body = request.body
    if body["transactional_id"] is not None:
        logger.warning("a producer was refused: %s", NO_TRANSACTIONS)
        empty = not body["transactional_id"]
        return _refused_id(ErrorCode.INVALID_REQUEST if empty else ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if (body["producer_id"] == NO_ID) != (body["producer_epoch"] == NO_ID):
        return _refused_id(ErrorCode.INVALID_REQUEST)
    ids = broker.producer_ids
    try:
        producer_id = ids.next() if ids.left else await in_thread(ids.next)
    except KtsError as error:
        logger.warning("cannot assign a producer id: %s", error)
        return _refused_id(error.code)
    return {"error_code": 0, "producer_id": producer_id, "producer_epoch": 0}


def _refused_id(error: int) -> Body:
    return {"error_code": int(error), "producer_id": NO_ID, "producer_epoch": NO_ID}
