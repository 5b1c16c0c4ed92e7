"""DeleteGroups (key 42), versions 0 to 2.

Deletes groups without members, and their offsets.

Versions::

    1: as before
    2: flexible

Source: KafkaApis.handleDeleteGroupsRequest, GroupCoordinatorAdapter (3.9); KIP-229.
"""

from __future__ import annotations

from kts.broker.broker import Broker
from kts.broker.request import Body, Request


async def handle(broker: Broker, request: Request) -> Body:
    names = dict.fromkeys(request.body["groups_names"])
    return {"results": [{"group_id": name, "error_code": broker.coordinator.delete_group(name)} for name in names]}
