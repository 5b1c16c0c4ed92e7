"""IncrementalAlterConfigs, in every version. Codes and texts are those of a 3.9 controller."""

from __future__ import annotations

import pytest
from support.broker.asking import versions
from support.broker.broker_asking import Asked
from support.broker.config_asking import BROKER, altered, resource

from kts.broker.wire.messages import ApiKey

SET, DELETE, APPEND, SUBTRACT = range(4)


@pytest.mark.parametrize("version", versions(ApiKey.INCREMENTAL_ALTER_CONFIGS))
def test_single_settings_are_set_deleted_appended_to_and_subtracted_from(ask: Asked, version: int) -> None:
    ask.topics.create("t", 1, {"segment.bytes": "500", "retention.ms": "9"})
    api, topic = ApiKey.INCREMENTAL_ALTER_CONFIGS, ask.topics.get("t")
    assert topic is not None
    first = resource(
        "t", ("segment.bytes", DELETE, None), ("flush.ms", SET, "5"), ("cleanup.policy", APPEND, "compact")
    )
    assert altered(ask, api, version, first, validate_only=True) == [0]
    assert topic.configs == {"segment.bytes": "500", "retention.ms": "9"}
    assert altered(ask, api, version, first) == [0]
    assert topic.configs == {"retention.ms": "9", "flush.ms": "5", "cleanup.policy": "delete,compact"}
    assert altered(ask, api, version, resource("t", ("cleanup.policy", SUBTRACT, "delete,none"))) == [0]
    assert topic.config.cleanup_policy == "compact"
    refused = [
        resource("t", ("flush.ms", APPEND, "6")),
        resource("t", ("flush.ms", 9, "6")),
        resource("t", ("flush.ms", SET, None)),
        resource("t", ("flush.ms", SET, "-1")),
        resource("none", ("flush.ms", SET, "1")),
        resource("1", ("log.roll.hours", SET, "1"), kind=BROKER),
    ]
    assert [altered(ask, api, version, one)[0] for one in refused] == [40, 42, 42, 40, 3, 42]
    both = [resource("", ("log.flush.interval.messages", SET, "8"), kind=BROKER)]
    both.append(resource("1", ("log.flush.interval.messages", SET, "7"), kind=BROKER))
    assert altered(ask, api, version, *both) == [0, 0]
    assert topic.config.flush_messages == 7
    assert altered(ask, api, version, resource("1", ("log.flush.interval.messages", DELETE, None), kind=BROKER)) == [0]
    assert topic.config.flush_messages == 8
