"""Every client may do everything: the authorized operations are all that Kafka has for a resource."""

from __future__ import annotations

import pytest

from kts.broker.authorizer import CLUSTER_OPERATIONS, GROUP_OPERATIONS, TOPIC_OPERATIONS, check_known
from kts.broker.request import ConnectionClose, Request
from kts.broker.wire.messages import ApiKey

# Kafka's AclOperation.
READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE = range(3, 9)
CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE = range(9, 13)


def bits(*operations: int) -> int:
    return sum(1 << one for one in operations)


def test_all_operations_of_a_resource_are_authorized() -> None:
    """As AclEntry.supportedOperations has them."""
    assert bits(READ, WRITE, CREATE, DESCRIBE, DELETE, ALTER, DESCRIBE_CONFIGS, ALTER_CONFIGS) == TOPIC_OPERATIONS
    assert bits(READ, DESCRIBE, DELETE) == GROUP_OPERATIONS
    assert (
        bits(CREATE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE, ALTER, DESCRIBE)
        == CLUSTER_OPERATIONS
    )


def test_pattern_types_count_from_version_1_on() -> None:
    def check(version: int, **fields: int) -> None:
        check_known(Request(ApiKey.DESCRIBE_ACLS, version, None, {}), [fields])

    check(0, pattern_type_filter=0, operation=3)
    for version, field in ((1, "pattern_type_filter"), (0, "operation"), (3, "permission_type")):
        with pytest.raises(ConnectionClose, match=f"DESCRIBE_ACLS: {field}: expected a known one, found 0"):
            check(version, **{field: 0})
