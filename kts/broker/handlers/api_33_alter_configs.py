"""AlterConfigs (key 33), versions 0 to 2.

Replaces all settings of topics, or all dynamic settings of the broker.

Versions::

    1: as before
    2: flexible

Source: ConfigAdminManager, ConfigurationControlManager (3.9); KIP-133.
"""

from __future__ import annotations

from kts.broker.broker import Broker
from kts.broker.request import Body, Request
from kts.broker.resources import alter
from kts.broker.threads import in_thread
from kts.broker.topics import Topics


async def handle(broker: Broker, request: Request) -> Body:
    return {"responses": await in_thread(alter, broker.topics, request.body, _replaced)}


def _replaced(_: Topics, one: Body) -> dict[str, str]:
    return {config["name"]: config["value"] for config in one["configs"]}
