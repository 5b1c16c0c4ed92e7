"""Checks of arguments: what is taken, and which error names what is not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kts.arguments import (
    INT64_MAX,
    INT64_MIN,
    boolean,
    choice,
    integer,
    magic,
    optional_offset,
    parse_address,
    show_address,
    suggestion,
    timestamp,
)


@pytest.mark.parametrize("value", [0, 7, np.int64(7), np.uint8(7), INT64_MAX])
def test_an_int_is_taken_as_it_is(value: Any) -> None:
    assert integer("n", value, 0) == int(value)
    assert type(integer("n", value)) is int
    assert optional_offset("n", value) == timestamp("n", value) == int(value)


@pytest.mark.parametrize("value", [True, 1.0, "1", None, b"1", np.float64(1)])
def test_what_is_no_int_is_a_type_error_that_names_the_argument(value: Any) -> None:
    for check in (integer, timestamp):
        with pytest.raises(TypeError, match="^n: expected an int"):
            check("n", value)


def test_an_int_out_of_range_is_a_value_error_that_says_the_range() -> None:
    with pytest.raises(ValueError, match="^n: expected 1 to 9, found 0$"):
        integer("n", 0, 1, 9)
    for value in (INT64_MIN - 1, INT64_MAX + 1):
        with pytest.raises(ValueError, match="^n: expected "):
            integer("n", value)
        with pytest.raises(ValueError, match=r"^n: -?\d+ is outside the 64-bit range$"):
            timestamp("n", value)
    with pytest.raises(ValueError, match="^n: expected 0 to "):
        optional_offset("n", -1)
    assert optional_offset("n", None) is None


@pytest.mark.parametrize("value", [0, 1, None, "3.9"])
def test_only_true_and_false_are_booleans(value: Any) -> None:
    assert boolean("n", True) is True
    with pytest.raises(TypeError, match="^n: expected True or False, found "):
        boolean("n", value)


def test_a_choice_names_all_that_there_is() -> None:
    assert choice("n", "a", ("a", "b")) == "a"
    with pytest.raises(ValueError, match="^n: expected one of a, b, found 'c'$"):
        choice("n", "c", ("a", "b"))
    with pytest.raises(TypeError, match="^n: expected one of a, b, found 1$"):
        choice("n", 1, ("a", "b"))


def test_a_magic_is_0_1_or_2() -> None:
    assert [magic("n", value) for value in (0, 1, 2)] == [0, 1, 2]
    for value in (-1, 3, True, "2"):
        with pytest.raises(ValueError, match="^n: expected 0, 1 or 2, found "):
            magic("n", value)


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
    assert parse_address(text, 9092) == found
    assert parse_address(show_address(*found), 9092) == found


@pytest.mark.parametrize("text", ["", ":1", "a", "a:", "a:0", "::1", "[::1]", "[]:1"])
def test_an_address_to_connect_to_needs_a_host_and_a_port(text: str) -> None:
    assert parse_address("[::1]:9092") == ("::1", 9092)
    assert parse_address(text or "a", 7)[1] in (0, 1, 7)
    with pytest.raises(ValueError, match="^expected HOST:PORT"):
        parse_address(text)


@pytest.mark.parametrize("text", ["127.0.0.1:65536", "127.0.0.1:x", "127.0.0.1:-1", "[::1", "[::1]9092", "h:٣"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        parse_address(text, 9092)


def test_a_suggestion_is_the_most_similar_name_in_any_case() -> None:
    assert suggestion("Ofset", ["offset", "timestamp"]) == "did you mean offset?"
    assert suggestion("TIMESTAMPTYPE", ["timestamp", "timestampType"]) == "did you mean timestampType?"
    assert suggestion("codec", ["offset", "timestamp"]) is None
