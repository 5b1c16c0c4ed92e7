"""DescribeCluster, in every version."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.broker.asking import Asking

from kts.broker import wire
from kts.broker.broker import Broker
from kts.broker.codes import ErrorCode
from kts.broker.wire.messages import ApiKey


@pytest.fixture
def asking(tmp_path: Path) -> Iterator[Asking]:
    with Asking(Broker(tmp_path / "data", {"node.id": 5})) as found:
        yield found


@pytest.mark.parametrize("version", range(wire.versions(ApiKey.DESCRIBE_CLUSTER)[1] + 1))
def test_the_cluster_is_one_broker(asking: Asking, version: int) -> None:
    found = asking.ask(ApiKey.DESCRIBE_CLUSTER, version, {"include_cluster_authorized_operations": True})
    assert (found["error_code"], found["controller_id"]) == (0, 5)
    assert found["cluster_id"] == asking.broker.cluster_id
    assert [each["broker_id"] for each in found["brokers"]] == [5]
    assert found["cluster_authorized_operations"] == 8096


def test_of_controllers_there_is_nothing_to_say(asking: Asking) -> None:
    for endpoint, error in ((2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (7, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)):
        assert asking.ask(ApiKey.DESCRIBE_CLUSTER, 1, {"endpoint_type": endpoint})["error_code"] == error
