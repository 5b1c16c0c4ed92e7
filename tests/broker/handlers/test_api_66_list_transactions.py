"""ListTransactions: there is none."""

from __future__ import annotations

import pytest
from support.broker.asking import Asking, versions

from kts.broker.wire.messages import ApiKey


@pytest.mark.parametrize("version", versions(ApiKey.LIST_TRANSACTIONS))
def test_no_transaction_is_listed_and_unknown_states_are_named_once(asking: Asking, version: int) -> None:
    body = {"state_filters": ["Ongoing", "Gone", "Gone", "ongoing"], "producer_id_filters": [7]}
    found = asking.ask(ApiKey.LIST_TRANSACTIONS, version, body)
    assert (found["error_code"], found["transaction_states"]) == (0, [])
    assert found["unknown_state_filters"] == ["Gone", "ongoing"]
