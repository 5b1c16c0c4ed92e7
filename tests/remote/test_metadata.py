"""Records of ``__remote_log_metadata``: the bytes of real brokers, and what is not such a record."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from support.tiered import session

import kts
from kts.errors import CorruptRecordError, InvalidRequestError
from kts.remote.metadata import (
    COPY_FINISHED,
    COPY_STARTED,
    DELETE_FINISHED,
    DELETE_STARTED,
    Copy,
    CopyUpdate,
    History,
    MetadataTopic,
    PartitionId,
    read_event,
)
from kts.store.source import files

OF = PartitionId("ct", "wn2IAAAAAAAAAAAAAAAAAA", 0)


def copy(start: int, end: int, name: str = "a", state: int = COPY_STARTED, epochs: object = None) -> Copy:
    return Copy(OF, name, start, end, ((0, start),) if epochs is None else epochs, 1000, 5, 1, state)


def states(name: str, topic: str) -> list[list[int]]:
    histories = MetadataTopic([(str(session(name).data), files)]).histories()
    found = [[one.state for one in history.copies.values()] for of, history in histories.items() if of.topic == topic]
    return sorted(sorted(one) for one in found)


def test_states_are_those_that_the_brokers_left() -> None:
    assert states("local", "failed") == [[COPY_STARTED] * 2 + [COPY_FINISHED] * 3]
    assert states("local-4", "failed") == [[COPY_FINISHED] * 3 + [DELETE_FINISHED] * 2]
    assert states("local", "unfinished") == [[COPY_STARTED] + [COPY_FINISHED] * 5]
    assert states("local", "reborn") == [[COPY_FINISHED] * 3, [DELETE_FINISHED] * 3]


def test_fields_are_those_of_the_manifest() -> None:
    from kts.remote.manifests import read_manifest

    one = session("aiven-prefix")
    histories = MetadataTopic([(str(one.data), files)]).histories()
    copies = {each.segment_id: each for history in histories.values() for each in history.copies.values()}
    manifests = sorted(one.store.rglob("*.rsm-manifest"))
    assert manifests
    for path in manifests:
        told = read_manifest(path.read_bytes(), str(path)).copy
        assert told is not None
        known = copies[told.segment_id]
        assert known.object_prefix == "cold/cluster-a/"
        assert str(path).endswith(f"{known.object_prefix}{known.object_key}.rsm-manifest")
        same = known._replace(object_prefix=None, object_key=None, event_ms=told.event_ms)
        assert same == told


@pytest.mark.parametrize(
    "value, words",
    [
        (None, "expected a message, found null"),
        (b"", "expected another byte of a varint"),
        (b"\2\0\0", "expected frame version 1, found 2"),
        (b"\1\0\7", "expected a version up to 1, found 7"),
        (b"\1\0\0\x64abc", "of.partition.topic: expected"),
    ],
)
def test_bytes_that_are_no_event_are_refused(value: bytes | None, words: str) -> None:
    with pytest.raises(InvalidRequestError, match=words):
        read_event(value)


def values() -> list[bytes]:
    found = []
    for path in sorted(session("aiven-prefix").data.glob("__remote_log_metadata-*")):
        found += kts.open_partition(path).scan(columns=["value"]).read_all()["value"].to_pylist()
    return found


@pytest.mark.parametrize("name", ["..", ".\0", "/a", "a/", "é", "a b"[1:]])
def test_a_topic_that_kafka_does_not_allow_is_refused(name: str) -> None:
    found = [value for value in values() if b"\x03ct" in value]
    for value in (found[0], found[-1]):  # a copy, a change of its state
        assert read_event(value)
        with pytest.raises(InvalidRequestError, match="topic: expected a topic of 1 to 249 characters"):
            read_event(value.replace(b"\x03ct", b"\x03" + name.encode()))


PREFIX = b"cold/cluster-a/"


@pytest.mark.parametrize("prefix", [b"/old/cluster-a/", b"../d/cluster-a/", b"cold/../../../a", b"c://d/cluster-a",
                                    b"cold/\0/cluster/", b"cold/./cluster/"])  # fmt: skip
def test_a_key_that_leads_out_of_the_store_is_refused(prefix: bytes) -> None:
    found = [value for value in values() if PREFIX in value]
    assert found and len(prefix) == len(PREFIX)
    for value in found[:3]:
        assert read_event(value)
        with pytest.raises(InvalidRequestError, match="expected the key of an object below the root"):
            read_event(value.replace(PREFIX, prefix))


def test_of_two_replicas_that_with_the_latest_epoch_and_the_highest_end_is_read(tmp_path: Path) -> None:
    one = session("aiven-s3")
    for folder in ("a", "b"):
        for source in one.data.glob("__remote_log_metadata-*"):
            shutil.copytree(source, tmp_path / folder / source.name)
    whole = MetadataTopic([(str(tmp_path / "a"), files)]).histories()
    log = max((tmp_path / "b").rglob("*.log"), key=lambda path: path.stat().st_size)
    data = log.read_bytes()
    log.write_bytes(data[: kts.scan_batches(data)["position"][1].as_py()])
    behind = MetadataTopic([(str(tmp_path / "b"), files)]).histories()

    def copies(histories: object) -> object:
        return {of: history.copies for of, history in histories.items()}  # type: ignore[attr-defined]

    assert copies(behind) != copies(whole)
    for order in ("ab", "ba"):
        topic = MetadataTopic([(str(tmp_path / folder), files) for folder in order])
        (log.parent / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
        assert copies(topic.histories()) == copies(whole)
        (log.parent / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n9 1\n")  # it was the leader later
        assert copies(topic.histories()) == copies(behind)


def test_every_cut_of_a_real_event_is_refused_and_messages_about_nothing_are_passed_over() -> None:
    value = values()[0]
    assert isinstance(read_event(value), Copy)
    for end in range(len(value)):
        with pytest.raises(InvalidRequestError):
            read_event(value[:end])
    with pytest.raises(InvalidRequestError, match="expected the end, found 1 more"):
        read_event(value + b"\0")
    assert read_event(b"\1\2\0whatever") is None


def test_changed_bytes_of_a_real_event_are_read_or_refused() -> None:
    for value in values()[:2]:
        refused = 0
        for at in range(len(value)):
            for bit in (0, 3, 7):
                changed = bytearray(value)
                changed[at] ^= 1 << bit
                try:
                    read_event(bytes(changed))
                except InvalidRequestError:
                    refused += 1
        assert len(value) // 4 < refused < 3 * len(value)


def test_events_that_a_state_does_not_allow_are_dropped() -> None:
    history = History(OF)
    history.add(CopyUpdate(OF, "x", 2, COPY_FINISHED, None))
    history.add(copy(0, 9))
    history.add(CopyUpdate(OF, "a", 2, DELETE_FINISHED, None))
    assert [one.state for one in history.copies.values()] == [COPY_STARTED]
    history.add(CopyUpdate(OF, "a", 3, COPY_FINISHED, None))
    history.add(CopyUpdate(OF, "a", 4, COPY_FINISHED, None))
    history.add(copy(0, 9))
    history.add(CopyUpdate(OF, "a", 5, DELETE_STARTED, None))
    history.add(CopyUpdate(OF, "a", 6, COPY_FINISHED, None))
    assert [one.state for one in history.changes] == [COPY_FINISHED, DELETE_STARTED]
    assert [one.state for one in history.in_state(DELETE_STARTED)] == [DELETE_STARTED]


def test_a_damaged_metadata_partition_is_an_error_with_its_place(tmp_path: Path) -> None:
    one = session("aiven-s3")
    for source in one.data.glob("__remote_log_metadata-*"):
        shutil.copytree(source, tmp_path / source.name)
    log = next(path for path in sorted(tmp_path.rglob("*.log")) if path.stat().st_size)
    topic = MetadataTopic([(str(tmp_path), files)])
    assert topic.histories()
    changed = bytearray(log.read_bytes())
    changed[80] ^= 1
    log.write_bytes(changed)
    os.utime(log, ns=(1, 1))
    with pytest.raises(CorruptRecordError, match="CRC") as raised:
        topic.histories()
    assert raised.value.path == str(log)
