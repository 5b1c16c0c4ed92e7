"""What answers each API: ``HANDLERS``, put together from the small tables of the modules here."""

from __future__ import annotations

from kts.broker.handlers import (
    acls,
    cluster,
    configs,
    fetch,
    group_offsets,
    groups,
    log_dirs,
    offsets,
    produce,
    producer_ids,
    replicas,
    topics,
    transactions,
)
from kts.broker.handlers.types import Handler

HANDLERS: dict[int, Handler] = {
    **acls.HANDLERS,
    **cluster.HANDLERS,
    **configs.HANDLERS,
    **fetch.HANDLERS,
    **group_offsets.HANDLERS,
    **groups.HANDLERS,
    **log_dirs.HANDLERS,
    **offsets.HANDLERS,
    **produce.HANDLERS,
    **producer_ids.HANDLERS,
    **replicas.HANDLERS,
    **topics.HANDLERS,
    **transactions.HANDLERS,
}
