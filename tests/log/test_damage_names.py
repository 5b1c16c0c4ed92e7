"""Missing, surplus, renamed and special files in a partition directory, and garbage in its small files."""

from __future__ import annotations

import os
import random
import shutil
import warnings
from pathlib import Path

import pyarrow as pa
import pytest
from support.golden import golden
from support.sets.log_records import NOW, batch, names, opened

import kts
from kts.offline.verify import verify

SMALL_FILES = (".txnindex", ".snapshot", "leader-epoch-checkpoint", "partition.metadata")
BESIDE = ("recovery-point-offset-checkpoint", "replication-offset-checkpoint", "log-start-offset-checkpoint")
GARBAGE = (
    b"",
    b"\0" * 40,
    b"\xff" * 40,
    b"0\n1\n",
    b"0\n2\nt 0 5\n",
    b"0\n1\nt 0 x\n",
    b"\n\n\n",
    b"0\n1\nt 0 99999999999999999999\n",
)


def made(folder: Path, count: int = 12) -> list[int]:
    """A log of a few segments; its offsets."""
    with opened(folder) as log:
        for number in range(count):
            log.append(batch(NOW + number, NOW + number))
        assert len(log.segments) > 2
        return list(range(log.log_end_offset))


def unclean(folder: Path, recovery_point: int = 0) -> None:
    """As after a crash: without the marker, and nothing is known to be on the disk."""
    (folder / ".kafka_cleanshutdown").unlink()
    (folder / BESIDE[0]).write_text(f"0\n1\nt 0 {recovery_point}\n")


def scanned(path: Path, **options: object) -> list[int]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return kts.scan(path, columns=["offset"], **options).read_all().column(0).to_pylist()  # type: ignore[arg-type]


def test_files_with_other_names_stay_as_they_are(tmp_path: Path) -> None:
    offsets = made(tmp_path)
    unclean(tmp_path)
    foreign = [
        "notes.txt",
        "0.log",
        f"{0:019}.log",
        f"{3:020}.LOG",
        f"{0:020}.log.bak",
        f"{0:020}.log.aside-5",
        ".hidden",
    ]
    for name in foreign:
        (tmp_path / "t-0" / name).write_bytes(b"not a log")
    with opened(tmp_path) as log:
        assert log.recovered == []
        assert scanned(log.path) == offsets
    assert all((tmp_path / "t-0" / name).read_bytes() == b"not a log" for name in foreign)


@pytest.mark.parametrize("suffix", [".deleted", ".cleaned"])
def test_what_a_crash_left_half_deleted_goes_and_is_reported(suffix: str, tmp_path: Path) -> None:
    offsets = made(tmp_path)
    unclean(tmp_path)
    left = [
        tmp_path / "t-0" / f"{base:020}{kind}{suffix}" for base in (0, 999) for kind in (".log", ".index", ".timeindex")
    ]
    for path in left:
        path.write_bytes(b"12345")
    with opened(tmp_path) as log:
        assert {(one.path, one.position, one.bytes_cut) for one in log.recovered} == {(str(p), 0, 5) for p in left}
        assert scanned(log.path) == offsets
    assert not any(path.exists() for path in left)


def test_indexes_without_a_log_go_and_the_records_of_others_stay(tmp_path: Path) -> None:
    offsets = made(tmp_path)
    unclean(tmp_path)
    bases = sorted(int(path.stem) for path in (tmp_path / "t-0").glob("*.log"))
    (tmp_path / "t-0" / f"{bases[1]:020}.log").unlink()
    with opened(tmp_path) as log:
        gone = {Path(one.path).name for one in log.recovered}
        assert gone == {f"{bases[1]:020}.index", f"{bases[1]:020}.timeindex"}
        left = [offset for offset in offsets if not bases[1] <= offset < bases[2]]
        assert scanned(log.path) == left and log.log_end_offset == offsets[-1] + 1
        assert {v.kind for v in verify(log.path)} == {"gap"}


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("shift", [-2, -1, 1, 2, 500])
def test_a_renamed_segment_costs_no_record_before_it(clean: bool, shift: int, tmp_path: Path) -> None:
    offsets = made(tmp_path)
    if not clean:
        unclean(tmp_path)
    bases = sorted(int(path.stem) for path in (tmp_path / "t-0").glob("*.log"))
    for path in list((tmp_path / "t-0").glob(f"{bases[2]:020}.*")):
        path.rename(path.with_name(f"{bases[2] + shift:020}{path.suffix}"))
    with opened(tmp_path) as log:
        found = scanned(log.path, on_error="skip")
        assert found[: bases[2]] == offsets[: bases[2]] and set(found) <= set(offsets)
        end = log.log_end_offset
        assert log.append(batch(NOW)).first_offset == end
        assert kts.decode(log.read(end, 1000).records, ["offset"]).column(0).to_pylist() == [end]
        if len(found) < len(offsets):
            assert log.recovered and all(one.reason for one in log.recovered)


