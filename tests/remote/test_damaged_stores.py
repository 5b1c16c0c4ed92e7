"""Stores of which objects are damaged: no answer is less or other than was asked without a word."""

from __future__ import annotations

import json
import random
import shutil
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.damage.stores import DOORS, HTML, Store, attack, stores
from support.golden import scaled
from support.processes.cli_runs import run
from support.tiered import Session, names, offsets, session

import kts
from kts.errors import CorruptRecordError, DamageWarning, KtsWarning
from kts.offline.copy import copy
from kts.offline.verify import verify_partition
from kts.tables import sync


def test_damage_to_any_object_is_told(tmp_path: Path, seed: int) -> None:
    """Deleted, cut, flipped, swapped, replaced, restored wrongly, duplicated, one object or all of a kind."""
    rng = random.Random(f"{seed} stores")
    count = scaled(4, 60)
    chosen = stores() if count > len(names()) else stores([rng.choice(names())])
    wrong: list[str] = []
    for number in range(count):
        done, found = attack(rng.choice(chosen), tmp_path / str(number), rng, rng.choice(DOORS), scaled(4, 5))
        wrong += [f"{number}: {done}: {each}" for each in found]
    assert not wrong, "\n".join(wrong)


# --- the kinds that were silent -------------------------------------------------------------------


def objects(one: Session, partition: str, suffix: str) -> list[Path]:
    return sorted(path for folder in Store(one, partition).folders() for path in folder.glob(f"*{suffix}"))


def other_version(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b'"version":"1"', b'"version":"2"'))


GONE: dict[str, Callable[[Path], Any]] = {
    "another version": other_version,
    "HTML": lambda path: path.write_bytes(HTML),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:200]),
    "deleted": Path.unlink,
}


@pytest.mark.slow
@pytest.mark.parametrize("name, suffix, kind", [
    ("aiven-s3", ".rsm-manifest", "another version"), ("aiven-s3", ".rsm-manifest", "HTML"),
    ("aiven-s3", ".rsm-manifest", "cut"), ("aiven-s3", ".rsm-manifest", "deleted"),
    ("local-4", ".leader_epoch_checkpoint", "HTML"), ("local-4", ".leader_epoch_checkpoint", "deleted"),
    ("local-4", ".log", "deleted"),
])  # fmt: skip
@pytest.mark.filterwarnings("ignore::kts.KtsWarning")
def test_a_store_of_which_nothing_can_be_read_is_not_an_empty_one(
    tmp_path: Path, name: str, suffix: str, kind: str
) -> None:
    one = session(name).copy(tmp_path)
    stem = objects(one, "ct-1", suffix)[0].name[:43]
    for path in objects(one, "ct-1", suffix):
        GONE[kind](path)

    def log() -> kts.PartitionLog:
        return one.store_alone()["ct", 1]

    asked: dict[str, Callable[[], Any]] = {
        "scan": lambda: offsets(log()),
        "read_committed": lambda: offsets(log(), isolation="read_committed"),
        "time": lambda: log().offset_for_timestamp(0),
        "greatest": lambda: log().max_timestamp(),
        "end": lambda: log().log_end_offset,
        "batches": lambda: log().batches().read_all(),
        "sync": lambda: sync(None, tmp_path / "table", topics="ct", remote=one.remote),
        "copy": lambda: copy(None, tmp_path / "target", topics=["ct"], remote=one.remote),
    }
    for door, ask in asked.items():
        with pytest.raises(CorruptRecordError, match=r"[0-9]{20}-[\w-]{22}"):
            print(door, ask())
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert offsets(log(), on_error="skip") == []
    assert any(stem in str(each.message) for each in told if issubclass(each.category, KtsWarning))
    assert any(stem in str(found) for found in verify_partition(log()))


def epochs_of(one: Session, partition: str) -> tuple[Path, int]:
    """The newest leader epochs, and where they begin in their object."""
    if one.path.name.startswith("local"):
        return objects(one, partition, ".leader_epoch_checkpoint")[-1], 0
    manifest = objects(one, partition, ".rsm-manifest")[-1]
    told = json.loads(manifest.read_text())
    return manifest.with_suffix(".indexes"), told["segmentIndexes"]["leaderEpoch"]["position"]


@pytest.mark.parametrize("bit", [0x08, 0x04])
@pytest.mark.parametrize("name", ["local", "aiven-plain"])
def test_leader_epochs_that_contradict_the_other_copies_are_not_used(tmp_path: Path, name: str, bit: int) -> None:
    one = session(name).copy(tmp_path)
    before = offsets(one.store_alone()["lat", 0])
    path, start = epochs_of(one, "lat-0")
    data = bytearray(path.read_bytes())
    assert data[start:] == b"0\n1\n0 0\n"
    data[start + 6] ^= bit  # the epoch begins later
    path.write_bytes(data)
    log = one.store_alone()["lat", 0]
    with pytest.warns(KtsWarning, match="leader epochs cannot be used.* contradict the other copies"):
        assert offsets(log) == before and log.log_start_offset == 0
    assert [(each.kind, Path(each.path).name) for each in verify_partition(log)] == [("leader-epoch", path.name)]


