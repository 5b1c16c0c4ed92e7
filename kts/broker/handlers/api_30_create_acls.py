"""CreateAcls (key 30), versions 0 to 3.

Refuses every element, since there is no authorizer.

Versions::

    1: pattern types (KIP-290)
    2: flexible
    3: users as resources (KIP-373)

Source: AclApis, CreateAclsRequest (3.9).
"""

from __future__ import annotations

from kts.broker.authorizer import REFUSED, check_known
from kts.broker.broker import Broker
from kts.broker.request import Body, Request


async def handle(_: Broker, request: Request) -> Body:
    elements = request.body["creations"]
    check_known(request, elements)
    return {"results": [REFUSED] * len(elements)}
