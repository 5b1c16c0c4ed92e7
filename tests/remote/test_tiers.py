"""The store of tiered segments: files as they were, and every kind of damage as a clear error or a report."""

from __future__ import annotations

import gc
import hashlib
import json
import pickle
import shutil
import warnings
from collections.abc import Callable
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path

import pytest
from support import tiered
from support.golden import scaled
from support.tiered import Session, names, offsets, records, session

import kts
from kts.dataset.plan import plan
from kts.dataset.reader import read_range
from kts.errors import CorruptRecordError, DamageWarning, KtsError, KtsWarning, LogStorageError
from kts.model import uuid_bytes
from kts.offline.copy import copy
from kts.offline.verify import verify_partition
from kts.remote.tiers import is_cut, objects_of
from kts.store.source import source_of


@pytest.mark.parametrize("name", names())
def test_files_are_those_that_the_broker_had(name: str) -> None:
    """By the broker's own sums: logs and indexes of every segment, decrypted and decompressed, bit for bit."""
    one = session(name)
    checked = 0
    for (topic, number), log in one.open().items():
        for segment in log.segments:
            if not segment.remote or is_cut(segment.path) or topic in ("handover", "diverged"):
                continue
            sums = one.facts(f"{topic}-{number}")["rolledBefore"]
            for suffix in (".log", ".index", ".timeindex", ".txnindex"):
                if (known := sums.get(f"{segment.base_offset:020d}{suffix}")) is not None:
                    data = segment.source.read_bytes(segment.path.removesuffix(".log") + suffix)
                    assert [len(data), hashlib.sha256(data).hexdigest()] == known, (segment.path, suffix)
                    checked += 1
    assert checked or name == "local-leaders"


def test_the_snapshot_of_the_last_segment_has_the_offset_after_it() -> None:
    log = session("aiven-zstd-encrypted").store_alone(metadata=session("aiven-zstd-encrypted").data)["txn", 0]
    snapshots = [one.path for one in log.source.list_directory(log.path) if one.name.endswith(".snapshot")]
    assert [Path(one).name[:20] for one in snapshots] == [f"{log.log_end_offset:020d}"]
    assert log.source.read_bytes(snapshots[0])[:2] == b"\0\1"


def test_files_that_are_not_there_are_missing() -> None:
    log = session("aiven-plain").log("ct-0")
    path, files = log.segments[0].path, log.source if log.remote_alone else log.segments[0].source
    for wrong in (path.replace(".log", ".txnindex"), f"{path}.x", path[:-30] + "x", "tier+file:///a/b/c.log"):
        assert not files.exists(wrong)
        with pytest.raises(LogStorageError, match="no such file"):
            files.read_bytes(wrong)


# --- damage ---------------------------------------------------------------------------------------

SUFFIXES = [".log", ".indexes", ".rsm-manifest"]
KINDS: dict[str, Callable[[bytes], bytes | None]] = {
    "missing": lambda data: None,
    "empty": lambda data: b"",
    "cut": lambda data: data[: len(data) * 2 // 3],
    "early": lambda data: data[:17] + bytes([data[17] ^ 1]) + data[18:],  # in a CRC, a tag, a name
    "middle": lambda data: data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 4]) + data[len(data) // 2 + 1 :],
    "last": lambda data: data[:-1] + bytes([data[-1] ^ 0x40]),
}


def object_of(one: Session, partition: str, suffix: str, number: int = 2) -> Path:
    """An object of a segment in tiered storage."""
    segment = [each for each in one.log(partition).segments if each.remote][number]
    return Path(objects_of(segment.path).removesuffix(".log") + suffix)


def damaged(
    one: Session, folder: Path, partition: str, suffix: str, kind: str, number: int = 2
) -> tuple[Session, Path]:
    """A copy of a session with one object of a partition changed."""
    copy = one.copy(folder)
    path = object_of(copy, partition, suffix, number)
    changed = KINDS[kind](path.read_bytes())
    path.unlink() if changed is None else path.write_bytes(changed)
    return copy, path


