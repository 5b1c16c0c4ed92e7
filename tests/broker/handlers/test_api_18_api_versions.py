"""ApiVersions, in every version."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.broker.asking import Asking

from kts.broker import wire
from kts.broker.broker import Broker
from kts.broker.codes import ErrorCode
from kts.broker.wire.messages import ApiKey


@pytest.mark.parametrize("version", range(5))
def test_all_served_apis_are_listed_with_their_versions(asking: Asking, version: int) -> None:
    names = {"client_software_name": "kts", "client_software_version": "1.0"}
    found = asking.ask(ApiKey.API_VERSIONS, version, names)
    assert found["error_code"] == 0
    listed = {each["api_key"]: (each["min_version"], each["max_version"]) for each in found["api_keys"]}
    assert listed == {key: wire.versions(key) for key in ApiKey}
    assert list(listed) == sorted(listed)


@pytest.mark.parametrize("name", ["", "-", "a b", "x-", "ü"])
def test_a_client_that_does_not_say_what_it_is_is_refused(asking: Asking, name: str) -> None:
    for names in ((name, "1"), ("kts", name)):
        body = dict(zip(("client_software_name", "client_software_version"), names, strict=True))
        assert asking.ask(ApiKey.API_VERSIONS, 3, body)["error_code"] == ErrorCode.INVALID_REQUEST


def test_a_broker_of_0_10_does_not_offer_what_its_logs_cannot_keep(tmp_path: Path) -> None:
    with Asking(Broker(tmp_path / "data", {"inter.broker.protocol.version": "0.10.2"})) as asking:
        found = asking.ask(ApiKey.API_VERSIONS, 0, {})
    listed = {each["api_key"]: each["max_version"] for each in found["api_keys"]}
    assert (listed[ApiKey.PRODUCE], listed[ApiKey.FETCH], listed[ApiKey.LIST_OFFSETS]) == (2, 3, 1)
    assert ApiKey.INIT_PRODUCER_ID not in listed
