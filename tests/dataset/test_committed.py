"""The committed offsets of a directory, beside what Kafka's own tool said of the broker."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from support.broker.group_play import T, committed
from support.coordinators import broker, described

import kts
from kts.coordinator_records.groups import offset_key, offset_value

NAMES = ["group", "topic", "partition", "currentOffset", "logEndOffset", "lag"]


def rows(table: pa.Table, names: list[str] = NAMES) -> list[tuple[object, ...]]:
    return [tuple(row[name] for name in names) for row in table.to_pylist()]


@pytest.mark.parametrize("version", ["3.9.2", "4.3.1"])
def test_offsets_are_those_that_kafka_describes(version: str) -> None:
    """Deleted groups, aborted and open transactions are in the files too."""
    found = kts.committed_offsets(broker(version))
    assert rows(found) == described(version)
    assert len(found) >= 6
    raw = kts.scan(broker(version), decoder="offsets", columns=["group", "committedOffset"]).read_all()
    assert {"gone", "pending", *found["group"].to_pylist()} <= {*raw["group"].to_pylist()}


def test_offsets_of_an_old_broker_have_an_expire_time() -> None:
    found = kts.committed_offsets(broker("0.10.2.2"))
    assert rows(found, ["group", "topic", "partition", "currentOffset"]) == [
        ("billing", "orders", 0, 5),
        ("readers", "orders", 0, 20),
    ]
    times = [(row["expireTimestamp"] - row["commitTimestamp"]).total_seconds() for row in found.to_pylist()]
    assert times == [86_400, 86_400]  # offsets.retention.minutes


def test_groups_and_topics_are_selected_and_the_ends_of_partitions_elsewhere_are_unknown() -> None:
    whole = kts.committed_offsets(broker("3.9.2"))
    assert rows(kts.committed_offsets(broker("3.9.2"), groups=["billing"], topics=["orders"])) == rows(whole)[1:3]
    names: list[tuple[dict[str, list[str]], str]] = [
        ({"groups": ["bill"]}, "groups: .* group bill; did you mean billing"),
        ({"topics": ["x"]}, "topics: "),
    ]
    for wrong, said in names:
        with pytest.raises(ValueError, match=said):
            kts.committed_offsets(broker("3.9.2"), **wrong)
    alone = kts.committed_offsets(broker("3.9.2") / "__consumer_offsets-0")
    assert rows(alone) == [("readers", "orders", 0, 10, None, None), ("readers", "orders", 1, 10, None, None)]
    assert alone.schema == whole.schema


def test_a_directory_without_the_topic_is_a_wrong_argument(tmp_path: Path) -> None:
    shutil.copytree(broker("3.9.2") / "orders-0", tmp_path / "orders-0")
    with pytest.raises(kts.UnknownTopicOrPartitionError, match="there is no topic __consumer_offsets in"):
        kts.committed_offsets(tmp_path)
    with pytest.raises(ValueError, match="on_error: expected one of raise, skip"):
        kts.committed_offsets(tmp_path, on_error="ignore")


def test_a_damaged_value_is_an_error_that_says_where_or_is_left_out(tmp_path: Path) -> None:
    folder = tmp_path / "__consumer_offsets-7"
    with kts.Log(folder) as log:
        keys = [offset_key("g", "t", number) for number in range(3)]
        values = [offset_value(committed(5)), b"\0\3\0", offset_value(committed(6))]
        times = pa.array([T] * 3, pa.int64())
        log.append(kts.encode({"timestamp": times, "key": pa.array(keys), "value": pa.array(values)}))
    with pytest.raises(kts.CorruptRecordError, match="offset 1 of __consumer_offsets-7 is not a record of") as caught:
        kts.committed_offsets(folder)
    assert (caught.value.path, caught.value.offset) == (str(folder), 1)
    with pytest.warns(kts.KtsWarning, match="offset 1 of __consumer_offsets-7 .* is left out"):
        found = kts.committed_offsets(folder, on_error="skip")
    assert rows(found, ["partition", "currentOffset"]) == [(0, 5), (2, 6)]


def test_damage_in_the_file_is_raised_or_left_out(tmp_path: Path) -> None:
    folder = tmp_path / "__consumer_offsets-0"
    shutil.copytree(broker("3.9.2") / folder.name, folder)
    [log] = folder.glob("*.log")
    data = bytearray(log.read_bytes())
    data[-1] ^= 1
    log.write_bytes(data)
    with pytest.raises(kts.CorruptRecordError) as caught:
        kts.committed_offsets(folder)
    assert caught.value.path == str(log)
    with pytest.warns(kts.KtsWarning, match="damaged and left out"):
        assert len(kts.committed_offsets(folder, on_error="skip")) == 0
