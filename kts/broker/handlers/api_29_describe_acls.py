"""DescribeAcls (key 29), versions 0 to 3.

Refuses, since there is no authorizer.

Versions::

    1: pattern types (KIP-290)
    2: flexible
    3: users as resources (KIP-373)

Source: AclApis, DescribeAclsRequest (3.9).
"""

from __future__ import annotations

from kts.broker.authorizer import REFUSED, check_known
from kts.broker.broker import Broker
from kts.broker.request import Body, Request


async def handle(_: Broker, request: Request) -> Body:
    check_known(request, [request.body])
    return {**REFUSED, "resources": []}
