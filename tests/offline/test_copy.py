"""Copies of partitions: the same log with the same files, verified, resumed after any stop; what is refused and why."""

from __future__ import annotations

import gzip
import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import zstandard
from support.clusters import cluster_of
from support.disk.crashdisk import write_tree
from support.disk.faultfs import FaultyOs
from support.disk.scripted_lives import in_place_of_os, quick_directory
from support.golden import PATIENCE_S, goldens, scaled
from support.sets.copies import SMALL, WHOLE, T, check_equal, logs, records, states, write
from support.tiered import names, session
from support.waiting import wait_until

import kts
from kts.cluster_records.layout import write_record
from kts.offline.copy import copy
from kts.offline.verify import verify
from kts.segment.names import CLEAN_SHUTDOWN
from kts.store import publishing
from kts.store.source import Machine

# --- equal ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_copy_of_what_brokers_left_is_the_same_log_with_the_same_files(tmp_path: Path) -> None:
    """Every scenario of every broker; costs two seconds."""
    for number, scenario in enumerate(goldens()):
        source, target = scenario.log_dir, tmp_path / str(number)
        done = copy(source, target)
        assert records(target) == records(source), scenario
        found, known = ({one.message for one in verify(path, deep=True)} for path in (target, source))
        assert found <= known, scenario
        for path in source.glob("*-*/*"):
            made = target / path.relative_to(source)
            if path.suffix == ".log":
                assert made.read_bytes() == path.read_bytes() and made.stat().st_mtime_ns // 10**6 == (
                    path.stat().st_mtime_ns // 10**6
                )
            elif path.suffix in (".index", ".timeindex") and "compact-txn" not in str(path):  # some are wrong there
                assert made.read_bytes() == path.read_bytes(), made
        rebuilt = {suffix for one in done for suffix in one.rebuilt}
        assert rebuilt <= ({".timeindex"} if str(scenario).startswith(("0.9", "0.10.0")) else set()), scenario
        assert set(states(copy(source, target))) <= {"equal"}, scenario
        theirs = kts.open_log_dirs(source)
        for key, log in kts.open_log_dirs(target).items():
            assert (log.log_start_offset, log.log_end_offset, log.topic_id) == (
                theirs[key].log_start_offset,
                theirs[key].log_end_offset,
                theirs[key].topic_id,
            )
            assert log.leader_epochs == theirs[key].leader_epochs or str(scenario).startswith("0.11")
            with kts.Log(
                log.path, {"message.format.version": "0.10.2" if str(scenario)[:4] < "0.11" else "3.9"}
            ) as opened:
                assert (opened.clean_start, opened.recovered) == (True, []), scenario


@pytest.mark.slow
@pytest.mark.parametrize("name", names())
def test_tiered_storage_and_its_directory_become_one_log(name: str, tmp_path: Path) -> None:
    one = session(name)
    named: dict[str, Any] = {"remote": one.remote, "remote_options": one.options}
    copy(one.data, tmp_path, **named)
    expected = kts.scan(one.data, **WHOLE, **named).read_all()
    assert records(tmp_path) == expected
    assert list(map(str, verify(tmp_path, deep=True))) == []
    assert expected.num_rows > kts.scan(one.data, **WHOLE).read_all().num_rows
    assert set(states(copy(one.data, tmp_path, **named))) == {"equal"}


def test_a_segment_that_has_moved_to_tiered_storage_is_not_copied_again(tmp_path: Path) -> None:
    one = session("aiven-zstd-encrypted").copy(tmp_path)
    named: dict[str, Any] = {"topics": "txn", "remote": one.remote, "remote_options": one.options}
    target = tmp_path / "target"
    first = copy(one.data, target, **named)
    [moved, *_] = [path for path in logs(one.data) if path.parent.name == "txn-0"]
    for path in moved.parent.glob(f"{moved.stem}.*"):  # retention of the local segments
        path.unlink()
    done = copy(one.data, target, **named)
    assert set(states(done)) == {"equal"} and [found.source for found in done] != [found.source for found in first]
    there = target / "txn-0" / moved.name
    data = there.read_bytes()
    there.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    assert [found.path for found in copy(one.data, target, **named) if found.state == "copied"] == [str(there)]
    assert there.read_bytes() == data


