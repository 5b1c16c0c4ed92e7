"""kts.offline.verify finds nothing in what brokers left, and every kind of damage that is planted here."""

from __future__ import annotations

import os
import shutil
import struct
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from support.golden import Golden, golden, golden_partitions, goldens

import kts
from kts.offline.verify import Violation, verify

KILLED = [scenario for scenario in goldens() if (scenario.path / "killed.tar.gz").exists()]


@pytest.mark.parametrize(("scenario", "name"), golden_partitions(), ids=str)
@pytest.mark.parametrize("deep", [False, True], ids=["headers", "deep"])
def test_nothing_is_wrong_in_what_a_broker_left(scenario: Golden, name: str, deep: bool) -> None:
    read: list[int] = []
    assert list(verify(scenario.partition_dir(name), deep=deep, progress=read.append)) == []
    assert sum(read) == sum(path.stat().st_size for path in scenario.logs(name))


@pytest.mark.parametrize("scenario", KILLED, ids=str)
def test_nothing_is_wrong_in_what_a_killed_broker_left(scenario: Golden, tmp_path: Path) -> None:
    with tarfile.open(scenario.path / "killed.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    assert list(verify(tmp_path / "data", deep=True)) == []


@pytest.mark.parametrize("scenario", goldens()[::5], ids=str)
def test_nothing_is_wrong_in_lone_logs_and_bare_backups(scenario: Golden, tmp_path: Path) -> None:
    for name in scenario.partitions:
        bare = tmp_path / name
        bare.mkdir()
        for path in scenario.logs(name):
            assert list(verify(path, deep=True)) == []
            shutil.copyfile(path, bare / path.name)
        assert list(verify(bare)) == []


# --- planted damage -------------------------------------------------------------------------------


@pytest.fixture
def sound(writable: Callable[[Golden], Golden]) -> Path:
    """orders-0 of the demo: four segments with entries in all indexes."""
    copy = writable(golden("demo", "orders"))
    directory = copy.partition_dir("orders-0")
    assert list(verify(directory, deep=True)) == []
    return directory


def nth(directory: Path, suffix: str, n: int) -> Path:
    return sorted(directory.glob(f"*{suffix}"))[n]


def change(path: Path, position: int, new: bytes) -> None:
    data = bytearray(path.read_bytes())
    data[position : position + len(new)] = new
    path.write_bytes(data)


def positions(path: Path) -> list[int]:
    return kts.scan_batches(path.read_bytes()).column("position").to_pylist()


def plus(path: Path, position: int, delta: int, width: int) -> None:
    data = path.read_bytes()
    value = int.from_bytes(data[position : position + width], "big", signed=True) + delta
    change(path, position, value.to_bytes(width, "big", signed=True))


def plant_bit(d: Path) -> None:
    log = nth(d, ".log", 0)
    change(log, positions(log)[3] + 40, b"\xee")


def plant_size(d: Path) -> None:
    log = nth(d, ".log", 0)
    change(log, positions(log)[3] + 8, b"\0\0\0\5")


def plant_huge_size(d: Path) -> None:
    log = nth(d, ".log", 0)
    change(log, positions(log)[3] + 8, b"\x7f")


def plant_magic(d: Path) -> None:
    log = nth(d, ".log", 0)
    change(log, positions(log)[3] + 16, b"\5")


def plant_zeros_in_the_middle(d: Path) -> None:
    log = nth(d, ".log", 0)
    change(log, positions(log)[3], bytes(200))


def plant_low_offset(d: Path) -> None:
    log = nth(d, ".log", 1)
    change(log, positions(log)[1], bytes(8))


def plant_repeated_batch(d: Path) -> None:
    log = nth(d, ".log", 3)
    data, starts = log.read_bytes(), positions(log)
    log.write_bytes(data + data[starts[-1] :])


def plant_high_offset(d: Path) -> None:
    log = nth(d, ".log", 0)
    change(log, positions(log)[-1], struct.pack(">q", 10**6))


def plant_cut_log(d: Path) -> None:
    log = nth(d, ".log", 3)
    log.write_bytes(log.read_bytes()[:-7])


def plant_cut_at_a_batch(d: Path) -> None:
    log = nth(d, ".log", 3)
    log.write_bytes(log.read_bytes()[: positions(log)[-1]])


def plant_zero_tail_of_log(d: Path) -> None:
    log = nth(d, ".log", 3)
    log.write_bytes(log.read_bytes() + bytes(4096))


def plant_garbage_behind(d: Path) -> None:
    log = nth(d, ".log", 3)
    log.write_bytes(log.read_bytes() + b"garbage" * 9)


def plant_missing_segment(d: Path) -> None:
    for suffix in (".log", ".index", ".timeindex"):
        nth(d, suffix, 1).unlink()


def plant_missing_log(d: Path) -> None:
    nth(d, ".log", 2).unlink()


def plant_missing_index(d: Path) -> None:
    nth(d, ".index", 2).unlink()


def plant_missing_time_index(d: Path) -> None:
    nth(d, ".timeindex", 2).unlink()


def plant_renamed_segment(d: Path) -> None:
    base = nth(d, ".log", 1).name.split(".")[0]
    for suffix in (".log", ".index", ".timeindex"):
        (d / f"{base}{suffix}").rename(d / f"{int(base) + 5:020}{suffix}")


def plant_index_position(d: Path) -> None:
    plus(nth(d, ".index", 0), 8 * 4 + 4, 1, 4)


def plant_index_offset(d: Path) -> None:
    plus(nth(d, ".index", 0), 8 * 4, -1, 4)


def plant_larger_index_offset(d: Path) -> None:
    plus(nth(d, ".index", 0), 8 * 4, 1, 4)


def plant_index_order(d: Path) -> None:
    index = nth(d, ".index", 0)
    data = index.read_bytes()
    index.write_bytes(data[:8] + data[16:24] + data[8:16] + data[24:])


def plant_index_beyond(d: Path) -> None:
    index = nth(d, ".index", 0)
    index.write_bytes(index.read_bytes() + struct.pack(">ii", 2**30, 2**30))


def plant_odd_index_size(d: Path) -> None:
    index = nth(d, ".index", 0)
    index.write_bytes(index.read_bytes()[:-3])


def plant_zero_tail_of_index(d: Path) -> None:
    index = nth(d, ".index", 3)
    index.write_bytes(index.read_bytes() + bytes(800))


def plant_zero_tail_of_time_index(d: Path) -> None:
    index = nth(d, ".timeindex", 3)
    index.write_bytes(index.read_bytes() + bytes(1200))


def plant_zero_tails_of_a_closed_segment(d: Path) -> None:
    for suffix, size in ((".index", 8), (".timeindex", 12)):
        nth(d, suffix, 0).write_bytes(nth(d, suffix, 0).read_bytes() + bytes(100 * size))


def plant_time(d: Path) -> None:
    plus(nth(d, ".timeindex", 0), 12 * 3, 1, 8)


def plant_earlier_time(d: Path) -> None:
    plus(nth(d, ".timeindex", 0), 12 * 3, -1, 8)


def plant_time_offset(d: Path) -> None:
    """The entry gets the last offset of the batch before its own."""
    index = nth(d, ".timeindex", 0)
    offset = int.from_bytes(index.read_bytes()[12 * 3 + 8 : 12 * 4], "big")
    lasts = kts.scan_batches(nth(d, ".log", 0).read_bytes()).column("lastOffset").to_pylist()
    change(index, 12 * 3 + 8, struct.pack(">i", max(last for last in lasts if last < offset)))


def plant_time_order(d: Path) -> None:
    index = nth(d, ".timeindex", 0)
    data = index.read_bytes()
    index.write_bytes(data[:12] + data[24:36] + data[12:24] + data[36:])


def plant_cut_time_index(d: Path) -> None:
    index = nth(d, ".timeindex", 0)
    index.write_bytes(index.read_bytes()[:-12])


def plant_odd_time_index_size(d: Path) -> None:
    index = nth(d, ".timeindex", 0)
    index.write_bytes(index.read_bytes()[:-5])


def plant_snapshot(d: Path) -> None:
    change(nth(d, ".snapshot", -1), 3, b"\xaa")


def plant_snapshot_beyond(d: Path) -> None:
    shutil.copyfile(nth(d, ".snapshot", -1), d / f"{10**7:020}.snapshot")


def plant_leader_epoch_text(d: Path) -> None:
    (d / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n")


def plant_leader_epoch_order(d: Path) -> None:
    (d / "leader-epoch-checkpoint").write_text("0\n2\n3 0\n2 50\n")


def plant_leader_epoch_number(d: Path) -> None:
    (d / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n7 1138\n")


def plant_partition_metadata(d: Path) -> None:
    (d / "partition.metadata").write_text("version: 0\ntopic_id: short\n")


PLANTS: list[tuple[Callable[[Path], None], str]] = [
    (plant_bit, "crc"),
    (plant_size, "batch"),
    (plant_huge_size, "batch"),
    (plant_magic, "batch"),
    (plant_zeros_in_the_middle, "batch"),
    (plant_low_offset, "offset"),
    (plant_repeated_batch, "offset"),
    (plant_high_offset, "offset"),
    (plant_cut_log, "cut-tail"),
    (plant_cut_at_a_batch, "time-index"),
    (plant_zero_tail_of_log, "zero-tail"),
    (plant_garbage_behind, "batch"),
    (plant_missing_segment, "gap"),
    (plant_missing_log, "orphan"),
    (plant_missing_index, "missing"),
    (plant_missing_time_index, "missing"),
    (plant_renamed_segment, "offset"),
    (plant_index_position, "offset-index"),
    (plant_index_offset, "offset-index"),
    (plant_larger_index_offset, "offset-index"),
    (plant_index_order, "index-file"),
    (plant_index_beyond, "offset-index"),
    (plant_odd_index_size, "index-file"),
    (plant_zero_tail_of_index, "zero-tail"),
    (plant_zero_tail_of_time_index, "zero-tail"),
    (plant_zero_tails_of_a_closed_segment, "zero-tail"),
    (plant_time, "time-index"),
    (plant_earlier_time, "time-index"),
    (plant_time_offset, "time-index"),
    (plant_time_order, "index-file"),
    (plant_cut_time_index, "time-index"),
    (plant_odd_time_index_size, "index-file"),
    (plant_snapshot, "snapshot"),
    (plant_snapshot_beyond, "snapshot"),
    (plant_leader_epoch_text, "leader-epoch"),
    (plant_leader_epoch_order, "leader-epoch"),
    (plant_leader_epoch_number, "leader-epoch"),
    (plant_partition_metadata, "partition-metadata"),
]


@pytest.mark.parametrize(("plant", "kind"), PLANTS, ids=lambda value: getattr(value, "__name__", value))
def test_planted_damage_is_found_and_named(plant: Callable[[Path], None], kind: str, sound: Path) -> None:
    before = {path.name: path.read_bytes() for path in sound.iterdir()}
    plant(sound)
    changed = {path.name for path in sound.iterdir() if before.get(path.name) != path.read_bytes()}
    changed |= before.keys() - {path.name for path in sound.iterdir()}
    found = list(verify(sound))
    assert kind in {one.kind for one in found}, found
    for one in found:
        assert isinstance(one, Violation) and one.message and Path(one.path).parent == sound
    if kind not in ("gap", "time-index", "leader-epoch", "orphan"):
        assert any(Path(one.path).name in changed for one in found), found
    assert len(found) < 70
    assert {one.kind for one in verify(sound, deep=True)} >= {one.kind for one in found}


def test_zero_tails_of_an_active_segment_are_fine_until_a_clean_stop(sound: Path) -> None:
    for suffix, size in ((".index", 8), (".timeindex", 12)):
        nth(sound, suffix, 3).write_bytes(nth(sound, suffix, 3).read_bytes() + bytes(100 * size))
    assert list(verify(sound)) == []
    (sound.parent / ".kafka_cleanshutdown").write_bytes(b"")
    assert [one.kind for one in verify(sound)] == ["zero-tail", "zero-tail"]


def test_damage_in_the_middle_does_not_hide_what_follows(sound: Path) -> None:
    log = nth(sound, ".log", 0)
    starts = positions(log)
    change(log, starts[3] + 8, b"\0\0\0\5")
    change(log, starts[9] + 50, b"\xee\xee")
    nth(sound, ".snapshot", 0).write_bytes(b"short")
    found = [(one.kind, one.position) for one in verify(sound)]
    assert ("batch", starts[3]) in found and ("crc", starts[9]) in found
    assert "snapshot" in {kind for kind, _ in found}


def test_repeated_findings_are_counted_instead_of_listed(sound: Path) -> None:
    log = nth(sound, ".log", 0)
    data = bytearray(log.read_bytes())
    for position in positions(log):
        data[position + 50] ^= 1
    log.write_bytes(data)
    found = [one for one in verify(sound) if one.kind == "crc"]
    assert len(found) == 21 and found[-1].message == f"{len(positions(log)) - 20} more of this kind are not listed"


def test_an_unreadable_file_does_not_end_the_verification(sound: Path) -> None:
    (sound / "leader-epoch-checkpoint").unlink()
    (sound / "leader-epoch-checkpoint").mkdir()
    change(nth(sound, ".log", 1), 40, b"\xee")
    index = nth(sound, ".index", 2)
    index.unlink()
    index.mkdir()
    found = list(verify(sound.parent))
    assert {"unreadable", "crc"} == {one.kind for one in found}
    assert {Path(one.path).name for one in found if one.kind == "unreadable"} >= {index.name, "leader-epoch-checkpoint"}


def test_files_with_names_of_other_programs_are_ignored(sound: Path) -> None:
    (sound / "notes.txt").write_text("mine")
    (sound / f"{99:020}.log.deleted").write_bytes(b"garbage")
    (sound / f"{99:020}.index.cleaned").write_bytes(b"garbage")
    assert list(verify(sound)) == []
    with pytest.raises(FileNotFoundError):
        list(verify(sound / "none"))


def test_a_truncation_inside_a_batch_leaves_no_missing_end(tmp_path: Path) -> None:
    """The batch goes as a whole, as in Kafka, and the log end offset stays behind the last batch until a start.

    Only if the file is not as kts.Log closed it, its end is missing.
    """
    path = tmp_path / "t-0"
    ten = kts.encode({"timestamp": [1_700_000_000_000] * 10, "value": [b"v"] * 10})
    with kts.Log(path) as log:
        for _ in range(3):
            log.append(ten)
        log.truncate_to(25)
        assert log.log_end_offset == 25
    assert list(verify(path)) == []
    copy = tmp_path / "copy" / "t-0"
    shutil.copytree(tmp_path / "t-0", copy)
    for name in tmp_path.glob("*-checkpoint"):
        shutil.copy(name, copy.parent)
    shutil.copy(tmp_path / ".kafka_cleanshutdown", copy.parent)
    with kts.Log(path) as log:
        assert (log.log_end_offset, log.recovered) == (20, [])
    assert list(verify(path)) == []
    os.truncate(copy / f"{0:020d}.log", len(ten))
    assert [one.kind for one in verify(copy)] == ["checkpoint", "snapshot"]
    with kts.Log(copy) as log:
        told = "expected offsets up to 25, the recovery point of a clean stop, found the end 10"
        assert [one.reason.partition(":")[0] for one in log.recovered if "missing" in str(one.reason)] == [told]