@pytest.mark.slow
@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("name, partition", [
    ("aiven-plain", "ct-0"), ("aiven-zstd", "ct-0"), ("aiven-encrypted", "txn-0"), ("aiven-zstd-encrypted", "txn-0"),
][:: scaled(3, 1)])  # fmt: skip
def test_a_damaged_object_is_an_error_or_is_left_out_and_reported(
    tmp_path: Path, name: str, partition: str, suffix: str
) -> None:
    """Each object missing, cut or changed, read strictly and with skip, verified, with the metadata and without."""
    one = session(name).copy(tmp_path)
    path = object_of(one, partition, suffix)
    data = path.read_bytes()
    for kind, change in KINDS.items():
        changed = change(data)
        path.unlink() if changed is None else path.write_bytes(changed)
        judge(one, partition, path, kind, one.open())
        judge(one, partition, path, kind, one.store_alone())
        path.write_bytes(data)


def judge(one: Session, partition: str, path: Path, kind: str, logs: kts.LogDirs) -> None:
    topic, _, index = partition.rpartition("-")
    log, where = logs[topic, int(index)], (partition, path.name, kind)
    error: KtsError | None = None
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", KtsWarning)
        expected = [row for row in one.expected(partition) if row.offset < log.log_end_offset]
        try:
            found = records(log)
        except CorruptRecordError as raised:
            error, found = raised, []
        skipped = records(log, on_error="skip")
        violations = list(verify_partition(log))
    reported = [str(each.message) for each in told if issubclass(each.category, KtsWarning)]
    if error is None:
        assert found == expected == skipped, where
    else:
        assert path.name[:43] in str(error), (where, str(error))
        left = {row.offset for row in skipped}
        assert [row for row in expected if row.offset in left] == skipped != expected, where
        assert any("are damaged and left out" in line for line in reported), (where, reported)
    # A changed byte of an index that no rule forbids, as in an offset of a producer, is nothing that anybody can see.
    assert violations or (path.suffix == ".indexes" and kind in ("middle", "last")), where


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex", ".txnindex", ".leader_epoch_checkpoint"])
def test_damage_in_kafkas_own_layout(tmp_path: Path, suffix: str) -> None:
    for number, kind in enumerate(("missing", "cut", "middle")):
        log = session("local").log("txn-0")
        with_one = [at for at, each in enumerate(log.segments) if each.remote and each.txn_index_path is not None]
        one, path = damaged(session("local"), tmp_path / str(number), "txn-0", suffix, kind, with_one[0])
        log = one.log("txn-0")
        facts = one.facts("txn-0")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", KtsWarning)
                assert records(log) == one.expected("txn-0")
                assert offsets(log, isolation="read_committed") == facts["readCommittedOffsets"]
            assert suffix != ".log"
        except CorruptRecordError as error:
            assert suffix == ".log" and path.name in str(error)
            with pytest.warns(DamageWarning, match="damaged and left out"):
                left = records(log, on_error="skip")
            assert left == [row for row in one.expected("txn-0") if row.offset in {each.offset for each in left}]


def test_a_damaged_chunk_costs_its_batches_alone(tmp_path: Path) -> None:
    one, path = damaged(session("aiven-zstd-encrypted"), tmp_path, "txn-0", ".log", "middle")
    log = one.log("txn-0")
    with pytest.warns(
        DamageWarning, match="are damaged and left out: chunk .* is damaged: .*they were changed"
    ) as told:
        left = {row.offset for row in records(log, on_error="skip")}
    lost = [row.offset for row in one.expected("txn-0") if row.offset not in left]
    assert 0 < len(lost) < 25 and lost == list(range(lost[0], lost[-1] + 1))
    assert path.name in str(told[0].message)


