"""The commit checkpoint: what is written is read, damage is refused, readers see what it hides."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

import kts
from kts._codec import crc32c
from kts.segment.checkpoints import Checkpoints
from kts.segment.commits import FILE, Commits, PendingFile, PendingPartition, read_commits, write_commits

Json = dict[str, Any]
LOG = f"{20:020d}.log"
PENDING = PendingPartition("a", 3, 20, False, 4, [12, 900], [PendingFile(f"kts-commit-00000000-{LOG}", LOG, 17)])
SOUND: Json = json.loads(json.dumps(asdict(Commits({"query": 7}, [PENDING]))))


def test_what_is_written_is_read(tmp_path: Path) -> None:
    assert read_commits(str(tmp_path)) == Commits()
    commits = Commits({"query": 7}, [PENDING])
    write_commits(str(tmp_path), commits)
    assert read_commits(str(tmp_path)) == commits
    assert commits.pending_of("a", 3) == PENDING
    assert commits.pending_of("a", 2) is None


def test_a_damaged_checkpoint_is_refused_whichever_byte_it_is(tmp_path: Path) -> None:
    write_commits(str(tmp_path), Commits({"query": 7}, [PENDING]))
    path = tmp_path / FILE
    data = path.read_bytes()
    for place in range(len(data)):
        path.write_bytes(data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :])
        with pytest.raises(kts.LogStorageError, match="expected a commit checkpoint"):
            read_commits(str(tmp_path))


def test_a_reader_knows_the_checkpoint_again_until_it_changes(tmp_path: Path) -> None:
    reader = Checkpoints(str(tmp_path))
    none = reader.commits()
    assert reader.commits() is none
    write_commits(str(tmp_path), Commits({}, [PENDING]))
    pending = reader.commits()
    assert pending.pending == [PENDING]
    assert reader.commits() is pending
    write_commits(str(tmp_path), Commits())
    assert reader.commits() == Commits()


# --- from somebody else, with a right checksum ------------------------------------------------------


def written(directory: Path, content: object) -> Path:
    """A checkpoint with a right checksum, whatever it says."""
    body = content if isinstance(content, bytes) else json.dumps(content).encode() + b"\n"
    (directory / FILE).write_bytes(b"0\n%08x\n" % crc32c(body) + body)
    return directory / FILE


def places(content: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to each value in JSON."""
    yield way
    for key in content if isinstance(content, dict) else range(len(content)) if isinstance(content, list) else ():
        yield from places(content[key], (*way, key))


def changed(way: tuple[Any, ...], value: object) -> object:
    """The sound content with another value in one place."""
    if not way:
        return value
    content = copy.deepcopy(SOUND)
    inner: Any = content
    for key in way[:-1]:
        inner = inner[key]
    inner[way[-1]] = value
    return content


def test_in_every_place_a_value_of_another_type_or_out_of_range_is_refused(tmp_path: Path) -> None:
    written(tmp_path, SOUND)
    assert read_commits(str(tmp_path)) == Commits({"query": 7}, [PENDING])
    count = 0
    for way in places(SOUND):
        sound: Any = SOUND
        for key in way:
            sound = sound[key]
        for value in (None, True, 1.5, "text", [5], {"a": 1}, -2, 2**63):
            if type(value) is type(sound) and not isinstance(value, int):
                continue  # the names are tested below, lists and objects by their parts
            if value is True and sound is False:
                continue
            path = written(tmp_path, changed(way, value))
            with pytest.raises(kts.LogStorageError, match="expected .*") as caught:
                read_commits(str(tmp_path))
            assert caught.value.path == str(path), (way, value)
            count += 1
    assert count > 90


@pytest.mark.parametrize(
    "body", [b"", b"[" * 100_000, b"\xff", b"{}", b"[]", b'{"streams": {}, "pending": []} x', b"NaN"]
)
def test_what_is_not_one_object_of_ours_is_refused(body: bytes, tmp_path: Path) -> None:
    written(tmp_path, body)
    with pytest.raises(kts.LogStorageError, match="expected"):
        read_commits(str(tmp_path))


