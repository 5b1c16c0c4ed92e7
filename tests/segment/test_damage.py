"""Where a log goes on after damage, and what looking for that may cost."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from support.sets.partitions import flip, offsets

import kts
from kts.errors import CorruptRecordError
from kts.offline.verify import verify
from kts.segment.damage import SearchBudget, header_scan, next_sound_entry
from kts.segment.search import offset_for_timestamp
from kts.segment.segment import Segment, segment_of_file
from kts.segment.transactions import last_stable_offset, log_end_offset
from kts.store.local import File


def segment(tmp_path: Path, *parts: bytes) -> Segment:
    path = tmp_path / f"{0:020}.log"
    path.write_bytes(b"".join(parts))
    return segment_of_file(str(path))


def batches(count: int, value: bytes = b"v" * 40) -> list[bytes]:
    return [kts.encode({"value": [value]}, base_offset=offset) for offset in range(count)]


def found(one: Segment, position: int, expected_offset: int = 0) -> int | None:
    return next_sound_entry(one, position, one.size_bytes, expected_offset)


def test_behind_a_damaged_entry_the_log_goes_on_where_its_size_says(tmp_path: Path) -> None:
    parts = batches(4)
    one = segment(tmp_path, *parts)
    flip(Path(one.path), len(parts[0]) + 70)
    assert found(one, len(parts[0])) == 2 * len(parts[0])


def test_a_size_that_hides_sound_entries_is_not_believed(tmp_path: Path) -> None:
    parts = batches(5)
    size = len(parts[0])
    lying = parts[1][:8] + struct.pack(">i", 3 * size - 12) + parts[1][12:]
    one = segment(tmp_path, parts[0], lying, *parts[2:])
    assert found(one, size) == 2 * size


def test_a_whole_record_set_in_a_value_is_no_place_to_go_on(tmp_path: Path) -> None:
    inner = kts.encode({"value": [b"inner"]}, base_offset=7)
    parts = [batches(1)[0], kts.encode({"value": [inner]}, base_offset=1), *batches(4)[2:]]
    one = segment(tmp_path, *parts)
    flip(Path(one.path), len(parts[0]) + 17)  # the CRC of the batch that holds it
    assert found(one, len(parts[0])) == len(parts[0]) + len(parts[1])


def test_no_entry_below_the_expected_offset_is_believed(tmp_path: Path) -> None:
    parts = batches(6)
    size = len(parts[0])
    one = segment(tmp_path, parts[0], b"\xff" * 30, *parts[1:])
    assert found(one, size, expected_offset=1) == size + 30
    assert found(one, size, expected_offset=3) == size + 30 + 2 * size
    assert found(one, size, expected_offset=6) is None


def test_scans_go_on_behind_damage_only_when_asked(tmp_path: Path) -> None:
    parts = batches(6)
    one = segment(tmp_path, *parts[:2], b"\xff" * 50, *parts[3:])
    bases = [offset for found in header_scan(one, 0, 0, True) for offset in found.column("base_offset").tolist()]
    assert bases == [0, 1, 3, 4, 5]
    with pytest.raises(CorruptRecordError) as error:
        list(header_scan(one, 0, 0, False))
    assert error.value.position == 2 * len(parts[0])


def test_scans_go_on_behind_an_offset_that_leaps(tmp_path: Path) -> None:
    """No CRC covers offsets: one that is wrong hides no entry behind later damage."""
    parts = batches(6)
    one = segment(tmp_path, parts[0], (99).to_bytes(8, "big") + parts[1][8:], parts[2], b"\xff" * 50, *parts[4:])
    bases = [offset for found in header_scan(one, 0, 0, True) for offset in found.column("base_offset").tolist()]
    assert bases == [0, 99, 2, 4, 5]


@pytest.mark.parametrize("covered", [3, 4, 9])
def test_a_wrong_size_hides_nothing_from_a_query(covered: int, tmp_path: Path) -> None:
    """A size that covers sound entries, up to another one, to the end of the file, or beyond: damage, no cut tail."""
    parts = [kts.encode({"value": [b"v" * 40], "timestamp": [1000 + offset]}, base_offset=offset) for offset in (0, 1)]
    producer = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
    for offset in (2, 3, 4):
        row = {"value": [b"v" * 40], "timestamp": [1000 + offset]}
        parts.append(kts.encode(row, base_offset=offset, **(producer if offset == 3 else {})))
    size = len(parts[0])
    parts[1] = parts[1][:8] + struct.pack(">i", covered * size - 12) + parts[1][12:]
    (tmp_path / "t-0").mkdir()
    segment(tmp_path / "t-0", *parts)
    log = kts.open_partition(tmp_path / "t-0")
    assert log_end_offset(log, skip_damage=True) == 5
    assert last_stable_offset(log, skip_damage=True) == 3
    found = offset_for_timestamp(log, 1004, skip_damage=True)
    assert found is not None and found.offset == 4
    queries: list[Callable[[], object]] = [lambda: offset_for_timestamp(log, 1004), log.max_timestamp]
    if covered == 9:  # otherwise who reads the batch tells its CRC
        queries += [lambda: log_end_offset(log), lambda: last_stable_offset(log)]
    for query in queries:
        with pytest.raises(CorruptRecordError) as error:
            query()
        assert error.value.position == size


def hostile(kind: str) -> bytes:
    header = struct.pack(">qiibI", 0, 1 << 20, 0, 2, 0) + struct.pack(">hiqqqhii", 0, 0, 5, 5, -1, -1, -1, 1)
    message = struct.pack(">qi", 0, 1 << 19) + bytes(6) + b"\xff" * 8
    return {
        "zeros": bytes(8 << 20),
        "ones": b"\xff" * (8 << 20),
        "noise": random.Random(5).randbytes(8 << 20),
        "batches that claim much": header * ((2 << 20) // len(header)),
        "messages that claim much": message * ((2 << 20) // len(message)),
    }[kind]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["zeros", "ones", "noise", "batches that claim much", "messages that claim much"])
def test_no_damage_costs_more_than_a_few_times_its_length(kind: str, tmp_path: Path) -> None:
    """Megabytes of it, each claim of which would cost a CRC of a megabyte: the bytes that are checked are counted."""
    damage = hostile(kind)
    one = segment(tmp_path, damage, kts.encode({"value": [b"ok"]}, base_offset=7))
    budget = SearchBudget()
    assert next_sound_entry(one, 0, one.size_bytes, 0, budget) == len(damage)
    assert budget.spent <= 2**24 + 8 * one.size_bytes
    with pytest.warns(UserWarning):
        assert offsets(one.path, on_error="skip") == [7]
    assert list(verify(one.path))


@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_offsets_beyond_the_last_one_end_no_scan_in_a_foreign_error(on_error: str, tmp_path: Path) -> None:
    """No CRC covers the base offset: a record after 2^63-1 has the least offset."""
    (tmp_path / "t-0").mkdir()
    data = bytearray(kts.encode({"value": [b"a", b"b"]}))
    data[:8] = struct.pack(">q", 2**63 - 1)
    (tmp_path / "t-0" / f"{0:020}.log").write_bytes(data + kts.encode({"value": [b"c"]}, base_offset=2))
    read = kts.scan(tmp_path / "t-0", columns=["value"], on_error=on_error)
    assert read.read_all()["value"].to_pylist() == [b"c"], "the others are told, as offsets that are not in order"


def test_what_lies_between_damage_and_bytes_that_cannot_be_read_is_found(tmp_path: Path) -> None:
    """Both are in one slice: the first one is told, and reading goes on behind it."""
    parts = [kts.encode({"value": [b"x" * 50]}, base_offset=offset) for offset in range(10)]
    size, data = len(parts[0]), bytearray(b"".join(parts))
    data[3 * size + 8 : 3 * size + 12] = (3).to_bytes(4, "big")
    path = tmp_path / f"{0:020}.log"
    path.write_bytes(data)
    hole = 5 * size + 10, 6 * size

    class Holed(File):
        def read(self, position: int, count: int) -> bytes:
            if position < hole[1] and position + count > hole[0]:
                raise CorruptRecordError("these bytes cannot be read", position=max(position, hole[0]))
            return super().read(position, count)

        def read_into(self, memory: memoryview, position: int) -> int:
            found = self.read(position, len(memory))
            memory[: len(found)] = found
            return len(found)

    segment = Segment(str(path), "t", 0, 0)
    with Holed(str(path)) as file:
        scan = header_scan(segment, 0, 0, True, file=file)
        found = [offset for batches in scan for offset in batches.column("last_offset").tolist()]
        assert found == [0, 1, 2, 4, 6, 7, 8, 9]
        with pytest.raises(CorruptRecordError, match="size 3 is below") as raised:
            list(header_scan(segment, 0, 0, False, file=file))
        assert raised.value.position == 3 * size
