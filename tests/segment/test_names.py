"""Names of files and directories in a log directory."""

from __future__ import annotations

import pytest

from kts.segment.names import parse_directory_name, parse_file_name, partition_of_file


def test_names_that_are_not_kafkas_are_none() -> None:
    for name in ("x.log", "1.log", f"{2**63:020}.log", f"{0:020}.log.tmp", f"{0:020}.logs", f"{0:020}"):
        assert parse_file_name(name) is None
    for name in ("topic", "topic-", "-5", "topic-x", "topic-99999999999", "a b-0", ".hidden"):
        assert parse_directory_name(name) is None
    assert parse_file_name(f"{7:020}.txnindex.swap") == (7, ".txnindex", "", ".swap")
    assert parse_directory_name("a-1-2") == ("a-1", 2, "")


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("0" * 20 + ".log", (0, ".log", "", "")),
        (f"{2**63 - 1:020}.timeindex", (2**63 - 1, ".timeindex", "", "")),
        (f"{7:020}.log.deleted", (7, ".log", "", ".deleted")),
        (f"{7:020}-5sUtX2jZQ_-1.index", (7, ".index", "5sUtX2jZQ_-1", "")),
        (f"{7:020}.snapshot.cleaned", (7, ".snapshot", "", ".cleaned")),
    ],
)
def test_a_segment_files_name_has_base_offset_suffix_tier_id_and_transition(
    name: str, parts: tuple[int, str, str, str]
) -> None:
    assert parse_file_name(name) == parts


@pytest.mark.parametrize("state", ["delete", "future", "stray"])
def test_a_directory_on_its_way_says_where_it_goes(state: str) -> None:
    name = f"my.topic-12.{'0a' * 16}-{state}"
    assert parse_directory_name(name) == ("my.topic", 12, state)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (f"/logs/orders-3/{0:020}.log", ("orders", 3)),
        (f"/logs/a-b-3/{0:020}.log", ("a-b", 3)),
        (f"/tier/orders-3-AAAAAAAAAAAAAAAAAAAAAA/{0:020}-x.log", ("orders", 3)),
        (f"/tier/orders-AAAAAAAAAAAAAAAAAAAAAA/3/{0:020}-x.log", ("orders", 3)),
        ("/backup/orders-3.log", ("orders", 3)),
        (f"/backup/{0:020}.log", ("backup", 0)),
    ],
)
def test_a_lone_file_knows_its_partition_from_the_names_around_it(path: str, expected: tuple[str, int]) -> None:
    assert partition_of_file(path) == expected
