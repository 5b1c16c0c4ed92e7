"""FindCoordinator (key 10), versions 0 to 6.

Names this broker for every group, and for transactions, which InitProducerId refuses later.

Versions::

    1: groups or transactions (KIP-98); an error message; throttle time, always 0
    2, 5: as before
    3: flexible
    4: many keys (KIP-699)
    6: share groups (KIP-932): refused

Source: KafkaApis.handleFindCoordinatorRequest (3.9).
"""

from __future__ import annotations

from kts.broker.broker import Broker
from kts.broker.codes import ErrorCode
from kts.broker.request import Body, Request
from kts.errors import KtsError

GROUP, TRANSACTION = 0, 1  # coordinator types


async def handle(broker: Broker, request: Request) -> Body:
    body = request.body
    keys = body["coordinator_keys"] if request.version >= 4 else [body["key"]]
    error, message = _coordinator_error(broker, body["key_type"])
    host, port = ("", -1) if error else broker.advertised(request)
    found = {
        "node_id": -1 if error else broker.node_id,
        "host": host,
        "port": port,
        "error_code": error,
        "error_message": message,
    }
    if request.version >= 4:
        return {"coordinators": [{"key": key} | found for key in keys]}
    return found | {"error_message": message or ErrorCode.NONE.name}


def _coordinator_error(broker: Broker, key_type: int) -> tuple[ErrorCode, str]:
    if key_type == TRANSACTION:
        return ErrorCode.NONE, ""
    if key_type != GROUP:
        return ErrorCode.INVALID_REQUEST, f"expected a coordinator type of {GROUP} or {TRANSACTION}, found {key_type}"
    try:
        broker.coordinator.journal.make_topic()
    except KtsError as error:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error)
    return ErrorCode.NONE, ""
