"""Fixtures of the tests of real clients: see tests/support/clients/client_suite.py."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.clients.client_all import Clients
from support.clients.client_places import Place


@pytest.fixture(scope="class")
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """The broker that the class of tests names by `place`."""
    with request.cls.place(tmp_path_factory.mktemp("broker")) as found:
        yield found


@pytest.fixture(scope="session")
def clients() -> Clients:
    """Real clients by their names."""
    return Clients()