def test_records_are_right_where_the_indexes_are_lost_and_the_loss_is_told(tmp_path: Path) -> None:
    one, path = damaged(session("aiven-zstd"), tmp_path, "txn-0", ".indexes", "missing")
    log = one.log("txn-0")
    with pytest.warns(KtsWarning, match="the index is not used, the log is read instead: the object .* is missing"):
        assert offsets(log, starting_offsets=log.segments[2].base_offset + 5)[0] == log.segments[2].base_offset + 5
    assert offsets(log, isolation="read_committed") == one.facts("txn-0")["readCommittedOffsets"]
    for query in one.times("txn-0")["queries"]:
        found = log.offset_for_timestamp(query["query"])
        assert (None if found is None else found.offset) == (query["answer"] or {}).get("offset")


@pytest.mark.slow
def test_a_missing_or_wrong_key_is_told() -> None:
    one = session("aiven-zstd-encrypted")
    log = kts.open_partition(one.data / "txn-0", remote=one.remote)
    for on_error in ("raise", "skip"):  # no damage, so nothing is skipped
        with pytest.raises(LogStorageError, match="expected the private key k1 among private_keys") as raised:
            records(log, on_error=on_error)
        assert str(raised.value.path).endswith(".rsm-manifest")
    swapped = {"k1": one.keys["k2"], "k2": one.keys["k1"]}
    log = kts.open_partition(one.data / "txn-0", remote=one.remote, remote_options={"private_keys": swapped})
    with pytest.raises(CorruptRecordError, match="the private key k1 does not open the data key"):
        records(log)


@pytest.mark.slow
def test_two_openings_of_one_store_keep_their_own_keys_and_segments() -> None:
    one = session("aiven-zstd-encrypted")
    log, expected = one.log("txn-0"), one.expected("txn-0")
    assert records(log) == expected
    without_keys = kts.open_partition(one.data / "txn-0", remote=one.remote)
    with pytest.raises(LogStorageError, match="expected the private key k1 among private_keys"):
        records(without_keys)
    assert records(log) == expected
    alone = one.store_alone()["txn", 0]
    assert records(alone) == [row for row in expected if row.offset < alone.log_end_offset]
    assert offsets(log, isolation="read_committed") == one.facts("txn-0")["readCommittedOffsets"]
    with pytest.raises(LogStorageError, match="expected the private key k1 among private_keys"):
        records(without_keys)


@pytest.mark.slow
def test_readers_of_one_store_that_are_drained_by_turns_do_not_mix() -> None:
    one = session("aiven-zstd-encrypted")
    log, alone = one.log("txn-0"), one.store_alone()["txn", 0]
    stranger = kts.open_partition(one.data / "txn-0", remote=one.remote)
    swapped = kts.open_partition(
        one.data / "txn-0", remote=one.remote, remote_options={"private_keys": {"k1": one.keys["k2"]}}
    )
    plans = {each: plan(each, 0, 435, range_bytes=1 << 13, isolation="read_committed") for each in (log, alone)}
    committed = one.facts("txn-0")["readCommittedOffsets"]
    stable = {log: log.last_stable_offset, alone: alone.last_stable_offset}
    found: dict[kts.PartitionLog, list[int]] = {log: [], alone: []}
    for turn in zip_longest(*plans.values()):
        assert len(stranger.segments) == len(log.segments) == len(swapped.segments)  # each is the last that is listed
        for each, part in zip(plans, turn, strict=True):
            for rows in read_range(part, columns=["offset"], isolation="read_committed") if part else ():
                found[each] += rows["offset"].to_pylist()
        for other, words in ((stranger, "expected the private key k1"), (swapped, "does not open the data key")):
            with pytest.raises(KtsError, match=words), other.segments[0].open() as file:
                file.read(0, 1)
    assert found == {each: [offset for offset in committed if offset < min(stable[each], 435)] for each in plans}


def test_a_reader_that_is_closed_leaves_another_of_the_same_kind_as_it_is() -> None:
    one = session("aiven-zstd-encrypted")
    log, other = one.log("txn-0"), one.log("txn-0")
    parts = plan(log, 0, log.log_end_offset, isolation="read_committed")
    assert [each.path for each in log.segments] == [each.path for each in other.segments]
    del other
    gc.collect()
    found = [rows["offset"].to_pylist() for part in parts for rows in read_range(part, isolation="read_committed")]
    assert [offset for rows in found for offset in rows] == one.facts("txn-0")["readCommittedOffsets"]