def test_transactions_are_listed_in_the_copy_though_tiered_storage_has_lost_its_indexes(tmp_path: Path) -> None:
    """A broker believes the copy, and would give aborted records; some transactions begin before the segment."""
    one = session("aiven-plain").copy(tmp_path)
    store = sorted(one.store.glob("txn-*/0/*.indexes"))
    for path in store[1::2]:
        path.unlink()
    done = copy(one.data, tmp_path / "target", topics="txn", remote=one.remote)
    assert [found.rebuilt for found in done].count((".index", ".timeindex", ".txnindex")) > 2
    assert list(map(str, verify(tmp_path / "target"))) == []


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_compressed_logs_become_plain_ones_and_damage_in_them_is_told(suffix: str, tmp_path: Path) -> None:
    source = write(tmp_path / "source")
    expected = records(source, columns=["offset", "value"])
    for path in logs(source)[1::2]:
        compress = gzip.compress if suffix == ".gz" else zstandard.ZstdCompressor().compress
        Path(f"{path}{suffix}").write_bytes(compress(path.read_bytes()))
        path.unlink()
    target = tmp_path / "target"
    copy(source, target)
    assert records(target, columns=["offset", "value"]) == expected
    assert list(map(str, verify(target))) == []
    assert set(states(copy(source, target))) == {"equal"}
    damaged = sorted(source.glob(f"*/*{suffix}"))[1]
    damaged.write_bytes(damaged.read_bytes()[:-40])
    with pytest.raises(kts.CorruptRecordError) as caught:
        copy(source, tmp_path / "second")
    assert caught.value.path == str(damaged) and caught.value.position is not None
    with pytest.warns(kts.DamageWarning):
        copy(source, tmp_path / "second", on_error="skip")
    assert records(tmp_path / "second", columns=["value"]).num_rows < expected.num_rows


@pytest.mark.slow
def test_what_is_new_is_copied_and_what_is_there_stays(tmp_path: Path) -> None:
    source, target = write(tmp_path / "source"), tmp_path / "target"
    write(source, 5, name="u-1")
    copy(source, target)
    before = {path: path.stat().st_ino for path in logs(target)}
    write(source, 9)
    done = copy(source, target)
    check_equal(source, target)
    new = [path for path in logs(target) if path.stat().st_ino != before.get(path)]
    assert [Path(one.path) for one in done if one.state == "copied"] == new
    assert 1 < len(new) < len(before)
    assert [one.state for one in done if one.topic == "u"] == ["equal"]
    kept = {path.relative_to(target): path.read_bytes() for path in target.rglob("*") if path.is_file()}
    assert set(states(copy(source, target))) == {"equal"}
    assert {path.relative_to(target): path.read_bytes() for path in target.rglob("*") if path.is_file()} == kept
    # What differs: a log of another time, one of another size, one without an index.
    first, second, third = logs(target)[:3]
    os.utime(first, (1, 1))
    second.write_bytes(second.read_bytes()[:-1])
    third.with_suffix(".index").unlink()
    assert [Path(one.path) for one in copy(source, target) if one.state == "copied"] == [first, second, third]
    check_equal(source, target)


def test_segments_that_retention_deleted_stay_and_those_that_compaction_joined_are_replaced(tmp_path: Path) -> None:
    source, target = write(tmp_path / "source"), tmp_path / "target"
    expected = records(source, columns=["offset", "value"])
    copy(source, target)
    bases = [int(path.stem) for path in logs(source)]
    with kts.Log(source / "t-0", SMALL | {"retention.bytes": 2000, "retention.ms": -1}) as log:
        log.delete_old_segments()
    for path in source.glob("*/*.deleted"):
        path.unlink()
    left = [int(path.stem) for path in logs(source)]
    assert 2 < len(left) < len(bases)
    # The cleaner joins segments: the first two become one.
    first, second = logs(source)[:2]
    first.write_bytes(first.read_bytes() + second.read_bytes())
    for one in (first.with_suffix(".index"), first.with_suffix(".timeindex"), *second.parent.glob(f"{second.stem}.*")):
        one.unlink()
    copy(source, target)
    assert [int(path.stem) for path in logs(target)] == [base for base in bases if base != left[1]]
    assert records(target, columns=["offset", "value"]) == expected
    assert list(map(str, verify(target))) == []


# --- a stop at any point --------------------------------------------------------------------------


# The command, on a disk that takes 10 ms for a file: a busy machine kills it before its end, too.
SLOW_COPY = """
import sys, time
from kts.cli.app import cli
from kts.store.source import Machine

take = Machine.take
Machine.take = lambda *given: (time.sleep(0.01), take(*given))
cli(["copy", *sys.argv[1:]])
"""


