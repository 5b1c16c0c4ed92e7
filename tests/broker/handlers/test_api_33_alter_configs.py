"""AlterConfigs, in every version. Codes and texts are those of a 3.9 controller."""

from __future__ import annotations

import pytest
from support.broker.asking import versions
from support.broker.broker_asking import Asked
from support.broker.config_asking import BROKER, altered, resource

from kts.broker.wire.messages import ApiKey


@pytest.mark.parametrize("version", versions(ApiKey.ALTER_CONFIGS))
def test_settings_are_replaced_as_a_whole(ask: Asked, version: int) -> None:
    ask.topics.create("t", 1, {"segment.bytes": "500"})
    api = ApiKey.ALTER_CONFIGS
    assert altered(ask, api, version, resource("t", ("retention.ms", "7")), validate_only=True) == [0]
    assert ask.topics.get("t").configs == {"segment.bytes": "500"}  # type: ignore[union-attr]
    found = altered(
        ask,
        api,
        version,
        resource("t", ("retention.ms", "7")),
        resource("none", ("retention.ms", "7")),
        resource("no/name", ("retention.ms", "7")),
        resource("", ("retention.ms", "7")),
        resource("x", ("a", "b"), kind=8),
        resource("1", ("log.segment.bytes", "77"), kind=BROKER),
        resource("2", ("log.segment.bytes", "77"), kind=BROKER),
        resource("", ("node.id", "77"), kind=BROKER),
    )
    assert found == [0, 3, 17, 42, 42, 0, 42, 42]
    topic = ask.topics.get("t")
    assert topic is not None
    assert (topic.configs, topic.config.segment_bytes) == ({"retention.ms": "7"}, 77)
    bad = [resource("t", ("retention.ms", "x")), resource("none", ("retention.ms", "x"))]
    assert altered(ask, api, version, *bad) == [40, 40]
    assert altered(ask, api, version, resource("t", ("retention.ms", None))) == [42]
    assert altered(ask, api, version, resource("t", ("segment.ms", "1"), ("segment.ms", "2"))) == [42]
    assert altered(ask, api, version, resource("t", ("segment.ms", "1")), resource("t", ("segment.ms", "2"))) == [
        42,
        42,
    ]
    assert topic.configs == {"retention.ms": "7"}
