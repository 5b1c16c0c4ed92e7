"""Kafka's names for the numbers in records, beside Kafka's own enums."""

from __future__ import annotations

import pytest
from support.kafka.cluster_play import ask
from support.kafka.jvm import require_java

from kts.cluster_records import names


def test_a_number_without_a_name_is_told() -> None:
    assert names.named(names.RESOURCE_TYPES, 2) == "TOPIC"
    assert names.named(names.RESOURCE_TYPES, 77) == "UNKNOWN(77)"


@pytest.mark.java
def test_the_names_are_kafkas() -> None:
    require_java()
    found = ask("4.3.1", "names")
    for kind, known in (
        ("ConfigResource", names.RESOURCE_TYPES),
        ("ResourceType", names.ACL_RESOURCE_TYPES),
        ("PatternType", names.PATTERN_TYPES),
        ("AclOperation", names.OPERATIONS),
        ("AclPermissionType", names.PERMISSIONS),
        ("ScramMechanism", names.MECHANISMS),
        ("SecurityProtocol", names.SECURITY_PROTOCOLS),
    ):
        told = {int(number): name for number, name in found[kind].items()}
        assert {number: name for number, name in told.items() if name not in ("UNKNOWN", "ANY", "MATCH")} == known