def test_the_last_copy_is_closed(tmp_path: Path) -> None:
    """Its end is known, so what is no whole entry there is not that of a writer that was killed."""
    one = session("local-4").copy(tmp_path)
    before = offsets(one.store_alone()["ct", 0])
    path = objects(one, "ct-0", ".log")[-1]
    data = path.read_bytes()
    last = kts.scan_batches(data)["position"][-1].as_py()
    longer = data[: last + 8] + (len(data)).to_bytes(4, "big") + data[last + 12 :]  # the length of the last batch
    wrong_crc = data[:-1] + bytes([data[-1] ^ 0xFF])
    for changed in (data[:-7], data[: len(data) * 2 // 3], longer, wrong_crc):
        path.write_bytes(changed)
        for log in (one.store_alone()["ct", 0], one.store_alone(metadata=one.data)["ct", 0]):
            with pytest.raises(CorruptRecordError, match=path.name):
                offsets(log)
            for isolation in ("read_uncommitted", "read_committed"):
                with pytest.warns(KtsWarning, match="left out"):
                    left = offsets(log, on_error="skip", isolation=isolation)
            assert left == before[: len(left)] and log.segments[-1].base_offset <= len(left) < len(before)
            assert any(path.stem in str(each) for each in verify_partition(log))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["local-4", "aiven-plain"])
def test_the_last_copy_that_is_cut_is_an_error_at_every_door(tmp_path: Path, name: str) -> None:
    """An object is put whole: what is no whole entry at its end is not what a crash leaves."""
    one = session(name).copy(tmp_path)
    path = objects(one, "ct-0", ".log")[-1]
    data = path.read_bytes()
    last = kts.scan_batches(data)["position"][-1].as_py()
    path.write_bytes(data[: (last + len(data)) // 2])

    def log() -> kts.PartitionLog:
        return one.store_alone()["ct", 0]

    asked: dict[str, Callable[[], Any]] = {
        "scan": lambda: offsets(log()),
        "read_committed": lambda: offsets(log(), isolation="read_committed"),
        "time": lambda: log().offset_for_timestamp(2**62, unit="ms"),
        "greatest": lambda: log().max_timestamp(),
        "end": lambda: log().log_end_offset,
        "stable": lambda: log().last_stable_offset,
        "batches": lambda: log().batches().read_all(),
        "sync": lambda: sync(None, tmp_path / "table", topics="ct", partitions=[0], remote=one.remote),
        "copy": lambda: copy(None, tmp_path / "target", topics=["ct"], partitions=[0], remote=one.remote),
        "segment": lambda: kts.scan(log().segments[-1].path).read_all(),
        **{
            command: partial(run, command, "--remote", one.remote, "--topic", "ct", "--partition", 0, code=3)
            for command in ("dump", "ls", "stats", "batches")
        },
    }
    for door, ask in asked.items():
        print(door)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            try:
                said = getattr(ask(), "stderr", "")
            except CorruptRecordError as error:
                said = str(error)
        assert path.name in said, door
        assert not any("crash" in str(each.message) for each in told)
    with pytest.warns(DamageWarning, match=path.name):
        assert offsets(log(), on_error="skip")
    assert any(path.stem in str(each) for each in verify_partition(log()))


@pytest.mark.slow
@pytest.mark.parametrize("name, wrong, right", [("local", 1, 3), ("local", 3, 1), ("aiven-plain", 1, 3)])
def test_a_log_with_the_records_of_another_segment_is_told_at_every_door(
    tmp_path: Path, name: str, wrong: int, right: int
) -> None:
    """A wrong restore: scan alone saw it, a search and read_committed lost it or answered wrong."""
    one = session(name).copy(tmp_path)
    paths = objects(one, "txn-0", ".log")
    times = kts.decode(paths[wrong].read_bytes(), ["timestamp"])["timestamp"].cast("int64").to_pylist()
    shutil.copyfile(paths[right], paths[wrong])
    shutil.copytree(one.data / "txn-0", tmp_path / "alone" / "txn-0")
    beside = kts.open_partition(tmp_path / "alone" / "txn-0", remote=one.remote)
    for log in (one.store_alone()["txn", 0], one.store_alone(metadata=one.data)["txn", 0], beside):
        for ask in (
            lambda log: offsets(log),
            lambda log: offsets(log, isolation="read_committed"),
            lambda log: log.offset_for_timestamp(times[0]),
            lambda log: log.batches().read_all(),
        ):
            with pytest.raises(CorruptRecordError, match=paths[wrong].name):
                ask(log)
        assert any(paths[wrong].stem in str(each) for each in verify_partition(log))


@pytest.mark.slow
def test_records_of_a_transaction_whose_end_is_missing_are_left_out(tmp_path: Path) -> None:
    """With skip, the marker of a later transaction of the same producer does not end it."""
    one = session("local").copy(tmp_path)
    committed = set(one.facts("txn-0")["readCommittedOffsets"])
    for path in objects(one, "txn-0", ".log")[::3]:
        data = path.read_bytes()
        path.unlink()
        log = one.store_alone(metadata=one.data)["txn", 0]
        with pytest.warns(KtsWarning, match="left out"):
            assert set(offsets(log, isolation="read_committed", on_error="skip")) <= committed
        path.write_bytes(data)


def test_a_copy_that_cannot_be_read_is_not_needed_where_a_sound_one_has_its_offsets(tmp_path: Path) -> None:
    one = session("aiven-plain").copy(tmp_path)
    before = offsets(one.store_alone()["ct", 0])
    path = objects(one, "ct-0", ".rsm-manifest")[1]
    for each in path.parent.glob(f"{path.stem}.*"):
        shutil.copyfile(each, each.with_name(each.name.replace(path.stem[21:], "a" * 22)))
    log = one.store_alone()["ct", 0]
    assert offsets(log) == before
    [found] = verify_partition(log)
    assert "a" * 22 in found.path and "is of another segment" in found.message
