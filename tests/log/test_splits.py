"""Opening a log destroys no sound batch: segments with too many offsets are split, and what is cut stays beside."""

from __future__ import annotations

import os
import random
import shutil
import warnings
from pathlib import Path

import pytest
from support.disk.crashdisk import State, write_tree
from support.disk.faultfs import FaultyOs
from support.disk.scripted_lives import in_place_of_os, quick_directory
from support.golden import scaled
from support.sets.log_records import NOW, batch

import kts
from kts.offline.copy import copy
from kts.offline.verify import verify

pytestmark = pytest.mark.filterwarnings("ignore::kts.KtsWarning")
FAR = 3_000_000_000
TOLD = r"\.log: (split: not all its offsets fit|offsets below its base offset are cut off)"
Files = dict[int, list[int]]  # by base offset: the first offsets of the batches, each of 3 records

LAYOUTS: dict[str, Files] = {
    "far above its name": {0: [0, FAR, FAR + 3], FAR + 6: [FAR + 6]},
    "far above its name, the last segment": {0: [0, FAR, FAR + 3]},
    "far above its name twice": {0: [0, FAR, 2 * FAR, 2 * FAR + 3], 2 * FAR + 6: [2 * FAR + 6]},
    "nothing near its name": {0: [FAR, FAR + 3], FAR + 6: [FAR + 6]},
    "below its name": {0: [0, 3], 9: [6, 9, 12]},
    "below its name, which the one before has": {0: [0, 3, 6], 9: [6, 9, 12]},
}


def entry(first: int) -> bytes:
    return batch(*(NOW + first % 1000 + i for i in range(3)), base_offset=first)


def laid(folder: Path | str, files: Files) -> Path:
    path = Path(folder) / "t-0"
    path.mkdir(parents=True)
    for base, firsts in files.items():
        (path / f"{base:020d}.log").write_bytes(b"".join(map(entry, firsts)))
    return path


def offsets(path: Path | str) -> list[int]:
    found: list[int] = kts.scan(path, columns=["offset"]).read_all().column("offset").to_pylist()
    return found


def faults(path: Path) -> list[str]:
    """What is wrong with a log, but for the offsets that it never had."""
    return [str(one) for one in verify(str(path)) if one.kind != "gap"]


def wanted_of(files: Files) -> list[int]:
    return [first + i for first in sorted({one for firsts in files.values() for one in firsts}) for i in range(3)]


def reopened(path: Path | str) -> kts.Log:
    return kts.Log(path, clock=lambda: NOW)


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_segment_whose_offsets_do_not_fit_is_split_and_keeps_its_records(name: str, tmp_path: Path) -> None:
    files = LAYOUTS[name]
    path, wanted = laid(tmp_path / "logs", files), wanted_of(files)
    assert offsets(path) == wanted
    copy(str(path), str(tmp_path / "copy"))
    assert offsets(tmp_path / "copy") == wanted
    assert faults(tmp_path / "copy") == []
    with pytest.warns(kts.KtsWarning, match=TOLD), reopened(path) as log:
        assert log.log_end_offset == wanted[-1] + 1
        assert log.scan(columns=["offset"]).read_all().column("offset").to_pylist() == wanted
        log.append(batch(NOW))
        assert log.log_end_offset == wanted[-1] + 2
    assert faults(path) == []
    with warnings.catch_warnings(record=True) as told, reopened(path) as log:
        warnings.simplefilter("always")
        assert log.recovered == [] and told == []
    assert offsets(path) == [*wanted, wanted[-1] + 1]


def test_a_split_after_a_clean_stop_needs_no_indexes(tmp_path: Path) -> None:
    files = LAYOUTS["far above its name"]
    path = laid(tmp_path, files)
    (tmp_path / ".kafka_cleanshutdown").touch()
    (tmp_path / "recovery-point-offset-checkpoint").write_text(f"0\n1\nt 0 {FAR + 9}\n")
    with reopened(path) as log:
        assert log.scan(columns=["offset"]).read_all().column("offset").to_pylist() == wanted_of(files)