def test_another_opening_that_begins_later_hides_no_end_of_a_transaction(tmp_path: Path) -> None:
    one = session("local").copy(tmp_path)
    for path in one.store.rglob("*.txnindex"):  # so that readers look for markers in the segments that follow
        path.unlink()
    later = [kts.open_partition(one.data / "txn-0", remote=one.remote, log_start_offset=180) for _ in range(4)]
    assert [log.log_start_offset for log in later] == [180] * 4
    log = kts.open_partition(one.data / "txn-0", remote=one.remote)
    assert offsets(log, isolation="read_committed") == one.facts("txn-0")["readCommittedOffsets"]
    assert [log.log_start_offset for log in later] == [180] * 4


def test_a_greatest_time_that_a_manifest_states_wrongly_is_found(tmp_path: Path) -> None:
    """Without the metadata topic it counts only where the time index agrees: a search finds the record."""
    one = session("aiven-plain").copy(tmp_path)
    path = object_of(one, "ct-0", ".rsm-manifest")
    told = json.loads(path.read_text())
    greatest = told["remoteLogSegmentMetadata"]["maxTimestampMs"]
    before = one.store_alone()["ct", 0].offset_for_timestamp(greatest)
    told["remoteLogSegmentMetadata"]["maxTimestampMs"] -= 1
    path.write_text(json.dumps(told))
    assert before is not None and one.store_alone()["ct", 0].offset_for_timestamp(greatest) == before
    [found] = verify_partition(one.store_alone()["ct", 0])
    assert found.kind == "copy" and path.name[:43] in found.path and "is stated to have" in found.message


def test_another_process_misses_the_end_that_a_copy_had_when_it_was_planned(tmp_path: Path) -> None:
    """An executor knows of the metadata topic what the plan says alone; here no index has the lost end either."""
    one = session("local").copy(tmp_path)
    log = one.log("ct-0")
    [part] = [part for part in plan(log, 0, 200) if part.base_offset == log.segments[1].base_offset]
    path = Path(objects_of(part.path))
    batches = kts.scan_batches(path.read_bytes())
    path.write_bytes(path.read_bytes()[: batches["position"][-1].as_py()])
    path.with_suffix(".index").unlink()
    path.with_suffix(".timeindex").unlink()
    [part] = pickle.loads(pickle.dumps(log.taken([part])))
    with pytest.raises(CorruptRecordError, match=f"expected {part.end_position} bytes in tiered storage, found"):
        list(read_range(part))
    with pytest.warns(DamageWarning, match="the end of the copy is missing"):
        left = sum(batch.num_rows for batch in read_range(part, on_error="skip"))
    assert left == batches["baseOffset"][-1].as_py() - part.base_offset


@pytest.mark.parametrize("number, change", [(0, 1_000_000), (1, 30), (1, -3), (-1, 1_000)])
def test_an_end_that_a_manifest_states_wrongly_is_that_of_its_log(tmp_path: Path, number: int, change: int) -> None:
    """One that is too high, of the latest copy, would hide all others; one that is too low would be a gap."""
    one = session("aiven-zstd").copy(tmp_path)
    sound = one.store_alone()["ct", 0]
    segment, end = sound.segments[number], sound.log_end_offset
    path = Path(objects_of(segment.path).removesuffix(".log") + ".rsm-manifest")
    manifest = json.loads(path.read_text())
    manifest["remoteLogSegmentMetadata"]["endOffset"] += change
    manifest["remoteLogSegmentMetadata"]["eventTimestampMs"] += 10**9
    path.write_text(json.dumps(manifest))
    log = one.store_alone()["ct", 0]
    with pytest.warns(KtsWarning, match=r"contradicts its log, which is believed: expected the end offset \d+, found"):
        assert records(log) == [row for row in one.expected("ct-0") if row.offset < end]
    [found] = verify_partition(log)
    assert found.kind == "manifest" and found.path == str(path) and found.message.startswith("end_offset: expected")


