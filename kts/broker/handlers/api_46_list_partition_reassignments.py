"""ListPartitionReassignments (key 46), version 0.

Lists none: a reassignment completes at once.

Source: ControllerApis, ReplicationControlManager (3.9); KIP-455.
"""

from __future__ import annotations

from kts.broker.broker import Broker
from kts.broker.codes import DONE
from kts.broker.request import Body, Request


async def handle(_: Broker, __: Request) -> Body:
    return {**DONE, "topics": []}
