"""One file for each API, found by its key and name; ``handle`` answers a request by the one of its API."""

from __future__ import annotations

from collections.abc import Coroutine
from importlib import import_module
from typing import Any

from kts.broker.broker import Broker, Handler
from kts.broker.request import Body, Request
from kts.broker.wire import PRIVATE_FROM
from kts.broker.wire.messages import ApiKey
from kts.errors import UnsupportedVersionError


def module_of(api: ApiKey) -> str:
    """The module of an API, whose ``handle`` answers its requests."""
    return f"{__name__}.api_{api:02}_{api.name.lower()}"


HANDLERS: dict[int, Handler] = {api: import_module(module_of(api)).handle for api in ApiKey}


def handle(broker: Broker, request: Request) -> Coroutine[Any, Any, Body | None]:
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
        raise UnsupportedVersionError(f"expected an API that is served, found {request.api_key}")
    return handler(broker, request)
