"""The checker is checked: what faultfs says is lost is lost, and a writer with a planted bug is found out."""

from __future__ import annotations

import errno
import os
import random
import zlib
from pathlib import Path

import pytest
from support.disk.crashdisk import Disk, Op, State, Tree, cuts, read_tree, write_tree
from support.disk.faultfs import INTERRUPTED_CLOSES, READING, WRITING, Fault, FaultyOs

RDWR_CREATE = os.O_RDWR | os.O_CREAT


def replayed(faulty: FaultyOs) -> Disk:
    disk = faulty.disk()
    for op in faulty.trace:
        disk.step(op)
    return disk


def contents(disk: Disk, name: str, rng: random.Random, count: int = 400) -> set[bytes | None]:
    """Everything that a file may hold; None where it may be missing."""
    return {state.tree.get(name) for state in disk.states(rng, count=count)}


def put(faulty: FaultyOs, name: str, data: bytes, position: int = 0) -> int:
    fd = faulty.open(os.path.join(faulty.root, name), RDWR_CREATE)
    faulty.pwrite(fd, data, position)
    return fd


def sync_directory(faulty: FaultyOs, path: str = "") -> None:
    fd = faulty.open(os.path.join(faulty.root, path), os.O_RDONLY)
    faulty.fsync(fd)
    faulty.close(fd)


def test_what_was_not_synced_is_lost_in_one_state_and_kept_in_another(tmp_path: Path, rng: random.Random) -> None:
    faulty = FaultyOs(str(tmp_path))
    fd = put(faulty, "a", b"one")
    assert contents(replayed(faulty), "a", rng) == {None, b"", b"one", b"\0\0\0"}
    faulty.fsync(fd)
    assert contents(replayed(faulty), "a", rng) == {None, b"one"}
    sync_directory(faulty)
    assert contents(replayed(faulty), "a", rng) == {b"one"}
    faulty.pwrite(fd, b"two", 3)
    assert contents(replayed(faulty), "a", rng) == {b"one", b"onetwo", b"one\0\0\0"}
    faulty.fsync(fd)
    assert contents(replayed(faulty), "a", rng) == {b"onetwo"}
    faulty.close(fd)
    assert faulty.open_files() == [] and faulty.unrecorded() == []


def test_a_write_tears_at_the_sectors_of_the_file_and_nowhere_else(tmp_path: Path, rng: random.Random) -> None:
    (tmp_path / "a").write_bytes(b"." * 1000)
    faulty = FaultyOs(str(tmp_path))
    faulty.close(put(faulty, "a", b"x" * 1100, 1000))
    assert cuts(faulty.trace[-1]) == [24, 536, 1048]
    whole = b"." * 1000 + b"x" * 1100
    found = contents(replayed(faulty), "a", rng)
    for content in found:
        assert content is not None
        for start, stop in ((0, 1000), (1000, 1024), (1024, 1536), (1536, 2048), (2048, 2100)):
            piece = content[start:stop].ljust(stop - start, b"\0")
            assert piece in (whole[start:stop], b"\0" * (stop - start))
    assert whole[:1024] in found  # a head
    assert whole[:1000] + b"\0" * 24 + whole[1024:] in found  # an end without its head
    assert len(found) > 10


def test_an_earlier_write_is_lost_where_a_later_one_is_kept(tmp_path: Path, rng: random.Random) -> None:
    (tmp_path / "a").touch()
    (tmp_path / "b").touch()
    faulty = FaultyOs(str(tmp_path))
    put(faulty, "a", b"first")
    put(faulty, "b", b"second")
    put(faulty, "a", b"third", 5)
    states = list(replayed(faulty).states(rng, count=400))
    found = {(state.tree["a"], state.tree["b"]) for state in states}
    assert {(b"", b"second"), (b"firstthird", b""), (b"\0" * 5 + b"third", b""), (b"first", b"second")} <= found


def test_a_cut_may_be_lost_under_a_write_that_came_after(tmp_path: Path, rng: random.Random) -> None:
    (tmp_path / "a").write_bytes(b"old old old")
    faulty = FaultyOs(str(tmp_path))
    fd = faulty.open(tmp_path / "a", os.O_RDWR)
    faulty.ftruncate(fd, 4)
    faulty.pwrite(fd, b"new", 4)
    assert contents(replayed(faulty), "a", rng) >= {b"old old old", b"old ", b"old new", b"old new old"}
    faulty.fsync(fd)
    assert contents(replayed(faulty), "a", rng) == {b"old new"}


