"""Damaged indexes after a clean stop: no answer changes, no append goes astray, nothing is lost."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest
from support.damage import index_damage
from support.damage.index_damage import DOORS, Right, Shape, Source
from support.golden import golden_partitions, scaled

import kts

MAGICS, CODECS, ORDERS, INTERVALS = (1, 2), ("none", "gzip"), ("rising", "near"), (0, 300, 4096)
DAMAGED = scaled(5, 40)  # files of each kind in each test


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> list[Source]:
    """A log of each magic, codec and order of times; one second for all."""
    folder, seed = tmp_path_factory.mktemp("sound"), int(os.environ["KTS_SEED"])
    made = []
    rng = random.Random(seed)
    shapes = [(magic, codec, order) for magic in MAGICS for codec in CODECS for order in ORDERS]
    for number, (magic, codec, order) in enumerate(shapes):
        interval = INTERVALS[(number + seed) % 3]
        shape = Shape(magic, codec, order, 600 if interval == 4096 else 200, interval, rng.choice((40, 40, 3000)))
        path = folder / f"sound-{number}" / "orders-0"
        index_damage.write(rng, path, shape)
        made.append(Source(path.parent, "orders-0", Right(path), shape.config))
    return made


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_a_damaged_index_changes_no_answer_of_a_log_that_kts_closed(
    suffix: str, sources: list[Source], tmp_path: Path, seed: int
) -> None:
    """Through every door: a quarter of a second each."""
    for number in range(DAMAGED):
        rng = random.Random(f"{seed} {suffix} {number}")
        source = sources[number % len(sources)]
        one = index_damage.damage(rng, source.root / source.partition, suffix)
        assert one is not None
        wrong = index_damage.check(source, one, tmp_path / "damaged", rng)
        assert wrong == {}, (number, source.root.name, str(one))


PLAIN = ("ct-", "lat-", "segments-", "order-", "roll-", "idempotent", "index-full", "recode", "compact-", "same-stamp")
FORMATS = {1: "0.10.2", 2: "3.0"}


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> list[Source]:
    """Directories that brokers of six releases closed, of plain records with times and at least two index entries."""
    found = []
    for scenario, partition in golden_partitions():
        logs = [path for path in scenario.logs(partition) if path.stat().st_size]
        whole = logs and int(logs[0].name[:20]) == scenario.log_start_offset(partition)
        entries = [path for path in scenario.partition_dir(partition).glob("*.index") if path.stat().st_size >= 16]
        magic = logs[0].read_bytes()[16] if logs else 0
        if not (scenario.name.startswith(PLAIN) and "txn" not in scenario.name and whole and entries and magic):
            continue
        root = tmp_path_factory.mktemp("broker")
        shutil.copytree(scenario.partition_dir(partition), root / partition)
        (root / index_damage.MARKER).write_bytes(b"")
        config: dict[str, object] = {"retention.ms": -1, "message.format.version": FORMATS[magic]}
        found.append(Source(root, partition, Right(root / partition), config))
    return found


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_a_damaged_index_changes_no_answer_of_a_log_that_a_broker_closed(
    suffix: str, brokers: list[Source], tmp_path: Path, seed: int
) -> None:
    """A fifth of a second each. Nobody noted what these indexes were, so that one that lost entries and tells the truth
    is not among them, nor one that tells of entries which the log may have lost: readers refuse that log."""
    assert len(brokers) > 20
    rng = random.Random(f"{seed} {suffix} brokers")
    left = DAMAGED
    while left:
        source = rng.choice(brokers)
        one = index_damage.damage(rng, source.root / source.partition, suffix)
        if one is None or one.tells_the_truth or tells_of_a_lost_end(source.root / source.partition, one):
            continue
        left -= 1
        doors = tuple(door for door in DOORS if door != "commands")  # of compacted wrappers `stats` counts too many
        wrong = index_damage.check(source, one, tmp_path / "damaged", rng, doors)
        assert wrong == {}, (left, source.root.name, source.partition, str(one))


def gap_after(partition: Path, base_offset: int) -> range:
    """The offsets between a segment's last entry and the next segment, which only the cleaner leaves out."""
    last = kts.scan_batches((partition / f"{base_offset:020}.log").read_bytes()).column("lastOffset")[-1].as_py()
    later = [base for path in partition.glob("*.log") if (base := int(path.name[:20])) > base_offset]
    return range(last + 1, min(later, default=last + 1))


def tells_of_a_lost_end(partition: Path, one: index_damage.Damage) -> bool:
    """Whether an entry that was added names an offset in such a gap."""
    if one.way != index_damage.append_an_entry.__name__ or one.after is None:
        return False
    base_offset, suffix = int(one.file[:20]), one.file[20:]
    offset = one.after[-8:-4] if suffix == ".index" else one.after[-4:]
    return base_offset + int.from_bytes(offset, "big") in gap_after(partition, base_offset)


def test_an_entry_in_a_gap_before_the_next_segment_tells_of_a_lost_end(brokers: list[Source], tmp_path: Path) -> None:
    """The log may have lost what the index names: no reader leaves that out in silence."""
    logs = [each.root / each.partition for each in brokers if each.partition.startswith("compact-")]
    partition, gap, index = next(
        (log, gap, path)
        for log in logs
        for path in sorted(log.glob("*.timeindex"))
        if path.stat().st_size and (gap := gap_after(log, int(path.name[:20])))
    )
    before = index.read_bytes()
    time, offset = int.from_bytes(before[-12:-4], "big") + 1, gap[0] - int(index.name[:20])
    after = before + time.to_bytes(8, "big") + offset.to_bytes(4, "big")
    assert tells_of_a_lost_end(partition, index_damage.Damage(index.name, "append_an_entry", before, after))
    copy = shutil.copytree(partition, tmp_path / partition.name)
    (copy / index.name).write_bytes(after)
    with pytest.raises(kts.CorruptRecordError, match=f"up to offset {gap[0]} at least, which {index.name} knows"):
        kts.scan(copy).read_all()


@pytest.mark.slow
def test_the_checker_sees_an_answer_that_is_wrong(sources: list[Source], tmp_path: Path, seed: int) -> None:
    """It is given answers of another log: every door differs."""
    one, other = sources[:2]
    untouched = sorted((one.root / one.partition).glob("*.index"))[0]
    damage = index_damage.Damage(untouched.name, "none", untouched.read_bytes(), untouched.read_bytes())
    assert index_damage.check(one, damage, tmp_path / "copy", random.Random(seed)) == {}
    mixed = Source(one.root, one.partition, other.right, one.config)
    assert set(index_damage.check(mixed, damage, tmp_path / "copy", random.Random(seed))) == set(DOORS)
