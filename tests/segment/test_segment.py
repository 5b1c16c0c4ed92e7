"""One segment that is read: its bytes in slices, where its indexes lead, and what is known of closed ones."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from support.golden import Golden, golden_partitions
from support.reference import reference

import kts
from kts.codec.layout import SMALLEST_ENTRY_BYTES
from kts.segment.segment import Lookups, bools, closed_times, int64, rebase, segment_of_file, whole_entries

PARTITIONS = golden_partitions()


def test_slices_of_any_size_are_whole_entries_and_all_the_bytes(tmp_path: Path, rng: random.Random) -> None:
    parts = [kts.encode({"value": [b"x" * rng.choice([1, 50, 3000])]}, base_offset=i) for i in range(60)]
    ends = np.cumsum([0, *map(len, parts)]).tolist()
    path = tmp_path / f"{0:020}.log"
    path.write_bytes(b"".join(parts) + parts[0][:-1])  # and a cut tail, which is left out
    one = segment_of_file(str(path))
    for slice_bytes in (1, 100, 3500, 2**22):
        start, end = sorted(rng.choice(ends) for _ in "ab")
        at = start
        for position, data in one.slices(start, end, slice_bytes):
            assert position == at and position in ends and position + len(data) in ends
            at += len(data)
        assert at == end
        assert b"".join(data for _, data in one.slices(0, None, slice_bytes)) == b"".join(parts)


@pytest.mark.parametrize(("scenario", "name"), PARTITIONS[::2], ids=str)
def test_nothing_at_or_after_an_offset_lies_before_its_start_position(
    scenario: Golden, name: str, rng: random.Random
) -> None:
    for path in sorted(scenario.partition_dir(name).glob("*.log")):
        one = segment_of_file(str(path))
        found = reference.scan_batches(path.read_bytes())
        for row in rng.sample(found, min(len(found), 8)):
            start = one.start_position(row["lastOffset"])
            assert start in {other["position"] for other in found} and start <= row["position"]
            assert all(other["lastOffset"] < row["lastOffset"] for other in found if other["position"] < start)
        assert one.tail_position() in {0, *(row["position"] for row in found)}


@pytest.mark.parametrize(("scenario", "name"), PARTITIONS[1::2], ids=str)
def test_the_greatest_timestamps_of_closed_segments_are_those_of_their_records(scenario: Golden, name: str) -> None:
    segments = kts.open(scenario.partition_dir(name), log_start_offset=0).segments
    known = list(closed_times(segments, dict))
    assert len(known) == max(len(segments) - 1, 0)
    for segment, one in zip(segments, known, strict=False):
        rows = reference.scan_batches(Path(segment.path).read_bytes())
        assert one.lost is None
        if one.greatest_timestamp_ms is not None:
            assert one.greatest_timestamp_ms == max(row["maxTimestamp"] for row in rows)
            assert all(row["maxTimestamp"] < one.greatest_timestamp_ms for row in rows if row["position"] < one.start)


def test_an_entry_that_is_not_all_there_says_how_many_bytes_it_needs() -> None:
    one = kts.encode({"value": [b"x" * 100]})
    assert whole_entries(one + one) == (2 * len(one), SMALLEST_ENTRY_BYTES)
    assert whole_entries(one + one[:-1]) == (len(one), len(one))
    assert whole_entries(one[:40])[0] == 0
    assert whole_entries(one + b"\0" * 8 + b"\xff" * 30) == (len(one), 0)  # no more bytes would help


@pytest.mark.parametrize("compression", ["none", "gzip"])
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_a_file_of_any_name_begins_with_its_first_record(magic: int, compression: str, tmp_path: Path) -> None:
    path = tmp_path / "saved.bin"
    path.write_bytes(kts.encode({"value": [b"a", b"b"]}, magic=magic, base_offset=41, compression=compression))
    one = segment_of_file(str(path))
    assert (one.base_offset, one.indexed, one.time_index_path) == (41, False, None)


def test_columns_become_numbers_with_minus_one_for_null() -> None:
    data = kts.encode({"timestamp": [5, 7]}, magic=1, base_offset=9, compression="gzip")
    data += kts.encode({"timestamp": [-1]}, base_offset=11)
    found = kts.scan_batches(data)
    assert int64(found, "baseOffset").tolist() == [-1, 11]  # a wrapper's header does not say it
    assert int64(found, "maxTimestamp").tolist() == [7, -1]
    assert int64(found, "magic").tolist() == [1, 2]
    assert bools(found.slice(1), "crcOk").tolist() == [True]
    assert int64(rebase(found, 1000), "position").tolist() == [1000, 1000 + int64(found, "sizeInBytes")[0]]


def test_its_repr_reads_no_more_than_the_end_of_a_log_without_an_index(tmp_path: Path) -> None:
    value = b"v" * (2**20 + 1)
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(kts.encode({"timestamp": [1000, 2000], "value": [value, value]}))
    assert repr(segment_of_file(str(path))).endswith("first_time=..., last_time=...)")


def test_a_segment_that_was_truncated_and_filled_again_beside_a_reader_has_lost_nothing(tmp_path: Path) -> None:
    """The reader saw the log's end while it was shorter, and then the indexes and the next segment."""
    with kts.Log(tmp_path / "t-0", {"internal.segment.bytes": 2000, "index.interval.bytes": 1}) as log:
        for number in range(40):
            log.append_rows({"timestamp": [1000 + number], "value": [b"v" * 50]})
        closed, following = log.segments[0].path, log.segments[1].base_offset
    whole = Path(closed).read_bytes()
    segment = segment_of_file(closed)
    cut = kts.scan_batches(whole).column("position")[4].as_py()
    Path(closed).write_bytes(whole[:cut])
    lost = Lookups(segment).lost_end(following)
    assert lost is not None and "the end of the segment is missing" in str(lost)
    lookups = Lookups(segment)
    assert lookups.size == cut
    Path(closed).write_bytes(whole)
    assert lookups.lost_end(following) is None