def test_a_rename_happens_whole_or_not_and_stays_once_its_directory_is_synced(
    tmp_path: Path, rng: random.Random
) -> None:
    (tmp_path / "a").write_bytes(b"old")
    faulty = FaultyOs(str(tmp_path))
    faulty.close(put(faulty, "a.tmp", b"new"))
    faulty.rename(tmp_path / "a.tmp", tmp_path / "a")
    assert contents(replayed(faulty), "a", rng) == {b"old", b"", b"\0\0\0", b"new"}
    sync_directory(faulty)
    assert contents(replayed(faulty), "a", rng) == {b"", b"\0\0\0", b"new"}, "the name is safe, the bytes are not"
    assert faulty.unrecorded() == []


def test_files_of_a_directory_whose_own_name_is_lost_are_lost(tmp_path: Path, rng: random.Random) -> None:
    faulty = FaultyOs(str(tmp_path))
    faulty.mkdir(tmp_path / "d")
    faulty.fsync(put(faulty, "d/a", b"one"))
    sync_directory(faulty, "d")
    assert contents(replayed(faulty), "d/a", rng) == {None, b"one"}
    sync_directory(faulty)
    assert contents(replayed(faulty), "d/a", rng) == {b"one"}
    faulty.unlink(tmp_path / "d/a")
    faulty.rmdir(tmp_path / "d")
    assert {state.tree.get("d", b"") for state in replayed(faulty).states(rng, count=9)} == {None, b""}
    sync_directory(faulty)
    assert list(replayed(faulty).states(rng, count=9)) == [State("all kept", {})]


def test_no_later_sync_makes_good_for_one_that_failed(tmp_path: Path, rng: random.Random) -> None:
    (tmp_path / "a").touch()
    faulty = FaultyOs(str(tmp_path), Fault(1, frozenset({"fsync"}), errno.EIO))
    fd = put(faulty, "a", b"one")
    with pytest.raises(OSError, match="Input/output"):
        faulty.fsync(fd)
    faulty.pwrite(fd, b"two", 3)
    faulty.fsync(fd)
    assert contents(replayed(faulty), "a", rng) == {b"onetwo", b"\0\0\0two"}


