"""ACLs: there are none, and who asks for unknown ones is not answered."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.broker.asking import Asking

from kts.broker.broker import Broker
from kts.broker.codes import ApiKey, ErrorCode
from kts.broker.request import ConnectionClose


@pytest.fixture
def asking(tmp_path: Path) -> Iterator[Asking]:
    with Asking(Broker(tmp_path / "data")) as found:
        for name in ("a", "b"):
            found.broker.topics.create(name, 2)
        yield found


@pytest.mark.parametrize("field", ["pattern_type_filter", "resource_type_filter", "operation", "permission_type"])
def test_a_question_about_unknown_acls_closes_the_connection_as_kafka_does(asking: Asking, field: str) -> None:
    known = {"resource_type_filter": 2, "pattern_type_filter": 3, "operation": 3, "permission_type": 3}
    known |= {"resource_name_filter": None, "principal_filter": None, "host_filter": None}
    for version in range(4):
        body = {**known, field: 0}
        if version == 0 and field == "pattern_type_filter":
            assert asking.ask(ApiKey.DESCRIBE_ACLS, version, body)["error_code"] == ErrorCode.SECURITY_DISABLED
            continue
        for api, asked in ((ApiKey.DESCRIBE_ACLS, body), (ApiKey.DELETE_ACLS, {"filters": [known, body]})):
            with pytest.raises(ConnectionClose, match=field):
                asking.ask(api, version, asked)
