"""The tests that every real client has to pass, for a class of tests that names clients and a place."""

from __future__ import annotations

import random

import pytest
from support.clients import client_checks as checks
from support.clients.client_all import CODECS, Clients
from support.clients.client_places import Place, place
from support.clients.client_records import APPEND, CREATE


class ClientSuite:
    """`names` are the clients; `idempotent` those of them with idempotent producers and transactions."""

    names: tuple[str, ...]
    idempotent: tuple[str, ...]
    place = staticmethod(place)

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        if "timestamp_type" in metafunc.fixturenames:
            metafunc.parametrize("timestamp_type", [CREATE, APPEND])
        if "codec" in metafunc.fixturenames:
            pairs = [(name, codec) for name in self.names for codec in CODECS[name]]
            metafunc.parametrize(("name", "codec"), pairs)
        elif "idempotent_name" in metafunc.fixturenames:
            metafunc.parametrize("idempotent_name", self.idempotent)
        elif "name" in metafunc.fixturenames:
            metafunc.parametrize("name", self.names)

    def test_what_a_client_sends_is_stored_and_read_with_its_times(
        self, served: Place, clients: Clients, name: str, codec: str, timestamp_type: str, rng: random.Random
    ) -> None:
        checks.check_codec(served, clients[name], codec, timestamp_type, rng)

    def test_offsets_by_time_and_the_ends_over_segments_before_and_after_a_deletion(
        self, served: Place, clients: Clients, name: str, timestamp_type: str, rng: random.Random
    ) -> None:
        checks.check_times(served, clients[name], timestamp_type, rng)

    def test_two_members_of_a_group_read_each_record_once_and_go_on_where_they_left(
        self, served: Place, clients: Clients, name: str, rng: random.Random
    ) -> None:
        checks.check_group(served, clients[name], rng)

    def test_an_idempotent_producer_whose_answers_get_lost_stores_each_record_once(
        self, served: Place, clients: Clients, idempotent_name: str, timestamp_type: str, rng: random.Random
    ) -> None:
        assert checks.check_cut(served, clients[idempotent_name], timestamp_type, rng)

    def test_a_transaction_begins_or_is_refused_at_once(
        self, served: Place, clients: Clients, idempotent_name: str
    ) -> None:
        checks.check_transaction(served, clients[idempotent_name])
