"""``kts.cluster`` beside what Kafka's own classes and its Admin client said of the same brokers."""

from __future__ import annotations

import os
import pickle
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from support.clusters import LOG, VERSIONS, check_described, cluster_of, images_of, of_image, of_state, records_of

import kts
from kts.cluster_records.layout import NO_OP, write_record

LOG_FILE = f"{0:020}.log"


def copied(folder: Path, version: str = "4.3.1") -> Path:
    """A log directory to damage."""
    made = folder / "data"
    shutil.copytree(cluster_of(version), made)
    return made


def snapshots(folder: Path) -> list[Path]:
    """The newest last."""
    return sorted((folder / LOG).glob("*.checkpoint"))


@pytest.mark.parametrize("version", VERSIONS)
def test_the_state_at_each_offset_is_kafkas_image(version: str, tmp_path: Path) -> None:
    folder = copied(tmp_path, version)
    with_snapshots = {offset: kts.cluster(folder, as_of=offset) for offset in images_of(folder)}
    for path in snapshots(folder):
        path.unlink()
    for offset, image in images_of(folder).items():
        of_log = kts.cluster(folder, as_of=offset)
        assert of_state(of_log) == of_state(with_snapshots[offset]) == of_image(image)
        assert of_log.origin.last_offset == with_snapshots[offset].origin.last_offset == offset
        assert of_log.origin.snapshot is None
    assert with_snapshots[max(with_snapshots)].origin.snapshot is not None


@pytest.mark.parametrize("version", VERSIONS)
def test_the_state_of_a_time_is_what_the_admin_client_was_told_then(version: str) -> None:
    check_described(cluster_of(version))


def test_settings_ids_and_origin_are_easy_to_ask() -> None:
    folder = cluster_of("4.3.1")
    for path in (folder, str(folder), folder / LOG):
        state = kts.cluster(path)
        assert state.topic("orders").config == {"message.timestamp.type": "LogAppendTime", "retention.ms": "7200000"}
        assert state.topics.keys() == {"orders", "clicks"}
        assert state.configs["BROKER", ""] == {"log.retention.ms": "-1", "min.insync.replicas": "1"}
        assert state.node_id == 1 and not state.by_zookeeper
        assert state.voters[1].directory_id == state.directory_id and state.features["kraft.version"] == 1
        assert state.origin.directory == str(folder)
        assert state.origin.snapshot == str(snapshots(folder)[-1])
    last = records_of(folder)[LOG_FILE][-1]
    assert (state.origin.last_offset, state.origin.last_ms) == (last["offset"], last["timestamp"])
    assert pickle.loads(pickle.dumps(state)) == state


def test_a_time_means_what_was_written_until_then() -> None:
    folder = cluster_of("3.9.2")
    rows = records_of(folder)[LOG_FILE]
    [made] = [row for row in rows if row["data"].get("name") == "clicks"]
    moment = kts.cluster(folder, as_of=made["offset"]).origin.last_ms
    assert moment == made["timestamp"]
    at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=made["timestamp"])
    assert "clicks" in kts.cluster(folder, as_of=at).topics
    assert "clicks" in kts.cluster(folder, as_of=at.isoformat()).topics
    assert "clicks" not in kts.cluster(folder, as_of=at - timedelta(milliseconds=1)).topics
    assert kts.cluster(folder, as_of="2100-01-01") == kts.cluster(folder)


def test_what_is_not_on_the_disk_is_told(tmp_path: Path) -> None:
    folder = copied(tmp_path)
    end = (kts.cluster(folder).origin.last_offset or 0) + 1
    with pytest.raises(kts.OffsetOutOfRangeError, match=f"expected an offset of the metadata log, 0 to {end - 1}"):
        kts.cluster(folder, as_of=end)
    with pytest.raises(kts.OffsetOutOfRangeError, match="before the oldest state on this disk"):
        kts.cluster(folder, as_of="2020-01-01")
    with pytest.raises(TypeError, match="as_of"):
        kts.cluster(folder, as_of=1.5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="path"):
        kts.cluster(["a"])  # type: ignore[arg-type]
    with pytest.raises(FileNotFoundError):
        kts.cluster(folder / "none")


