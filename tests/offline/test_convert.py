"""Converting partitions into new directories, which appear whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.golden import golden
from support.reference import reference

import kts
from kts.errors import LogLockedError, UnsupportedForMessageFormatError
from kts.offline.convert import Format, aside, convert_segments
from kts.segment.locks import FileLock

ORDERS = golden("demo", "orders")


def test_a_directory_appears_whole_under_its_name(tmp_path: Path) -> None:
    target = tmp_path / "new"
    with aside(str(target)) as folder:
        (Path(folder) / "file").write_text("x")
        assert not target.exists()
    assert (target / "file").read_text() == "x"
    assert [path.name for path in tmp_path.iterdir()] == ["new"]


def test_after_an_error_neither_directory_is_there(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), aside(str(tmp_path / "new")) as folder:
        (Path(folder) / "file").write_text("x")
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []


def test_a_directory_in_use_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(FileExistsError, match="not empty"), aside(str(tmp_path / "full")):
        pytest.fail("it was replaced")
    with FileLock(str(tmp_path / ".lock"), "somebody"):
        target = str(tmp_path / "new")
        with FileLock(str(tmp_path / ".lock"), target), pytest.raises(LogLockedError), aside(target):
            pytest.fail("it was locked")


@pytest.mark.slow
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_each_segment_says_what_was_read_and_what_was_written(magic: int, tmp_path: Path) -> None:
    log = kts.open(ORDERS.partition_dir("orders-1"))
    target = tmp_path / "orders-1"
    read: list[int] = []
    done = list(convert_segments(log, str(tmp_path), Format(magic, drop_headers=True), read.append))
    assert sorted(path.name for path in tmp_path.iterdir()) == [target.name]
    assert [one.base_offset for one in done] == [segment.base_offset for segment in log.segments]
    assert sum(read) == sum(segment.size_bytes for segment in log.segments)
    for one, segment in zip(done, log.segments, strict=True):
        before = reference.decode(Path(segment.path).read_bytes())
        after = reference.decode((target / Path(segment.path).name).read_bytes())
        kept = ["offset", "key", "value", *["timestamp"] * (magic > 0)]
        assert [[row[name] for name in kept] for row in after] == [[row[name] for name in kept] for row in before]
        assert (one.records, one.next_offset, one.left_out) == (len(before), before[-1]["offset"] + 1, 0)
        assert {row["magic"] for row in reference.scan_batches((target / Path(one.path).name).read_bytes())} == {magic}


def test_headers_below_magic_2_are_refused_unless_they_are_dropped(tmp_path: Path) -> None:
    source = tmp_path / "t-0"
    source.mkdir()
    rows = {"value": [b"x"], "headers": [[("h", b"1")]]}
    (source / f"{0:020}.log").write_bytes(kts.encode(rows))
    target = tmp_path / "new"
    with pytest.raises(UnsupportedForMessageFormatError, match="header"):
        list(convert_segments(kts.open(source), str(target), Format(1)))
    assert [path for path in target.rglob("*") if path.is_file()] == []
    [done] = convert_segments(kts.open(source), str(tmp_path / "without"), Format(1, drop_headers=True))
    assert done.records == 1