def test_first_copies_that_are_missing_are_told_where_the_metadata_is_lost(tmp_path: Path) -> None:
    one = session("aiven-plain").copy(tmp_path)
    first, second = one.log("ct-0").segments[:2]
    for path in Path(objects_of(first.path)).parent.glob(f"{first.base_offset:020d}-*"):
        path.unlink()
    for folder in one.data.glob("__remote_log_metadata-*"):
        shutil.rmtree(folder)
    start = second.base_offset
    log = one.log("ct-0")
    with pytest.warns(KtsWarning, match=f"the log starts at offset 0, but .* nothing in the store before {start}"):
        assert log.log_start_offset == start
    assert [(one.kind, one.offset) for one in verify_partition(log)] == [("gap", start)]
    with pytest.warns(KtsWarning, match=f"the leader epochs begin at offset 0, the store at {start}"):
        assert one.store_alone()["ct", 0].log_start_offset == start


def test_a_first_copy_without_its_manifest_is_told(tmp_path: Path) -> None:
    """Nothing else says that the log began there: it may be an orphan, but the leader epochs begin there too."""
    one = session("aiven-plain").copy(tmp_path)
    first, second = one.log("ct-0").segments[:2]
    Path(objects_of(first.path)).with_suffix(".rsm-manifest").unlink()
    log = one.store_alone()["ct", 0]
    with pytest.warns(KtsWarning, match=rf"starts at offset 0, .* before {second.base_offset}; of .* are missing"):
        assert log.log_start_offset == second.base_offset
    assert [found.kind for found in verify_partition(log)] == ["gap"]


def forget(one: Session, segment_id: str, last: bool) -> None:
    """Let the metadata topic lose its start, up to the first or the last event of a copy."""
    for path in one.data.glob("__remote_log_metadata-*/*.log"):
        rows = kts.decode(path.read_bytes(), ["offset", "position", "value"]).to_pylist()
        ours = [row["position"] for row in rows if uuid_bytes(segment_id) in row["value"]]
        if ours:
            following = next(row for row in rows if row["position"] > (ours[-1] if last else ours[0]))
            kept = path.read_bytes()[following["position"] :]
            path.with_name(f"{following['offset']:020d}.log").write_bytes(kept)
            path.unlink()


@pytest.mark.slow
@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize("name", ["aiven-plain", "local"])
def test_first_copies_that_the_metadata_topic_has_lost_are_read_from_the_store(
    tmp_path: Path, name: str, last: bool
) -> None:
    """A metadata topic with retention forgets copies that are live; of one it may still know that it was finished."""
    one = session(name).copy(tmp_path)
    first, second = one.log("ct-0").segments[:2]
    forget(one, Path(objects_of(first.path)).stem[21:], last)
    for log in (one.log("ct-0"), one.store_alone(metadata=one.data)["ct", 0]):
        with pytest.warns(KtsWarning, match="__remote_log_metadata has lost what it said of 1 copies: they are read"):
            assert records(log) == [row for row in one.expected("ct-0") if row.offset < log.log_end_offset]
        assert not list(verify_partition(log))
    for path in Path(objects_of(first.path)).parent.glob(f"{first.base_offset:020d}-*"):
        path.unlink()
    start = second.base_offset
    log = one.log("ct-0")
    with pytest.warns(KtsWarning, match=f"starts at offset 0, but there is no live copy in .* before {start}"):
        assert log.log_start_offset == start
    assert [(found.kind, found.offset) for found in verify_partition(log)] == [("gap", start)]
    with pytest.warns(KtsWarning, match="without the start of __remote_log_metadata it does not say whether"):
        assert one.store_alone(metadata=one.data)["ct", 0].log_start_offset == start
    for name in ("retention-0", "delete-records-0"):
        assert not list(verify_partition(session("local").store_alone(metadata=session("local").data)[name[:-2], 0]))


