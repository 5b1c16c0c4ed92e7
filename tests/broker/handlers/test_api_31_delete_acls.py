"""DeleteAcls: there are none, and a request for unknown ones is not answered."""

from __future__ import annotations

import pytest
from support.broker.asking import Asking, versions

from kts.broker.codes import ErrorCode
from kts.broker.request import ConnectionClose
from kts.broker.wire.messages import ApiKey

KNOWN = {"resource_type_filter": 2, "pattern_type_filter": 3, "operation": 3, "permission_type": 3}
KNOWN |= {"resource_name_filter": None, "principal_filter": None, "host_filter": None}


@pytest.mark.parametrize("version", versions(ApiKey.DELETE_ACLS))
def test_every_filter_is_refused(asking: Asking, version: int) -> None:
    found = asking.ask(ApiKey.DELETE_ACLS, version, {"filters": [KNOWN, KNOWN]})["filter_results"]
    assert [(one["error_code"], one["matching_acls"]) for one in found] == [(ErrorCode.SECURITY_DISABLED, [])] * 2


@pytest.mark.parametrize("field", ["pattern_type_filter", "resource_type_filter", "operation", "permission_type"])
def test_a_filter_of_unknown_acls_closes_the_connection_as_kafka_does(asking: Asking, field: str) -> None:
    for version in versions(ApiKey.DELETE_ACLS):
        body = {"filters": [KNOWN, {**KNOWN, field: 0}]}
        if version == 0 and field == "pattern_type_filter":
            codes = [one["error_code"] for one in asking.ask(ApiKey.DELETE_ACLS, version, body)["filter_results"]]
            assert codes == [ErrorCode.SECURITY_DISABLED] * 2
            continue
        with pytest.raises(ConnectionClose, match=field):
            asking.ask(ApiKey.DELETE_ACLS, version, body)
