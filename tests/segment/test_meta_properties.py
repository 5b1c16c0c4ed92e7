"""``meta.properties``: the node and the cluster that a directory belongs to."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

import kts
from kts.broker.topics import Topics
from kts.segment import meta_properties


def meta(folder: Path, text: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "meta.properties").write_text(text)


@pytest.mark.parametrize(
    ("text", "node", "cluster"),
    [
        (
            "#\n#Sat Nov 21\ncluster.id=AAAAAAAAQACAAAAAAAAAAA\ndirectory.id=x\nnode.id=7\nversion=1\n",
            7,
            "A" * 8 + "QACAAAAAAAAAAA",
        ),
        ("#\nbroker.id=3\nversion=0\ncluster.id=abc\n", 3, "abc"),
        ("version=0\nbroker.id=3\n", 3, None),
    ],
)
def test_a_directory_keeps_its_node_and_cluster(tmp_path: Path, text: str, node: int, cluster: str | None) -> None:
    meta(tmp_path, text)
    with Topics(tmp_path) as topics:
        assert topics.node_id == node
        told = topics.cluster_id
        assert told == (cluster or told)
        assert len(told) > 2
    assert (tmp_path / "meta.properties").read_text() == text
    with Topics(tmp_path) as topics:
        assert topics.cluster_id == told


@pytest.mark.parametrize("settings", [{"node.id": 8}, {"broker.id": 8}, {"cluster.id": "other"}])
def test_a_directory_of_another_node_or_cluster_is_refused(tmp_path: Path, settings: dict[str, object]) -> None:
    meta(tmp_path, "version=1\ncluster.id=mine\nnode.id=7\n")
    with pytest.raises(kts.LogStorageError, match="expected"):
        Topics(tmp_path, settings)
    with Topics(tmp_path):
        pass


@pytest.mark.parametrize("text", ["", "version=2\nnode.id=1\n", "version=1\nnode.id=x\n", "\0\xff"])
def test_a_meta_properties_that_says_nothing_is_refused(tmp_path: Path, text: str) -> None:
    meta(tmp_path, text)
    with pytest.raises(kts.LogStorageError):
        Topics(tmp_path)
    assert (tmp_path / "meta.properties").read_text() == text


def test_what_is_written_has_kafkas_lines_and_is_read_again(tmp_path: Path) -> None:
    assert meta_properties.read(str(tmp_path)) is None
    meta_properties.write(str(tmp_path), 7, "AAAAAAAAQACAAAAAAAAAAA")
    first, *lines = (tmp_path / "meta.properties").read_text().splitlines()
    values = dict(line.split("=", 1) for line in lines)
    assert first == "#" and len(directory_id := values.pop("directory.id")) == 22
    assert values == {"cluster.id": "AAAAAAAAQACAAAAAAAAAAA", "node.id": "7", "version": "1"}
    assert meta_properties.read(str(tmp_path)) == (7, "AAAAAAAAQACAAAAAAAAAAA", directory_id, 1)


def test_ids_are_kafkas_uuids_and_begin_with_no_dash() -> None:
    made = [meta_properties.random_id() for _ in range(1000)]
    assert len(set(made)) == 1000 and not any(one.startswith("-") for one in made)
    assert {len(base64.urlsafe_b64decode(one + "==")) for one in made} == {16}


def test_lines_are_those_of_javas_properties(tmp_path: Path) -> None:
    lines = "! a comment\n# node.id=9\ncluster.id : a\\:b\n  node.id   4\nversion=1\ndirectory.id=x=y\nempty=\n"
    (tmp_path / "meta.properties").write_text(lines)
    assert meta_properties.read(str(tmp_path)) == (4, "a:b", "x=y", 1)
