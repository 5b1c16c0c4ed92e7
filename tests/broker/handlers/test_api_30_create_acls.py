"""CreateAcls: none is created, and a request for unknown ones is not answered."""

from __future__ import annotations

import pytest
from support.broker.asking import Asking, versions

from kts.broker.codes import ErrorCode
from kts.broker.request import ConnectionClose
from kts.broker.wire.messages import ApiKey

KNOWN = {"resource_type": 2, "resource_pattern_type": 3, "operation": 3, "permission_type": 3}
KNOWN |= {"resource_name": "a", "principal": "User:a", "host": "*"}


@pytest.mark.parametrize("version", versions(ApiKey.CREATE_ACLS))
def test_every_acl_is_refused(asking: Asking, version: int) -> None:
    found = asking.ask(ApiKey.CREATE_ACLS, version, {"creations": [KNOWN, KNOWN]})["results"]
    assert [one["error_code"] for one in found] == [ErrorCode.SECURITY_DISABLED] * 2
    assert all("no authorizer" in one["error_message"] for one in found)


@pytest.mark.parametrize("field", ["resource_pattern_type", "resource_type", "operation", "permission_type"])
def test_an_unknown_acl_closes_the_connection_as_kafka_does(asking: Asking, field: str) -> None:
    for version in versions(ApiKey.CREATE_ACLS)[1:]:
        with pytest.raises(ConnectionClose, match=field):
            asking.ask(ApiKey.CREATE_ACLS, version, {"creations": [KNOWN, {**KNOWN, field: 0}]})