def test_half_of_the_metadata_topic_and_the_store_give_the_same_log(tmp_path: Path) -> None:
    """What it says was deleted or never finished stays away."""
    one = session("aiven-plain").copy(tmp_path)

    def seen() -> dict[str, tuple[int, list[int]]]:
        logs = [log for log in one.open().values() if not log.topic.startswith("_")]
        return {f"{log.topic}-{log.partition}": (log.log_start_offset, offsets(log)) for log in logs}

    before = seen()
    for path in one.data.glob("__remote_log_metadata-*/*.log"):
        rows = kts.decode(path.read_bytes(), ["offset", "position"]).to_pylist()
        if rows:
            half = rows[len(rows) // 2]
            path.with_name(f"{half['offset']:020d}.log").write_bytes(path.read_bytes()[half["position"] :])
            path.unlink()
    with pytest.warns(KtsWarning, match="has lost what it said of"):
        assert seen() == before


def test_copies_that_local_segments_hide_are_verified(tmp_path: Path) -> None:
    """Retention will delete the local ones."""
    one = session("aiven-plain").copy(tmp_path)
    log = one.log("ct-0")
    [hidden, *_] = [Path(objects_of(segment.path)) for segment, _ in log.hidden_copies()]
    assert not any(hidden.name in segment.path for segment in log.segments) and not list(verify_partition(log))
    data = hidden.read_bytes()
    hidden.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    [found] = verify_partition(log)
    assert found.kind == "crc" and hidden.stem in found.path
    hidden.unlink()
    assert "missing" in [found.kind for found in verify_partition(log)]
    assert records(log) == one.expected("ct-0")


def test_a_log_with_the_bytes_of_a_later_one_is_found_where_the_metadata_is_lost(tmp_path: Path) -> None:
    """It would be a longer copy, of which nothing is left before the local segments."""
    one = session("local").copy(tmp_path)
    wrong, later = ([*one.store.rglob(f"ct-0-*/{base:020d}-*.log")][0] for base in (100, 129))
    wrong.write_bytes(later.read_bytes())
    shutil.copytree(one.data / "ct-0", tmp_path / "alone" / "ct-0")
    log = kts.open_partition(tmp_path / "alone" / "ct-0", remote=one.remote)
    said = f"{wrong.name} holds other records: expected offset 100 in its first entry, found 129"
    with pytest.raises(CorruptRecordError, match=said):
        records(log)
    [found] = verify_partition(log)
    assert found.kind == "unreadable" and said in found.message
    with pytest.raises(CorruptRecordError, match=said):
        copy(tmp_path / "alone", tmp_path / "target", remote=one.remote)


def test_the_producer_snapshot_of_another_copy_is_found(tmp_path: Path) -> None:
    """It would move the last stable offset of the store alone."""
    one = session("local").copy(tmp_path)
    first, *_, last = [
        Path(objects_of(segment.path)).with_suffix(".snapshot") for segment in one.store_alone()["txn", 0].segments
    ]
    last.write_bytes(first.read_bytes())
    found = [each for each in verify_partition(one.store_alone()["txn", 0]) if each.path == str(last)]
    assert [each.kind for each in found] == ["snapshot"] and "expected the open transactions" in found[0].message


@pytest.mark.slow
def test_nothing_but_a_missing_object_is_named_though_transactions_go_through_it(tmp_path: Path) -> None:
    """What follows cannot be compared with it: its offsets, and the transactions that begin or end there."""
    one = session("aiven-zstd").copy(tmp_path)
    for segment in [segment for segment in one.log("txn-0").segments if segment.remote][1:-1]:
        path = Path(objects_of(segment.path))
        data = path.read_bytes()
        path.unlink()
        found = list(verify_partition(one.log("txn-0")))
        assert {each.kind for each in found} == {"missing", "unreadable"}
        assert all(path.stem in each.path for each in found), [str(each) for each in found]
        path.write_bytes(data)


def test_lost_copies_are_a_gap_that_is_told(tmp_path: Path) -> None:
    one = session("aiven-plain").copy(tmp_path)
    log = one.log("ct-0")
    gone = log.segments[1]
    for path in Path(objects_of(gone.path)).parent.glob(Path(gone.path).name.replace(".log", ".*")):
        path.unlink()
    alone = one.store_alone()["ct", 0]
    first, end = gone.base_offset, log.segments[2].base_offset
    with pytest.raises(
        CorruptRecordError, match=f"no live copy in tiered storage has the offsets {first} to {end - 1}"
    ):
        records(alone)
    with pytest.warns(DamageWarning, match=f"no live copy in tiered storage has the offsets {first} to {end - 1}"):
        left = offsets(alone, on_error="skip")
    assert left == [n for n in range(alone.log_end_offset) if not first <= n < end]
    assert any("no live copy" in each.message for each in verify_partition(alone))


def test_a_manifest_that_contradicts_the_metadata_is_refused(tmp_path: Path) -> None:
    one, path = damaged(session("aiven-prefix"), tmp_path, "ct-0", ".rsm-manifest", "early", 0)
    other = session("aiven-prefix").log("ct-0").segments[1].path
    path.write_bytes(Path(objects_of(other).replace(".log", ".rsm-manifest")).read_bytes())
    with pytest.raises(CorruptRecordError, match="is damaged: it is of segment"):
        records(one.log("ct-0"))


def test_a_range_reads_only_what_it_needs(tmp_path: Path) -> None:
    from kts.remote import chunks

    log = session("aiven-zstd").copy(tmp_path).log("ct-0")  # of which no chunk is kept
    read: list[str] = []
    fetched = chunks.RemoteLog._fetched
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            chunks.RemoteLog, "_fetched", lambda self, *a: read.append(self._object_path) or fetched(self, *a)
        )
        first = log.segments[1].base_offset
        assert offsets(log, starting_offsets=first + 1, ending_offsets=first + 3) == [first + 1, first + 2]
    assert {Path(path).name[:20] for path in read} == {f"{first:020d}"}


