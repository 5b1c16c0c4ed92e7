"""Where a broker listens when nobody said that others may reach it."""

from __future__ import annotations

import pytest

from kts.arguments import parse_address
from kts.broker.request import show_address
from kts.errors import InvalidRequestError
from kts.server.server import DEFAULT_PORT, check_address


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


@pytest.mark.parametrize("text", ["127.0.0.1:65536", "127.0.0.1:x", "127.0.0.1:-1", "[::1", "[::1]9092", "h:٣"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        parse_address(text, DEFAULT_PORT)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_this_machine_alone_is_fine(host: str) -> None:
    check_address(host, insecure=False)


@pytest.mark.parametrize(
    "host", ["", "0.0.0.0", "::", "10.0.0.1", "192.168.1.7", "::ffff:10.0.0.1", "fe80::1", "a.invalid"]
)
def test_what_others_could_reach_is_refused_unless_somebody_says_so(host: str) -> None:
    with pytest.raises(InvalidRequestError, match="expected a loopback address"):
        check_address(host, insecure=False)
    check_address(host, insecure=True)