def test_a_log_whose_begin_was_deleted_starts_with_a_snapshot(tmp_path: Path) -> None:
    folder = copied(tmp_path)
    whole = kts.cluster(folder)
    oldest, newest, *rest = snapshots(folder)
    for path in rest:
        path.unlink()
    border = int(newest.name[:20])
    values = kts.scan(folder / LOG, columns=["timestamp", "value"], starting_offsets=border).read_all()
    for path in (folder / LOG).glob(f"{0:020}.*"):
        path.unlink()
    (folder / LOG / f"{border:020}.log").write_bytes(kts.encode(values, base_offset=border))
    assert of_state(kts.cluster(folder)) == of_state(whole)
    assert kts.cluster(folder, as_of=border - 1).origin.snapshot == str(newest)
    with pytest.raises(
        kts.OffsetOutOfRangeError, match=f"the metadata log begins at offset {border}, the oldest snapsh"
    ):
        kts.cluster(folder, as_of=border - 2)
    newest.unlink()
    with pytest.raises(kts.CorruptRecordError, match="records between are missing"):
        kts.cluster(folder)
    oldest.unlink()
    with pytest.raises(kts.CorruptRecordError, match="no snapshot is there"):
        kts.cluster(folder)


def test_a_snapshot_alone_is_enough(tmp_path: Path) -> None:
    folder = copied(tmp_path)
    newest = snapshots(folder)[-1]
    at = int(newest.name[:20]) - 1
    expected = of_state(kts.cluster(folder, as_of=at))
    for path in (folder / LOG).glob(f"{0:020}.*"):
        path.unlink()
    state = kts.cluster(folder)
    assert of_state(state) == expected
    assert state.origin.last_offset == at


@pytest.mark.filterwarnings("ignore:.*an incomplete entry")
@pytest.mark.parametrize("cut", [True, False])
def test_a_damaged_snapshot_is_an_error_with_its_name(cut: bool, tmp_path: Path) -> None:
    folder = copied(tmp_path)
    newest = snapshots(folder)[-1]
    data = newest.read_bytes()
    newest.write_bytes(data[:-20] if cut else data[:200] + bytes([data[200] ^ 1]) + data[201:])
    with pytest.raises(kts.CorruptRecordError, match="it is cut" if cut else "CRC") as error:
        kts.cluster(folder)
    assert error.value.path == str(newest)
    newest.write_bytes((folder / LOG / LOG_FILE).read_bytes())
    with pytest.raises(kts.CorruptRecordError, match="no header at its start"):
        kts.cluster(folder)


@pytest.mark.filterwarnings("ignore:.*an incomplete entry")
def test_a_crash_may_cut_the_last_batch_of_the_log(tmp_path: Path) -> None:
    folder = copied(tmp_path)
    log = folder / LOG / LOG_FILE
    end = kts.open_partition(folder / LOG).log_end_offset
    log.write_bytes(log.read_bytes()[:-3])
    before = kts.open_partition(folder / LOG).log_end_offset
    assert before < end
    for path in snapshots(folder)[-1:]:
        path.unlink()  # it may be newer than the end that is left
    assert kts.cluster(folder).origin.last_offset == before - 1


def test_an_open_transaction_is_told_and_left_out(tmp_path: Path) -> None:
    topic = write_record("Topic", 0, {"name": "orders", "topicId": bytes(15) + b"\1"})
    values = [write_record("BeginTransaction", 0, {}), topic, write_record("EndTransaction", 0, {}), NO_OP]
    with kts.Log(tmp_path / LOG) as log:
        log.append_rows([{"timestamp": 1, "value": value} for value in values])
    assert kts.cluster(tmp_path).topics.keys() == {"orders"}
    assert not kts.cluster(tmp_path).origin.open_transaction
    opened = kts.cluster(tmp_path, as_of=1)
    assert not opened.topics and opened.origin.open_transaction


