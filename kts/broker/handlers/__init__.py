"""One handler for each API; ``handle`` finds the one for a request."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from kts.broker.broker import Broker, Handler
from kts.broker.codes import ApiKey
from kts.broker.handlers import (
    acls,
    cluster,
    configs,
    fetch,
    groups,
    offsets,
    produce,
    producers,
    replicas,
    topics,
)
from kts.broker.request import Request
from kts.broker.wire import PRIVATE_FROM
from kts.errors import UnsupportedVersionError

HANDLERS: dict[int, Handler] = {
    **acls.HANDLERS,
    **cluster.HANDLERS,
    **configs.HANDLERS,
    **fetch.HANDLERS,
    **groups.HANDLERS,
    **offsets.HANDLERS,
    **produce.HANDLERS,
    **producers.HANDLERS,
    **replicas.HANDLERS,
    **topics.HANDLERS,
}


def handle(broker: Broker, request: Request) -> Coroutine[Any, Any, dict[str, Any] | None]:
    """Answer a request: the body of the response, or None if the client wants none.

    Raises
    ------
    ConnectionClose
        The connection has to be closed.
    KtsError
        The whole request is refused.
    """
    if request.version >= PRIVATE_FROM:
        return broker.private.handle(request)
    handler = HANDLERS.get(request.api_key)
    if handler is None:
        raise UnsupportedVersionError(f"expected an API that is served, found {ApiKey(request.api_key).name}")
    return handler(broker, request)