def test_a_live_directory_is_seen_as_it_is_now(tmp_path: Path) -> None:
    one = session("local").copy(tmp_path)
    log = one.log("ct-0")
    before = [segment.path for segment in log.segments]
    local = [segment for segment in log.segments if not segment.remote]
    Path(local[0].path).unlink()  # as a broker does: it is in tiered storage
    now = [segment.path for segment in log.segments]
    assert len(now) == len(before) and now != before
    assert records(log) == one.expected("ct-0")


def test_a_plan_gives_no_aborted_records_when_its_partition_is_closed_or_in_another_process(tmp_path: Path) -> None:
    """The ends of transactions are in later segments. An address alone does not lead to them, which is an error."""
    one = session("local").copy(tmp_path)
    for path in one.store.rglob("*.txnindex"):
        path.unlink()
    log = one.log("txn-0")
    parts = plan(log, 0, log.log_end_offset, isolation="read_committed")
    pickled = pickle.dumps(log.taken(parts))
    del log
    gc.collect()
    for planned in (parts, pickle.loads(pickled)):
        found = [
            rows["offset"].to_pylist() for part in planned for rows in read_range(part, isolation="read_committed")
        ]
        assert [offset for rows in found for offset in rows] == one.facts("txn-0")["readCommittedOffsets"]
    alone = [replace(part, source=source_of(part.path)) for part in parts]
    with pytest.raises(LogStorageError, match="expected an open partition, found none in this process"):
        for part in alone:
            list(read_range(part, isolation="read_committed"))


def test_an_address_of_a_segment_is_read_by_itself() -> None:
    one = session("aiven-zstd")
    segment = one.log("ct-0").segments[0]
    found = tiered.rows(kts.scan(segment.path, columns=tiered.RECORD_COLUMNS).read_all())
    assert found == one.expected("ct-0")[: len(found)] and found
