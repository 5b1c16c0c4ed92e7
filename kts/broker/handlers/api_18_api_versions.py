"""ApiVersions (key 18), versions 0 to 4.

Lists the versions that the release has, of those that kts serves (``wire.releases``). There are no cluster features.

Versions::

    1: throttle time, always 0
    2, 4: as before
    3: flexible, but for the header of the answer; the client's name and version (KIP-511); features (KIP-584)

A request of a newer version gets an answer of version 0, from ``server.dispatch``.

Source: ApiVersionsRequest, DefaultApiVersionManager (3.9, 4.3).
"""

from __future__ import annotations

import re
from functools import cache

from kts.broker.broker import Broker
from kts.broker.codes import ErrorCode
from kts.broker.request import Body, Request
from kts.broker.wire.releases import offered

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


@cache
def _api_keys(release: str | None) -> list[dict[str, int]]:
    return [
        {"api_key": key, "min_version": one.announced, "max_version": one.versions[-1]}
        for key, one in sorted(offered(release).items())
    ]


async def handle(broker: Broker, request: Request) -> Body:
    if request.version >= 3:
        names = (request.body["client_software_name"], request.body["client_software_version"])
        if not all(map(_SOFTWARE.fullmatch, names)):
            return {"error_code": ErrorCode.INVALID_REQUEST, "api_keys": []}
    return {"error_code": ErrorCode.NONE, "api_keys": _api_keys(broker.config.named_release)}
