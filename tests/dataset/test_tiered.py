"""Log directories and tiered storage as one log: what brokers wrote, compared with what Java consumers saw."""

from __future__ import annotations

import pickle
import warnings
from pathlib import Path

import pytest
from support import tiered
from support.tiered import offsets, records, session

import kts
from kts.remote.metadata import MetadataTopic
from kts.remote.tiers import objects_of
from kts.store.source import files

SESSIONS = tiered.names()


@pytest.mark.slow
@pytest.mark.parametrize("name", SESSIONS)
def test_records_offsets_and_times_are_those_of_java_clients(name: str) -> None:
    one = session(name)
    logs = one.open()
    for partition in one.partitions:
        topic, _, number = partition.rpartition("-")
        log, facts, times = logs[topic, int(number)], one.facts(partition), one.times(partition)
        assert records(log) == one.expected(partition), partition
        assert (log.log_start_offset, log.log_end_offset) == (facts["beginningOffset"], facts["endOffset"]), partition
        assert log.last_stable_offset == facts["lastStableOffset"]
        if topic == "txn":  # across both tiers
            assert log.segments[0].remote and not log.segments[-1].remote
            assert offsets(log, isolation="read_committed") == facts["readCommittedOffsets"]
        earliest_local = facts["listOffsets"]["earliestLocal"]["offset"]
        local = [segment for segment in log.segments if not segment.remote]
        assert max(local[0].base_offset, log.log_start_offset) == earliest_local
        assert [segment.remote for segment in log.segments] == sorted((s.remote for s in log.segments), reverse=True)
        for query in times["queries"]:
            found = log.offset_for_timestamp(query["query"])
            answer = None if found is None else {"offset": found.offset, "timestamp": found.timestamp_ms}
            if topic != "diverged":  # the broker passes over a segment that spans the fork, see docs/differences.md
                assert answer == query["answer"], (partition, query)
        greatest = log.max_timestamp()
        assert greatest is not None
        assert {"offset": greatest.offset, "timestamp": greatest.timestamp_ms} == times["maxTimestamp"], partition


@pytest.mark.parametrize("with_metadata", [True, False])
@pytest.mark.parametrize("name", SESSIONS)
def test_the_store_alone_has_all_that_was_copied(name: str, with_metadata: bool) -> None:
    one = session(name)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", kts.KtsWarning)
        logs = one.store_alone(**({"metadata": one.data} if with_metadata else {}))
        for (topic, number), log in logs.items():
            partition = f"{topic}-{number}"
            facts, reached = one.facts(partition), log.log_end_offset
            start = facts["beginningOffset"]
            assert log.log_start_offset <= start
            assert reached >= kts.open_partition(one.data / partition).segments[0].base_offset
            found = [row for row in records(log) if row.offset >= start]
            assert found == [row for row in one.expected(partition) if row.offset < reached], partition
            if topic == "txn":  # the last transaction may end in a segment that is not copied yet
                stable, committed = log.last_stable_offset, facts["readCommittedOffsets"]
                assert reached - 100 < stable <= reached
                assert offsets(log, isolation="read_committed") == [one for one in committed if one < stable]
            else:
                assert log.last_stable_offset == reached
            assert all(segment.remote for segment in log.segments)
    late = [f"{topic}-{n}" for (topic, n), log in logs.items() if log.log_start_offset > log.leader_epochs[0][1]]
    said = [str(one.message) for one in told if issubclass(one.category, kts.KtsWarning)]
    unstable = {log.path for log in logs.values() if log.last_stable_offset < log.log_end_offset}
    is_open = [": read_committed ends at the last stable offset" in line for line in said]
    assert {line.split(": ")[0] for line, one in zip(said, is_open, strict=True) if one} == unstable
    said = [line for line, one in zip(said, is_open, strict=True) if not one]
    lost = ["handover-0", "diverged-0"]
    orphans = {"local": ["unfinished-0"], "aiven-plain": ["unfinished-0"], "local-leaders": lost}
    expected = [] if with_metadata else [*orphans.get(name, []), *late]
    assert sorted(line.split(": ")[0] for line in said) == sorted(expected), said
    assert all("without __remote_log_metadata" in line for line in said)


