"""A decoded request and its sender."""

from __future__ import annotations

import pytest

from kts.arguments import parse_address
from kts.broker.request import show_address
from kts.server.server import DEFAULT_PORT


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("127.0.0.1:9093", ("127.0.0.1", 9093)),
        ("localhost", ("localhost", 9092)),
        ("localhost:0", ("localhost", 0)),
        ("[::1]:9094", ("::1", 9094)),
        ("[::1]", ("::1", 9092)),
        ("::1", ("::1", 9092)),
        (":9095", ("", 9095)),
        ("0.0.0.0:65535", ("0.0.0.0", 65535)),
    ],
)
def test_an_address_is_read_as_clients_write_it(text: str, found: tuple[str, int]) -> None:
    assert parse_address(text, DEFAULT_PORT) == found
    assert parse_address(show_address(*found), DEFAULT_PORT) == found
