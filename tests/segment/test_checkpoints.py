"""Checkpoint files, leader epochs, topic ids and locks: a broker's bytes, replaced as a whole or not at all."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from support.golden import golden_partitions

from kts.errors import LogStorageError
from kts.segment import checkpoints


def test_leader_epochs_and_topic_ids_are_written_with_the_bytes_of_a_broker(tmp_path: Path) -> None:
    epochs = ids = 0
    for scenario, partition in golden_partitions():
        source = scenario.partition_dir(partition)
        if (source / "leader-epoch-checkpoint").exists() and (source / "leader-epoch-checkpoint").stat().st_size:
            known = checkpoints.read_leader_epochs(str(source / "leader-epoch-checkpoint"))
            assert known
            checkpoints.write_leader_epochs(str(tmp_path / "epochs"), known)
            assert (tmp_path / "epochs").read_bytes() == (source / "leader-epoch-checkpoint").read_bytes()
            epochs += 1
        topic_id = checkpoints.read_topic_id(str(source))
        if topic_id is not None:
            assert len(topic_id) == 22
            checkpoints.write_topic_id(str(tmp_path), topic_id)
            assert (tmp_path / "partition.metadata").read_bytes() == (source / "partition.metadata").read_bytes()
            ids += 1
    assert epochs > 20 and ids > 20
    assert sorted(path.name for path in tmp_path.iterdir()) == ["epochs", "partition.metadata"]


def test_checkpoints_are_the_lines_that_a_broker_wrote_and_are_read_again(tmp_path: Path, rng: random.Random) -> None:
    path = tmp_path / "recovery-point-offset-checkpoint"
    checkpoints.write_checkpoint(str(path), {})
    assert path.read_bytes() == b"0\n0\n"
    lines = 0
    for scenario, _ in golden_partitions():
        for names in scenario.meta.get("checkpoints", {}).values():
            for kept in names.values():
                offsets = {(topic, int(number)): int(offset) for topic, number, offset in map(str.split, kept)}
                checkpoints.write_checkpoint(str(path), offsets)
                assert path.read_text(encoding="utf-8") == "\n".join(["0", str(len(kept)), *kept, ""])
                lines += len(kept)
    assert lines > 100
    offsets = {(f"t.{n}-x", rng.randrange(2**31)): rng.randrange(2**63) for n in range(50)}
    checkpoints.write_checkpoint(str(path), offsets)
    assert checkpoints.read_checkpoint(str(path)) == offsets
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    "text",
    ["1\n0\n", "0\n2\nt 0 5\n", "0\n1\nt 0\n", "0\n1\nt x 5\n", "0\n1\nt 0 99999999999999999999\n", "0\nx\n"],
)
def test_what_no_broker_wrote_is_as_if_it_were_missing(text: str, tmp_path: Path) -> None:
    path = tmp_path / "replication-offset-checkpoint"
    assert checkpoints.read_checkpoint(str(path)) is None
    path.write_text(text, encoding="utf-8")
    assert checkpoints.read_checkpoint(str(path)) is None


def test_a_file_that_cannot_be_replaced_stays_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "cleaner-offset-checkpoint"
    checkpoints.write_checkpoint(str(path), {("t", 0): 5})
    before = path.read_bytes()
    (tmp_path / "cleaner-offset-checkpoint.tmp").mkdir()
    with pytest.raises(LogStorageError, match="opening failed") as caught:
        checkpoints.write_checkpoint(str(path), {("t", 0): 6})
    assert caught.value.errno is not None
    assert path.read_bytes() == before
