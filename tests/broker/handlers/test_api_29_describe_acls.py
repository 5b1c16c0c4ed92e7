"""DescribeAcls: there are none, and a question about unknown ones is not answered."""

from __future__ import annotations

import pytest
from support.broker.asking import Asking

from kts.broker.codes import ErrorCode
from kts.broker.request import ConnectionClose
from kts.broker.wire.messages import ApiKey


@pytest.mark.parametrize("field", ["pattern_type_filter", "resource_type_filter", "operation", "permission_type"])
def test_a_question_about_unknown_acls_closes_the_connection_as_kafka_does(asking: Asking, field: str) -> None:
    known = {"resource_type_filter": 2, "pattern_type_filter": 3, "operation": 3, "permission_type": 3}
    known |= {"resource_name_filter": None, "principal_filter": None, "host_filter": None}
    for version in range(4):
        body = {**known, field: 0}
        if version == 0 and field == "pattern_type_filter":
            assert asking.ask(ApiKey.DESCRIBE_ACLS, version, body)["error_code"] == ErrorCode.SECURITY_DISABLED
            continue
        with pytest.raises(ConnectionClose, match=field):
            asking.ask(ApiKey.DESCRIBE_ACLS, version, body)