def put_directory(path: Path) -> None:
    path.mkdir()


def put_fifo(path: Path) -> None:
    os.mkfifo(path)


def put_loop(path: Path) -> None:
    path.symlink_to(path)


def put_link_to_nowhere(path: Path) -> None:
    path.symlink_to(path.parent / "nowhere")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no FIFOs")
@pytest.mark.timeout(30)  # a FIFO could make one wait for ever
@pytest.mark.parametrize("put", [put_directory, put_fifo, put_loop, put_link_to_nowhere], ids=lambda put: put.__name__)
@pytest.mark.parametrize("name", [".log", ".index", ".timeindex", ".txnindex", ".snapshot", "leader-epoch-checkpoint"])
@pytest.mark.parametrize("clean", [True, False])
def test_what_is_no_regular_file_is_a_storage_error_or_left_out(
    put: object, name: str, clean: bool, tmp_path: Path
) -> None:
    made(tmp_path)
    if not clean:
        unclean(tmp_path)
    bases = sorted(int(path.stem) for path in (tmp_path / "t-0").glob("*.log"))
    path = tmp_path / "t-0" / (f"{bases[1]:020}{name}" if name.startswith(".") else name)
    path.unlink(missing_ok=True)
    put(path)  # type: ignore[operator]
    try:
        with opened(tmp_path) as log:
            assert log.append(batch(NOW)).entries == 1
    except kts.KtsError as error:
        assert isinstance(error, kts.LogStorageError) and error.path is not None and path.name in str(error.path)
    try:
        scanned(tmp_path / "t-0", on_error="skip")
        list(verify(tmp_path / "t-0"))
    except kts.LogStorageError as error:
        assert path.name in str(error.path)


def damaged(rng: random.Random, data: bytes) -> bytes:
    """Garbage, or the bytes with a few changes."""
    if rng.random() < 0.4 or not data:
        return rng.choice((*GARBAGE, rng.randbytes(60)))
    out = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(out))
        out[at : at + rng.choice((0, 1, 4))] = rng.randbytes(rng.choice((0, 1, 4)))
        out = out or bytearray(b"\0")
    return bytes(out)


def committed(path: Path, **options: object) -> list[tuple[int, bytes]]:
    table = kts.scan(path, columns=["offset", "value"], isolation="read_committed", **options).read_all()  # type: ignore[arg-type]
    return list(zip(table.column(0).to_pylist(), table.column(1).cast(pa.binary()).to_pylist(), strict=True))


@pytest.mark.slow
def test_garbage_in_small_files_costs_no_record(tmp_path: Path, rng: random.Random) -> None:
    """Snapshots and transaction indexes are made again after an unclean end, so read_committed is the same, too."""
    scenario = golden("3.9.2", "txn-none")
    source = scenario.partition_dir(scenario.partitions[0])
    expected, whole = committed(source), scanned(source)
    opened_again = 0
    for number in range(150):
        path = tmp_path / str(number) / source.name
        shutil.copytree(source, path)
        clean = number % 3 == 0
        if clean:
            (path.parent / ".kafka_cleanshutdown").write_bytes(b"")
        for name in BESIDE:
            if rng.random() < 0.3:
                (path.parent / name).write_bytes(damaged(rng, b"0\n1\n%s 0 20\n" % source.name[:-2].encode()))
        chosen = [file for file in path.iterdir() if file.name.endswith(SMALL_FILES) and rng.random() < 0.5]
        for file in chosen:
            if rng.random() < 0.2:
                file.unlink()
            else:
                file.write_bytes(damaged(rng, file.read_bytes()))
        try:
            log = kts.Log(path, {"message.format.version": "3.0"}, clock=lambda: NOW)
        except kts.KtsError as error:
            assert error.path is not None and any(error.path.endswith(file.name) for file in chosen), error
            continue
        with log:
            assert scanned(path, log_start_offset=0) == whole
            assert log.log_end_offset == max(whole[-1] + 1, log.log_end_offset)
            if not clean:
                assert committed(path, log_start_offset=0) == expected
            assert log.append(batch(NOW)).first_offset >= whole[-1]
        opened_again += 1
    print(f"{opened_again} of 150 open")
    assert opened_again > 100


def test_a_missing_checkpoint_means_that_all_is_recovered(tmp_path: Path) -> None:
    offsets = made(tmp_path)
    unclean(tmp_path, 2**40)
    first = tmp_path / "t-0" / f"{0:020}.log"
    data = bytearray(first.read_bytes())
    data[-1] ^= 1
    first.write_bytes(data)
    (tmp_path / BESIDE[0]).unlink()
    with opened(tmp_path) as log:
        cut = next(one for one in log.recovered if one.path == str(first))
        assert cut.bytes_cut == len(data) - cut.position > 0
        assert scanned(log.path) == offsets[: log.log_end_offset]
        assert {one.path for one in log.recovered} >= {str(first)} and len(log.segments) == 1
    assert any("aside" in name for name in names(tmp_path))
