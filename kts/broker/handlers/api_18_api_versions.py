"""ApiVersions (key 18), versions 0 to 4.

Lists the served versions. There are no cluster features.

Versions::

    1: throttle time, always 0
    2, 4: as before
    3: flexible, but for the header of the answer; the client's name and version (KIP-511); features (KIP-584)

A request of a newer version gets an answer of version 0, from ``server.dispatch``.

Source: ApiVersionsRequest, DefaultApiVersionManager (3.9).
"""

from __future__ import annotations

import re

from kts.behaviour import Behaviour
from kts.broker import wire
from kts.broker.broker import Broker
from kts.broker.codes import ErrorCode
from kts.broker.request import Body, Request
from kts.broker.wire.messages import ApiKey

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
# Newest versions of a 0.10.2 broker: clients must not send what its logs cannot store.
_BEFORE_MAGIC_2 = {
    ApiKey.PRODUCE: 2,
    ApiKey.FETCH: 3,
    ApiKey.LIST_OFFSETS: 1,
    ApiKey.INIT_PRODUCER_ID: -1,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: -1,
}


def _api_keys(most: dict[ApiKey, int]) -> list[dict[str, int]]:
    served = [(key, low, min(high, most.get(key, high))) for key, (low, high) in sorted(wire.SERVED.items())]
    return [{"api_key": key, "min_version": low, "max_version": high} for key, low, high in served if high >= low]


API_KEYS = {1: _api_keys(_BEFORE_MAGIC_2), 2: _api_keys({})}  # by the newest message format


async def handle(broker: Broker, request: Request) -> Body:
    if request.version >= 3:
        names = (request.body["client_software_name"], request.body["client_software_version"])
        if not all(map(_SOFTWARE.fullmatch, names)):
            return {"error_code": ErrorCode.INVALID_REQUEST, "api_keys": []}
    return {"error_code": ErrorCode.NONE, "api_keys": API_KEYS[Behaviour.of(broker.config.generation).greatest_magic]}
