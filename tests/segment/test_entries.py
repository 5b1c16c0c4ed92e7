"""Shallow entries of a file: from their headers a few at a time, or slice by slice as arrays."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from support.golden import golden_partitions
from support.reference import reference

import kts
from kts.behaviour import Behaviour
from kts.errors import CorruptRecordError
from kts.segment.entries import Slices, decoded_by, greatest_timestamp, shallow_entries
from kts.store.local import File

LOGS = [log for scenario, name in golden_partitions() for log in sorted(scenario.partition_dir(name).glob("*.log"))]


def written(tmp_path: Path, data: bytes) -> File:
    path = tmp_path / f"{0:020}.log"
    path.write_bytes(data)
    return File(str(path))


def test_both_ways_give_the_entries_of_kafkas_logs(rng: random.Random) -> None:
    for path in rng.sample(LOGS, 30):
        data = path.read_bytes()
        expected = [(at, size) for at, size, _ in reference.entries(data)]
        with File(str(path)) as file:
            one_by_one = list(shallow_entries(file, 0, len(data), path=str(path)))
            assert [(entry.position, entry.size) for entry in one_by_one] == expected
            assert [entry.last_offset for entry in one_by_one] == [
                row["lastOffset"] for row in reference.scan_batches(data)
            ]
            slices = Slices(file, 0, len(data), first_bytes=rng.choice([64, 1000, 2**22]))
            at_once = [
                pair
                for part in slices
                for pair in zip(part.column("position").tolist(), part.column("size").tolist(), strict=True)
            ]
        assert at_once == expected and slices.reason is None
        assert slices.position == (sum(expected[-1]) if expected else 0)


@pytest.mark.parametrize(("generation", "least"), [("0.10.2", 12), ("3.9", 17)])
def test_so_many_bytes_must_be_left_for_an_entry_to_be_looked_at(generation: str, least: int, tmp_path: Path) -> None:
    """A size that cannot be is an error only where Kafka reads it; a shorter tail is a dead writer's."""
    whole = kts.encode({"value": [b"x"]})
    tail = bytes(8) + (5).to_bytes(4, "big") + bytes(20)
    with written(tmp_path, whole + tail) as file:
        assert len(list(shallow_entries(file, 0, len(whole) + least, Behaviour.of(generation)))) == 1
        with pytest.raises(CorruptRecordError) as error:
            list(shallow_entries(file, 0, len(whole) + least + 1, Behaviour.of(generation), "a.log"))
        assert error.value.position == len(whole) and error.value.path == "a.log"


def test_a_cut_tail_is_left_out_and_slices_say_why(tmp_path: Path) -> None:
    parts = [kts.encode({"value": [b"x" * 50]}, base_offset=i) for i in range(5)]
    data = b"".join(parts)
    for lost in (1, 40, len(parts[4]) - 20):
        with written(tmp_path, data[:-lost]) as file:
            assert len(list(shallow_entries(file, 0, len(data) - lost))) == 4
            slices = Slices(file, 0, len(data) - lost)
            assert sum(len(part) for part in slices) == 4
            assert slices.position == len(data) - len(parts[4])
            assert slices.reason == f"an entry of {len(parts[4])} bytes is cut, {len(parts[4]) - lost} bytes are left"


def test_slices_give_all_before_damage_and_name_zeros(tmp_path: Path) -> None:
    whole = kts.encode({"value": [b"x"]})
    for behind, says in ((bytes(100), "zeros after the last entry"), (b"\xff" * 100, "size")):
        with written(tmp_path, whole + behind) as file:
            slices = Slices(file, 0, file.size())
            assert [len(part) for part in slices] == [1]
            assert slices.position == len(whole) and says in (slices.reason or "")


def test_the_oldest_clients_inner_offsets_are_taken_as_0_10_2_takes_them() -> None:
    wrapper = kts.encode({"timestamp": [5, 9, 7]}, magic=1, base_offset=40, compression="gzip")
    for generation in ("0.10.2", "3.9"):
        offsets, timestamps = decoded_by(wrapper, Behaviour.of(generation, shipped=True))
        assert offsets.tolist() == [40, 41, 42] and timestamps.tolist() == [5, 9, 7]
    below = (1).to_bytes(8, "big") + wrapper[8:]  # the wrapper's offset lies below that of its third message
    assert decoded_by(below, Behaviour.of("0.10.2", shipped=True))[0].tolist() == [0, 1, 2]
    with pytest.raises(CorruptRecordError, match="below the last inner offset 2"):
        decoded_by(below, Behaviour.of("3.9", shipped=True))


def test_minus_one_is_no_time_but_any_other_number_is() -> None:
    assert greatest_timestamp(np.array([-1, -7, -3])) == -3
    assert greatest_timestamp(np.array([-1, -1])) is None
    assert greatest_timestamp(np.array([], np.int64)) is None