@pytest.mark.parametrize("name", ["far above its name", "nothing near its name", "below its name"])
def test_a_crash_during_a_split_loses_nothing(name: str, rng: random.Random) -> None:
    files = LAYOUTS[name]
    wanted = wanted_of(files)
    with quick_directory() as folder:
        home = os.path.join(folder, "life")
        system = FaultyOs(str(laid(home, files).parent))
        disk = system.disk()
        with in_place_of_os(system):
            reopened(os.path.join(home, "t-0")).abandon()
        found: dict[int, State] = {}
        for op in system.trace:
            disk.step(op)
            found |= {state.digest(): state for state in disk.states(rng, count=4)}
        for state in rng.sample(list(found.values()), min(len(found), scaled(6, 30))):
            where = os.path.join(folder, "crashed")
            write_tree(where, state.tree)
            assert offsets(f"{where}/t-0") == wanted, (state.label, {k: len(v or b"") for k, v in state.tree.items()})
            with reopened(f"{where}/t-0") as log:
                assert log.scan(columns=["offset"]).read_all().column("offset").to_pylist() == wanted, state.label
            shutil.rmtree(where)


def damaged(rng: random.Random) -> tuple[dict[int, list[bytes]], list[bytes]]:
    """Segments with random damage, and their sound batches."""
    files, sound, first = dict[int, list[bytes]](), list[bytes](), 0
    for _ in range(rng.randrange(1, 4)):
        files[first] = found = []
        for _ in range(rng.randrange(1, 6)):
            data = bytearray(entry(first))
            kind = rng.random()
            if kind < 0.15:  # no CRC covers the offset
                data[rng.randrange(8)] ^= 1 << rng.randrange(7)
            elif kind < 0.3:
                data[rng.randrange(21, len(data))] ^= 1 << rng.randrange(8)
            if not 0.15 <= kind < 0.3:
                sound.append(bytes(data))
            found.append(bytes(data))
            first += 3
    return files, sound


def test_no_start_destroys_a_batch_whose_crc_holds(tmp_path: Path, rng: random.Random) -> None:
    for number in range(scaled(25, 100)):
        files, sound = damaged(rng)
        path = tmp_path / f"{number}" / "t-0"
        path.mkdir(parents=True)
        for base, batches in files.items():
            (path / f"{base:020d}.log").write_bytes(b"".join(batches))
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            with reopened(path) as log:
                cut = [one for one in log.recovered if one.bytes_cut or one.aside]
        left = {one.name: one.read_bytes() for one in path.iterdir() if ".log" in one.name}
        for one in sound:
            assert any(one in data for data in left.values()), (files.keys(), left.keys())
        asides = {name for name in left if ".aside-" in name}
        assert asides == {os.path.basename(one.aside) for one in cut if one.aside}
        assert bool(asides) == any(".aside-" in str(one.message) for one in told)
        assert kts.open(path).path == str(path)  # and brokers and readers ignore what lies beside


def test_a_segment_below_its_name_hides_no_other_that_overlaps_it(tmp_path: Path) -> None:
    """A split by the swap of files would put parts behind the last segment, and a crash in it would remove that one."""
    files = {0: [0, 3], 18: [18, 21], 27: [24, 27, 30, 33, 36, 42, 48], 36: [36, 39, 45, 51, 54]}
    files[18].append(24)
    path, wanted = laid(tmp_path, files), wanted_of(files)
    with pytest.warns(kts.KtsWarning, match=TOLD), reopened(path) as log:
        assert log.log_end_offset == wanted[-1] + 1
        assert log.scan(columns=["offset"]).read_all().column("offset").to_pylist() == wanted
        [cut] = [one for one in log.recovered if one.bytes_cut]
    assert cut.aside is not None and Path(cut.aside).read_bytes() == b"".join(map(entry, files[27]))


@pytest.mark.parametrize("far", [2**40, 2**62])
def test_one_offset_that_damage_made_moves_no_log_end(far: int, tmp_path: Path) -> None:
    """No CRC covers it: the batch is kept beside the log, and no segment is made that begins there."""
    path = laid(tmp_path, {0: [0, 3, far]})
    with pytest.warns(kts.KtsWarning, match="does not fit"), reopened(path) as log:
        assert log.log_end_offset == 6
    [kept] = [one for one in path.iterdir() if ".aside-" in one.name]
    assert kept.read_bytes() == entry(far)
