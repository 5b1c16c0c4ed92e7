"""Names in both layouts: prefixes, dashes in topics and ids, and what a user may call the root."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from support.tiered import session

from kts.remote.layouts import AIVEN, AUTO, LOCAL, Root, objects_in, place_of, places, stem_of
from kts.remote.metadata import COPY_FINISHED, Copy, MetadataTopic, PartitionId
from kts.store.source import files

ID = "-_aaaaaaaaaaaaaaaaaaaa"  # a dash in front, which Kafka avoids for its own


def made(folder: Path, *names: str) -> Path:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
    return folder


def test_the_partitions_of_both_layouts_are_told_apart_by_what_lies_inside(tmp_path: Path) -> None:
    made(tmp_path / "local", f"my-topic-1-3-{ID}/{0:020d}-{ID}.log")
    made(tmp_path / "aiven", f"my-topic-1-{ID}/3/{0:020d}-{ID}.log", "other/x", "readme")
    local = list(places(Root.of(str(tmp_path / "local")), AUTO))
    aiven = list(places(Root.of(str(tmp_path / "aiven")), AUTO))
    assert [(one.of, one.layout) for one in local] == [(PartitionId("my-topic-1", ID, 3), LOCAL)]
    assert [(one.of, one.layout) for one in aiven] == [(PartitionId("my-topic-1", ID, 3), AIVEN)]
    assert place_of(Root.of(str(tmp_path / "aiven")), aiven[0].of, AUTO) == aiven[0]
    assert place_of(Root.of(str(tmp_path / "aiven")), aiven[0].of, LOCAL) is None


def test_a_prefix_is_taken_as_it_is(tmp_path: Path) -> None:
    made(tmp_path, f"pre/fix-t-{ID}/0/{7:020d}-{ID}.rsm-manifest", f"pre/t-{ID}/0/{7:020d}-{ID}.log")
    root = Root.of(f"{tmp_path}/pre/fix-")
    assert (root.folder, root.stem) == (f"{tmp_path}/pre", "fix-")
    [place] = places(root, AUTO)
    assert place.of == PartitionId("t", ID, 0) and place.directory == f"{tmp_path}/pre/fix-t-{ID}/0"
    [objects] = objects_in(place.directory)
    assert (objects.base_offset, objects.segment_id) == (7, ID)
    assert (objects.is_whole(AIVEN), objects.is_whole(LOCAL)) == (True, False)
    for same in (f"{tmp_path}/pre", f"{tmp_path}/pre/"):
        assert Root.of(same) == Root(f"{tmp_path}/pre", "")


def test_the_folder_that_local_tiered_storage_makes_is_gone_into(tmp_path: Path) -> None:
    made(tmp_path, f"kafka-tiered-storage/t-0-{ID}/{0:020d}-{ID}.log")
    assert Root.of(str(tmp_path)).folder == f"{tmp_path}/kafka-tiered-storage"


def test_a_store_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="there is no tiered storage"):
        Root.of(f"{tmp_path}/a/b")
    with pytest.raises(FileNotFoundError, match="no name that begins so"):
        Root.of(f"{tmp_path}/typo")


@pytest.mark.parametrize("given", ["", "cold/", "cold/cluster-a/", "cold/cluster-a"])
def test_objects_are_found_by_what_the_plugin_noted_whatever_prefix_is_given(given: str) -> None:
    one = session("aiven-prefix")
    root = Root.of(f"{one.store}/{given}")
    histories = MetadataTopic([(str(one.data), files)]).histories()
    for history in histories.values():
        for copy in history.in_state(1):
            assert Path(stem_of(root, copy, AIVEN) + ".rsm-manifest").exists()


def test_empty_directories_that_deletion_leaves_have_no_objects(tmp_path: Path) -> None:
    (tmp_path / f"t-0-{ID}").mkdir()
    shutil.rmtree(tmp_path / "none", ignore_errors=True)
    [place] = places(Root.of(str(tmp_path)), LOCAL)
    assert objects_in(place.directory) == [] == objects_in(str(tmp_path / "none"))


def test_what_the_plugin_noted_leads_to_nothing_above_the_root(tmp_path: Path) -> None:
    made(tmp_path, f"outside/t-{ID}/0/{0:020d}-{ID}.log", "store/x")
    copy = Copy(PartitionId("t", ID, 0), ID, 0, 9, ((0, 0),), 1, None, 0, COPY_FINISHED, "outside/", None)
    assert stem_of(Root.of(f"{tmp_path}/store/"), copy, AIVEN).startswith(f"{tmp_path}/store/")
    assert stem_of(Root.of(f"{tmp_path}/"), copy, AIVEN).startswith(f"{tmp_path}/outside/")


@pytest.mark.parametrize("name", ["a b", "a\nb", "a\\b", "a;b"])
def test_a_directory_that_no_topic_is_called_is_no_partition(tmp_path: Path, name: str) -> None:
    made(tmp_path, f"{name}-{ID}/0/{0:020d}-{ID}.log", f"{name}-0-{ID}/{0:020d}-{ID}.log")
    assert list(places(Root.of(str(tmp_path)), AUTO)) == []
