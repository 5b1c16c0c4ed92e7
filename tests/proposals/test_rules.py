"""The proposals' rules by themselves: what they store for which appends, and what they promise a reader."""

from __future__ import annotations

import random
import struct

import numpy as np
import pytest

import kts
from kts.errors import CorruptIndexError
from kts.proposals import made
from kts.proposals.bucket_index import BucketIndex
from kts.proposals.index import IndexEntries
from kts.proposals.minute_map import MinuteMap
from kts.proposals.rolling import EarliestTimestamp, LargestTimestamp, WallClock
from kts.proposals.shallow import Shallow, floored, record_timestamps, shallow_entries

MINUTE = 60_000
T = 1_500_000_000_000 // MINUTE * MINUTE  # the start of a minute
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1


def messages(first_offset: int, *timestamps: int) -> Shallow:
    """Plain messages of magic 1, encoded and looked at as they would be in a log."""
    data = kts.encode({"timestamp": np.array(timestamps)}, magic=1, base_offset=first_offset)
    return shallow_entries(data, first_offset)


def of_entries(first_offset: int, timestamps: list[int]) -> Shallow:
    offsets = np.arange(first_offset, first_offset + len(timestamps))
    return Shallow(offsets, offsets, np.array(timestamps, np.int64))


# --- shallow entries ------------------------------------------------------------------------------


def test_shallow_entries_are_the_batches_and_wrappers_of_the_bytes() -> None:
    plain = kts.encode({"timestamp": np.array([T, T + 7])}, magic=1, base_offset=10)
    wrapper = kts.encode({"timestamp": np.array([T + 9, T + 3])}, magic=1, base_offset=12, compression="gzip")
    batch = kts.encode({"timestamp": np.array([T + 1, T + 8, T])}, magic=2, base_offset=14)
    none = kts.encode({"value": [b"x"]}, magic=0, base_offset=17)
    shallow = shallow_entries(plain + wrapper + batch + none, 10)
    assert shallow.first_offsets.tolist() == [10, 11, 12, 14, 17]
    assert shallow.last_offsets.tolist() == [10, 11, 13, 16, 17]
    assert shallow.timestamps.tolist() == [T, T + 7, T + 9, T + 8, -1]


def test_the_first_offset_of_a_leading_wrapper_is_the_one_that_is_given() -> None:
    wrapper = kts.encode({"timestamp": np.array([T, T])}, magic=1, base_offset=5, compression="gzip")
    assert shallow_entries(wrapper, 5).first_offsets.tolist() == [5]
    assert [len(column) for column in shallow_entries(b"", 5)] == [0, 0, 0]


