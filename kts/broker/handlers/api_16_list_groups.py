"""ListGroups (key 16), versions 0 to 5.

Lists the groups. All have the classic type.

Versions::

    1: throttle time, always 0
    2: as before
    3: flexible
    4: states, also as a filter (KIP-518)
    5: types, also as a filter (KIP-848)

Source: KafkaApis.handleListGroupsRequest, GroupCoordinatorAdapter (3.9).
"""

from __future__ import annotations

from kts.broker.broker import Broker
from kts.broker.codes import ErrorCode
from kts.broker.request import Body, Request

CLASSIC = "classic"


async def handle(broker: Broker, request: Request) -> Body:
    types = request.body["types_filter"]
    wanted = not types or CLASSIC in (each.lower() for each in types)
    groups = broker.coordinator.groups(request.body["states_filter"]) if wanted else []
    return {
        "error_code": ErrorCode.NONE,
        "groups": [
            {
                "group_id": group.group_id,
                "protocol_type": group.protocol_type or "",
                "group_state": group.state,
                "group_type": CLASSIC,
            }
            for group in groups
        ],
    }
