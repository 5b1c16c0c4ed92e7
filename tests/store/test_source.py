"""What each source of files does; and when calls of this machine fail, one error class and no descriptor left open."""

from __future__ import annotations

import errno
import gzip
import os
import pickle
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from support.disk.fault_attempts import Work, attempt, faults
from support.disk.faultfs import INTERRUPTED_CLOSES

from kts.errors import LogStorageError
from kts.segment import checkpoints
from kts.store import local
from kts.store.local import WritableFile
from kts.store.protocol import ByteRange, BytesFile, Item, Readable, Result, Status
from kts.store.source import Store, files, in_order


def work_on_a_file(folder: str) -> object:
    path = os.path.join(folder, "sub", "a")
    local.make_directory(os.path.dirname(path))
    with WritableFile(path, new=True) as file:
        file.write(b"abcdefgh" * 200, 0)
        file.write(b"xyz", 1600)
        file.truncate(1602)
        file.sync()
        found = file.read(0, 2000)
        buffer = bytearray(10)
        file.read_into(memoryview(buffer), 1596)
        size = file.size()
    local.sync_directory(os.path.dirname(path))
    local.set_modified_ms(path, 5_000)
    facts = found, bytes(buffer), size, files.modified_ms(path), files.size_of(path), files.read_bytes(path)
    names = [entry.name for entry in files.list_directory(os.path.dirname(path))]
    local.rename(path, path + ".deleted")
    files.remove(path + ".deleted")
    files.remove(path + ".deleted", missing_ok=True)
    local.remove_directory(os.path.dirname(path))
    return facts, names, files.exists(path), files.exists(folder)


def read_old(folder: str) -> object:
    return files.read_used(os.path.join(folder, "old"), 3), checkpoints.read_checkpoint(os.path.join(folder, "old"))


WORKS = (work_on_a_file, read_old)


@pytest.mark.parametrize("work", WORKS, ids=lambda work: work.__name__)
def test_a_fault_at_any_call_is_a_storage_error_with_its_errno_or_nothing(tmp_path: Path, work: Work) -> None:
    system, flawless = attempt(tmp_path / "d", work, None)
    assert not isinstance(flawless, LogStorageError) and system.open_files() == []
    struck = 0
    for fault in faults(system):
        system, result = attempt(tmp_path / "d", work, fault)
        struck += bool(system.failed)
        assert system.open_files() == [], fault
        if isinstance(result, LogStorageError):
            assert (result.errno, result.path is None) == (fault.errno, False), fault
        else:
            assert result == flawless, fault
        if fault == INTERRUPTED_CLOSES or fault.errno is None:
            assert result == flawless, f"{fault}: nothing was wrong with the disk"
        assert system.unrecorded() == []
    assert struck > 20


class Shelf(Store):
    """Files in memory."""

    def __init__(self, **held: bytes) -> None:
        self.held = held
        self.asked: list[str] = []

    def file(self, path: str, ahead: object) -> Readable:
        self.asked.append(path)
        return BytesFile(path, self.held[path])

    def files(self, ranges: Sequence[ByteRange]) -> Iterator[Readable]:
        return (self.file(one.path, None) for one in ranges)

    def entries(self, path: str) -> Sequence[Any]:
        return []

    def status(self, path: str) -> Status | None:
        return Status(len(self.held[path]), 7_999_999) if path in self.held else None

    def together(self, work: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
        return iter([work(one) for one in items])

    def refresh(self) -> None:
        self.asked.clear()


def test_this_machine_is_one_object_wherever_it_is_unpickled() -> None:
    assert pickle.loads(pickle.dumps([files, files])) == [files, files] and repr(files) == "files"


def test_a_store_answers_what_its_status_and_files_say() -> None:
    shelf = Shelf(a=b"1234", b=b"12345")
    assert (shelf.size_of("a"), shelf.modified_ms("a"), shelf.exists("c"), shelf.identity("c")) == (4, 7, False, None)
    assert shelf.read_small(["a", "b"], 4) == [b"1234", None] and shelf.asked == ["a"]
    with pytest.raises(LogStorageError, match="there is no such file") as error:
        shelf.size_of("c")
    assert error.value.errno == errno.ENOENT


def test_what_cannot_be_written_is_refused(tmp_path: Path) -> None:
    made = tmp_path / "made"
    made.write_bytes(b"x")
    for write in (lambda: Shelf().remove("tier+s3://a"), lambda: Shelf().take(str(made), "tier+s3://a")):
        with pytest.raises(LogStorageError, match=r"tier\+s3:// is only read; write to a path or a bucket") as error:
            write()
        assert error.value.errno == errno.EROFS
    assert made.exists()


def test_files_of_several_sources_come_in_order_and_those_that_readers_open_as_none(tmp_path: Path) -> None:
    shelf, other = Shelf(a=b"1", b=b"2"), Shelf(c=b"3")
    places = [(shelf, "a"), (files, "x"), (shelf, "x.log.gz"), (shelf, "b"), (other, "c")]
    found = [
        None if file is None else file.path for file in in_order((of, ByteRange(path, 0, None)) for of, path in places)
    ]
    assert found == ["a", None, None, "b", "c"]


def test_a_compressed_log_of_one_source_is_not_that_of_another_of_its_name() -> None:
    shelves = [Shelf(**{"x.log.gz": gzip.compress(data)}) for data in (b"ab", b"cd")]
    assert [shelf.read_bytes("x.log.gz") for shelf in shelves] == [b"ab", b"cd"]