@pytest.mark.parametrize("step", [1, 7, MINUTE, INT64_MAX])
def test_times_are_rounded_down_as_python_does_within_64_bits(step: int) -> None:
    times = [INT64_MIN, INT64_MIN + 1, -MINUTE - 1, -MINUTE, -1, 0, 1, MINUTE - 1, MINUTE, INT64_MAX]
    expected = [max(time // step * step, INT64_MIN) for time in times]
    assert floored(np.array(times), step).tolist() == expected


def test_times_that_a_header_hides_count_where_negative_ones_are_allowed() -> None:
    data = kts.encode({"timestamp": np.array([-9, -5, -7])}) + kts.encode({"timestamp": np.array([-1])}, base_offset=3)
    assert shallow_entries(data, 0).timestamps.tolist() == [-1, -1]
    assert shallow_entries(data, 0, allow_negative=True).timestamps.tolist() == [-5, -1]


# --- the file's entries ---------------------------------------------------------------------------


def test_entries_lie_in_the_file_as_the_kip_says() -> None:
    entries = IndexEntries(100)
    entries.extend([T, T + MINUTE], [100, 103])
    assert entries.to_bytes() == struct.pack(">qiqi", T, 0, T + MINUTE, 3)
    assert entries.to_bytes(1) == struct.pack(">qi", T + MINUTE, 3)
    assert IndexEntries.of_bytes(entries.to_bytes(), 100).pairs() == [(T, 100), (T + MINUTE, 103)]


@pytest.mark.parametrize(
    "data", [b"\0" * 13, struct.pack(">qi", T, -1), struct.pack(">qiqi", T, 3, T + 1, 2)], ids=["cut", "below", "falls"]
)
def test_entries_that_cannot_be_are_refused(data: bytes) -> None:
    with pytest.raises(CorruptIndexError, match="expected"):
        IndexEntries.of_bytes(data, 100)


def test_an_offset_beyond_the_relative_range_is_refused_and_nothing_is_added() -> None:
    entries = IndexEntries(0)
    with pytest.raises(CorruptIndexError, match="offset 2147483648: expected 5 to 2147483647"):
        entries.extend([T, T], [5, 2**31])
    assert len(entries) == 0


def test_truncation_removes_entries_at_the_offset_and_behind() -> None:
    entries = IndexEntries(0)
    entries.extend([1, 2, 3], [5, 7, 9])
    assert not entries.truncate(10)
    assert entries.truncate(7)
    assert entries.pairs() == [(1, 5)]


# --- KIP-33's earlier time index --------------------------------------------------------------------


def test_a_bucket_gets_one_entry_with_its_start_and_its_first_offset() -> None:
    index = BucketIndex()
    index.create(0)
    index.add(0, messages(0, T + 5, T + 50, T + MINUTE + 1, T + MINUTE, T + 59_999, T + 3 * MINUTE))
    # The minute in which nothing was appended has no entry, and a late message makes none.
    assert index.segments[0].pairs() == [(T, 0), (T + MINUTE, 2), (T + 3 * MINUTE, 5)]


def test_appended_in_pieces_the_entries_are_the_same(rng: random.Random) -> None:
    times = [T + rng.randrange(20 * MINUTE) for _ in range(200)]
    whole, pieces = BucketIndex(1000), BucketIndex(1000)
    whole.create(0)
    pieces.create(0)
    whole.add(0, of_entries(0, times))
    at = 0
    while at < len(times):
        count = rng.randrange(1, 20)
        pieces.add(0, of_entries(at, times[at : at + count]))
        at += count
    assert whole.segments[0].pairs() == pieces.segments[0].pairs()
    best = -1
    expected = []
    for offset, time in enumerate(times):
        if time // 1000 > best:
            best = time // 1000
            expected.append((best * 1000, offset))
    assert whole.segments[0].pairs() == expected


def test_a_segment_of_older_messages_only_has_an_empty_index() -> None:
    index = BucketIndex()
    index.create(0)
    index.add(0, messages(0, T + MINUTE))
    index.close(0, 0)
    index.create(1)
    index.add(1, messages(1, T + MINUTE + 1, T, T - MINUTE))
    assert len(index.segments[1]) == 0


def test_the_closing_entry_is_the_largest_timestamp_if_the_closed_segment_has_it() -> None:
    index = BucketIndex()
    index.create(0)
    index.add(0, messages(0, T + 1, T + 70, T + 60, T + 70))
    index.close(0, 0)
    assert index.segments[0].pairs() == [(T, 0), (T + 70, 1)]
    index.create(4)
    index.add(4, messages(4, T + 69))
    index.close(4, 0)
    assert len(index.segments[4]) == 0
    index.create(5)
    index.add(5, messages(5, T + 80, T + MINUTE - 1))  # larger than ever, but in a bucket that is known
    assert len(index.segments[5]) == 0
    index.close(5, 0)
    assert index.segments[5].pairs() == [(T + MINUTE - 1, 6)]


def test_a_largest_timestamp_on_a_bucket_s_start_is_not_stored_twice() -> None:
    index = BucketIndex()
    index.create(0)
    index.add(0, messages(0, T))
    index.close(0, 0)
    assert index.segments[0].pairs() == [(T, 0)]


def test_a_segment_without_timestamps_is_closed_with_its_file_s_time_and_its_last_offset() -> None:
    index = BucketIndex()
    index.create(0)
    index.add(0, shallow_entries(kts.encode({"value": [b"a", b"b", b"c"]}, magic=0), 0))
    index.close(0, T)
    assert index.segments[0].pairs() == [(T, 2)]
    index.create(3)
    index.add(3, messages(3, -1, -1))
    index.close(3, T - 1)  # entries rise over all segments
    assert len(index.segments[3]) == 0
    index.create(5)
    index.close(5, T + 5)  # and an empty segment has nothing to point to
    assert len(index.segments[5]) == 0


def test_no_entry_is_made_below_the_largest_timestamp_after_the_segment_that_had_it_is_gone() -> None:
    index = BucketIndex()
    index.create(0)
    index.add(0, messages(0, T + 9 * MINUTE))
    index.close(0, 0)
    index.create(1)
    index.add(1, messages(1, T + 5 * MINUTE))
    index.remove(0)
    index.add(1, messages(2, T + 3 * MINUTE, T + 6 * MINUTE))
    assert index.segments[1].pairs() == [(T + 6 * MINUTE, 3)]


def test_an_interval_that_is_no_length_of_time_is_refused() -> None:
    with pytest.raises(ValueError, match=r"time\.index\.interval\.ms: expected 1 or more, found 0"):
        BucketIndex(0)


# --- KIP-33's minute map ----------------------------------------------------------------------------


def test_each_minute_has_its_first_offset_also_a_late_one() -> None:
    index = MinuteMap()
    index.create(0)
    index.add(0, messages(0, T + 5, T + 2 * MINUTE, T + 6))
    index.add(0, messages(3, T + MINUTE, T + 2 * MINUTE + 7, -1, T - 1))
    expected = [(T, 0), (T + 2 * MINUTE, 1), (T + MINUTE, 3), (T - MINUTE, 6)]
    assert index.segments[0].pairs() == expected


def test_each_segment_has_a_map_of_its_own_which_goes_with_it() -> None:
    index = MinuteMap()
    for base in (0, 1):
        index.create(base)
        index.add(base, messages(base, T))
    assert {base: entries.pairs() for base, entries in index.segments.items()} == {0: [(T, 0)], 1: [(T, 1)]}
    index.remove(0)
    assert list(index.segments) == [1]
    assert [start.offset for start in index.starts(T)] == [1]


# --- what both promise ------------------------------------------------------------------------------


@pytest.mark.parametrize("allow_negative", [False, True])
@pytest.mark.parametrize("kind", [BucketIndex, MinuteMap])
def test_nothing_that_is_left_out_is_at_or_after_the_target(
    kind: type[BucketIndex | MinuteMap], allow_negative: bool, rng: random.Random
) -> None:
    for _ in range(60):
        index = kind(allow_negative=allow_negative)
        log: dict[int, list[tuple[int, int]]] = {}
        offset = 0
        low = -20 * MINUTE if allow_negative else 0
        for _ in range(rng.randrange(1, 6)):
            base = offset
            index.create(base)
            log[base] = []
            for _ in range(rng.randrange(8)):
                times = [rng.choice([-1, low + rng.randrange(40 * MINUTE)]) for _ in range(rng.randrange(1, 5))]
                log[base] += [(time, offset + i) for i, time in enumerate(times)]
                index.add(base, of_entries(offset, times))
                offset += len(times)
            index.close(base, rng.randrange(40 * MINUTE))
            offset = max(offset, base + 1)
        if rng.random() < 0.3:
            gone = next(iter(log))
            index.remove(gone)
            del log[gone]
        for _ in range(30):
            target = low + rng.randrange(-5, 42 * MINUTE) if rng.random() < 0.9 else rng.choice([INT64_MIN, INT64_MAX])
            starts = {start.base_offset: start.offset for start in index.starts(target)}
            first = min(starts, default=None)
            for base, records in log.items():
                for time, place in records:
                    if time >= target and (time != -1 or not allow_negative):
                        assert first is not None and base in starts, (target, time, place)
                        assert starts[base] <= place, (target, time, place, starts)


def test_the_minute_map_reads_from_the_very_entry_where_a_later_minute_comes_first() -> None:
    index = MinuteMap()
    index.create(0)
    index.add(0, messages(0, T, T + 3 * MINUTE, T + MINUTE))
    assert [start.offset for start in index.starts(T + MINUTE + 5)] == [1]
    assert list(index.starts(T + 4 * MINUTE)) == []


def test_the_bucket_index_knows_without_reading_that_nothing_is_that_young() -> None:
    index = BucketIndex()
    index.create(0)
    index.add(0, messages(0, T, T + 30))
    assert [start.offset for start in index.starts(T + 30)] == [0]
    assert list(index.starts(T + 31)) == []


# --- rolling ----------------------------------------------------------------------------------------


def test_the_wall_clock_rolls_by_creation_whatever_the_messages_say() -> None:
    assert WallClock().due(T + 1000, T, 1000) is None
    assert WallClock().due(T + 1001, T, 1000) == "created 1001 ms ago, over 1000 ms"


def test_the_largest_timestamp_rolls_when_nothing_young_was_appended() -> None:
    rule = LargestTimestamp()
    rule.observe(np.array([T, T + 50, T + 20, -1]))
    assert rule.due(T + 1050, 0, 1000) is None  # however long ago the segment was made
    assert rule.due(T + 1051, T + 1051, 1000) == f"largest timestamp {T + 50} is 1001 ms old, over 1000 ms"
    rule.observe(np.array([T + 1051]))
    assert rule.due(T + 1051, 0, 1000) is None


def test_a_log_filled_with_old_messages_rolls_at_each_append_by_the_largest_timestamp() -> None:
    rule = LargestTimestamp()
    for day in range(5):
        rule.observe(np.array([T + day * 1000]))
        assert rule.due(T + 10**9, T + 10**9, 1000) is not None


def test_a_timestamp_from_the_future_keeps_the_segment_from_rolling() -> None:
    rule = LargestTimestamp()
    rule.observe(np.array([INT64_MAX]))
    assert rule.due(T, 0, 1000) is None


def test_without_a_timestamp_both_rules_go_by_creation() -> None:
    for rule in (LargestTimestamp(), EarliestTimestamp()):
        rule.observe(np.array([-1, -1]))
        assert rule.due(T + 1000, T, 1000) is None
        assert rule.due(T + 1001, T, 1000) == "created 1001 ms ago, over 1000 ms"


def test_the_earliest_timestamp_rolls_by_the_oldest_record_of_the_segment() -> None:
    rule = EarliestTimestamp()
    rule.observe(np.array([T + 500, T, T + 900]))
    assert rule.due(T + 1000, 0, 1000) is None
    assert rule.due(T + 1001, 0, 1000) == f"earliest timestamp {T} is 1001 ms old, over 1000 ms"
    rule.rolled(None, 0, 5)  # type: ignore[arg-type]
    assert rule.timestamp_ms is None


@pytest.mark.parametrize("rule", [LargestTimestamp, EarliestTimestamp])
def test_negative_times_count_where_they_are_allowed(rule: type[LargestTimestamp | EarliestTimestamp]) -> None:
    off, on = rule(), rule(allow_negative=True)
    for one in (off, on):
        one.observe(np.array([-5000, -1]))
    assert off.due(-3999, -3999, 1000) is None
    assert on.due(-4000, -4000, 1000) is None
    assert on.due(-3999, -3999, 1000) is not None


def test_the_timestamps_of_records_are_read_through_compression_and_log_append_time() -> None:
    times = {"timestamp": np.array([T, T - 5])}
    assert record_timestamps(kts.encode(times, compression="gzip")).tolist() == [T, T - 5]
    stamped = kts.encode(times, timestamp_type="LogAppendTime", log_append_time_ms=T + 9)
    assert record_timestamps(stamped).tolist() == [T + 9, T + 9]


# --- their names ------------------------------------------------------------------------------------


def test_wrong_names_and_contradicting_rules_are_refused(tmp_path: object) -> None:
    log = kts.PartitionLog(str(tmp_path), "t", 0)
    with pytest.raises(ValueError, match="'buckets' is unknown; there are wall-clock, largest-timestamp"):
        made(("buckets",), log)
    with pytest.raises(ValueError, match="one rule for rolling at most, found wall-clock, largest-timestamp"):
        made(("wall-clock", "largest-timestamp"), log)
    with pytest.raises(ValueError, match="expected each once"):
        made(("minute-map", "minute-map"), log)
    with pytest.raises(TypeError, match="found the string 'minute-map'"):
        made("minute-map", log)
    assert made((), log) is None