def test_partitions_of_which_another_broker_has_the_metadata_are_there(tmp_path: Path) -> None:
    one = session("aiven-s3").copy(tmp_path)
    whole = one.store_alone(metadata=one.data)
    known = len(MetadataTopic([(str(one.data), files)]).histories())
    for folder in one.data.glob("__remote_log_metadata-*"):
        away = tmp_path / folder.name
        folder.rename(away)
        if len(MetadataTopic([(str(one.data), files)]).histories()) < known:
            break
        away.rename(folder)
    part = one.store_alone(metadata=one.data)
    assert list(part) == list(whole)
    with pytest.warns(kts.KtsWarning, match="says nothing of topic id .* they are read as the store alone tells them"):
        assert {key: offsets(log) for key, log in part.items()} == {key: offsets(log) for key, log in whole.items()}


def test_a_follower_reads_with_the_metadata_of_another_directory() -> None:
    one = session("local-leaders")
    options = {"metadata": one.data}
    logs = kts.open_log_dirs(one.path / "data-follower", remote=one.remote, remote_options=options)
    for partition in one.partitions:
        topic, _, number = partition.rpartition("-")
        assert records(logs[topic, int(number)]) == one.expected(partition)


def test_a_segment_that_spans_a_fork_is_left_at_the_fork() -> None:
    log = session("local-leaders").log("diverged-0")
    assert log.leader_epochs == [(0, 0), (1, 82), (3, 130)]
    table = log.scan(columns=["offset", "partitionLeaderEpoch"]).read_all()
    epochs = dict(zip(*(table[name].to_pylist() for name in ("offset", "partitionLeaderEpoch")), strict=True))
    assert [offset for offset, epoch in epochs.items() if epoch == 1 and offset >= 130] == []
    assert {epochs[offset] for offset in range(82, 130)} == {1} and epochs[130] == 3


def test_the_topic_id_of_the_directory_chooses_between_two_lives_of_a_topic() -> None:
    log = session("local").log("reborn-0")
    assert log.topic_id is not None and all(
        f"-{log.topic_id}/" in objects_of(one.path) for one in log.segments if one.remote
    )


def test_each_way_to_open_takes_the_store() -> None:
    one = session("aiven-zstd")
    options = {"remote": one.remote, "remote_options": {"layout": "aiven"}}
    want = one.expected("ct-0")
    assert records(kts.open_partition(one.data / "ct-0", **options)) == want
    assert records(kts.open(str(one.data / "ct-0"), **options)) == want
    table = kts.scan(one.data, topics=["ct"], partitions=[0], columns=tiered.RECORD_COLUMNS, **options).read_all()
    assert tiered.rows(table) == want
    table = kts.scan(None, topics=["ct"], partitions=[0], columns=["offset"], **options).read_all()
    assert table["offset"].to_pylist() == [row.offset for row in want][: table.num_rows] and table.num_rows > 200


def test_a_pickled_log_reads_the_same() -> None:
    log = pickle.loads(pickle.dumps(session("aiven-zstd-encrypted").log("txn-0")))
    assert records(log) == session("aiven-zstd-encrypted").expected("txn-0")


def test_wrong_arguments_are_named() -> None:
    one = session("aiven-plain")
    with pytest.raises(ValueError, match="remote_options: expected layout, private_keys and metadata, found keys"):
        kts.open(one.data, remote=one.remote, remote_options={"keys": {}})
    with pytest.raises(ValueError, match="layout: expected one of auto, local, aiven"):
        kts.open(one.data, remote=one.remote, remote_options={"layout": "s3"})
    with pytest.raises(FileNotFoundError, match="there is no tiered storage"):
        kts.open(one.data, remote=one.path / "nothing" / "here")
    with pytest.raises(FileNotFoundError, match="there is no __remote_log_metadata-N in it"):
        kts.open(None, remote=one.remote, remote_options={"metadata": one.store})
    with pytest.raises(TypeError, match="path: expected a path, found None"):
        kts.open(None)
    with pytest.raises(ValueError, match="remote_options: expected remote as well"):
        kts.open(one.data, remote_options={"layout": "local"})
    lone = next((one.data / "ct-0").glob("*.log"))
    with pytest.raises(ValueError, match="remote: expected a partition or log directory, found the segment file"):
        kts.open(lone, remote=one.remote)