@pytest.mark.slow
def test_a_killed_copy_is_a_log_without_holes_and_goes_on(tmp_path: Path, rng: random.Random) -> None:
    """Three kills (-9) of the command; each start of Python costs half a second."""
    source, target = write(tmp_path / "source", 240), tmp_path / "target"
    expected, count = records(source), len(logs(source))
    for _ in range(3):
        wanted = len(logs(target)) + rng.randrange(1, count // 5)
        command = [sys.executable, "-c", SLOW_COPY, str(source), str(target)]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
            wait_until("some segments are copied", lambda wanted=wanted: len(logs(target)) >= wanted)
            process.send_signal(signal.SIGKILL)
            assert process.wait(PATIENCE_S) == -signal.SIGKILL
        there = records(target)
        assert there == expected.slice(0, there.num_rows)
        assert not (target / CLEAN_SHUTDOWN).exists()
    known = len(logs(target))
    assert known < count
    done = copy(source, target)
    assert states(done)[: known - 1] == ["equal"] * (known - 1)
    check_equal(source, target)


def test_after_a_failure_of_the_disk_at_any_step_the_copy_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write(tmp_path / "source", 8)
    expected = records(source)
    take, publish = Machine.take, publishing.publish
    for failing in range(40):
        target = tmp_path / str(failing)
        calls = iter(range(1000))

        def fails(call: Any, failing: int = failing, calls: Any = calls) -> Any:
            def made(*given: Any) -> None:
                if next(calls) == failing:
                    raise kts.LogStorageError("no room", path=str(given[-1]), errno=28)
                call(*given)

            return made

        with monkeypatch.context() as patched:
            patched.setattr(Machine, "take", fails(take))
            patched.setattr(publishing, "publish", fails(publish))
            try:
                copy(source, target)
            except kts.LogStorageError:
                there = records(target) if any(target.glob("t-*/*")) else expected.slice(0, 0)
                assert there == expected.slice(0, there.num_rows)
            else:
                break
        copy(source, target)
        check_equal(source, target)
    assert 10 < failing < 39


def test_a_copy_of_another_source_that_ends_anywhere_is_undone_by_the_next_one_of_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have the same names and sizes: no log stays beside the indexes of the other."""
    first, second = write(tmp_path / "first", 8), write(tmp_path / "second", 8, start_ms=T + 10**6)
    assert [path.stat().st_size for path in logs(first)] == [path.stat().st_size for path in logs(second)]
    take = Machine.take
    for failing in range(40):
        target, calls = tmp_path / str(failing), iter(range(1000))

        def fails(machine: Machine, path: str, place: str, failing: int = failing, calls: Any = calls) -> None:
            if next(calls) == failing:
                raise kts.LogStorageError("no room", path=path, errno=28)
            take(machine, path, place)

        copy(first, target)
        before = {path.name: path.read_bytes() for path in logs(target)}
        with monkeypatch.context() as patched:
            patched.setattr(Machine, "take", fails)
            try:
                copy(second, target)
            except kts.LogStorageError:
                pass
            else:
                break
        copy(first, target)
        check_equal(first, target)
        assert {path.name: path.read_bytes() for path in logs(target)} == before
    assert 5 < failing < 39


def test_after_a_crash_at_any_step_the_copy_goes_on_and_no_file_of_before_stays(rng: random.Random) -> None:
    """The disk keeps any part of what was not synced, and the times of the logs; costs a second."""
    with quick_directory() as folder:
        source, home, where = (Path(folder, name) for name in ("source", "home", "crashed"))
        write(source, 2)
        copy(source, home)
        write(source, 9)  # the last segment grows
        times = {path.name: path.stat().st_mtime_ns for path in logs(source)}
        system = FaultyOs(str(home))
        with in_place_of_os(system):
            copy(source, home)
        assert system.unrecorded() == [] and system.open_files() == []
        disk = system.disk()
        renamed = [done for done, op in enumerate(system.trace, 1) if op.kind == "names"]
        moments = set(rng.sample(renamed, min(scaled(10, 100), len(renamed))))
        for done, op in enumerate(system.trace):
            for state in disk.states(rng, count=8) if done in moments else ():
                write_tree(str(where), state.tree)
                for path in logs(where):
                    os.utime(path, ns=(times[path.name],) * 2)
                copy(source, where)
                check_equal(source, where)
                shutil.rmtree(where)
            disk.step(op)


# --- damage ---------------------------------------------------------------------------------------


def test_damage_names_file_position_and_offset_or_is_left_out(tmp_path: Path) -> None:
    source = write(tmp_path / "source")
    expected = records(source, columns=["offset", "value"])
    path = logs(source)[3]
    headers = kts.scan_batches(path.read_bytes())
    position, offset = headers["position"][1].as_py(), headers["baseOffset"][1].as_py()
    data = bytearray(path.read_bytes())
    data[position + 70] ^= 1
    path.write_bytes(data)
    target = tmp_path / "target"
    with pytest.raises(kts.CorruptRecordError, match="crc: ") as caught:
        copy(source, target)
    assert (caught.value.path, caught.value.position, caught.value.offset) == (str(path), position, offset)
    assert [one.name for one in logs(target)] == [one.name for one in logs(source)[:3]]
    with pytest.warns(kts.DamageWarning, match=f"{path} at position {position}"):
        done = copy(source, target, on_error="skip")
    assert [one.damage[0].position for one in done if one.damage] == [position]
    lost = (expected["offset"].to_numpy() >= offset) & (expected["offset"].to_numpy() < offset + 3)
    assert records(target, columns=["offset", "value"]) == expected.filter(~lost)
    assert [one.kind for one in verify(target, deep=True)] == []


def test_an_offset_that_reaches_into_the_next_segment_is_damage(tmp_path: Path) -> None:
    """No CRC covers the offset of a batch."""
    source = write(tmp_path / "source")
    path = logs(source)[2]
    data = bytearray(path.read_bytes())
    data[kts.scan_batches(data)["position"][-1].as_py() + 6] ^= 1
    path.write_bytes(data)
    with pytest.raises(kts.CorruptRecordError, match="reaches into the next segment"):
        copy(source, tmp_path / "target")
    with pytest.warns(kts.DamageWarning):
        copy(source, tmp_path / "target", on_error="skip")
    assert [one.kind for one in verify(tmp_path / "target")] == ["gap"]


def test_an_end_that_the_indexes_know_and_the_log_has_lost_is_damage(tmp_path: Path) -> None:
    source = write(tmp_path / "source")
    path = logs(source)[2]
    size = kts.scan_batches(path.read_bytes())["position"][-1].as_py()
    os.truncate(path, size)
    with pytest.raises(kts.CorruptRecordError, match="the end of the segment is missing") as caught:
        copy(source, tmp_path / "target")
    assert (caught.value.path, caught.value.position) == (str(path), size)
    with pytest.warns(kts.DamageWarning, match="the end of the segment is missing"):
        copy(source, tmp_path / "target", on_error="skip")
    assert [one.kind for one in verify(tmp_path / "target")] == ["gap"]


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_indexes_that_are_wrong_missing_or_preallocated_are_right_in_the_copy(suffix: str, tmp_path: Path) -> None:
    source = write(tmp_path / "source")
    wrong, missing, large = (path.with_suffix(suffix) for path in (*logs(source)[:2], logs(source)[-1]))
    right = [path.read_bytes() for path in (wrong, missing, large)]
    wrong.write_bytes(wrong.read_bytes()[:-4] + b"\0\0\1\1")
    missing.unlink()
    large.write_bytes(large.read_bytes() + bytes(12_000))
    done = copy(source, tmp_path / "target")
    assert [one.rebuilt for one in done] == [(suffix,)] * 2 + [()] * (len(done) - 2)
    assert list(map(str, verify(tmp_path / "target"))) == []
    made = [tmp_path / "target" / path.relative_to(source) for path in (wrong, missing, large)]
    assert made[2].read_bytes() == right[2]


def test_what_a_crash_left_at_the_end_is_left_out(tmp_path: Path) -> None:
    for number, tail in enumerate((b"", bytes(500), None)):
        source, target = write(tmp_path / f"source-{number}"), tmp_path / f"target-{number}"
        expected, last = records(source), logs(source)[-1]
        last.write_bytes(last.read_bytes() + (last.read_bytes()[:100] if tail is None else tail))
        copy(source, target)
        assert records(target) == expected
        assert list(map(str, verify(target))) == []
        assert set(states(copy(source, target))) == {"equal"}


# --- ranges ---------------------------------------------------------------------------------------


def test_a_range_of_times_has_whole_segments_with_all_its_records(tmp_path: Path, rng: random.Random) -> None:
    source = write(tmp_path / "source")
    bases = [int(path.stem) for path in logs(source)]
    for number in range(6):
        start, end = sorted(rng.sample(range(T - 2000, T + 26_000), 2))
        for strict in (False, True):
            target = tmp_path / f"{number}-{strict}"
            named = {"starting_timestamp": start, "ending_timestamp": end, "strict_time_range": strict}
            copy(source, target, **named)
            wanted = kts.scan(source, columns=["offset", "value"], **named).read_all()
            if not target.joinpath("t-0").exists():
                assert wanted.num_rows == 0
                continue
            assert kts.scan(target, columns=["offset", "value"], **named).read_all() == wanted
            copied = [int(path.stem) for path in logs(target)]
            offsets = wanted["offset"].to_pylist()
            last = max((base for base in bases if base <= max(offsets, default=0)), default=0)
            first = max(base for base in bases if base <= min(offsets, default=0))
            assert not offsets or copied == [base for base in bases if first <= base <= last]
            [log] = kts.open_log_dirs(target).values()
            assert log.log_start_offset == copied[0] and list(map(str, verify(target))) == []
    everything = tmp_path / "everything"
    copy(source, everything, ending_timestamp=T + 5000)
    copy(source, everything, starting_timestamp=T + 5000)
    check_equal(source, everything)


def test_a_gap_between_two_copied_ranges_is_told(tmp_path: Path) -> None:
    source, target = write(tmp_path / "source"), tmp_path / "target"
    copy(source, target, ending_timestamp=T + 3000)
    with pytest.warns(kts.KtsWarning, match="the copy has no offsets"):
        copy(source, target, starting_timestamp=T + 15_000)
    copy(source, target)
    check_equal(source, target)


def test_topics_and_partitions_are_chosen_and_the_start_of_the_log_stays(tmp_path: Path) -> None:
    source, target = write(tmp_path / "source"), tmp_path / "target"
    write(source, name="t-1")
    write(source, name="u-0")
    with kts.Log(source / "t-1", SMALL) as log:
        log.advance_log_start_offset(20)
    assert {(one.topic, one.partition) for one in copy(source, target, topics=["t"], partitions=[1])} == {("t", 1)}
    assert kts.open_log_dirs(target)["t", 1].log_start_offset == 20
    copy(source / "u-0", target)
    assert sorted(map(str, kts.open_log_dirs(target))) == ["t-1", "u-0"]


# --- others ---------------------------------------------------------------------------------------


def test_a_live_source_is_copied_up_to_the_high_watermark_of_its_last_checkpoint(tmp_path: Path) -> None:
    source, target = write(tmp_path / "source"), tmp_path / "target"
    with kts.Log(source / "t-0", SMALL, high_watermark=40) as log:
        log.checkpoint()
        copy(source, target)
        assert kts.open_log_dirs(target)["t", 0].log_end_offset == 39  # of the last whole batch below it
        log.advance_high_watermark(60)
        log.checkpoint()
        copy(source, target)
        assert kts.open_log_dirs(target)["t", 0].log_end_offset == 60
    copy(source, target)
    check_equal(source, target)


@pytest.mark.slow
def test_a_target_that_another_program_holds_or_wrote_to_is_refused(tmp_path: Path) -> None:
    source, target = write(tmp_path / "source"), tmp_path / "target"
    copy(source, target)
    with kts.Log(target / "t-0", SMALL) as log:
        script = f"from kts.offline.copy import copy; copy({str(source)!r}, {str(target)!r})"
        said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
        assert "LogLockedError: another process" in said.stderr
        log.append_rows({"value": [b"of another"]})
    with pytest.raises(kts.InvalidRequestError, match="expected records up to offset 72, where the source ends"):
        copy(source, target)
    for inside in (source, source / "t-0", source / "copy", tmp_path):
        with pytest.raises(kts.InvalidRequestError, match="expected a target outside of the source"):
            copy(source, inside)


def test_a_copy_never_writes_into_what_it_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By whatever name: of the source, of tiered storage, or of its metadata."""
    tiered, source = session("local").copy(tmp_path / "a"), write(tmp_path / "b" / "source")
    metadata = Path(shutil.copytree(tiered.data, tmp_path / "c" / "metadata"))
    for name, leads_to in (("store", tiered.store), ("linked/t-0", source / "t-0"), ("target/t-0", source / "t-0")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).symlink_to(leads_to)
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))

    def refuse(target: Path | str, read: Path | None, **options: Any) -> None:
        with pytest.raises(kts.InvalidRequestError, match="expected a target outside of the source"):
            copy(read, target, **options)

    for target in (tiered.store, "a/local/remote/", "store", f"file://{tiered.store}/new", tmp_path / "a"):
        refuse(target, tiered.data, remote=tiered.remote)
        refuse(target, None, remote="store", topics=["ct"])
    prefixed = session("aiven-s3")
    refuse(f"{prefixed.remote}copies", None, remote=prefixed.remote)
    for target in (metadata, "c/metadata/new"):
        refuse(target, None, remote=tiered.remote, remote_options={"metadata": metadata}, topics=["ct"])
    refuse(source, tmp_path / "linked")
    refuse("target", source)
    refuse("target", logs(source)[0])
    assert sorted(tmp_path.rglob("*")) == before
    copy(None, tiered.path / "beside", remote="store", remote_options={"metadata": metadata}, topics=["ct"])