def test_a_directory_that_was_only_formatted_has_the_features(tmp_path: Path) -> None:
    folder = copied(tmp_path)
    shutil.rmtree(folder / LOG)
    with pytest.warns(kts.KtsWarning, match="there is no metadata log here, it lies in metadata.log.dir"):
        state = kts.cluster(folder)
    whole = dict(kts.cluster(cluster_of("4.3.1")).features)
    assert whole.pop("kraft.version") == 1  # which the log says
    assert state.features == whole
    assert state.origin.snapshot == str(folder / "bootstrap.checkpoint") and state.origin.log is None
    with pytest.raises(ValueError, match="as_of: there is no metadata log"):
        kts.cluster(folder, as_of=1)


def test_a_directory_of_zookeepers_time_tells_its_ids_and_topics(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("#\nbroker.id=3\nversion=0\ncluster.id=abc\n")
    for name in ("orders-0", "orders-7", "old-0"):
        with kts.Log(tmp_path / name) as log:
            log.append_rows([{"timestamp": 1, "value": b"v"}])
    for name in ("orders-0", "orders-7"):
        (tmp_path / name / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAQACAAAAAAAAAAA")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.warns(kts.KtsWarning, match="there is no metadata log here, ZooKeeper had it"):
        state = kts.cluster(tmp_path)
    assert (state.cluster_id, state.node_id, state.by_zookeeper) == ("abc", 3, True)
    assert state.topic("orders").topic_id == "AAAAAAAAQACAAAAAAAAAAA" and state.topic("old").topic_id is None
    assert {name: [*topic.partitions] for name, topic in state.topics.items()} == {"old": [0], "orders": [0, 7]}
    assert state.topic("orders").partitions[7].replicas == (3,)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_directory_without_metadata_says_where_to_look(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no metadata of a cluster .*metadata\.log\.dir.*server\.properties"):
        kts.cluster(tmp_path)
    copied(tmp_path)
    with pytest.raises(FileNotFoundError, match=f"there are some in {os.path.join(tmp_path, 'data')}"):
        kts.cluster(tmp_path)


def test_a_time_is_answered_from_the_newest_snapshot_where_the_log_ends_before_it(tmp_path: Path) -> None:
    folder = copied(tmp_path)
    newest, end = snapshots(folder)[-1], kts.open_partition(folder / LOG).log_end_offset
    (folder / LOG / LOG_FILE).write_bytes(b"")
    for name in ("index", "timeindex"):
        (folder / LOG / f"{0:020}.{name}").write_bytes(b"")
    state = kts.cluster(folder, as_of="2100-01-01")
    assert state.origin.snapshot == str(newest) and state.topics == kts.cluster(folder).topics
    at = int(newest.name[:20])
    assert kts.cluster(folder, as_of=at - 1).topics == state.topics
    assert at <= end
    with pytest.raises(kts.OffsetOutOfRangeError, match=f"expected an offset of the metadata log, 0 to {at - 1}"):
        kts.cluster(folder, as_of=at)
    older = snapshots(folder)[-2]
    with pytest.raises(kts.OffsetOutOfRangeError, match="are not on this disk"):
        kts.cluster(folder, as_of=int(older.name[:20]) + 1)


def test_an_offset_may_be_of_numpy_and_text_of_digits_is_neither() -> None:
    folder = cluster_of("4.3.1")
    assert kts.cluster(folder, as_of=np.int64(50)) == kts.cluster(folder, as_of=50)
    with pytest.raises(TypeError, match="as_of: expected an offset as an int, or a time, found '50'"):
        kts.cluster(folder, as_of="50")
