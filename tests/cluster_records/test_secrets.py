"""Which settings are secrets, beside Kafka's own definitions."""

from __future__ import annotations

import pytest
from support.kafka.brokers import FOLDER
from support.kafka.jvm import Jvm

from kts.cluster_records.secrets import BROKER, HIDDEN, SHOWN, is_secret_setting, without_secrets


def test_what_kafka_does_not_know_is_hidden_of_brokers_alone() -> None:
    assert is_secret_setting(BROKER, "ssl.keystore.password")
    assert is_secret_setting(BROKER, "listener.name.internal.ssl.keystore.location")
    assert is_secret_setting(BROKER, "my.plugin.setting")
    assert not is_secret_setting(BROKER, "log.cleaner.threads")
    assert not is_secret_setting(2, "retention.ms")
    assert is_secret_setting(64, "retention.ms")  # of something that is newer
    found = {"resourceType": 4, "resourceName": "", "name": "sasl.jaas.config", "value": "x"}
    assert without_secrets("Config", found)["value"] == HIDDEN
    assert without_secrets("Config", found | {"value": None})["value"] is None
    assert found["value"] == "x"


@pytest.mark.java
@pytest.mark.parametrize("version", ["3.9.2", "4.3.1"])
def test_no_password_of_kafka_is_shown(version: str) -> None:
    java = Jvm(FOLDER / f"broker-{version}.xml", FOLDER / "Definitions.java")
    lines = [line.split("\t") for line in java.run("Definitions").decode().splitlines()]
    passwords = {name for name, kind, *_ in lines if kind == "PASSWORD"}
    assert len(passwords) > 5 and not passwords & SHOWN
    assert all(is_secret_setting(BROKER, name) for name in passwords)
