"""KIP-33's earlier time index: one entry for each interval, in rising order."""

from __future__ import annotations

import random

import pytest
from support.sets.shallow_entries import MINUTE, T, messages, of_entries

import kts
from kts.proposals.bucket_index import BucketIndex
from kts.proposals.shallow import shallow_entries


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


def test_the_bucket_index_knows_without_reading_that_nothing_is_that_young() -> None:
    index = BucketIndex()
    index.create(0)
    index.add(0, messages(0, T, T + 30))
    assert [start.offset for start in index.starts(T + 30)] == [0]
    assert list(index.starts(T + 31)) == []