def test_a_topic_keeps_the_id_that_the_target_has(tmp_path: Path) -> None:
    source, target = write(tmp_path / "source"), tmp_path / "target"
    write(source, name="t-1")
    other = "BBBBBBBBQACBBBBBBBBBBA"
    with kts.Log(target / "t-0", topic_id=other):
        pass
    copy(source, target)
    assert {log.topic_id for log in kts.open_log_dirs(target).values()} == {other}
    assert records(target) == records(source)


@pytest.mark.parametrize("gone", [0, 2])
def test_a_topic_that_was_made_again_does_not_join_the_old_one(tmp_path: Path, gone: int) -> None:
    """Its first segments may be deleted, so that no offset of the two is the same."""
    old, new, target = "AAAAAAAAQACBBBBBBBBBBA", "BBBBBBBBQACBBBBBBBBBBA", tmp_path / "target"

    def made(count: int, value: bytes, topic_id: str) -> Path:
        with kts.Log(tmp_path / "source/t-0", {"segment.bytes": 2000}, topic_id=topic_id, clock=lambda: T) as log:
            for _ in range(count):
                log.append_rows({"timestamp": [T] * 10, "value": [value * 50] * 10})
        return tmp_path / "source"

    copy(made(12, b"o", old), target)
    known = records(target)
    shutil.rmtree(tmp_path / "source")
    source = made(40, b"n", new)
    for path in sorted((source / "t-0").glob("*.log"))[: gone * 2]:
        for one in (source / "t-0").glob(f"{path.stem}.*"):
            one.unlink()
    with pytest.raises(kts.InvalidRequestError, match=f"expected the topic id {new} in .*, found {old} with records"):
        copy(source, target)
    assert records(target) == known


