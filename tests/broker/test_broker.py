"""The state of a broker: the address that it tells its clients, and what is left when it cannot start."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.clients.raw_client import RawClient

import kts
from kts.broker.broker import Broker
from kts.broker.wire.messages import ApiKey
from kts.server.server import ServerThread


def test_a_name_that_it_listens_on_is_the_name_that_clients_are_told(tmp_path: Path) -> None:
    for number, (host, reached) in enumerate(
        [("localhost", "127.0.0.1"), ("127.0.0.2", "127.0.0.2"), ("0.0.0.0", "127.0.0.3")]
    ):
        with Broker(tmp_path / str(number)) as broker, ServerThread(broker, host, insecure=True) as server:
            port = server.address[1]
            with RawClient((reached, port)) as client:
                [node] = client.ask(ApiKey.METADATA, 1, {"topics": []})["brokers"]
                coordinator = client.ask(ApiKey.FIND_COORDINATOR, 0, {"key": "g"})
        told = reached if host == "0.0.0.0" else host
        assert (node["host"], node["port"]) == (coordinator["host"], coordinator["port"]) == (told, port)


def test_a_directory_whose_broker_could_not_start_is_given_back(tmp_path: Path) -> None:
    def no_time() -> int:
        raise RuntimeError("no time")

    with Broker(tmp_path) as broker:
        partition = broker.coordinator.journal.make_topic().partitions[0]
        partition.append(kts.encode({"timestamp": [1], "key": [b"k"], "value": [b"v"]}))
    with pytest.raises(RuntimeError, match="no time"):  # when it reads the groups
        Broker(tmp_path, clock=no_time)
    Broker(tmp_path).close()
