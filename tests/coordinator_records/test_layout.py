"""Keys and values with a version in front."""

from __future__ import annotations

import pytest

from kts.coordinator_records.layout import Layout, version_of
from kts.errors import InvalidRequestError, UnsupportedVersionError

LAYOUT = Layout("thing", "    number int32 0+\n    name string 1+ null 2+", 2, 2)


def test_each_version_has_its_fields_and_flexible_ones_are_compact() -> None:
    found = {"number": 7, "name": "n"}
    assert LAYOUT.write(0, found) == b"\0\0\0\0\0\7"
    assert LAYOUT.write(1, found) == b"\0\1\0\0\0\7\0\1n"
    assert LAYOUT.write(2, found) == b"\0\2\0\0\0\7\2n\0"
    assert [LAYOUT.read(LAYOUT.write(version, found)) for version in (1, 2)] == [found, found]
    assert LAYOUT.read(LAYOUT.write(0, found)) == {"number": 7, "name": ""}
    assert LAYOUT.read(b"\0\2\0\0\0\7\0\0") == {"number": 7, "name": None}
    assert LAYOUT.read(LAYOUT.write(1, found), 0) == {"number": 7, "name": ""}


@pytest.mark.parametrize(("data", "found"), [(b"\0\3", "found 3"), (b"\xff\xff", "found -1")])
def test_an_unknown_version_is_refused(data: bytes, found: str) -> None:
    with pytest.raises(UnsupportedVersionError, match=f"thing: expected a version from 0 to 2, {found}"):
        LAYOUT.read(data)


@pytest.mark.parametrize("data", [b"", b"\0"])
def test_what_is_shorter_than_a_version_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidRequestError, match="thing: expected a version of 2 bytes"):
        version_of(data, "thing")


def test_what_does_not_fit_is_not_written() -> None:
    with pytest.raises(InvalidRequestError, match="thing cannot be written: name"):
        LAYOUT.write(1, {"number": 1, "name": None})