def test_a_topic_that_was_made_for_the_copy_takes_what_comes_later(tmp_path: Path) -> None:
    source, target, other = write(tmp_path / "source"), tmp_path / "target", "BBBBBBBBQACBBBBBBBBBBA"
    assert kts.open_log_dirs(source)["t", 0].topic_id not in (None, other)
    with kts.Log(target / "t-0", topic_id=other):
        pass
    for _ in range(2):
        copy(source, target)
        assert records(target) == records(source)
        assert kts.open_log_dirs(target)["t", 0].topic_id == other
        with kts.Log(source / "t-0", SMALL, clock=lambda: T) as log:
            log.append_rows({"timestamp": [T], "value": [b"later"]})


def of_cluster(path: Path) -> tuple[Path, str]:
    """A log directory with real metadata of a cluster, and the id of its topic ``orders``."""
    shutil.copytree(cluster_of("4.3.1"), path)
    topic_id = kts.cluster(path).topic("orders").topic_id
    assert topic_id is not None
    return path, topic_id


@pytest.mark.parametrize("text", [None, "version: 0\ntopic"])
def test_a_partition_that_lost_its_topic_id_has_the_clusters_in_the_copy(tmp_path: Path, text: str | None) -> None:
    source, topic_id = of_cluster(tmp_path / "source")
    path = write(source, name="orders-0") / "orders-0/partition.metadata"
    path.unlink()
    if text is not None:
        path.write_text(text, encoding="utf-8")
    with pytest.warns(kts.KtsWarning, match=f"orders-0 has no topic id: the copy has {topic_id}, the cluster's of ord"):
        copy(source, tmp_path / "target", topics=["orders"])
    assert kts.open_log_dirs(tmp_path / "target")["orders", 0].topic_id == topic_id
    assert set(states(copy(source, tmp_path / "target", topics=["orders"]))) == {"equal"}


