"""The settings of brokers and topics in each release, as Kafka's classes define and a real broker describes them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from support.broker.broker_asking import Ask, Asked, Body, real
from support.broker.config_asking import BROKER, TOPIC
from support.kafka.brokers import FOLDER, SETTINGS, STEADY
from support.kafka.brokers import Broker as RealBroker
from support.kafka.jvm import Jvm

from kts.behaviour import Behaviour
from kts.broker.broker import Broker
from kts.broker.settings.broker import SETTINGS_OF, BrokerConfig
from kts.broker.settings.inert import CHANGEABLE, inert_settings
from kts.broker.settings.topic import BROKER_NAMES, settings_of
from kts.broker.wire.messages import ApiKey
from kts.config import unknown_names

KAFKAS = {"3.9": "3.9.2", "4.3": "4.3.1"}
GIVEN = {"log.retention.ms": SETTINGS["log.retention.ms"], "log.segment.bytes": 2**20, "log.cleaner.threads": 2}


class Definition(NamedTuple):
    type: str
    default: str
    limits: str


@pytest.fixture(params=KAFKAS)
def defined(request: pytest.FixtureRequest) -> tuple[str, dict[str, Definition]]:
    """A release, and what its classes define, without what is internal."""
    java = Jvm(FOLDER / f"broker-{KAFKAS[request.param]}.xml", FOLDER / "Definitions.java")
    lines = [line.split("\t") for line in java.run("Definitions").decode().splitlines()]
    return request.param, {name: Definition(*rest) for name, *rest, internal in lines if internal == "false"}


def limits_of(one: Definition) -> tuple[float | None, float | None]:
    found = re.fullmatch(r"\[(-?[\d.]+),\.\.\.(?:,(-?[\d.]+))?\]", one.limits)
    least, greatest = found.groups() if found is not None else (None, None)
    return (None if least is None else float(least), None if greatest is None else float(greatest))


def written(one: Definition) -> str | None:
    if one.default == "null" or one.default.startswith("java.lang.Object@"):  # it has to be given
        return None
    if one.type == "LIST":
        return one.default.strip("[]").replace(", ", ",")
    return one.default.removeprefix("class ") if one.type == "CLASS" else one.default


def test_each_setting_without_effect_has_kafkas_type_default_and_limits(
    defined: tuple[str, dict[str, Definition]],
) -> None:
    release, kafkas = defined
    behaviour = Behaviour.of(release)
    inert = inert_settings(behaviour)
    ours = {*SETTINGS_OF[release], *BROKER_NAMES} - unknown_names(behaviour)
    assert {name for name in kafkas if name not in ours and name not in inert} == set()
    for name, setting in inert.items():
        one = kafkas[name]
        found = (setting.type.name, setting.default, setting.least, setting.greatest)
        assert found == (one.type, written(one), *limits_of(one)), name


def test_values_beyond_kafkas_limits_are_refused(defined: tuple[str, dict[str, Definition]]) -> None:
    release, kafkas = defined
    inert = inert_settings(Behaviour.of(release))
    broker_of_topics = {name for name in BROKER_NAMES if BROKER_NAMES[name].name in settings_of(Behaviour.of(release))}
    checked = 0
    for name, one in kafkas.items():
        least, greatest = limits_of(one)
        if name not in inert and name not in SETTINGS_OF[release] and name not in broker_of_topics:
            continue
        if one.type not in ("INT", "LONG", "SHORT"):
            continue
        for wrong in ([int(least) - 1] if least is not None else []) + ([int(greatest) + 1] if greatest else []):
            with pytest.raises(ValueError, match=re.escape(name)):
                BrokerConfig.of({name: wrong, "release": release})
            checked += 1
    assert checked > 120


class Both(NamedTuple):
    """A real broker and ours, both of one release, with a topic `t`."""

    release: str
    theirs: Ask
    ours: Ask


@pytest.fixture(scope="module", params=KAFKAS)
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    folder = tmp_path_factory.mktemp("settings")
    with RealBroker(KAFKAS[request.param], folder, STEADY | GIVEN) as broker:
        broker.start()
        given = dict(line.split("=", 1) for line in broker.properties.read_text(encoding="utf-8").splitlines())
        with (
            real(broker.bootstrap) as connection,
            Broker(folder / "ours", {**given, "release": request.param}) as own,
        ):
            found = Both(request.param, connection.ask, Asked(own))
            configs = [{"name": "flush.ms", "value": "5"}, {"name": "cleanup.policy", "value": "compact,delete"}]
            one = {"name": "t", "num_partitions": 1, "replication_factor": 1, "configs": configs}
            for ask in found[1:]:
                [made] = ask(ApiKey.CREATE_TOPICS, 5, {"topics": [one], "timeout_ms": 30_000})["topics"]
                assert made["error_code"] == 0
            yield found


def described(ask: Ask, kind: int, name: str) -> dict[str, Body]:
    asked = {"resource_type": kind, "resource_name": name, "configuration_keys": None}
    body = {"resources": [asked], "include_synonyms": True, "include_documentation": True}
    return {one["name"]: one for one in ask(ApiKey.DESCRIBE_CONFIGS, 4, body)["results"][0]["configs"]}


OWN = {"cluster.id", "release", "shipped", "shipped.search"}
PLACES = {"log.dirs"}
# What differs by intention, and why.
LISTED = {
    "broker.id": "a KRaft broker gives it the value of node.id",
    "group.initial.rebalance.delay.ms": "a test should not wait for members that do not come",
    "inter.broker.protocol.version": "the release, without the number of its internal version",
    "node.id": "it need not be given",
    "offsets.topic.num.partitions": "one broker needs no more",
    "offsets.topic.replication.factor": "there is one replica",
    "queued.max.request.bytes": "all unfinished requests together have a limit",
}
ELR = "min.insync.replicas"  # which a new cluster of 4.1 or later, with eligible leader replicas, has for all brokers


def differences(theirs: dict[str, Body], ours: dict[str, Body]) -> dict[str, dict[str, tuple[Any, Any]]]:
    """The fields that differ of settings that both have; of the sentences whether there is one."""
    found = {}
    for name in theirs.keys() & ours.keys():
        pairs = {key: (value, ours[name][key]) for key, value in theirs[name].items()}
        pairs["documentation"] = tuple(bool(one) for one in pairs["documentation"])
        if different := {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}:
            found[name] = different
    return found


def test_a_topics_settings_are_described_as_by_a_real_broker_field_by_field(both: Both) -> None:
    theirs, ours = (described(ask, TOPIC, "t") for ask in both[1:])
    assert theirs.keys() == ours.keys()
    found = differences(theirs, ours)
    assert found.pop(ELR, {}).keys() <= {"config_source", "synonyms"}
    assert found == {}


def test_a_brokers_settings_are_described_as_by_a_real_broker_field_by_field(both: Both) -> None:
    theirs, ours = (described(ask, BROKER, "1") for ask in both[1:])
    assert theirs.keys() - ours.keys() == set()
    assert ours.keys() - theirs.keys() == OWN
    found = differences(theirs, ours)
    for name in list(found):
        if found[name].pop("read_only", None) == (False, True):  # a change would have no effect here
            assert name not in CHANGEABLE
        if not found[name] or name in PLACES:
            del found[name]
    assert found.pop(ELR, {}).keys() <= {"config_source", "synonyms"}
    assert {name: one for name, one in found.items() if name not in LISTED} == {}
    assert {name for name in LISTED if name in ours} == found.keys(), "listed for nothing"
