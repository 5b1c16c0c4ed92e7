"""ListTransactions (key 66), versions 0 to 2.

Lists no transactions, and the filter states that do not exist.

Versions::

    1: a filter by duration (KIP-994), without effect
    2: a filter by name (KIP-1152), without effect

Source: KafkaApis, TransactionCoordinator.handleListTransactions (3.9); KIP-664.
"""

from __future__ import annotations

from kts.broker.broker import Broker
from kts.broker.request import Body, Request

# The states of a transaction.
STATES = frozenset(
    "Empty Ongoing PrepareCommit PrepareAbort CompleteCommit CompleteAbort Dead PrepareEpochFence".split()
)


async def handle(_: Broker, request: Request) -> Body:
    unknown = dict.fromkeys(state for state in request.body["state_filters"] if state not in STATES)
    return {"error_code": 0, "unknown_state_filters": list(unknown), "transaction_states": []}