def test_a_partition_of_a_topic_that_was_made_again_keeps_its_id_and_is_told(tmp_path: Path) -> None:
    """The records of two topics never become one log."""
    source, topic_id = of_cluster(tmp_path / "source")
    write(source, name="orders-0")
    own = kts.open_partition(source / "orders-0").topic_id
    with pytest.warns(kts.KtsWarning, match=f"has the topic id {own}, and the cluster {topic_id} for orders: "):
        copy(source, tmp_path / "target", topics=["orders"])
    assert kts.open_log_dirs(tmp_path / "target")["orders", 0].topic_id == own
    write(source, name="orders-1")
    (source / "orders-1/partition.metadata").unlink()
    with pytest.warns(kts.KtsWarning, match="orders-1 has no topic id"):
        copy(source, tmp_path / "second", topics=["orders"], partitions=[1])


@pytest.mark.parametrize("lost", [".index", ".timeindex"])
def test_lost_indexes_are_made_by_the_topics_settings_in_the_cluster(tmp_path: Path, lost: str) -> None:
    source, topic_id = of_cluster(tmp_path / "source")
    fields = {"resourceType": 2, "resourceName": "orders", "name": "index.interval.bytes", "value": "1"}
    with kts.Log(source / "__cluster_metadata-0") as log:
        log.append_rows([{"value": write_record("Config", 0, fields)}])
    config = {"segment.bytes": 4000, "index.interval.bytes": 1}
    with kts.Log(source / "orders-0", config, topic_id=topic_id, clock=lambda: T) as log:
        for number in range(100):
            log.append_rows({"timestamp": [T + number], "value": [b"v" * 100]})
    first = sorted((source / "orders-0").glob("*.log"))[0].with_suffix(lost)
    right = first.read_bytes()
    first.unlink()
    [one, *_] = copy(source, tmp_path / "target", topics=["orders"])
    assert one.rebuilt == (lost,)
    assert (tmp_path / "target/orders-0" / first.name).read_bytes() == right


