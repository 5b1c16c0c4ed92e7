"""The versions of requests that a broker of each release announces, answers, and closes a connection for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.broker.wire_peer import CLOSED, Peer
from support.kafka.brokers import STEADY
from support.kafka.brokers import Broker as RealBroker

from kts.behaviour import GENERATIONS
from kts.broker import wire
from kts.broker.wire.messages import ApiKey
from kts.broker.wire.releases import offered
from kts.testing import KtsBroker

KAFKAS = {"3.9": "3.9.2", "4.3": "4.3.1"}
TELEMETRY = {71, 72}  # GetTelemetrySubscriptions and PushTelemetry (KIP-714), for brokers with a plugin for metrics


def test_a_release_has_no_more_than_kts_serves() -> None:
    every = offered()
    assert {key: (one.versions[0], one.versions[-1]) for key, one in every.items()} == {
        key: wire.versions(key) for key in ApiKey
    }
    for release in GENERATIONS:
        for key, one in offered(release).items():
            assert set(one.versions) <= set(every[key].versions), (release, key)
            assert one.announced <= one.versions[0]


def announced(peer: Peer) -> dict[int, tuple[int, int]]:
    asked = {"client_software_name": "tests", "client_software_version": "1"}
    found = peer.ask(ApiKey.API_VERSIONS, 3, asked)
    assert isinstance(found, dict)
    return {one["api_key"]: (one["min_version"], one["max_version"]) for one in found["api_keys"]}


@pytest.fixture
def ours(request: pytest.FixtureRequest) -> Iterator[Peer]:
    with KtsBroker(release=request.param) as broker, Peer(broker.host, broker.port) as peer:
        broker.create_topic("t")
        yield peer


def requests(key: ApiKey) -> dict[str, Any]:
    """A body that every version of an API takes, if the API is one of those asked below."""
    partition = {"index": 0, "records": b"", "partition_index": 0, "timestamp": -1, "partition_max_bytes": 100}
    partition |= {"partition": 0, "fetch_offset": 0}
    topic = {"name": "t", "topic": "t", "partition_data": [partition], "partitions": [partition]}
    return {"acks": 1, "timeout_ms": 9, "topic_data": [topic], "replica_id": -1, "topics": [topic], "max_wait_ms": 0}


@pytest.mark.parametrize("ours", KAFKAS, indirect=True)
def test_versions_that_a_release_lacks_close_the_connection_and_the_others_are_answered(
    ours: Peer, request: pytest.FixtureRequest
) -> None:
    release = request.node.callspec.params["ours"]
    for key in (ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.LIST_OFFSETS):
        first, last = wire.versions(key)
        for version in range(first, last + 1):
            answer = ours.ask(key, version, requests(key))
            assert (answer == CLOSED) == (version not in offered(release)[key].versions), (key, version)


@pytest.mark.parametrize("ours", ["4.3"], indirect=True)
def test_produce_is_announced_from_0_on_by_4_3_as_an_old_librdkafka_needs_it(ours: Peer) -> None:
    assert announced(ours)[ApiKey.PRODUCE] == (0, 13)


def test_without_a_release_every_version_is_served_and_announced() -> None:
    with KtsBroker() as broker, Peer(broker.host, broker.port) as peer:
        assert announced(peer) == {key: wire.versions(key) for key in ApiKey}


@pytest.mark.parametrize("release", KAFKAS)
def test_a_real_broker_announces_and_closes_as_ours(release: str, tmp_path: Path) -> None:
    """Starts a broker: of the APIs that kts serves, the same versions, and the same end of what is not offered."""
    with RealBroker(KAFKAS[release], tmp_path, STEADY) as broker:
        broker.start()
        host, port = broker.bootstrap.split(":")
        with (
            KtsBroker(release=release) as own,
            Peer(own.host, own.port) as ours,
            Peer(host, port) as theirs,
        ):
            real, mine = announced(theirs), announced(ours)
            assert {key: real[key] for key in mine} == mine
            assert not TELEMETRY & real.keys()
            for key, one in offered(release).items():
                first, last = wire.versions(key)
                for version in set(range(first, last + 1)) - set(one.versions):
                    frame = wire.encode_request(key, version, 0, "tests", {})
                    answers = [peer.ask_raw(key, version, frame) for peer in (theirs, ours)]
                    assert answers == [CLOSED, CLOSED], (key, version)
