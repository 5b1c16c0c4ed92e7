"""What answers each API: ``HANDLERS``, put together from the small tables of the modules here."""

from __future__ import annotations

from kts.broker.handlers import cluster, configs, fetch, group_offsets, groups, offsets, produce, producer_ids, topics
from kts.broker.handlers.types import Handler

HANDLERS: dict[int, Handler] = {
    **cluster.HANDLERS,
    **configs.HANDLERS,
    **fetch.HANDLERS,
    **group_offsets.HANDLERS,
    **groups.HANDLERS,
    **offsets.HANDLERS,
    **produce.HANDLERS,
    **producer_ids.HANDLERS,
    **topics.HANDLERS,
}