def test_a_setting_that_its_release_does_not_take_is_told_and_the_defaults_are_used(tmp_path: Path) -> None:
    source, topic_id = of_cluster(tmp_path / "source")
    fields = {"resourceType": 2, "resourceName": "orders", "name": "index.interval.bytes", "value": "-1"}
    with kts.Log(source / "__cluster_metadata-0") as log:
        log.append_rows([{"value": write_record("Config", 0, fields)}])
    with kts.Log(source / "orders-0", topic_id=topic_id) as log:
        log.append_rows({"value": [b"v"]})
    with pytest.warns(kts.KtsWarning, match="index.interval.bytes: expected 0 to 2.31-1, found '-1'; defaults are use"):
        copy(source, tmp_path / "target", topics=["orders"])
    assert records(tmp_path / "target") == records(source / "orders-0")


def test_the_brokers_own_files_come_with_a_whole_directory_unless_the_target_has_some(tmp_path: Path) -> None:
    source = write(tmp_path / "source")
    (source / "meta.properties").write_text("#today\nnode.id=1\ncluster.id=a\n")
    write(source, 1, name="__cluster_metadata-0")
    (source / "__cluster_metadata-0/quorum-state").write_text("{}")
    whole, part, again, other = (tmp_path / name for name in ("whole", "part", "again", "other"))
    copy(source, whole)
    assert (whole / "meta.properties").read_bytes() == (source / "meta.properties").read_bytes()
    assert (whole / "__cluster_metadata-0/quorum-state").exists()
    copy(source, part, topics=["t"])
    assert not (part / "meta.properties").exists()
    again.mkdir()
    (again / "meta.properties").write_text("#yesterday\ncluster.id=a\nnode.id=1\n")
    copy(source, again)
    assert (again / "__cluster_metadata-0").exists()
    other.mkdir()
    (other / "meta.properties").write_text("cluster.id=b\nnode.id=1\n")
    with pytest.warns(kts.KtsWarning, match="__cluster_metadata is left out"):
        copy(source, other)
    assert (other / "meta.properties").read_text() == "cluster.id=b\nnode.id=1\n"
    assert sorted(map(str, kts.open_log_dirs(other))) == ["t-0"]
