"""What holds for every store of objects."""

from __future__ import annotations

import errno
import tempfile
from collections.abc import Iterator

import pytest
from support import TESTS
from support.buckets.doors import files, reach, refresh
from support.buckets.emulators import Emulator

import kts
from kts.offline.copy import copy
from kts.offline.verify import verify
from kts.remote import buckets

ORDERS = TESTS / "data/golden/demo/orders"


def gives_what_the_disk_gives(store: Emulator) -> None:
    there = store.put_folder(ORDERS, "logs/orders")
    found = kts.scan(there, storage_options=store.options).read_all()
    assert found == kts.scan(ORDERS).read_all() and len(found) == 9_000
    here = kts.open_log_dirs(ORDERS)
    for key, log in kts.open_log_dirs(f"{store.address}/logs/*/orders-*").items():
        assert log.max_timestamp() == here[key].max_timestamp()
        assert log.offset_for_timestamp(1_788_300_000_000) == here[key].offset_for_timestamp(1_788_300_000_000)
    assert [one.kind for one in verify(there)] == [one.kind for one in verify(ORDERS)]


def lists_folders_whether_or_not_they_are_marked(store: Emulator) -> None:
    for key in ("deep/b.bin", "deep/a/x/1.bin", "deep/a/x/2.bin", "deep/a-b/1.bin"):
        store.put(key, b"data")
    for marked in (False, True):
        if marked:
            for folder in ("deep", "deep/a", "deep/a/x", "deep/a-b"):
                store.files.create_dir(f"{store.root}/{folder}", recursive=True)
        reach(store.address, store.options)
        for folder, names in (("deep", ["a", "a-b", "b.bin"]), ("deep/a", ["x"]), ("deep/a/x", ["1.bin", "2.bin"])):
            found = files.list_directory(f"{store.address}/{folder}")
            assert [one.name for one in found] == names
            assert [one.name for one in found if one.is_dir()] == [name for name in names if "." not in name]
            refresh(store.address)  # nothing is known of it
            assert files.directory_exists(f"{store.address}/{folder}")
        assert files.matching(f"{store.address}/de*/a*/*1.bin") == [f"{store.address}/deep/a-b/1.bin"]
        assert "deep" in files.names_in(store.address)
    assert files.size_of(f"{store.address}/deep/a/x/2.bin") == 4


def tells_what_is_missing_replaced_or_deleted(store: Emulator) -> None:
    with pytest.raises(FileNotFoundError, match="there is nothing at this address"):
        kts.open(f"{store.address}/none", storage_options=store.options)
    with pytest.raises(kts.LogStorageError) as raised:
        files.names_in(f"{store.address}/none")
    assert raised.value.errno == errno.ENOENT
    data = bytes(range(250)) * 4_000
    path = store.put("x.bin", data)
    with files.open_file(path) as file:
        assert file.read(0, 10) == data[:10]
        store.put("x.bin", data[::-1])
        with pytest.raises(kts.LogStorageError, match="was replaced while it was read") as raised:
            file.read(700_000, 10)
    assert raised.value.errno == errno.ESTALE
    with files.open_file(path) as file:
        assert file.read(0, 10) == data[::-1][:10]
        store.delete("x.bin")
        with pytest.raises(kts.LogStorageError) as raised:
            file.read(700_000, 10)
    assert raised.value.errno == errno.ENOENT


def puts_objects_whole_or_not_at_all(store: Emulator) -> None:
    path = f"{store.address}/put/00000000000000000000.log.gz"  # a name that the library would compress
    reach(path, store.options)
    for data in (b"first" * 1000, b"second"):
        files.put(path, [data])
        assert buckets.bucket_of(path).file(path, None).read(0, 10_000) == data

    def breaks() -> Iterator[bytes]:
        yield b"third"
        raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        buckets.bucket_of(path).put(f"{store.address}/put/x", breaks())
    assert files.names_in(f"{store.address}/put") == ["00000000000000000000.log.gz"]
    files.remove(path)
    files.remove(path)  # does nothing
    assert not files.exists(path)


def takes_a_copy_that_comes_back(store: Emulator) -> None:
    there = f"{store.address}/copied"
    for state in ("copied", "equal"):
        done = copy(ORDERS, there, partitions=[0], storage_options=store.options)
        assert {one.state for one in done} == {state}
    with tempfile.TemporaryDirectory() as folder:
        copy(there, folder, storage_options=store.options)
        assert kts.scan(folder).read_all() == kts.scan(ORDERS, partitions=[0]).read_all()
    assert files.names_in(there) == ["orders-0"]
    assert set(files.names_in(f"{there}/orders-0")) <= {path.name for path in ORDERS.glob("orders-0/*")}


CHECKS = [
    gives_what_the_disk_gives,
    lists_folders_whether_or_not_they_are_marked,
    tells_what_is_missing_replaced_or_deleted,
    puts_objects_whole_or_not_at_all,
    takes_a_copy_that_comes_back,
]
