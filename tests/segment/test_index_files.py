"""The entries of files beside a log, against their bytes."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from support.golden import golden, goldens

import kts
from kts.segment.index_files import KINDS, kind_of, read_index_file

LAYOUTS = {".index": ">ii", ".timeindex": ">qi", ".txnindex": ">hqqqq", ".snapshot": ">qhiqiqiq"}
FILES = sorted(
    path
    for scenario in goldens()
    for path in scenario.log_dir.rglob("*")
    if path.suffix in KINDS and path.stat().st_size
)


def test_every_file_of_real_brokers_gives_the_entries_that_its_bytes_say() -> None:
    assert {path.suffix for path in FILES} == {*KINDS}
    for path in FILES:
        data = path.read_bytes()[10:] if path.suffix == ".snapshot" else path.read_bytes()
        rows = list(struct.iter_unpack(LAYOUTS[path.suffix], data))
        base, place = int(path.stem), {".index": 0, ".timeindex": 1}.get(path.suffix)
        if place is not None:
            rows = [(*row[:place], row[place] + base, *row[place + 1 :]) for row in rows if any(row)]
        found = read_index_file(str(path))
        columns = [column.cast("int64").to_pylist() for column in found.columns.columns]
        assert (list(zip(*columns, strict=True)), found.base_offset) == (rows, base), path
        assert found.columns.schema.names == list(KINDS[path.suffix])
        assert all(fault.startswith("preallocated") for fault in found.faults)


def test_the_name_of_a_file_decides_what_it_is(tmp_path: Path) -> None:
    names = [f"{7:020}.index", f"{7:020}-abc.timeindex", f"{7:020}.txnindex.deleted", "copy.snapshot", "x.log", "index"]
    assert [kind_of(f"/a.index/{name}") for name in names] == [*KINDS, None, None]
    for name, expected in ((f"{7:020}-abc.index", (7, [8])), ("copy.index", (None, [1]))):
        (tmp_path / name).write_bytes(struct.pack(">ii", 1, 100))
        found = read_index_file(str(tmp_path / name))
        assert (found.base_offset, found.columns["offset"].to_pylist()) == expected


@pytest.mark.parametrize("kind", [".index", ".timeindex", ".txnindex"])
def test_what_is_whole_of_a_damaged_index_is_shown_and_what_is_wrong_is_named(tmp_path: Path, kind: str) -> None:
    path = next(path for path in FILES if path.suffix == kind)
    size = struct.calcsize(LAYOUTS[kind])
    cut = tmp_path / path.name
    cut.write_bytes(path.read_bytes()[:size] + b"xyz")
    found = read_index_file(str(cut))
    assert found.columns.num_rows == 1
    assert found.faults[0] == f"size {size + 3} is not a multiple of {size}: 3 bytes after the last entry"


def test_a_snapshot_with_a_wrong_crc_is_an_error_that_names_it(tmp_path: Path) -> None:
    snapshot = next(
        path for path in golden("3.9.2", "txn-none").log_dir.rglob("*.snapshot") if path.stat().st_size > 10
    )
    data = bytearray(snapshot.read_bytes())
    data[12] ^= 1
    path = tmp_path / snapshot.name
    for bad in (bytes(data), bytes(data[:20]), bytes(data[:5]), b""):
        path.write_bytes(bad)
        with pytest.raises(kts.CorruptIndexError) as error:
            read_index_file(str(path))
        assert error.value.path == str(path)
