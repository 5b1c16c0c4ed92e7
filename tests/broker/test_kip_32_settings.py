"""KIP-32's name of the difference limit at each door of a broker: taken, kept, applied, answered as it was given."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import kts
from kts.broker.codes import ErrorCode
from kts.broker.wire.messages import ApiKey
from kts.cli import main
from kts.errors import InvalidTimestampError, KtsError
from kts.replica.client import Connection
from kts.testing import KtsBroker

T = 1_500_000_000_000
KIP_32, OF_A_BROKER = "max.message.time.difference.ms", "log.max.message.time.difference.ms"
SHIPPED = "message.timestamp.difference.max.ms"
SET, DELETE = 0, 1
TOPIC, BROKER = 2, 4


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[KtsBroker]:
    with KtsBroker(tmp_path, {OF_A_BROKER: 1000}, time=T) as running:
        yield running


def ask(broker: KtsBroker, api: ApiKey, version: int, body: dict[str, Any]) -> dict[str, Any]:
    with Connection(broker.host, broker.port, client_id="test") as connection:
        return connection.ask(api, version, body)


def described(broker: KtsBroker, kind: int, name: str, key: str) -> tuple[Any, ...]:
    asked = {"resource_type": kind, "resource_name": name, "configuration_keys": [key]}
    body = {"resources": [asked], "include_synonyms": True, "include_documentation": True}
    [found] = ask(broker, ApiKey.DESCRIBE_CONFIGS, 4, body)["results"]
    if not found["configs"]:
        return ()
    [entry] = found["configs"]
    assert entry["documentation"].endswith(".")
    return entry["value"], entry["config_source"], entry["synonyms"][0]["name"]


def alter(broker: KtsBroker, kind: int, name: str, *configs: tuple[str, int, str | None]) -> int:
    entries = [{"name": key, "config_operation": how, "value": value} for key, how, value in configs]
    resource = {"resource_type": kind, "resource_name": name, "configs": entries}
    [told] = ask(broker, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource]})["responses"]
    return int(told["error_code"])


def limit(broker: KtsBroker, topic: str) -> int:
    """The difference that the broker accepts, by what it accepts."""
    low, high = 0, 1 << 40
    while low < high:
        middle = (low + high + 1) // 2
        try:
            broker.produce(topic, "v", timestamp_ms=T - middle)
            low = middle
        except InvalidTimestampError:
            high = middle - 1
    return low


def test_topics_take_kip_32s_name_at_creation_and_changes_and_keep_it_over_a_restart(broker: KtsBroker) -> None:
    configs = [{"name": KIP_32, "value": "500"}]
    wanted = {"name": "t", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": configs}
    body = {"topics": [wanted], "timeout_ms": 1000, "validate_only": False}
    [made] = ask(broker, ApiKey.CREATE_TOPICS, 5, body)["topics"]
    assert made["error_code"] == 0
    told = {one["name"]: (one["value"], one["config_source"]) for one in made["configs"]}
    assert told[KIP_32] == told[SHIPPED] == ("500", 1)
    for _ in range(2):
        assert described(broker, TOPIC, "t", KIP_32) == ("500", 1, KIP_32)
        assert described(broker, TOPIC, "t", SHIPPED) == ("500", 1, KIP_32)
        assert limit(broker, "t") == 500
        broker.restart()
    resource = {"resource_type": TOPIC, "resource_name": "t", "configs": [{"name": KIP_32, "value": "600"}]}
    [told_of] = ask(broker, ApiKey.ALTER_CONFIGS, 1, {"resources": [resource]})["responses"]
    assert (told_of["error_code"], limit(broker, "t")) == (0, 600)
    assert alter(broker, TOPIC, "t", (KIP_32, SET, "700")) == 0
    assert (described(broker, TOPIC, "t", KIP_32), limit(broker, "t")) == (("700", 1, KIP_32), 700)
    assert alter(broker, TOPIC, "t", (SHIPPED, SET, "800")) == 0  # the later one replaces the other
    assert described(broker, TOPIC, "t", KIP_32) == ()
    assert (described(broker, TOPIC, "t", SHIPPED), limit(broker, "t")) == (("800", 1, SHIPPED), 800)
    assert alter(broker, TOPIC, "t", (SHIPPED, DELETE, None)) == 0
    assert (described(broker, TOPIC, "t", SHIPPED), limit(broker, "t")) == (("1000", 4, OF_A_BROKER), 1000)
    broker.alter_topic("t", {SHIPPED: 1})
    broker.alter_topic("t", {KIP_32: 2})
    assert limit(broker, "t") == 2
    assert alter(broker, TOPIC, "t", (SHIPPED, SET, "3"), (KIP_32, SET, "4")) == ErrorCode.INVALID_CONFIG
    assert alter(broker, TOPIC, "t", (KIP_32, SET, "4"), (SHIPPED, SET, "3")) == ErrorCode.INVALID_CONFIG
    with pytest.raises(KtsError, match=f"{SHIPPED} and {KIP_32}: expected one value"):
        broker.alter_topic("t", {KIP_32: 4, SHIPPED: 3})
    assert limit(broker, "t") == 2
    assert alter(broker, TOPIC, "t", (KIP_32, SET, "4"), (SHIPPED, SET, "4")) == 0
    assert limit(broker, "t") == 4
    bad = [(KIP_32, "-1"), (OF_A_BROKER, "1")]
    assert [alter(broker, TOPIC, "t", (name, SET, value)) for name, value in bad] == [ErrorCode.INVALID_CONFIG] * 2


def test_settings_that_make_segments_of_one_message_are_warned_of_once(
    broker: KtsBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """KIP-33: "set max.message.time.difference.ms appropriately together with log.roll.ms"."""

    def told() -> list[str]:
        found = [record.getMessage() for record in caplog.records]
        caplog.clear()
        return found

    hasty = "segment.ms 1999 with message.timestamp.difference.max.ms 1000 may give messages a segment of their own"
    broker.create_topic("fine", config={"segment.ms": 2000})
    assert told() == []
    broker.broker.topics.create("t", configs={"segment.ms": "1999"}, validate_only=True)
    assert told() == []
    broker.create_topic("t", config={"segment.ms": 1999})
    assert [one.split(", up to")[0] for one in told()] == [f"topic t: {hasty}"]
    assert alter(broker, TOPIC, "t", ("retention.ms", SET, "5")) == 0
    assert told() == []
    assert alter(broker, TOPIC, "fine", ("segment.ms", SET, "1999")) == 0
    assert [one.split(", up to")[0] for one in told()] == [f"topic fine: {hasty}"]
    assert alter(broker, TOPIC, "t", (KIP_32, SET, "999")) == alter(broker, TOPIC, "fine", (KIP_32, SET, "999")) == 0
    assert told() == []
    broker.create_topic("default")
    assert alter(broker, BROKER, "", ("log.roll.ms", SET, "9")) == 0
    assert [one.split(" may give")[0] for one in told()] == [
        "topic default: segment.ms 9 with message.timestamp.difference.max.ms 1000"
    ]


@pytest.mark.parametrize("name", [KIP_32, OF_A_BROKER])
def test_a_broker_takes_kip_32s_names_when_it_starts_and_while_it_runs(broker: KtsBroker, name: str) -> None:
    broker.create_topic("t")
    broker.restart({OF_A_BROKER: None, name: "900"})
    assert (described(broker, BROKER, "1", name), limit(broker, "t")) == (("900", 4, name), 900)
    assert alter(broker, BROKER, "", (f"log.{SHIPPED}", SET, "400")) == 0
    assert limit(broker, "t") == 400
    assert alter(broker, BROKER, "1", (name, SET, "300")) == 0
    assert limit(broker, "t") == 300
    broker.restart()
    assert (described(broker, BROKER, "1", name), limit(broker, "t")) == (("300", 2, name), 300)
    assert described(broker, BROKER, "1", f"log.{SHIPPED}") == ("300", 2, name)
    assert alter(broker, BROKER, "1", (name, DELETE, None)) == 0
    assert limit(broker, "t") == 400
    two = ((name, SET, "3"), (f"log.{SHIPPED}", SET, "4"))
    assert alter(broker, BROKER, "1", *two) == ErrorCode.INVALID_REQUEST
    assert limit(broker, "t") == 400
    assert alter(broker, BROKER, "1", (name, SET, "x")) == ErrorCode.INVALID_REQUEST


# --- what shipped ---------------------------------------------------------------------------------

OLD = {"inter.broker.protocol.version": "0.10.2", "log.message.format.version": "0.10.2"}
LIMITED = {"log.message.timestamp.difference.max.ms": "1000"}


@pytest.mark.parametrize("release", [OLD, {}], ids=["0.10.2", "3.9"])
@pytest.mark.parametrize("shipped", [False, True])
def test_each_door_refuses_minus_one_under_a_limit_as_a_log_does(
    release: dict[str, str], shipped: bool, tmp_path: Path
) -> None:
    """0.10.2 counts -1 as a time, which no limit allows; kts and later releases do not. No door takes 42."""
    magic = 1 if release else 2
    sets = {time: kts.encode({"timestamp": [time], "value": [b"v"]}, magic=magic) for time in (-1, 42)}
    given = {name.removeprefix("log."): value for name, value in (release | LIMITED).items() if name.startswith("log.")}
    stored = {}
    with kts.Log(tmp_path / "log-0", given, shipped=shipped, clock=lambda: T) as log:
        for time, one in sets.items():
            with suppress(InvalidTimestampError):
                log.append(one)
            stored[time] = log.log_end_offset > sum(stored.values())
    assert stored == {-1: not (shipped and release), 42: False}

    with KtsBroker(tmp_path / "broker", release | LIMITED | {"shipped": shipped}, time=T) as broker:
        broker.create_topic("t")
        for time, one in sets.items():
            rows = [{"index": 0, "records": one}]
            body = {"acks": -1, "timeout_ms": 1000, "topic_data": [{"name": "t", "partition_data": rows}]}
            [answer] = ask(broker, ApiKey.PRODUCE, 1 + magic, body)["responses"]
            code = ErrorCode.NONE if stored[time] else ErrorCode.INVALID_TIMESTAMP
            assert [each["error_code"] for each in answer["partition_responses"]] == [code]

    settings = [word for name, value in given.items() for word in ("--config", f"{name}={value}")]
    command = ["append", str(tmp_path / "cli-0"), "--create", "--now", str(T), *settings, *["--shipped"] * shipped]
    for time in sets:
        line = json.dumps({"timestamp": time, "hasTimestamp": False, "value": "dg=="})
        assert (CliRunner().invoke(main, command, input=line).exit_code == 0) == stored[time]