def test_a_change_behind_its_back_and_an_unknown_call_are_noticed(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old")
    faulty = FaultyOs(str(tmp_path))
    (tmp_path / "a").write_bytes(b"new")
    (tmp_path / "b").touch()
    assert faulty.unrecorded() == ["a", "b"]
    with pytest.raises(AttributeError, match=r"does not stand in for os\.pwritev"):
        faulty.pwritev  # noqa: B018


def test_a_fault_strikes_the_call_it_was_meant_for(tmp_path: Path) -> None:
    def run(fault: Fault | None) -> tuple[FaultyOs, list[object]]:
        faulty, found = FaultyOs(str(tmp_path), fault), []
        fd = faulty.open(tmp_path / "a", RDWR_CREATE)
        for call in (
            lambda: faulty.pwrite(fd, b"abcd", 0),
            lambda: faulty.pwrite(fd, b"efgh", 4),
            lambda: faulty.pread(fd, 4, 0),
            lambda: faulty.preadv(fd, [memoryview(bytearray(4))], 0),
            lambda: faulty.close(fd),
        ):
            try:
                found.append(call())
            except OSError as error:
                found.append(error.errno)
        assert faulty.open_files() == []
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(fd)
        return faulty, found

    faulty, found = run(None)
    assert faulty.calls == ["create", "pwrite", "pwrite", "pread", "preadv", "close"]
    assert found == [4, 4, b"abcd", 4, None]
    writes = frozenset({"pwrite"})
    assert run(Fault(2, writes, errno.EIO))[1] == [4, errno.EIO, b"abcd", 4, None]
    assert run(Fault(1, writes, short=True))[1][:2] == [2, 4]
    assert run(Fault(1, writes, errno.ENOSPC, short=True))[1][:2] == [2, errno.ENOSPC]
    assert run(Fault(1, WRITING, errno.EIO, lasting=True))[1][:2] == [errno.EIO, errno.EIO]
    assert run(Fault(2, READING, short=True))[1][2:] == [b"ab", 4, None]
    assert run(INTERRUPTED_CLOSES)[0].failed == ["close"]
    assert run(Fault(1, writes, errno.EIO, times=2))[1][:2] == [errno.EIO, errno.EIO]
    assert run(Fault(1, writes, short=True, lasting=True))[1][:2] == [2, 2]


# --- a small log with planted bugs --------------------------------------------------------------------


class Toy:
    """Records of 700 bytes and a checksum in one file, and the number of the last flushed one in another.

    Its bugs: ``unsynced`` acknowledges what is not synced, ``nameless`` never syncs the directory, ``early`` writes the
    number before the records are there, ``careless`` renames a temporary file that was not synced, and ``trusting``
    believes every record that has its length.
    """

    def __init__(self, system: FaultyOs, bug: str) -> None:
        self.os, self.bug, self.acknowledged = system, bug, 0
        self.fd = system.open(os.path.join(system.root, "log"), RDWR_CREATE)
        if bug != "nameless":
            self.sync_directory()

    def sync_directory(self) -> None:
        fd = self.os.open(self.os.root, os.O_RDONLY)
        self.os.fsync(fd)
        self.os.close(fd)

    def append(self, number: int) -> None:
        if self.bug == "early":
            self.note(number + 1)
        self.os.pwrite(self.fd, record(number), number * 704)
        if self.bug != "unsynced":
            self.os.fsync(self.fd)
        if self.bug != "early":
            self.note(number + 1)
        self.acknowledged = number + 1

    def note(self, count: int) -> None:
        fd = self.os.open(os.path.join(self.os.root, "count.tmp"), RDWR_CREATE | os.O_TRUNC)
        self.os.pwrite(fd, b"%d" % count, 0)
        if self.bug != "careless":
            self.os.fsync(fd)
        self.os.close(fd)
        self.os.rename(os.path.join(self.os.root, "count.tmp"), os.path.join(self.os.root, "count"))
        if self.bug != "nameless":
            self.sync_directory()


def record(number: int) -> bytes:
    body = bytes([65 + number]) * 700
    return zlib.crc32(body).to_bytes(4, "big") + body


def toy_finds(tree: Tree, acknowledged: int, bug: str) -> str:
    """What is wrong with a toy log after a crash; empty if nothing."""
    log, count = tree.get("log") or b"", tree.get("count")
    good = 0
    while len(log) >= 704 * (good + 1):
        piece = log[704 * good : 704 * (good + 1)]
        if bug != "trusting" and zlib.crc32(piece[4:]).to_bytes(4, "big") != piece[:4]:
            break
        if piece != record(good):
            return f"record {good} is not what was written"
        good += 1
    if good < acknowledged:
        return f"{good} records, {acknowledged} were acknowledged"
    if count is not None and not (count.isdigit() and int(count) <= good):
        return f"the count is {count!r}, there are {good} records"
    return ""


@pytest.mark.parametrize(
    ("bug", "finding"),
    [
        ("", ""),
        ("unsynced", "were acknowledged"),
        ("nameless", "were acknowledged"),
        ("early", "the count is"),
        ("careless", "the count is"),
        ("trusting", "is not what was written"),
    ],
)
def test_each_bug_planted_in_a_small_writer_is_found(
    tmp_path: Path, rng: random.Random, bug: str, finding: str
) -> None:
    faulty = FaultyOs(str(tmp_path))
    toy = Toy(faulty, bug)
    facts = {len(faulty.trace): 0}
    for number in range(3):
        toy.append(number)
        facts[len(faulty.trace)] = toy.acknowledged
    assert faulty.unrecorded() == []
    disk, known, found, states = faulty.disk(), 0, set(), 0
    for done in range(len(faulty.trace) + 1):
        known = facts.get(done, known)
        for state in disk.states(rng, count=60):
            states += 1
            wrong = toy_finds(state.tree, known, bug)
            found |= {wrong} - {""}
        if done < len(faulty.trace):
            disk.step(faulty.trace[done])
    assert states > 50
    assert any(finding in wrong for wrong in found) if finding else not found


def test_trees_are_written_and_read_back(tmp_path: Path) -> None:
    tree: Tree = {"a": b"x", "d": None, "d/b": b"", "d/e": None}
    write_tree(str(tmp_path / "t"), tree)
    assert read_tree(str(tmp_path / "t")) == tree
    assert State("", tree).digest() == State("other", dict(reversed(tree.items()))).digest()
    assert State("", tree).digest() != State("", tree | {"a": b"y"}).digest()
    assert Op("sync").call == ""
