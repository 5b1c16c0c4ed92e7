"""DescribeTransactions: there is none."""

from __future__ import annotations

from support.broker.asking import Asking

from kts.broker.codes import ErrorCode
from kts.broker.wire.messages import ApiKey


def test_no_transaction_is_found_and_an_empty_name_is_refused(asking: Asking) -> None:
    found = asking.ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": ["mine", ""]})["transaction_states"]
    assert [(one["transactional_id"], one["error_code"]) for one in found] == [
        ("mine", ErrorCode.TRANSACTIONAL_ID_NOT_FOUND),
        ("", ErrorCode.INVALID_REQUEST),
    ]
