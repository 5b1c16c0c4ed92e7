"""Start-up of a log: what is half done is finished, what is damaged is cut, and all of it is reported."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from support.sets.log_records import NOW, Clock, bases, batch, names, offsets, opened

import kts

GENERATIONS = {"0.10.2": 1, "3.9": 2}


def written(folder: Path, generation: str = "3.9", count: int = 20) -> list[int]:
    """A log of some segments, left as by kill -9; the base offsets."""
    log = opened(folder, generation=generation)
    for number in range(count):
        log.append(batch(NOW + number, NOW, magic=GENERATIONS[generation]))
    found = list(bases(log))
    log.abandon()
    assert len(found) > 3
    return found


def log_file(folder: Path, base: int, suffix: str = ".log") -> Path:
    return folder / f"t-0/{base:020d}{suffix}"


def indexes(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (folder / "t-0").glob("*index")}


@pytest.mark.parametrize("generation", GENERATIONS)
def test_after_a_kill_everything_whole_is_there_and_indexes_equal_a_rebuild(tmp_path: Path, generation: str) -> None:
    written(tmp_path, generation)
    with opened(tmp_path, generation=generation) as log:
        assert (log.clean_start, log.recovered) == (False, [])
        assert offsets(log) == list(range(40))
    left = indexes(tmp_path)
    (tmp_path / ".kafka_cleanshutdown").unlink()
    for path in (tmp_path / "t-0").glob("*index"):
        path.unlink()
    with opened(tmp_path, generation=generation) as log:
        log.close()
        assert indexes(tmp_path) == left
    with opened(tmp_path, generation=generation) as log:
        assert log.append(batch(NOW, magic=GENERATIONS[generation])).first_offset == 40


@pytest.mark.parametrize("generation", GENERATIONS)
@pytest.mark.parametrize("tail", [b"\0" * 50, b"\x07" * 5, b"cut"])
def test_a_bad_tail_is_cut_and_reported(tmp_path: Path, generation: str, tail: bytes) -> None:
    last = written(tmp_path, generation)[-1]
    path = log_file(tmp_path, last)
    size = path.stat().st_size
    if tail == b"cut":
        with path.open("r+b") as file:
            file.truncate(size - 3)
        lost = GENERATIONS[generation]  # a batch, or a message
    else:
        with path.open("ab") as file:
            file.write(tail)
        lost = 0
    with opened(tmp_path, generation=generation) as log:
        assert offsets(log) == list(range(40 - lost))
        (report,) = log.recovered
        assert report.path == str(path)
        assert report.bytes_cut == (len(tail) if not lost else size - 3 - path.stat().st_size)
        assert report.position == path.stat().st_size
        assert report.reason


def test_segments_behind_a_cut_are_set_aside_or_deleted_as_shipped(tmp_path: Path) -> None:
    found = written(tmp_path)
    damaged = log_file(tmp_path, found[1])
    data = bytearray(damaged.read_bytes())
    data[70] ^= 1
    damaged.write_bytes(data)
    shutil.copytree(tmp_path, tmp_path / "copy", ignore=shutil.ignore_patterns("copy"))
    with opened(tmp_path, Clock(5)) as log:
        assert (bases(log), offsets(log)) == (found[:2], list(range(found[1])))
        cut = [(report.path, report.position) for report in log.recovered]
        assert (str(damaged), 0) in cut
        assert {str(log_file(tmp_path, base)) for base in found[2:]} < {path for path, _ in cut}
        assert all(report.bytes_cut > 0 for report in log.recovered)
        for base in found[2:]:
            assert log_file(tmp_path, base, ".log.aside-5").exists()
        log.append(batch(NOW))
    with opened(tmp_path) as log:
        assert log.recovered == []
    with opened(tmp_path / "copy", shipped=True, file_delete_delay_ms=0) as log:
        assert bases(log) == found[:2]
        log.delete_due_files()
        assert not [name for name in names(tmp_path / "copy") if ".aside" in name or ".deleted" in name]


def test_only_segments_from_the_recovery_point_on_are_recovered(tmp_path: Path) -> None:
    found = written(tmp_path)
    for base in (found[0], found[-1]):
        data = bytearray(log_file(tmp_path, base).read_bytes())
        data[-1] ^= 1
        log_file(tmp_path, base).write_bytes(data)
    with opened(tmp_path, recovery_point=found[1]) as log:
        assert [report.path for report in log.recovered] == [str(log_file(tmp_path, found[-1]))]
        assert len(log.segments) == len(found)
    with opened(tmp_path) as log:
        assert log.clean_start


def test_a_missing_offset_index_is_rebuilt_even_after_a_clean_stop(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        for number in range(20):
            log.append(batch(NOW + number, NOW))
        base = bases(log)[1]
    left = indexes(tmp_path)
    log_file(tmp_path, base, ".index").unlink()
    with opened(tmp_path) as log:
        assert [(one.path, one.bytes_cut) for one in log.recovered] == [(str(log_file(tmp_path, base)), 0)]
        assert "offset index is missing" in str(log.recovered[0].reason)
    assert indexes(tmp_path) == left


def test_left_over_and_orphan_files_go_and_unknown_ones_stay(tmp_path: Path) -> None:
    written(tmp_path)
    directory = tmp_path / "t-0"
    for name in (f"{0:020d}.log.deleted", f"{5:020d}.timeindex.cleaned", f"{999:020d}.index", f"{999:020d}.timeindex"):
        (directory / name).write_bytes(b"x" * 12)
    for name in ("notes.txt", f"{3:020d}.log.old", "5.log"):
        (directory / name).write_bytes(b"mine")
    with opened(tmp_path) as log:
        assert len([one for one in log.recovered if one.bytes_cut == 12]) == 4
    left = names(tmp_path)
    assert {"notes.txt", f"{3:020d}.log.old", "5.log"} < set(left)
    assert not [name for name in left if "999" in name or "deleted" in name or "cleaned" in name]


@pytest.mark.parametrize("generation", GENERATIONS)
def test_an_interrupted_swap_is_completed(tmp_path: Path, generation: str) -> None:
    found = written(tmp_path, generation)
    first, second = log_file(tmp_path, found[0]), log_file(tmp_path, found[1])
    swap = log_file(tmp_path, found[0], ".log.swap")
    swap.write_bytes(first.read_bytes() + second.read_bytes())
    with opened(tmp_path, generation=generation) as log:
        assert (bases(log), offsets(log)) == ([found[0], *found[2:]], list(range(40)))
        told = {Path(one.path).name: one.reason for one in log.recovered}
        assert {first.name, second.name, swap.name} <= set(told)
    assert not [name for name in names(tmp_path) if "swap" in name]


def test_a_log_that_ends_below_its_start_offset_begins_anew_there(tmp_path: Path) -> None:
    found = written(tmp_path)
    with opened(tmp_path, log_start_offset=100) as log:
        assert (log.log_start_offset, log.log_end_offset, bases(log)) == (100, 100, [100])
        assert len([one for one in log.recovered if "log start offset 100" in str(one.reason)]) == len(found)


def test_a_start_that_was_itself_interrupted_is_finished_by_the_next(tmp_path: Path) -> None:
    last = written(tmp_path)[-1]
    with log_file(tmp_path, last).open("ab") as file:
        file.write(b"\0" * 9)
    opened(tmp_path).abandon()
    once = {path.name: path.read_bytes() for path in (tmp_path / "t-0").iterdir()}
    log = opened(tmp_path)
    assert log.recovered == []
    log.abandon()
    assert {path.name: path.read_bytes() for path in (tmp_path / "t-0").iterdir()} == once


def test_producers_and_aborted_transactions_are_recovered_from_the_batches(tmp_path: Path) -> None:
    from support.golden import golden

    source = golden("3.9.2", "txn-none")
    partition = source.partitions[0]
    theirs = source.partition_dir(partition)
    shutil.copytree(theirs, tmp_path / partition)
    for path in [*(tmp_path / partition).glob("*.snapshot"), *(tmp_path / partition).glob("*index")]:
        path.unlink()
    clock = Clock(source.meta["brokerClockAtStart"])
    with kts.Log(tmp_path / partition, {"index.interval.bytes": 200}, clock=clock) as log:
        assert not log.clean_start
        assert log.last_stable_offset == log.log_end_offset == 58
    for path in [*theirs.glob("*.txnindex"), *theirs.glob("*58.snapshot"), *theirs.glob("*7.snapshot")]:
        assert (tmp_path / partition / path.name).read_bytes() == path.read_bytes(), path.name


def test_what_was_deleted_stays_deleted_when_a_truncation_splits_the_batch_across_the_start(tmp_path: Path) -> None:
    """The batch goes as a whole, and the log ends below its start, as in Kafka. Older records do not come back."""
    path = tmp_path / "t-0"
    five = kts.encode({"timestamp": [1_700_000_000_000] * 5, "value": [b"v"] * 5})
    with kts.Log(path) as log:
        log.append(five)
        log.append(five)
        log.advance_log_start_offset(7)
        log.truncate_to(8)
    with kts.Log(path) as log:
        assert (log.log_start_offset, log.log_end_offset) == (7, 7)
        assert any("ends below the log start offset 7" in str(one.reason) for one in log.recovered)
        assert log.append(five).first_offset == 7
        assert kts.decode(log.read(7, 10_000).records, ["offset"]).column(0).to_pylist() == [7, 8, 9, 10, 11]
