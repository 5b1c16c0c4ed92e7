"""A sentence about each setting."""

from __future__ import annotations

from kts.broker.settings.broker import SETTINGS
from kts.broker.settings.documentation import documentation
from kts.broker.settings.inert import ALL_INERT, CLEANER, EFFECTIVE
from kts.broker.settings.topic import BROKER_NAMES, OWN_SETTINGS, TOPIC_SETTINGS

INTERNAL = {"producer.id.expiration.check.interval.ms"}  # in Kafka too, which tells nobody of it


def test_every_setting_has_a_sentence_and_what_nobody_knows_has_none() -> None:
    every = {*TOPIC_SETTINGS, *OWN_SETTINGS, *BROKER_NAMES, *SETTINGS, *ALL_INERT}
    assert {name for name in every if documentation(name) is None} == INTERNAL
    assert [name for name in every - INTERNAL if not (documentation(name) or "").endswith(".")] == []
    assert documentation("no.such.setting") is None


def test_what_has_no_effect_says_so() -> None:
    for name in ALL_INERT:
        if name not in SETTINGS:
            assert ("has no effect here" in (documentation(name) or "")) == (name not in EFFECTIVE), name
    assert {*EFFECTIVE} - {"log.cleaner.enable"} < CLEANER


def test_a_default_of_topics_has_the_sentence_of_their_setting_and_its_own_unit() -> None:
    own = documentation("retention.ms")
    for name, unit in (("ms", ""), ("minutes", ", in minutes"), ("hours", ", in hours")):
        told = documentation(f"log.retention.{name}")
        assert told == f"The default of topics that do not set retention.ms{unit}. {own}"
