"""Which partitions of a path are read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import kts
from kts.dataset.paths import select

NAMES = ("a-0", "a-1", "b-0", "b-2", "__consumer_offsets-0")


@pytest.fixture
def log_directory(tmp_path: Path) -> Path:
    for name in NAMES:
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{0:020d}.log").write_bytes(kts.encode({"value": [name.encode()]}))
    return tmp_path


def selected(path: Any, **chosen: Any) -> list[str]:
    return [f"{log.topic}-{log.partition}" for log in select(kts.open(path), path, **chosen)]


def test_an_internal_topic_is_read_if_it_is_named_or_its_own_path_is_given(log_directory: Path) -> None:
    offsets = str(log_directory / "__consumer_offsets-0")
    assert selected(log_directory) == ["a-0", "a-1", "b-0", "b-2"]
    assert selected(log_directory, internal=True)[0] == "__consumer_offsets-0"
    assert selected(log_directory, topics="__consumer_offsets") == ["__consumer_offsets-0"]
    assert selected(log_directory, partitions={"__consumer_offsets": [0]}) == ["__consumer_offsets-0"]
    assert selected(offsets) == ["__consumer_offsets-0"]
    assert selected([offsets, str(log_directory / "a-1")]) == ["__consumer_offsets-0", "a-1"]


def test_partitions_are_those_of_the_topics_that_are_asked_for(log_directory: Path) -> None:
    assert selected(log_directory, partitions=[0]) == ["a-0", "b-0"]
    assert selected(log_directory, topics=["b"], partitions=[2]) == ["b-2"]
    assert selected(log_directory, partitions={"a": [1], "b": [0]}) == ["a-1", "b-0"]
    assert selected(log_directory, topics=["a"], partitions={"a": [1], "b": [0]}) == ["a-1"]


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ({"topics": ["bb"]}, "there is no topic bb in .*; did you mean b?"),
        ({"topics": ["other"]}, "there is no topic other in .*; there are __consumer_offsets, a, b"),
        ({"partitions": {"a": [0, 7]}}, "there is no a-7 in .*; there are the partitions 0, 1"),
        ({"partitions": [1, 9]}, "there is no partition 9 in .*; there are the partitions 0, 1, 2"),
        ({"topics": ["a"], "partitions": [2]}, "there is no partition 2 in .*; there are the partitions 0, 1"),
    ],
)
def test_what_does_not_exist_is_refused_and_what_there_is_is_named(
    log_directory: Path, chosen: dict[str, Any], message: str
) -> None:
    with pytest.raises(kts.UnknownTopicOrPartitionError, match=message):
        selected(log_directory, **chosen)