@pytest.mark.parametrize("name", ["streams", "pending", "topic", "first_offset", "source", "target", "size"])
def test_a_field_that_lacks_and_one_too_many_are_refused(name: str, tmp_path: Path) -> None:
    for way in places(SOUND):
        if not way or way[-1] != name:
            continue
        content = copy.deepcopy(SOUND)
        inner: Any = content
        for key in way[:-1]:
            inner = inner[key]
        value = inner.pop(name)
        for other in (content, changed((*way[:-1], "more"), value)):
            written(tmp_path, other)
            with pytest.raises(kts.LogStorageError, match="the fields"):
                read_commits(str(tmp_path))


NAMES = {
    "topic": ["..", ".", "", "../out", "a/b", "/etc", "a\0b", "a\n", "é", "x" * 250],
    "target": ["../x", "/etc/passwd", "x", "", f"{19:020d}.log", f"{20:020d}.log.deleted", f"{20:020d}-id.log", "."],
    "source": ["../home/secret", f"/{LOG}", LOG, f"kts-commit-0000000x-{LOG}", f"kts-commit-00000000-../{LOG}", ""],
}


@pytest.mark.parametrize(("field", "name"), [(field, name) for field, names in NAMES.items() for name in names])
def test_names_that_kts_never_writes_are_refused_and_nothing_moves(field: str, name: str, tmp_path: Path) -> None:
    home, data = tmp_path / "home", tmp_path / "data"
    home.mkdir()
    (home / "secret").write_text("mine")
    with kts.Log(str(data / "a-3")) as log:
        log.append_rows({"value": [b"x"]})
    content = copy.deepcopy(SOUND)
    pending = content["pending"][0]
    (pending if field == "topic" else pending["files"][0])[field] = name
    path = written(data, content)
    before = sorted(each for each in os.walk(tmp_path))
    for door in (lambda: kts.Log(str(data / "a-3")), lambda: kts.scan(str(data)), lambda: kts.open(str(data))):
        with pytest.raises(kts.LogStorageError, match="expected") as caught:
            door()
        assert caught.value.path == str(path)
    (data / ".lock").unlink(missing_ok=True)
    now = sorted(each for each in os.walk(tmp_path))
    assert [(place, sorted({*names} - {".lock"})) for place, _, names in now] == [
        (place, sorted({*names} - {".lock"})) for place, _, names in before
    ]


@pytest.mark.parametrize("place", ["partition", "source"])
def test_nothing_moves_through_a_link(place: str, tmp_path: Path) -> None:
    home, data = tmp_path / "home", tmp_path / "data"
    home.mkdir()
    with kts.Log(str(data / "b-0")) as log:
        log.append_rows({"value": [b"x"]})
    source = data / f"kts-commit-00000000-{LOG}"
    if place == "partition":
        (data / "a-3").symlink_to(home)
        source.write_bytes(b"x" * 17)
    else:
        (home / "secret").write_bytes(b"x" * 17)
        source.symlink_to(home / "secret")
    written(data, changed(("pending", 0, "is_new"), True))
    with pytest.raises(kts.LogStorageError, match="found a link"):
        kts.Log(str(data / "b-0"))
    assert source.is_symlink() == (place == "source") and source.exists()
    assert [one.name for one in home.iterdir()] == (["secret"] if place == "source" else [])


def test_a_checkpoint_that_is_a_link_to_itself_is_an_error_of_ours_at_every_door(tmp_path: Path) -> None:
    with kts.Log(str(tmp_path / "a-3")) as log:
        log.append_rows({"value": [b"x"]})
    (tmp_path / FILE).symlink_to(FILE)
    for door in (lambda: kts.Log(str(tmp_path / "a-3")), lambda: kts.scan(str(tmp_path)).read_all()):
        with pytest.raises(kts.LogStorageError, match="failed") as caught:
            door()
        assert caught.value.path == str(tmp_path / FILE)
