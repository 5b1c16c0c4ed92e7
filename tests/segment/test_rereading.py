"""Reading beside a writer in another process: what is read again, what is left out, and what is damage."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

import kts
from kts.errors import CorruptRecordError, LogStorageError
from kts.segment.rereading import ATTEMPTS, Reread, settled, unless_deleted, warn


def storage_error(path: str, number: int) -> LogStorageError:
    error = LogStorageError(os.strerror(number), path=path)
    error.errno = number
    return error


def test_damage_is_believed_when_it_is_found_twice_at_the_same_place() -> None:
    positions = iter([10, 20, 30, 30, 40])

    def read() -> int:
        raise CorruptRecordError("damaged", path="x.log", position=next(positions))

    with pytest.raises(CorruptRecordError) as error:
        settled(read)
    assert error.value.position == 30
    assert list(positions) == [40]


def test_an_answer_after_a_deletion_is_the_answer(tmp_path: Path) -> None:
    gone = iter([str(tmp_path / "1"), str(tmp_path / "2")])

    def read() -> str:
        for path in gone:
            raise storage_error(path, errno.ENOENT)
        return "what is there now"

    assert settled(read) == "what is there now"


def test_a_file_that_was_deleted_and_is_there_again_is_read(tmp_path: Path) -> None:
    """A truncation deletes a segment, and the next append makes it again."""
    missing = iter([storage_error(str(tmp_path), errno.ENOENT)])

    def read() -> str:
        for error in missing:
            raise error
        return "what is there now"

    assert settled(read) == "what is there now"


def test_a_file_that_cannot_be_read_is_an_error_at_once(tmp_path: Path) -> None:
    calls = []

    def read() -> None:
        calls.append(1)
        raise storage_error(str(tmp_path), errno.EACCES)

    with pytest.raises(LogStorageError):
        settled(read)
    assert calls == [1]


def test_a_writer_that_never_rests_is_asked_a_bounded_number_of_times() -> None:
    calls = []

    def read() -> None:
        calls.append(1)
        raise CorruptRecordError("damaged", path="x.log", position=len(calls))

    with pytest.raises(CorruptRecordError):
        settled(read)
    assert len(calls) == ATTEMPTS + 1


def test_a_deleted_segment_is_left_out_with_a_warning_that_names_it(tmp_path: Path) -> None:
    path = str(tmp_path / f"{0:020}.log")
    with pytest.warns(kts.KtsWarning, match="deleted while it was read") as caught, unless_deleted(path):
        raise storage_error(path, errno.ENOENT)
    assert [str(one.message).startswith(path) for one in caught] == [True]
    Path(path).touch()  # another segment of its name
    with pytest.warns(kts.KtsWarning, match="deleted while it was read"), unless_deleted(path):
        raise storage_error(path, errno.ENOENT)
    with pytest.raises(LogStorageError), unless_deleted(path):
        raise storage_error(f"{path}.index", errno.ENOENT)
    os.remove(path)
    with pytest.raises(LogStorageError), unless_deleted(path):
        raise storage_error(path, errno.EACCES)


def test_bytes_that_changed_under_a_reader_are_noticed(tmp_path: Path) -> None:
    path = tmp_path / f"{0:020}.log"
    path.write_bytes(b"first batch, second batch")
    reread = Reread(str(path))
    assert not reread.differs()
    reread.note(0, memoryview(b"first batch, "))
    assert not reread.differs() and not reread.differs(13, b"second batch")
    assert reread.differs(13, b"secund batch")
    with path.open("r+b") as file:
        file.truncate(5)
    assert reread.differs()
    path.write_bytes(b"other batch, second batch")
    assert reread.differs()


def test_a_warning_shows_the_line_of_the_caller() -> None:
    with pytest.warns(kts.KtsWarning, match="look") as caught:
        warn("look", "a.log")
    assert caught[0].filename == __file__
    assert isinstance(caught[0].message, kts.KtsWarning) and caught[0].message.path == "a.log"
